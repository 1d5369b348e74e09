// Package view holds the documents (curfew.…/v1) that curfew prints and keeps: their
// types with JSON names, their schemas, and what makes them of values of the domain. A
// document is the same whichever door it leaves by. Nothing is drawn here.
package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
)

// ScanSchema names the shape of a [Scan]. Fields are only added to it.
const ScanSchema = "curfew.scan/v1"

// Scan is an audit as it is printed and stored. Amounts are for a month of
// 730 hours at list price unless they say otherwise; times are UTC.
type Scan struct {
	Schema  string `json:"schema"`
	Version string `json:"version,omitempty"` // of the program that made it
	// StartedAt is when the scan began.
	StartedAt time.Time `json:"started_at"`
	// FinishedAt is when the scan ended.
	FinishedAt time.Time `json:"finished_at"`
	Cloud      string    `json:"cloud"`
	Accounts   []string  `json:"accounts"`
	Regions    []string  `json:"regions"`
	// Roles are the ARNs of the roles through which accounts were read, by account.
	Roles map[string]string `json:"roles,omitempty"`
	// Profile is the AWS profile that was asked for. Only kept scans have it, so that
	// `curfew fix` reaches the account again.
	Profile   string    `json:"profile,omitempty"`
	Resources Resources `json:"resources"`
	// MonthlyCostUSD is the current monthly cost of everything priced. Null when nothing has a
	// price; the note gives the reason, or the omissions.
	MonthlyCostUSD money.Dollars `json:"monthly_cost_usd"`
	// MonthlyCostNote qualifies the cost.
	MonthlyCostNote string `json:"monthly_cost_note,omitempty"`
	// Now divides MonthlyCostUSD by use; absent from audits of older versions.
	Now *ScanNow `json:"now,omitempty"`
	// MonthlyWasteUSD is the charges of hours in which machines were idle, held or stalled, and of
	// unused resources, over the window, brought to a month. Null when no time of the window has a
	// price; the note gives the reason, or the omissions.
	MonthlyWasteUSD money.Dollars `json:"monthly_waste_usd"`
	// MonthlyWasteNote qualifies the waste.
	MonthlyWasteNote string `json:"monthly_waste_note,omitempty"`
	// Window is the cost of the account over the window of the audit; null without one.
	Window *ScanWindow `json:"window"`
	// Categories add up to MonthlyCostUSD where none is null, and with a bill to
	// MonthlyBilledUSD.
	Categories ScanCategories `json:"categories"`
	// CategoriesNotes qualify the categories.
	CategoriesNotes map[string]string `json:"categories_notes,omitempty"`
	// MonthlyBilledUSD is the supplied bill per month, at effective cost where it has one; absent
	// without a bill.
	MonthlyBilledUSD *money.Dollars `json:"monthly_billed_usd,omitempty"`
	Totals           ScanTotals     `json:"totals"`
	Steps            []ScanStep     `json:"steps"`
	Owners           []OwnerCost    `json:"owners"`
	Findings         []Finding      `json:"findings"`
	// CannotJudge is the unmeasured resources.
	CannotJudge []Unjudged `json:"cannot_judge"`
	// Progress is the progress of the work of busy machines that train, evaluate or experiment, the
	// most dollars since the last progress first.
	Progress []ScanProgress `json:"progress"`
	// Unpriced are the unpriced resources.
	Unpriced []Unpriced `json:"unpriced"`
	// BlindSpots are the sources that could not be read, each with its effect.
	BlindSpots []inventory.BlindSpot `json:"blind_spots"`
	// APICalls are the calls that the scan made.
	APICalls []APICall     `json:"api_calls"`
	Billed   *ScanBilled   `json:"billed"`
	Prices   []PriceSource `json:"prices"`
	// Assumptions are those behind the figures.
	Assumptions []string `json:"assumptions"`
	// Kept divides the figures; only kept scans have it.
	Kept *ScanKept `json:"kept,omitempty"`
}

