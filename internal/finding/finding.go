// Package finding evaluates rules over an audited account. A finding is evidence of waste or of a
// cheaper alternative, with dollars a month, confidence, risk and the exact fix. Rules are
// three-valued: unknown facts never lead to a finding about them.
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

// Step is the recommended order of fixes, 0 to 7.
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

// String returns the step's name for people.
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

// Undo is the degree to which a fix can be undone.
type Undo string

// The degrees of undo.
const (
	UndoFull    Undo = "full"
	UndoPartial Undo = "partial"
	UndoNone    Undo = "none"
)

// Saving is a saving in dollars a month. If it is unknown, Known is false, Why is the reason, and
// LowerBound and UpperBound are its limits.
type Saving struct {
	Known                  bool
	Amount                 money.Amount
	LowerBound, UpperBound money.Amount
	// Bounded is true if UpperBound is valid; otherwise not even a bound is known (an unpriced
	// resource).
	Bounded bool
	Why     string
}

// Fix is the remedy of a finding.
type Fix struct {
	// Change is the change exactly as priced.
	Change change.Change
	// Command carries it out.
	Command string
	Risk    Level
	Undo    Undo
	// Note lists consequences: costs that remain, and steps that cannot be undone.
	Note string
	// Policy would have kept the fleet at the size of its load; nil where no policy does.
	Policy *FleetPolicy
}

// Finding is evidence of waste, or of a cheaper alternative, for one resource.
type Finding struct {
	ID       string
	Rule     string
	Step     Step
	Resource *inventory.Resource
	// Waste is the monthly cost of the resource, including everything that it holds, that is not
	// used: idle, held, stalled or unused. Zero for findings that only save.
	Waste money.Amount
	// WasteUnknown is true if the use of the resource was not measured: then Waste is zero and
	// bounded by Savings.UpperBound.
	WasteUnknown bool
	// Savings is the monthly saving of the fix, net of commitments, of remaining costs, and of the
	// savings of earlier findings.
	Savings Saving
	// Cost is the monthly cost of the resource if neither waste nor savings state it (unmeasured
	// resources).
	Cost       money.Amount
	Confidence Level
	// Because is the reason in one line.
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
	// Waste and Savings are the counted amounts, after the claims of earlier findings.
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
	// Unmeasured has the reasons why metrics of resources could not be read.
	Unmeasured map[inventory.Ref]string
	Verdicts   map[inventory.Ref]duty.Verdict
	Charges    map[inventory.Ref][]ledger.Charge
	Prices     *price.Book
	// Rules are the rules of the account's cloud, in addition to the general ones.
	Rules []Rule
	// Unread are the kinds that could not be listed, by account and region
	// ("123456789012/us-east-1/image"); rules that need them find nothing.
	Unread map[string]bool
	// Advice replaces fixes if nothing carries them out; nil otherwise.
	Advice *Advice
	// CommitmentsKnown is false if commitments could not be read; then savings on kinds with
	// commitments are unknown.
	CommitmentsKnown bool
	// Bill holds the billed costs; nil if no bill was supplied.
	Bill *Bill
	// ReadData are addresses of data (s3://bucket/prefix/) that the configuration declares as read,
	// in addition to inputs of machines and training jobs.
	ReadData []string
	// TagsFor returns the tags that owner rules give a resource, and the required tags that are
	// still missing. Nil means no rules.
	TagsFor func(r *inventory.Resource) (add map[string]string, left []string)
}

// Advice replaces the fixes for a cloud that curfew only reads: people carry it out.
type Advice struct {
	// End tells how to give up a resource, Spare an unused part of it, and Tag how to tag it.
	End, Spare, Tag string
}

// Bill is the input of the rules from a provider's bill.
type Bill struct {
	// Cloud is the provider. From and To bound the covered days.
	Cloud    string
	From, To time.Time
	// Flows are its data transfers, Commitments the use of its commitments.
	Flows       []bill.Flow
	Commitments bill.Commitments
	// Source is its name for people.
	Source string
}
