// Package round composes the five steps of a round: observe, judge, charge, decide, act. An audit
// is one round that stops before act.
package round

import (
	"time"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Query selects what to observe.
type Query struct {
	// Now is the time of the round.
	Now time.Time
	// Window is the time over which an audit judges usage; 0 is no audit.
	Window time.Duration
	Floors *usage.Floors
	// Kinds are the kinds to read; nil is all.
	Kinds map[inventory.Kind]bool
	// Only are the resources to read again, of any kind; nil is all. A resource that is gone is
	// absent, one that could not be read is of an unread kind, and one of another cloud is an
	// error.
	Only map[inventory.Ref]bool
	// Progress, if set, is called for each finished part, from any goroutine.
	Progress func(Progress)
}

// Progress is the progress of an observation.
type Progress struct {
	// What is the finished part: "us-east-1 volumes".
	What string
	// Done and Total count parts; Total may still grow.
	Done, Total int
	// Resources counts the resources read so far by this observer.
	Resources int
}

// Observation is the result of an observer.
type Observation struct {
	inventory.Inventory
	// Ended are resources that are gone and whose end the provider still reports, which their last
	// charge needs.
	Ended    []*inventory.Resource
	Cloud    string
	Accounts []string
	Regions  []string
	// RegionsOf are the regions read of each account, if accounts differ; an account that is not in
	// it was read in all of Regions.
	RegionsOf map[string][]string
	// Roles are the roles through which accounts were reached, by account. The others were reached
	// with the configured credentials.
	Roles map[string]string
	// Windows are the measurements by resource.
	Windows map[inventory.Ref]*usage.Window
	// Unmeasured are the reasons why metrics of resources could not be read.
	Unmeasured map[inventory.Ref]string
	// Unread are kinds that could not be listed, as in finding.Account.
	Unread map[string]bool
	// CommitmentsKnown is true if savings plans and reserved instances were read (there may be
	// none).
	CommitmentsKnown bool
	// Advice replaces fixes that no API call carries out; nil if all are carried out.
	Advice *finding.Advice
	Calls  []Calls
	Billed *Billed
	// ProviderTime is the latest time of the provider's clock in its responses; zero without one.
	ProviderTime time.Time
}

// Calls counts the calls an observation made to one API.
type Calls = inventory.Calls

// Billed is the cost of an account in a period according to the provider.
type Billed struct {
	Start, End time.Time
	Total      money.Amount
	ByService  []ServiceCost
	Source     string
}

// ServiceCost is one service's part of the billed costs.
type ServiceCost struct {
	Service string
	Cost    money.Amount
	// NotCovered is why nothing of the service was read, so that no finding is about it; empty
	// otherwise.
	NotCovered string
}

// Totals are the sums of an audit, per month of 730 hours at list price.
type Totals struct {
	// Now divides the monthly cost of running resources. Now.Running is the cost of all priced
	// ones.
	Now RunRate
	// Waste is the cost of idle, held or stalled machines and unused resources over the window of
	// the audit, per month; 0 without a window.
	Waste money.Amount
	// ByCategory adds up to Now.Running: storage, idle, active, unknown, network, overhead.
	ByCategory map[string]money.Amount
	// Committed is the cost of commitments in use. It is not part of Now.Running, which includes
	// the covered usage at its list price.
	Committed money.Amount
	// Unpriced counts resources with a meter without a price.
	Unpriced int
	ByKind   map[inventory.Kind]int
	ByOwner  []OwnerTotal
	BySteps  []StepTotal
}

// RunRate divides the monthly cost of the running resources by use. The parts add up to Running
// exactly.
type RunRate struct {
	Running money.Amount
	// Used is working compute, Wasted the waste of findings, Unmeasured compute of unknown duty,
	// and Other storage, network and services that are not wasted.
	Used, Wasted, Unmeasured, Other money.Amount
}

// OwnerTotal is one team's cost and waste.
type OwnerTotal struct {
	Team  string  // empty: no team tag
	Now   RunRate // as in Totals
	Waste money.Amount
	// Resources counts the team's resources.
	Resources int
}

// StepTotal is the sum of the findings of one step.
type StepTotal struct {
	Step     finding.Step
	Findings int
	Savings  money.Amount
	// Unknown counts findings without a known saving; UpTo is the sum of their bounds.
	Unknown int
	UpTo    money.Amount
	Risk    finding.Level
}
