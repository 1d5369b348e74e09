// Package gate decides before something starts whether it may: from what it will cost,
// the budgets and quotas that it falls under, and who approved it.
package gate

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Ask is what a person or a program wants to start, with its estimate.
type Ask struct {
	// Kind is "job", "session", "plan"; Name is what people call it.
	Kind, Name string
	// SpecHash is the hash of exactly what would be started.
	SpecHash string
	Owner    inventory.Owner
	Purpose  inventory.Purpose
	// P50 and P95 are what it will cost in all, Hourly what an hour of it does.
	P50, P95, Hourly money.Amount
	// GPUs are accelerators by type, Machines how many machines at once.
	GPUs     map[string]int
	Machines int
	// MaxRuntime is the longest that it runs, or is expected to where nothing ends it: it
	// is held for that long. Zero is not known.
	MaxRuntime time.Duration
	AskedBy    string
	// AskedProof is how whoever asks was identified.
	AskedProof approval.Proof
	// Unknown is what costs money and could not be estimated, such as data of an unknown
	// size; it needs an approval. What has no known price has no estimate at all.
	Unknown []string
	// Key names the run: it has one open request and one live hold. Asking again for the
	// same spec answers with them; an edited spec replaces them while nothing has been
	// charged. Without a key each admission is a run of its own.
	Key string
	// Costs are the lines of the estimate, for whoever approves it.
	Costs []approval.Cost
	// Instead are other machines on which the same can run, the cheapest first.
	Instead []Alternative
}

// Alternative is another machine for an ask, with what it costs there.
type Alternative struct {
	// What people call it: "1 × g5.xlarge spot in us-west-2".
	What             string
	P50, P95, Hourly money.Amount
	GPUs             map[string]int
	Machines         int
}

// Verdict is the answer. The zero Verdict is no answer, and not allow.
type Verdict string

// The verdicts, from the least to the most severe.
const (
	Allow  Verdict = "allow"
	Held   Verdict = "ask"
	Denied Verdict = "deny"
)

// Params is what a decision stands on.
type Params struct {
	Desk    approval.Desk
	Budgets budget.Desk
	// Store keeps what was decided.
	Store Store
	// Threshold is the P95 over which a run needs an approval; the zero Threshold asks
	// for everything that costs anything. DefaultThreshold is usual.
	Threshold money.Amount
	// Roles of which an approver has to have one; empty means approval.DefaultRole.
	Roles []string
	// Expiry is how long a request stands; zero means approval.DefaultExpiry.
	Expiry time.Duration
	Now    time.Time
	// DryRun decides and writes nothing: no hold, no request, no record.
	DryRun bool
	// AskedProof is how whoever asks for an extension was identified.
	AskedProof approval.Proof
	// Settings names the configuration that these come from, for the record.
	Settings string
	// Transact carries out do on the stores of one transaction: what do writes there is
	// kept as a whole or not at all. It may call do again after it took back what was
	// written, and do makes no call over a network.
	Transact func(ctx context.Context, do func(Stores) error) error
}

// Stores are what a decision writes to.
type Stores struct {
	Approvals approval.Store
	Budgets   budget.Store
	Decisions Store
}

// DefaultThreshold is the P95 over which a run needs an approval by default: the gate is
// for outliers, not for everyday experiments.
const DefaultThreshold = 100 * money.USD

// Decision is the answer with its reasons, as curfew.gate/v1 shows it with the
// estimate.
type Decision struct {
	Decision Verdict  `json:"decision"`
	Reasons  []string `json:"reasons"`
	// Budget are the budgets that the run counts against, before and after it.
	Budget []Line `json:"budget"`
	// ApprovalID is the request that waits, or that was used up.
	ApprovalID string `json:"approval_id,omitempty"`
	// HoldID is what was reserved; a machine started under it carries it in the tag
	// inventory.TagHold. Only where the decision is allow.
	HoldID string `json:"hold_id,omitempty"`
	// WouldPass says after a denial what passes instead.
	WouldPass []Way `json:"would_pass,omitempty"`
	// Unused are live holds for exactly the same work, under which nothing was charged.
	Unused []string `json:"unused_holds,omitempty"`
}

// Line is one window of a budget before and after a run.
type Line struct {
	Budget string        `json:"budget"`
	Window budget.Window `json:"window"`
	Amount money.Amount  `json:"amount_usd"`
	Used   money.Amount  `json:"used_usd"`
	Held   money.Amount  `json:"held_usd"`
	// Unknown is what unpriced charges come to at most.
	Unknown money.Amount `json:"unknown_usd"`
	Asked   money.Amount `json:"asked_usd"`
	// LeftBefore and LeftAfter are what is left for others; negative where overdrawn.
	LeftBefore money.Amount `json:"left_before_usd"`
	LeftAfter  money.Amount `json:"left_after_usd"`
	State      budget.State `json:"state"`
}

// Record is a decision as it is kept.
type Record struct {
	// ID is the hold's where the decision is allow, the approval's where it is ask, and
	// otherwise a hash of what was denied and when.
	ID         string
	At         time.Time
	Kind, Name string
	PlanHash   string
	AskedBy    string
	Owner      inventory.Owner
	Purpose    inventory.Purpose
	Decision   Verdict
	Amount     money.Amount
	ApprovalID string
	HoldID     string
	Reasons    []string
	// Settings names the configuration that decided: "shared 3 (sha256 ab12…)".
	Settings string
}

// Store keeps decisions. The implementation is in internal/store.
type Store interface {
	// PutDecision writes a record; one with the same ID is replaced as a whole.
	PutDecision(ctx context.Context, r Record) error
	// Decisions returns those whose At is in [from, to), oldest first and by id within
	// one instant.
	Decisions(ctx context.Context, from, to time.Time) ([]Record, error)
}
