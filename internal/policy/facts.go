package policy

import (
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Facts is what is known of one resource at one time. What is not known is unknown
// in every condition that asks for it.
type Facts struct {
	Now      time.Time
	Resource *inventory.Resource
	// Duty is what it does; nil where it was not judged, which is unknown.
	Duty *duty.Verdict
	// GPUs tells figures about its GPUs; the zero Gauge knows none.
	GPUs duty.Gauge
	// Gang are the other machines of the same run; Duty is then that of the whole.
	Gang []inventory.Ref
	// Hourly is what it costs an hour; unpriced is unknown.
	Hourly inventory.Fact[money.Amount]
	// Checkpoint is when the newest confirmed checkpoint of its work was saved.
	Checkpoint inventory.Fact[time.Time]
	// Budget is the state of the budgets that its owner spends from; nil is unknown.
	Budget *Budget
	// PriceDrift is the rate paid over the catalog's less 1: 0.1 is 10% more.
	PriceDrift inventory.Fact[float64]
	// Stale says that the inventory itself is too old to act on: everything about
	// the resource is unknown.
	Stale bool
}

// Budget is the state of a budget for conditions.
type Budget struct {
	// State is ok, warn, gate or over.
	State string
	// UsedShare is spent and held over the budget's amount, 0 and up; ForecastShare
	// the forecast to the end of the period over it.
	UsedShare     float64
	ForecastShare inventory.Fact[float64]
}

// Outcome is what a policy says of a resource.
type Outcome struct {
	// Answer is True where the policy proposes its action.
	Answer usage.Tristate
	// Parts are the answers it is made of, in the order select, where, schedule,
	// when; parts after the first False are left out.
	Parts []Part
	// Next is the earliest time at which the answer may change although no fact
	// changes, because time goes on: a duration crossed, a schedule's next tick.
	// Zero is never.
	Next time.Time
}

// Part is the answer of one part of a policy.
type Part struct {
	Name   string // "select", "where", "schedule", "when"
	Text   string // the condition as written
	Answer usage.Tristate
	// Why says what decided: the value that differs, the fact that is unknown.
	Why string
}
