// Package finding judges an audited account by rules: each finding is evidence of
// waste or of a cheaper way, with dollars a month, confidence, risk and the exact
// fix. Every rule is three-valued: what is not known is never a finding about it.
package finding

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Step is the order in which waste is best removed, 0 to 7.
type Step int

// The steps.
const (
	StepMeasure   Step = 0 // resources that cannot be measured or attributed yet
	StepIdle      Step = 1
	StepStorage   Step = 2
	StepEgress    Step = 3
	StepSpot      Step = 4
	StepRightsize Step = 5
	StepModel     Step = 6
	StepCommit    Step = 7
)

// String returns the step's name as people read it.
func (s Step) String() string {
	return [...]string{"measure first", "idle", "storage lifecycle", "egress", "spot for training", "right-size",
		"model optimization", "generations and commitments"}[s]
}

// Level is a confidence (low, medium, high) or a risk (none, low, medium, high).
type Level string

// The levels.
const (
	None   Level = "none"
	Low    Level = "low"
	Medium Level = "medium"
	High   Level = "high"
)

// Undo says how far a fix can be taken back.
type Undo string

// How far a fix can be undone.
const (
	UndoFull    Undo = "full"
	UndoPartial Undo = "partial"
	UndoNone    Undo = "none"
)

// Saving is dollars a month. Where it cannot be known, Known is false, Why says
// so, LowerBound is the least and UpperBound the most it can be.
type Saving struct {
	Known                  bool
	Amount                 money.Amount
	LowerBound, UpperBound money.Amount
	// Bounded says that UpperBound holds; without it not even a bound is known
	// (an unpriced resource).
	Bounded bool
	Why     string
}

// Fix is the remedy of a finding.
type Fix struct {
	// Change is the change, exactly as it was priced.
	Change change.Change
	// Command does it.
	Command string
	Risk    Level
	Undo    Undo
	// Note lists consequences: costs that remain, and steps that cannot be undone.
	Note string
	// Policy would have kept the fleet at the size of its load; nil where no policy does.
	Policy *FleetPolicy
}

// Finding is evidence of waste, or of a cheaper way, at one resource.
type Finding struct {
	ID       string
	Rule     string
	Step     Step
	Resource *inventory.Resource
	// Waste is the monthly cost of the resource, and of all that it holds, that buys nothing: idle,
	// held, stalled or unused. Zero for findings that only save.
	Waste money.Amount
	// WasteUnknown says that nothing measured the use of the resource: Waste is zero
	// because it is unknown, and Savings.UpperBound is the most that it can be.
	WasteUnknown bool
	// Savings is the monthly saving of the fix, net of commitments, of costs that remain, and of
	// the savings of findings before it.
	Savings Saving
	// Cost is the monthly cost of the resource if neither waste nor savings state it (unmeasured
	// resources).
	Cost       money.Amount
	Confidence Level
	// Because is the reason in one line for people.
	Because  string
	Evidence []usage.Evidence
	Fix      Fix
	// Overlaps is the ID of the finding that already counts these dollars.
	Overlaps string
	// Claims are the meters whose dollars Waste and Savings count, each dollar once
	// over all findings.
	Claims []Claim
}

// Claim is the part of one meter's monthly cost that a finding counts.
type Claim struct {
	Resource inventory.Ref
	Meter    string
	Category ledger.Category
	// Waste and Savings are the amounts counted here, after findings before it took theirs.
	Waste, Savings money.Amount
}

// ID returns the stable identity of a rule's finding about a resource.
func ID(rule string, r inventory.Ref) string {
	sum := sha256.Sum256([]byte(rule + "\n" + r.String()))
	return hex.EncodeToString(sum[:8])
}

// Account is the input of the rules: one audit's resources, their measurements, verdicts and costs.
type Account struct {
	Now       time.Time
	Resources []*inventory.Resource
	Windows   map[inventory.Ref]*usage.Window
	// Unmeasured says of resources why metrics of them could not be read.
	Unmeasured map[inventory.Ref]string
	Verdicts   map[inventory.Ref]duty.Verdict
	Charges    map[inventory.Ref][]ledger.Charge
	Prices     *price.Book
	// Rules are those of the account's cloud, besides the general ones.
	Rules []Rule
	// Unread are the kinds that could not be listed at all, by account and region
	// ("123456789012/us-east-1/image"); a rule that needs them answers unknown.
	Unread map[string]bool
	// Advice is shown if nothing carries fixes out; nil if something does.
	Advice *Advice
	// CommitmentsKnown is false when commitments could not be read; then savings
	// on committed kinds are not known.
	CommitmentsKnown bool
	// Bill holds the billed costs; nil where no bill was supplied.
	Bill *Bill
	// ReadData are addresses of data that work reads (s3://bucket/prefix/), as the configuration
	// declares them, besides those that machines and training jobs name.
	ReadData []string
	// TagsFor returns the tags that a resource is to get by rules of its owners, and the
	// required ones that it lacks even then. Nil knows no values.
	TagsFor func(r *inventory.Resource) (add map[string]string, left []string)
}

// Advice takes the place of fixes in a cloud that curfew only reads: people carry it out.
type Advice struct {
	// End is the way to give up a resource, Spare the advice for its unused part, Tag the way to
	// tag it.
	End, Spare, Tag string
}

// Bill is the input of the rules from a provider's bill.
type Bill struct {
	// Cloud is whose bill it is. From and To bound the days that it covers.
	Cloud    string
	From, To time.Time
	// Flows are its transfers, Commitments the use of its commitments.
	Flows       []bill.Flow
	Commitments bill.Commitments
	// Source names it for people.
	Source string
}
