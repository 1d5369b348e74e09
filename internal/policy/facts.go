package policy

import (
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
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
	// Progress is that of its work, or of the run of its gang; unknown where it is not judged.
	Progress inventory.Fact[duty.Progress]
	// Budget is the state of the budgets that its owner spends from; nil is unknown.
	Budget *Budget
	// PriceDrift is the rate paid over the catalog's less 1: 0.1 is 10% more.
	PriceDrift inventory.Fact[float64]
	// Stale says that the inventory itself is too old to act on: everything about
	// the resource is unknown.
	Stale bool
}

// LastProgress returns since when the work has made no progress: since its last step or checkpoint,
// or since it began where there was none. It is unknown while the machine rests.
func (f *Facts) LastProgress() (since time.Time, known bool) {
	p, known := f.Progress.Get()
	if !known || p.From.IsZero() {
		return time.Time{}, false
	}
	for _, t := range []time.Time{p.From, p.Since, f.Checkpoint.Or(time.Time{}), f.Resource.CreatedAt} {
		if t.After(since) && !t.After(f.Now) {
			since = t
		}
	}
	return since, !since.IsZero()
}

// SpentSinceProgress returns the dollars since then, at the price of an hour of now.
func (f *Facts) SpentSinceProgress() (money.Amount, bool) {
	since, known := f.LastProgress()
	hourly, priced := f.Hourly.Get()
	if !known || !priced {
		return 0, false
	}
	spent, err := hourly.Mul(int64(f.Now.Sub(since)/time.Second), int64(time.Hour/time.Second))
	return spent, err == nil
}

// DescribeProgress says for people for how long, and for how many dollars, the work has made no
// progress, and what to add where it never reported any.
func (f *Facts) DescribeProgress() string {
	since, known := f.LastProgress()
	if !known {
		return "its progress is unknown"
	}
	text := "no progress for " + plain.Duration(f.Now.Sub(since))
	if spent, known := f.SpentSinceProgress(); known {
		text += " and " + spent.Dollars()
	}
	if !f.ReportsProgress() {
		return text + ": its work never reported any; call curfew.step(n), or name its checkpoint folder"
	}
	if p := f.Progress.Or(duty.Progress{}); p.Step > 0 {
		return text + ": the highest step is " + plain.Number(p.Step, 0) + ", of " + plain.Time(since)
	}
	return text + ": the newest checkpoint is of " + plain.Time(since)
}

// ReportsProgress says whether the work ever reported progress: steps, or checkpoints.
func (f *Facts) ReportsProgress() bool {
	p, known := f.Progress.Get()
	_, saved := f.Checkpoint.Get()
	return known && p.Reported || saved
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

// Unknown says why the answer is unknown; empty where it is not.
func (o Outcome) Unknown() string {
	for _, part := range o.Parts {
		if part.Answer == usage.Unknown {
			return part.Why
		}
	}
	return ""
}

// Part is the answer of one part of a policy.
type Part struct {
	Name   string // "select", "where", "schedule", "when"
	Text   string // the condition as written
	Answer usage.Tristate
	// Why says what decided: the value that differs, the fact that is unknown.
	Why string
}
