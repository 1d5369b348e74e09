// Package gate decides whether something may start, from its estimated cost, the budgets and quotas
// that cover it, and its approvals.
package gate

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Ask is a request to start something, with its estimate.
type Ask struct {
	// Kind is "job", "session" or "plan"; Name is for people.
	Kind, Name string
	// SpecHash is the hash of what would be started.
	SpecHash string
	Owner    inventory.Owner
	Purpose  inventory.Purpose
	// P50 and P95 are the total estimated cost, Hourly the cost per hour.
	P50, P95, Hourly money.Amount
	// GPUs counts accelerators by type, Machines concurrent machines.
	GPUs     map[string]int
	Machines int
	// MaxRuntime is the longest, or without a limit the expected, runtime, for which the hold
	// lasts; zero if unknown.
	MaxRuntime time.Duration
	AskedBy    string
	// AskedProof is the proof of the requester's identity.
	AskedProof approval.Proof
	// Unknown lists costs that cannot be estimated, such as data of unknown size, and that require
	// an approval. Work without any price has no estimate at all.
	Unknown []string
	// Key identifies the run, which has one open request and one live hold. Asking again for the
	// same spec returns them; an edited spec replaces them unless something was charged. Without a
	// key each admission is a new run.
	Key string
	// Costs are the lines of the estimate, for the approver.
	Costs []approval.Cost
	// Bounded reports that the run ends before it costs more than is reserved, so that an approval of
	// less than P95 counts for it.
	Bounded bool
	// Alternatives are other machines for the same work, cheapest first.
	Alternatives []Alternative
}

// Alternative is another machine for an ask, with its cost.
type Alternative struct {
	// What names it for people: "1 × g5.xlarge spot in us-west-2".
	What             string
	P50, P95, Hourly money.Amount
	GPUs             map[string]int
	Machines         int
}

// Verdict is the gate's answer. The zero value is not an answer.
type Verdict string

// The verdicts in order of severity.
const (
	Allow  Verdict = "allow"
	Held   Verdict = "ask"
	Denied Verdict = "deny"
)

// Params is the context of a decision.
type Params struct {
	Desk    approval.Desk
	Budgets budget.Desk
	// Store keeps the decisions.
	Store Store
	// Threshold is the P95 above which a run needs an approval; the zero Threshold asks about
	// everything that costs anything. See DefaultThreshold.
	Threshold money.Amount
	// Roles lists roles of which an approver needs one; empty means approval.DefaultRole.
	Roles []string
	// Expiry is the lifetime of a request; zero means approval.DefaultExpiry.
	Expiry time.Duration
	Now    time.Time
	// DryRun makes no hold, request or record.
	DryRun bool
	// AskedProof is the proof of identity of the person who requests an extension.
	AskedProof approval.Proof
	// Settings names the configuration, for the record.
	Settings string
	// Transact runs do on the stores of one transaction, which commits or rolls back as a whole. It
	// may repeat do after a rollback, and do makes no network calls.
	Transact func(ctx context.Context, do func(Stores) error) error
}

// Stores are the stores of a transaction.
type Stores struct {
	Approvals approval.Store
	Budgets   budget.Store
	Decisions Store
}

// DefaultThreshold is the default Threshold: the gate is for outliers, not for everyday
// experiments.
const DefaultThreshold = 100 * money.USD

// Decision is the answer with its reasons, shown as curfew.gate/v1.
type Decision struct {
	Decision Verdict  `json:"decision"`
	Reasons  []string `json:"reasons"`
	// Budget lists the budgets that cover the run, before and after it.
	Budget []Line `json:"budget"`
	// ApprovalID is the pending or used request.
	ApprovalID string `json:"approval_id,omitempty"`
	// HoldID is the reservation of an allowed run. Its machines carry it in the tag
	// inventory.TagHold.
	HoldID string `json:"hold_id,omitempty"`
	// WouldPass describes, after a denial, what would be allowed.
	WouldPass []Way `json:"would_pass,omitempty"`
	// Reserved is the amount of the hold; 0 if there is none.
	Reserved money.Amount `json:"-"`
	// Unused lists live holds for the same work under which nothing was charged.
	Unused []string `json:"unused_holds,omitempty"`
}

// Line is a window of a budget before and after a run.
type Line struct {
	Budget string        `json:"budget"`
	Window budget.Window `json:"window"`
	Amount money.Amount  `json:"amount_usd"`
	Used   money.Amount  `json:"used_usd"`
	Held   money.Amount  `json:"held_usd"`
	// Unknown is the upper bound of unpriced charges.
	Unknown money.Amount `json:"unknown_usd"`
	Asked   money.Amount `json:"asked_usd"`
	// LeftBefore and LeftAfter are the remaining amounts; negative if overdrawn.
	LeftBefore money.Amount `json:"left_before_usd"`
	LeftAfter  money.Amount `json:"left_after_usd"`
	State      budget.State `json:"state"`
}

// Record is a stored decision.
type Record struct {
	// ID is the id of the hold (allow) or approval (ask), otherwise a hash of the ask and its time.
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
	// Settings names the configuration: "shared 3 (sha256 ab12…)".
	Settings string
}

// Store keeps decisions; package store implements it.
type Store interface {
	// PutDecision writes a record, replacing one with the same ID.
	PutDecision(ctx context.Context, r Record) error
	// Decisions returns the records in [from, to), oldest first, then by id.
	Decisions(ctx context.Context, from, to time.Time) ([]Record, error)
}
