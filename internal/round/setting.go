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

// Setting is where rounds are made: who supplies the clock, the inventory, the samples
// and the prices, by which rules it is decided, and what acts. An audit, a pass of the
// policies, a fix and a replay differ in nothing else. A step without its part is left
// out: no Audit judges no findings, no Policies propose nothing, and without a Ladder a
// round stops before act.
type Setting struct {
	// Clock is read when a round begins, and again for the verification at act time.
	Clock func() time.Time
	// Lister says what is there, Sources what was measured of it, in order of precedence:
	// of one signal the first source that has it speaks, and the GPUs of a machine are
	// measured by one source alone, because two name them differently.
	Lister  Lister
	Sources []usage.Source
	Query   Query
	Prices  *price.Book
	// Owners, when set, fills the owners of resources whose tags do not say them, before they
	// are judged. What could not be read is a blind spot.
	Owners func(ctx context.Context, resources []*inventory.Resource, now time.Time) ([]inventory.BlindSpot, error)
	// Duty are the thresholds of verdicts, Activity says what counts as work.
	Duty     duty.Thresholds
	Activity usage.Activity
	// LookBack is how far back the verdict of now looks ([duty.Horizon]); 0 is
	// duty.DefaultLookBack. It is at least the window of the query.
	LookBack time.Duration
	// Step is the finest step in which usage is read; 0 is what suits the look-back.
	Step time.Duration

	// Books take what a round observed before it is decided; nil keeps nothing. Source
	// names what runs the rounds: "scan", "enforce".
	Books  Books
	Source string

	// Audit says what findings are judged by.
	Audit *Audit
	// Requests are fixes that people ask for; they need an Audit.
	Requests []Request
	// Tagging is what a person wants written where tags are missing; nil is nothing.
	Tagging *Tagging
	// Policies propose; Governance says which resources they may act on.
	Policies   *policy.Set
	Governance policy.Governance
	// Facts, when set, adds to what is known of a resource what neither inventory, usage
	// nor prices say.
	Facts func(f *policy.Facts)
	// Progress, when set, returns the record of progress that an earlier process kept of a
	// machine.
	Progress func(r *inventory.Resource) (duty.Progress, bool)
	// Standing, when set, is asked once the charges of a round are posted. It reads what
	// follows from them, such as where budgets stand, and returns what adds that to what is
	// known of a resource.
	Standing func(ctx context.Context, now time.Time) (func(f *policy.Facts), error)
	// Uncapped leaves the limits of policies out, as replays do unless they are asked.
	Uncapped bool

	// Ladder returns what acts on an account ("aws/123456789012").
	Ladder func(account string) *action.Ladder
}

// Audit is what findings are judged by.
type Audit struct {
	Thresholds finding.Thresholds
	// Rules are those of the account's cloud, besides the general ones.
	Rules []finding.Rule
	// Required are the tags without which spend cannot be attributed. Owners say which
	// tags resources get that lack them; Tags says which tags name the owner.
	Required []string
	Owners   policy.Owners
	Tags     inventory.TagMapping
	// Bill holds the billed costs; nil where no bill was supplied.
	Bill *Bill
}

// Lister says what an account holds.
type Lister interface {
	// List returns what is there at q.Now. What could not be read is a blind spot in the
	// observation; an error means that nothing could be read at all (no credentials, no
	// endpoint), and wraps inventory.ErrUnauthenticated, ErrDenied or ErrUnavailable. It
	// changes nothing. With q.Only it reads those resources again and no others: what is
	// not there any more is absent, what could not be read is unread and never absence.
	List(ctx context.Context, q Query) (*Observation, error)
}

// Books take what a round observed of an account, and charge for the time before it.
type Books interface {
	Post(ctx context.Context, s ledger.Seen) error
}

// Request is what a person wants done about one finding.
type Request struct {
	// Finding is the id in full, Rule its rule, Resource what it is about.
	Finding, Rule string
	Resource      inventory.Ref
	Notify        []string
	Grace         time.Duration
	// Change is the change that the person was shown; where the finding's is another one by
	// now, nothing is done. The zero Change is any.
	Change change.Change
	// ScratchDisks and SaveDisks are as in policy.Do.
	ScratchDisks, SaveDisks bool
}