// ScanNow divides the current cost, brought to a month. Used, wasted, unmeasured and other add up to
// running exactly, and the waste of all findings to wasted.
type ScanNow struct {
	RunningUSD money.Dollars `json:"running_usd"`
	// UsedUSD is measured compute that is not wasted.
	UsedUSD money.Dollars `json:"used_usd"`
	// WastedUSD is idle, held or stalled compute and unused resources.
	WastedUSD money.Dollars `json:"wasted_usd"`
	// UnmeasuredUSD is compute of which it is unknown whether it works.
	UnmeasuredUSD money.Dollars `json:"unmeasured_usd"`
	// OtherUSD is storage, network and services that are not wasted.
	OtherUSD money.Dollars `json:"other_usd"`
	// Note names the omissions of the sums; empty if they hold everything.
	Note string `json:"note,omitempty"`
}

// ScanWindow holds the charges between From and To, not scaled to a month, as `costs` shows them.
// Used, wasted, unmeasured and other add up to the total.
type ScanWindow struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// UsedUSD is compute that was busy, starved or warming; StarvedUSD and WarmingUSD are
	// those parts of it.
	UsedUSD    money.Dollars `json:"used_usd"`
	StarvedUSD money.Dollars `json:"starved_usd"`
	WarmingUSD money.Dollars `json:"warming_usd"`
	// WastedUSD is compute that was idle, held or stalled, and unused resources.
	WastedUSD money.Dollars `json:"wasted_usd"`
	// UnmeasuredUSD is the dollars of unmeasured time.
	UnmeasuredUSD money.Dollars `json:"unmeasured_usd"`
	// OtherUSD is storage, network and overhead that is unknown to be unused.
	OtherUSD money.Dollars `json:"other_usd"`
	TotalUSD money.Dollars `json:"total_usd"`
	// UnknownSeconds is time, over all meters, of unknown state or price. It is in no amount, and
	// costs at most UnknownAtMostUSD: null with a reason if a price is missing.
	UnknownSeconds   int64         `json:"unknown_seconds"`
	UnknownAtMostUSD money.Dollars `json:"unknown_at_most_usd"`
	// UnknownReason is why the most of unknown costs is unknown.
	UnknownReason string `json:"unknown_at_most_reason,omitempty"`
}

// Span names the window's length: "14d".
func (w *ScanWindow) Span() string { return plain.Duration(w.To.Sub(w.From)) }

// Gap names the unknown part of the window; empty if there is none.
func (w *ScanWindow) Gap() string {
	if w == nil || w.UnknownSeconds == 0 {
		return ""
	}
	most := w.UnknownReason
	if v, ok := w.UnknownAtMostUSD.Get(); ok {
		most = "at most " + money.Known(v).String()
	}
	return plain.MeteredHours(w.UnknownSeconds) + " of the last " + w.Span() + " not charged: " + most
}

// Resources counts observed resources.
type Resources struct {
	Count int `json:"count"`
	// ByKind are how many there are of each kind.
	ByKind map[string]int `json:"by_kind"`
}

// ScanCategories is the cost by what it is for, in the field's own division. Egress is null without
// a bill: what was transferred is unknown. Unknown is compute whose duty cannot be judged, Network
// the hours of gateways, balancers and addresses.
type ScanCategories struct {
	// Storage is the dollars of storage.
	Storage money.Dollars `json:"storage"`
	// Idle is the dollars of idle compute.
	Idle money.Dollars `json:"idle"`
	// Active is the dollars of compute at work.
	Active money.Dollars `json:"active"`
	Egress money.Dollars `json:"egress"`
	// Overhead is the dollars of everything else.
	Overhead money.Dollars `json:"overhead"`
	// Unknown is the dollars of unmeasured compute.
	Unknown money.Dollars `json:"unknown"`
	Network money.Dollars `json:"network"`
	// Other is the rest of a bill; absent without a bill, whose network hours
	// are among the overhead.
	Other *money.Dollars `json:"other,omitempty"`
}

