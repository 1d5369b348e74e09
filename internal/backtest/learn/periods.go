package learn

import (
	"maps"
	"slices"
)

// Tally sums the results of one rule. Released is microseconds.
type Tally struct {
	Released int64
	Restarts int64
	// Interrupted counts releases after which work came back within the restart cost.
	Interrupted int64
}

// Release counts some releases of a length; busy says that work ended them.
func (t *Tally) Release(length int64, busy bool, restart int64, times int64) {
	t.Released += length * times
	if busy {
		t.Restarts += times
		if length <= restart {
			t.Interrupted += times
		}
	}
}

// Add adds another tally.
func (t *Tally) Add(o Tally) {
	t.Released += o.Released
	t.Restarts += o.Restarts
	t.Interrupted += o.Interrupted
}

// Net is the released time less a restart cost for each restart.
func (t Tally) Net(restart int64) int64 { return t.Released - t.Restarts*restart }

// Period is an idle period: a run of consecutive idle samples.
type Period struct {
	Samples int64
	// Busy says that a busy sample ended it, and not a missing one or the trace.
	Busy bool
}

// Periods counts equal idle periods.
type Periods map[Period]int64

// Fixed returns the tally of a fixed wait before each release.
func (s Periods) Fixed(wait, step, restart int64) Tally {
	var sum Tally
	for p, n := range s {
		if length := p.Samples*step - wait; length > 0 {
			sum.Release(length, p.Busy, restart, n)
		}
	}
	return sum
}

// PerfectForesight returns the tally of a rule that knows the trace beforehand: it releases a whole
// period if that is longer than a restart costs, or if no restart follows.
func (s Periods) PerfectForesight(step, restart int64) Tally {
	var sum Tally
	for p, n := range s {
		if length := p.Samples * step; !p.Busy || length > restart {
			sum.Release(length, p.Busy, restart, n)
		}
	}
	return sum
}

// BestFixed is the fixed wait with the highest net saving in hindsight, among all
// multiples of the step, and of equals the longest, which restarts least. A wait
// between two lengths of periods releases the same periods as the shorter and
// each of them later, so only 0 and the lengths themselves can be best.
func (s Periods) BestFixed(step, restart int64) (wait int64, best Tally) {
	lengths := map[int64][2]int64{0: {}} // how many, and how many that work ended
	for p, n := range s {
		l := lengths[p.Samples]
		l[0] += n
		if p.Busy {
			l[1] += n
		}
		lengths[p.Samples] = l
	}
	waits := slices.Sorted(maps.Keys(lengths))
	wait = waits[len(waits)-1]
	var net, most, over int64 // over is how many periods are longer than the wait
	for i := len(waits) - 2; i >= 0; i-- {
		l := lengths[waits[i+1]]
		over += l[0]
		net += over*(waits[i+1]-waits[i])*step - l[1]*restart
		if net > most {
			most, wait = net, waits[i]
		}
	}
	wait *= step
	return wait, s.Fixed(wait, step, restart)
}
