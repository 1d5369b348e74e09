package round

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Setting configures rounds: the clock, the inventory, the samples, the prices, the rules, and the
// actor. An audit, a policy pass, a fix and a replay differ only in their setting. A step without
// its part is skipped: without Audit no findings, without Policies no proposals, and without a
// Ladder a round stops before act.
type Setting struct {
	// Clock is read when a round begins, and again for the verification at act time.
	Clock func() time.Time
	// Lister lists the resources, and Sources measure them, in order of precedence: each signal is
	// taken from the first source that has it, and the GPUs of a machine from one source alone,
	// because sources may name them differently.
	Lister  Lister
	Sources []usage.Source
	Query   Query
	Prices  *price.Book
	// Owners, if set, fills the owners of resources without owner tags before they are judged. It
	// returns blind spots for what it could not read.
	Owners func(ctx context.Context, resources []*inventory.Resource, now time.Time) ([]inventory.BlindSpot, error)
	// Duty are the thresholds of verdicts, Activity defines what counts as work.
	Duty     duty.Thresholds
	Activity usage.Activity
	// LookBack is the look-back of current verdicts ([duty.Horizon]); 0 is duty.DefaultLookBack. It
	// is at least the window of the query.
	LookBack time.Duration
	// Step is the finest step in which usage is read; 0 depends on the look-back.
	Step time.Duration

	// Books charge the observation of a round before it is decided; nil charges nothing. Source
	// names the command that runs the rounds: "scan", "enforce".
	Books  Books
	Source string

	// Audit configures the findings.
	Audit *Audit
	// Requests are fixes that people ask for; they need an Audit.
	Requests []Request
	// Tagging configures the writing of missing tags; nil writes none.
	Tagging *Tagging
	// Policies propose actions; Governance defines the resources they may act on.
	Policies   *policy.Set
	Governance policy.Governance
	// AddFacts, if set, adds facts about a resource from other sources than inventory, usage and
	// prices.
	AddFacts func(f *policy.Facts)
	// Progress, when set, returns the record of progress that an earlier process kept of a
	// machine.
	Progress func(r *inventory.Resource) (duty.Progress, bool)
	// ChargeFacts, if set, is called once the charges of a round are posted. It reads what depends
	// on them, such as the state of budgets, and returns a function that adds it to a resource's
	// facts.
	ChargeFacts func(ctx context.Context, now time.Time) (func(f *policy.Facts), error)
	// Uncapped ignores the limits of policies, as replays do by default.
	Uncapped bool

	// Ladder returns the ladder of an account ("aws/123456789012").
	Ladder func(account string) *action.Ladder
}

// Audit configures the findings of an audit.
type Audit struct {
	Thresholds finding.Thresholds
	// Rules are the rules of the account's cloud, besides the general ones.
	Rules []finding.Rule
	// Required are the tags needed to attribute costs. Owners assigns tags to resources that lack
	// them; Tags maps tags to owners.
	Required []string
	Owners   policy.Owners
	Tags     inventory.TagMapping
	// ReadData are addresses of data that work reads, see [finding.Account].
	ReadData []string
	// Bill has the billed costs; nil without a bill.
	Bill *Bill
}

// Lister lists the resources of an account.
type Lister interface {
	// List returns the resources at q.Now. What could not be read is a blind spot in the
	// observation; an error means that nothing could be read at all (no credentials, no endpoint),
	// and wraps inventory.ErrUnauthenticated, ErrDenied or ErrUnavailable. It changes nothing. With
	// q.Only it reads only those resources again: one that is gone is absent, an unread one is
	// unread and never absent.
	List(ctx context.Context, q Query) (*Observation, error)
}

// Books post the observation of an account, and charge the time before it.
type Books interface {
	Post(ctx context.Context, s ledger.Seen) error
}

// Request is a person's request to fix one finding.
type Request struct {
	// Finding is the full id, Rule its rule, Resource its resource.
	Finding, Rule string
	Resource      inventory.Ref
	Notify        []string
	Grace         time.Duration
	// Change is the change shown to the person; if the finding's change differs by now, nothing is
	// done. The zero Change matches any.
	Change change.Change
	// ScratchDisks and SaveDisks are as in policy.Do.
	ScratchDisks, SaveDisks bool
}