// ScanTotals are the sums next to cost and waste.
type ScanTotals struct {
	// FindingsWasteUSD is the waste of all findings at the current rate.
	FindingsWasteUSD money.Dollars `json:"findings_waste_usd"`
	// MonthlySavingsUSD is the sum of the known savings; null when no finding has known ones.
	MonthlySavingsUSD money.Dollars `json:"monthly_savings_usd"`
	// SavingsUpperBoundUSD is the most that all fixes together save; null when a
	// finding has no bound.
	SavingsUpperBoundUSD money.Dollars `json:"savings_upper_bound_usd"`
	// SavingsUnknown counts the findings whose saving is unknown.
	SavingsUnknown int `json:"savings_unknown"`
	// MonthlyCannotJudgeUSD is the cost of compute of unknown duty, which is in neither used nor
	// waste.
	MonthlyCannotJudgeUSD money.Dollars `json:"monthly_cannot_judge_usd"`
	// MonthlyCommittedUSD is the cost of commitments that cover something. It comes on top of the
	// cost, which holds covered resources at their list price.
	MonthlyCommittedUSD money.Dollars `json:"monthly_committed_usd"`
	// UnpricedResources counts resources with a meter that has no price.
	UnpricedResources int `json:"unpriced_resources"`
	// APICallsCostUSD is the provider's charge for this audit's own calls.
	APICallsCostUSD money.Dollars `json:"api_calls_cost_usd"`
}

// ScanStep sums up the findings of one step.
type ScanStep struct {
	// Step is the step in which waste is removed, 0 to 7.
	Step int    `json:"step"`
	Name string `json:"name"`
	// Findings is the number of findings it has.
	Findings int `json:"findings"`
	// MonthlyWasteUSD is the waste of these findings at the current rate.
	MonthlyWasteUSD money.Dollars `json:"monthly_waste_usd"`
	// MonthlySavingsUSD is the known part; null when it is known of none.
	MonthlySavingsUSD money.Dollars `json:"monthly_savings_usd"`
	// SavingsUpperBoundUSD is the most that can be saved in dollars.
	SavingsUpperBoundUSD money.Dollars `json:"savings_upper_bound_usd"`
	// SavingsUnknown is how many savings are unknown.
	SavingsUnknown int `json:"savings_unknown"`
	// Risk is the highest of its fixes.
	Risk finding.Level `json:"risk"`
}

// OwnerCost is one team's cost and waste, as those of the document. Team is empty if no tag names
// one.
type OwnerCost struct {
	Team           string        `json:"team"`
	Resources      int           `json:"resources"`
	MonthlyCostUSD money.Dollars `json:"monthly_cost_usd"`
	// MonthlyWasteUSD is the waste of the window, brought to a month.
	MonthlyWasteUSD money.Dollars `json:"monthly_waste_usd"`
	// WastedNowUSD is the part of MonthlyCostUSD that is wasted.
	WastedNowUSD money.Dollars `json:"wasted_now_usd"`
}

// Resource is the subject of a finding.
type Resource struct {
	ID string `json:"id"`
	Description
}

// Description is the account, kind, state and owner of a resource. Lifetime and purpose of a
// finding's are "unknown" where tags do not say.
type Description struct {
	Kind     string          `json:"kind"`
	Cloud    string          `json:"cloud"`
	Account  string          `json:"account"`
	Region   string          `json:"region"`
	Zone     string          `json:"zone,omitempty"`
	Name     string          `json:"name"`
	Type     string          `json:"type"`
	State    string          `json:"state,omitempty"`
	Lifetime string          `json:"lifetime"`
	Purpose  string          `json:"purpose"`
	Owner    inventory.Owner `json:"owner"`
}

