package backtest

import (
	"maps"
	"slices"
)

// tally adds up what one rule did, in microseconds and counts.
type tally struct {
	released int64
	restarts int64
	cutShort int64
}

// release counts a release of a length that work ended, or nothing did.
func (t *tally) release(length int64, busy bool, restart int64, times int64) {
	t.released += length * times
	if busy {
		t.restarts += times
		if length <= restart {
			t.cutShort += times
		}
	}
}

func (t tally) net(restart int64) int64 { return t.released - t.restarts*restart }

// stretch is a run of consecutive idle samples.
type stretch struct {
	samples int64
	// busy says that a busy sample ended it, and not a missing one or the trace.
	busy bool
}

// stretches hands every stretch of a track to each, in order.
func (t *track) stretches(step int64, each func(stretch)) {
	var k int64
	for c := t.cursor(step); c.advance(); {
		if k > 0 && (c.run.gap || !c.run.idle) {
			each(stretch{k, !c.run.gap})
			k = 0
		}
		if c.run.idle {
			k += c.run.count
		}
	}
	if k > 0 {
		each(stretch{k, false})
	}
}

// totals is what a trace holds before anything is released.
type totals struct {
	samples, idle int64
	unknown       int64
	stretches     map[stretch]int64 // how many there are of each
}

func (t *trace) totals() totals {
	sum := totals{stretches: map[stretch]int64{}}
	for _, track := range t.tracks {
		for c := track.cursor(t.step); c.advance(); {
			sum.samples += c.run.count
			if c.run.idle {
				sum.idle += c.run.count
			}
			sum.unknown += max(0, c.run.offset)
		}
		sum.unknown += track.unknown
		track.stretches(t.step, func(s stretch) { sum.stretches[s]++ })
	}
	return sum
}

// fixed is what a fixed wait before letting go does.
func (s totals) fixed(wait, step, restart int64) tally {
	var sum tally
	for st, n := range s.stretches {
		if length := st.samples*step - wait; length > 0 {
			sum.release(length, st.busy, restart, n)
		}
	}
	return sum
}

// oracle is what knowing the future does: a stretch is released whole where that
// is longer than a restart costs, or no restart follows.
func (s totals) oracle(step, restart int64) tally {
	var sum tally
	for st, n := range s.stretches {
		if length := st.samples * step; !st.busy || length > restart {
			sum.release(length, st.busy, restart, n)
		}
	}
	return sum
}

// bestFixed is the fixed wait with the highest net saving in hindsight, among all
// multiples of the step, and of equals the longest, which restarts least. A wait
// between two lengths of stretches releases the same stretches as the shorter and
// each of them later, so only 0 and the lengths themselves can be best.
func (s totals) bestFixed(step, restart int64) (wait int64, best tally) {
	lengths := map[int64][2]int64{0: {}} // how many, and how many that work ended
	for st, n := range s.stretches {
		l := lengths[st.samples]
		l[0] += n
		if st.busy {
			l[1] += n
		}
		lengths[st.samples] = l
	}
	waits := slices.Sorted(maps.Keys(lengths))
	wait = waits[len(waits)-1]
	var net, most, over int64 // over is how many stretches are longer than the wait
	for i := len(waits) - 2; i >= 0; i-- {
		l := lengths[waits[i+1]]
		over += l[0]
		net += over*(waits[i+1]-waits[i])*step - l[1]*restart
		if net > most {
			most, wait = net, waits[i]
		}
	}
	wait *= step
	return wait, s.fixed(wait, step, restart)
}

// deadman is what letting go a fixed time after the first sample does, busy or
// not: until the next busy sample, from which the time runs anew. Time that was
// not sampled is not counted as released.
func (t *track) deadman(after, step, restart int64, sum *tally) {
	ends := t.first + after
	for c := t.cursor(step); c.advance(); {
		from, to := c.run.start, c.run.start+c.run.count*step
		if c.run.idle {
			sum.released += max(0, to-max(from, ends))
			continue
		}
		for {
			wake := from
			if n := (ends - from + step - 1) / step; ends > from {
				wake = from + n*step
			}
			if wake >= to {
				sum.released += max(0, to-max(from, ends))
				break
			}
			sum.released += max(0, wake-max(from, ends))
			sum.restarts++
			if wake-ends <= restart {
				sum.cutShort++
			}
			ends = wake + after
			from = wake
		}
	}
}
