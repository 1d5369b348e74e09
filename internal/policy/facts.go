package policy

import (
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Facts are the known properties of one resource at one time. Missing ones are unknown in every
// condition.
type Facts struct {
	Now      time.Time
	Resource *inventory.Resource
	// Duty is the resource's verdict; nil, which is unknown, if it was not judged.
	Duty *duty.Verdict
	// GPUs computes figures about its GPUs; the zero Gauge knows none.
	GPUs duty.Gauge
	// Gang are the other machines of the same run; Duty is then that of the whole run.
	Gang []inventory.Ref
	// Hourly is the hourly list price; unpriced is unknown.
	Hourly inventory.Fact[money.Amount]
	// Checkpoint is the time of the newest confirmed checkpoint of its work.
	Checkpoint inventory.Fact[time.Time]
	// Progress is the progress of its work, or of the run of its gang; unknown if it is not judged.
	Progress inventory.Fact[duty.Progress]
	// Budget is the state of the owner's budgets; nil is unknown.
	Budget *Budget
	// PriceDrift is the rate paid over the catalog's, minus 1: 0.1 is 10% more.
	PriceDrift inventory.Fact[float64]
	// Stale is set if the inventory is too old to act on: everything about the resource is unknown.
	Stale bool
}

// LastProgress returns the time since which the work has made no progress: its last step or
// checkpoint, or its start. It is unknown while the machine is idle.
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

// SpentSinceProgress returns the dollars spent since then at the current hourly price.
func (f *Facts) SpentSinceProgress() (money.Amount, bool) {
	since, known := f.LastProgress()
	hourly, priced := f.Hourly.Get()
	if !known || !priced {
		return 0, false
	}
	spent, err := hourly.Mul(int64(f.Now.Sub(since)/time.Second), int64(time.Hour/time.Second))
	return spent, err == nil
}

// DescribeProgress describes for people how long, and for how many dollars, the work has made no
// progress, and how to report progress if it never did.
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

// ReportsProgress reports whether the work ever reported progress: steps, checkpoints or events.
func (f *Facts) ReportsProgress() bool {
	p, known := f.Progress.Get()
	_, saved := f.Checkpoint.Get()
	return known && p.Reported || saved
}

// Budget is the state of a budget for conditions.
type Budget struct {
	// State is ok, warn, gate or over.
	State string
	// UsedShare is spent and reserved over the budget's amount, from 0; ForecastShare the forecast
	// to the end of the period over it.
	UsedShare     float64
	ForecastShare inventory.Fact[float64]
}

// Outcome is a policy's answer about a resource.
type Outcome struct {
	// Answer is True if the policy proposes its action.
	Answer usage.Tristate
	// Parts are the answers of select, where, schedule and when; parts after the first False are
	// omitted.
	Parts []Part
	// Next is the earliest time at which the answer may change while only time passes: a duration
	// is exceeded, a schedule ticks. Zero is never.
	Next time.Time
}

// Part is the answer of one part of a policy.
type Part struct {
	Name   string // "select", "where", "schedule", "when"
	Text   string // the condition as written
	Answer usage.Tristate
	// Why is the reason: the differing value, or the unknown fact.
	Why string
}