// Finding is one finding.
type Finding struct {
	// ID is a stable hash of rule and resource.
	ID string `json:"id"`
	// Rule is the rule that found it.
	Rule string `json:"rule"`
	// Step is the step in which waste is removed, 0 to 7.
	Step     int      `json:"step"`
	Resource Resource `json:"resource"`
	Because  string   `json:"because"`
	// MonthlySavingsUSD is the saving of the fix after commitments and remaining charges; null when
	// unknown, with the reason in SavingsUnknown.
	MonthlySavingsUSD money.Dollars `json:"monthly_savings_usd"`
	// SavingsUpperBoundUSD is the most the fix saves; null when there is no bound.
	SavingsUpperBoundUSD money.Dollars `json:"savings_upper_bound_usd"`
	// SavingsLowerBoundUSD is the least that the fix saves where that is known of a saving
	// that is not; it is left out otherwise.
	SavingsLowerBoundUSD *money.Dollars `json:"savings_lower_bound_usd,omitempty"`
	// SavingsUnknown is how many savings are unknown.
	SavingsUnknown string `json:"savings_unknown,omitempty"`
	// MonthlyWasteUSD is the waste at the current rate; null when it has no price, and when the use
	// of the resource was not measured. In the second case SavingsUpperBoundUSD bounds it too.
	MonthlyWasteUSD money.Dollars `json:"monthly_waste_usd"`
	// MonthlyCostUSD is the cost of the resource; null when unknown, with the reason in
	// CostUnknown.
	MonthlyCostUSD money.Dollars `json:"monthly_cost_usd"`
	CostUnknown    string        `json:"cost_unknown,omitempty"`
	Confidence     finding.Level `json:"confidence"`
	Evidence       []Evidence    `json:"evidence"`
	Fix            FindingFix    `json:"fix"`
	// Overlaps is the id of the finding that already counts these dollars.
	Overlaps string `json:"overlaps,omitempty"`
	// Samples are measurements of the resource, for charts. Only kept scans have them, and only of
	// the largest findings.
	Samples []Samples `json:"samples,omitempty"`
}

// Samples is one signal of a resource over the window of an audit.
type Samples struct {
	// Signal is the name of the signal.
	Signal string `json:"signal"`
	// From is the time of the first sample.
	From time.Time `json:"from"`
	// To is the time of the last sample.
	To time.Time `json:"to"`
	// Values are of equal parts of the window, from its beginning; null if nothing was measured.
	Values []*float32 `json:"values"`
	// Max is the largest value.
	Max float64 `json:"max"`
	// Of is the most that the signal can reach, where that is known (bytes of GPU memory).
	Of float64 `json:"of,omitempty"`
}

// Evidence is one thing that was seen. Window and coverage are absent for facts
// that are not sampled.
type Evidence struct {
	// Signal is the name of the signal.
	Signal   string `json:"signal"`
	Value    string `json:"value"`
	Window   string `json:"window,omitempty"`   // "14d"
	Coverage string `json:"coverage,omitempty"` // share of the window, rounded down: "0.99"
	Source   string `json:"source"`
}

// FindingFix is the proposed fix of a finding.
type FindingFix struct {
	Action  string        `json:"action"`
	Change  change.Change `json:"change"`
	Command string        `json:"command"`
	Risk    finding.Level `json:"risk"`
	// Undo is how far it can be undone: full, partial or none.
	Undo finding.Undo `json:"undo"`
	Note string       `json:"note,omitempty"`
	// Policy would have kept the fleet at the size of its load.
	Policy *FindingPolicy `json:"policy,omitempty"`
}

// FindingPolicy is a policy that follows the demand for a serving fleet, and its outcome on the recorded load.
type FindingPolicy struct {
	// Policy is an item of the policies of a file.
	Policy string `json:"policy"`
	// MonthlySavingsUSD is its replayed saving, scaled to a month; null for the reason.
	MonthlySavingsUSD money.Dollars `json:"monthly_savings_usd"`
	Reason            string        `json:"reason"`
	// MeanReplicas ran on average, and ShortShare is the share of the window in which the load exceeded
	// them; null where the load is unknown.
	MeanReplicas *float64 `json:"mean_replicas"`
	ShortShare   *float64 `json:"short_share"`
	Window       string   `json:"window"`
}

