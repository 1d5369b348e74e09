// Package round composes the five steps that everything about running cost goes
// through: observe, judge, charge, decide, act. An audit is one round that stops
// before act.
package round

import (
	"time"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Query is what to observe.
type Query struct {
	// Now is the time of the round.
	Now time.Time
	// Window is how far back an audit judges usage; 0 is no audit.
	Window time.Duration
	Floors *usage.Floors
	// Kinds are those to read; nil is all.
	Kinds map[inventory.Kind]bool
	// Only are the resources to read again, whatever their kind; nil is all. One that is
	// not there any more is absent, one that could not be read is of an unread kind, and
	// one of another cloud is an error.
	Only map[inventory.Ref]bool
	// Progress, when set, is told of each part done, from any goroutine.
	Progress func(Progress)
}

// Progress is how far an observation is.
type Progress struct {
	// What was just done: "us-east-1 volumes".
	What string
	// Done and Total count parts; Total may still grow.
	Done, Total int
	// Resources seen so far by this observer.
	Resources int
}

// Observation is what an observer saw.
type Observation struct {
	inventory.Inventory
	// Ended are resources that are gone and that the provider still tells the end of: no
	// resources any more, but the last that is heard of what they cost.
	Ended    []*inventory.Resource
	Cloud    string
	Accounts []string
	Regions  []string
	// RegionsOf are those that were read of each account, where accounts differ; an
	// account that is not in it was read in all of Regions.
	RegionsOf map[string][]string
	// Roles are those through which accounts were reached, by account. An account that is
	// not in it was reached with the configured credentials.
	Roles map[string]string
	// Windows is what was measured, by resource.
	Windows map[inventory.Ref]*usage.Window
	// Unmeasured says of resources why metrics of them could not be read.
	Unmeasured map[inventory.Ref]string
	// Unread are kinds that could not be listed, as in finding.Account.
	Unread map[string]bool
	// CommitmentsKnown is true when savings plans and reserved instances were read
	// (there may be none).
	CommitmentsKnown bool
	// Advice is what people are told in place of fixes where nothing carries those out; nil
	// is that something does.
	Advice *finding.Advice
	Calls  []Calls
	Billed *Billed
	// ProviderTime is the latest time by the provider's own clock in what was read; zero
	// where it tells none.
	ProviderTime time.Time
}

// Calls counts the calls an observation made to one API.
type Calls = inventory.Calls

// Billed is what the provider says an account cost in a period.
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
	// NotCovered is why nothing of the service is known, so that no finding is about it; empty
	// where something is.
	NotCovered string
}

// Totals are an audit's sums, a month of 730 hours at list price.
type Totals struct {
	// Now divides a month of what runs now. Now.Running is the cost of everything that has a price.
	Now RunRate
	// Waste is what idle, held or stalled machines and unused resources cost over the
	// window of the audit, brought to a month; 0 without a window.
	Waste money.Amount
	// ByCategory adds up to Now.Running: storage, idle, active, unknown, network, overhead.
	ByCategory map[string]money.Amount
	// Committed is the cost of commitments that cover something. It is not part of
	// Now.Running, which holds the covered usage at its list price.
	Committed money.Amount
	// Unpriced counts resources with a meter that has no price.
	Unpriced int
	ByKind   map[inventory.Kind]int
	ByOwner  []OwnerTotal
	BySteps  []StepTotal
}

// RunRate divides the cost of a month, as everything runs now, by what it is spent on. The
// parts add up to Running exactly.
type RunRate struct {
	Running money.Amount
	// Used is compute that works, Wasted what findings call waste, Unmeasured compute whose
	// duty is unknown, and Other storage, network and services that are not wasted.
	Used, Wasted, Unmeasured, Other money.Amount
}

// OwnerTotal is one team's cost and waste.
type OwnerTotal struct {
	Team  string  // empty: no team tag
	Now   RunRate // as that of the totals
	Waste money.Amount
	// Resources counts what the team owns.
	Resources int
}

// StepTotal is what the findings of one step come to.
type StepTotal struct {
	Step     finding.Step
	Findings int
	Savings  money.Amount
	// Unknown counts findings whose saving is not known; UpTo is their bound.
	Unknown int
	UpTo    money.Amount
	Risk    finding.Level
}
