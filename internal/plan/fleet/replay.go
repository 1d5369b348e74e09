package fleet

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
)

// replayInterval is the time between readings of a replayed load: recorded loads have no finer steps.
const replayInterval = 5 * time.Minute

// Load is a stretch of time with one load, in replicas at full rate; unknown where nothing measured it.
type Load struct {
	Replicas inventory.Fact[float64]
	For      time.Duration
}

// Replayed is the outcome of a replay of loads.
type Replayed struct {
	// Span is the replayed time, and Paid the sum over replicas of the time that they were paid.
	Span, Paid time.Duration
	// Short is the time in which the load exceeded the replicas that served.
	Short time.Duration
	// Least and Most are the smallest and the largest size.
	Least, Most int
}

// MeanReplicas returns the mean number of paid replicas; 0 without time.
func (r Replayed) MeanReplicas() float64 {
	if r.Span == 0 {
		return 0
	}
	return r.Paid.Seconds() / r.Span.Seconds()
}

// ReplayLoad lets [Decide] size a fleet under recorded loads, from a size on. Each new replica serves after
// the time to add one. The server of the configuration is not used: loads are in replicas already.
func ReplayLoad(c Config, loads []Load, start int) Replayed {
	c.Server = Server{
		Law: Batch, Limit: 1, Profile: capacity.Profile{PerItem: time.Second}, Objective: time.Hour,
	}
	c.Interval = replayInterval
	c = c.withDefaults()
	var out Replayed
	out.Least, out.Most = start, start
	state, size, at := State{}, start, time.Unix(0, 0).UTC()
	var starting []time.Time // when each new replica serves, in order
	for _, l := range loads {
		for left := l.For; left > 0; left -= c.Interval {
			step := min(left, c.Interval)
			for len(starting) > 0 && !starting[0].After(at) {
				starting = starting[1:]
			}
			r := Reading{At: at, Ready: size - len(starting), Actual: size, Demand: Demand{Why: "it was not measured"}}
			load, known := l.Replicas.Get()
			if known {
				r.Demand = Demand{Known: true, Rate: l.Replicas}
			}
			var d Decision
			state, d = Decide(c, state, r)
			for range d.Wanted - size {
				starting = append(starting, at.Add(c.AddTime))
			}
			starting = starting[:max(0, min(len(starting), d.Wanted-r.Ready))]
			size = d.Wanted
			out.Least, out.Most = min(out.Least, size), max(out.Most, size)
			out.Span += step
			out.Paid += time.Duration(size) * step
			if known && load > float64(size-len(starting)) {
				out.Short += step
			}
			at = at.Add(step)
		}
	}
	return out
}