// Unjudged is a running machine whose duty is unknown.
type Unjudged struct {
	Resource       Resource      `json:"resource"`
	MonthlyCostUSD money.Dollars `json:"monthly_cost_usd"`
	Why            string        `json:"why"`
}

// ScanProgress is the last progress of the work of a machine.
type ScanProgress struct {
	Resource Resource `json:"resource"`
	Progress
	Because string `json:"because"`
}

// Runaway reports whether the machine has been busy for half a day and $100 without progress, the
// thresholds of the ready policy runaway.
func (p *ScanProgress) Runaway(at time.Time) bool {
	return at.Sub(p.Since) >= 12*time.Hour && p.SpentUSD.Or(0) >= 100*money.USD
}

// Unpriced are meters of one kind without a price, for one reason.
type Unpriced struct {
	Kind   string `json:"kind"`
	Type   string `json:"type"`
	Region string `json:"region"`
	// Meter is the metered dimension.
	Meter string `json:"meter"`
	Why   string `json:"why"`
	// Resources are their ids.
	Resources []string `json:"resources"`
}

// APICall counts this audit's own calls of one API.
type APICall struct {
	API string `json:"api"`
	// Count is the number of calls, Units the number of units that the provider charges for.
	Count   int           `json:"count"`
	Units   int           `json:"units"`
	CostUSD money.Dollars `json:"cost_usd"`
}

// ScanBilled is the provider's own total for the account in a period.
type ScanBilled struct {
	Start    time.Time     `json:"start"`
	End      time.Time     `json:"end"`
	TotalUSD money.Dollars `json:"total_usd"`
	// ByService are the dollars by service.
	ByService []BilledService `json:"by_service"`
	// NotCoveredUSD is the billed cost of services of which nothing is read.
	NotCoveredUSD money.Dollars `json:"not_covered_usd"`
	Source        string        `json:"source"`
}

// BilledService is one service's part of the bill.
type BilledService struct {
	// Service is the service.
	Service string        `json:"service"`
	CostUSD money.Dollars `json:"cost_usd"`
	// NotCovered is true if nothing of the service is read: no finding is about it.
	NotCovered bool `json:"not_covered,omitempty"`
	// Why is the reason why it is not covered.
	Why string `json:"why,omitempty"`
}

// PriceSource is where prices came from and of which days they are.
type PriceSource struct {
	Source string `json:"source"`
	// From and To are the oldest and the newest date of the prices used
	// ("2026-07-06"); empty when they have none.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Charges counts the meters priced from it.
	Charges int `json:"charges"`
}

// categoryNames is the order in which categories are shown.
var categoryNames = []string{
	round.CategoryStorage, round.CategoryIdle, round.CategoryActive, round.CategoryEgress,
	round.CategoryOverhead, round.CategoryUnknown, round.CategoryNetwork,
}

// billedNames is the same with a bill.
var billedNames = []string{
	round.CategoryStorage, round.CategoryIdle, round.CategoryActive, round.CategoryEgress,
	round.CategoryOverhead, round.CategoryUnknown, round.CategoryOther,
}

// ShownCategories returns the names of the categories, and their sum.
func (d *Scan) ShownCategories() ([]string, money.Dollars) {
	if d.MonthlyBilledUSD != nil {
		return billedNames, *d.MonthlyBilledUSD
	}
	return categoryNames, d.MonthlyCostUSD
}

// Named returns the field of a category.
func (c *ScanCategories) Named(name string) *money.Dollars {
	switch name {
	case round.CategoryStorage:
		return &c.Storage
	case round.CategoryIdle:
		return &c.Idle
	case round.CategoryActive:
		return &c.Active
	case round.CategoryEgress:
		return &c.Egress
	case round.CategoryOther:
		if c.Other == nil {
			c.Other = &money.Dollars{}
		}
		return c.Other
	case round.CategoryOverhead:
		return &c.Overhead
	case round.CategoryNetwork:
		return &c.Network
	}
	return &c.Unknown
}
