package backtest

import (
	"maps"
	"math"
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

func (t *tally) add(o tally) {
	t.released += o.released
	t.restarts += o.restarts
	t.cutShort += o.cutShort
}

func (t tally) net(restart int64) int64 { return t.released - t.restarts*restart }

// stretch is a run of consecutive idle samples.
type stretch struct {
	samples int64
	// busy says that a busy sample ended it, and not a missing one or the trace.
	busy bool
}

// dated is a stretch with its times: that of its first sample, and that at which it
// was known to be over, which is never for the one that the trace ends in.
type dated struct {
	stretch
	from, known int64
}

// stretches hands every stretch of a track to each, in order.
func (t *track) stretches(step int64, each func(dated)) {
	var s dated
	for c := t.cursor(step); c.advance(); {
		if s.samples > 0 && (c.run.gap || !c.run.idle) {
			s.busy, s.known = !c.run.gap, c.run.start
			each(s)
			s = dated{}
		}
		if c.run.idle {
			if s.samples == 0 {
				s.from = c.run.start
			}
			s.samples += c.run.count
		}
	}
	if s.samples > 0 {
		s.known = math.MaxInt64
		each(s)
	}
}

// counted is how many samples there are, and how many of them idle.
type counted struct{ samples, idle int64 }

// totals is what a trace holds before anything is released.
type totals struct {
	counted
	by        []counted // by resource
	unknown   int64
	stretches map[stretch]int64 // how many there are of each
}

func (t *trace) totals() totals {
	sum := totals{stretches: map[stretch]int64{}}
	sum.by = make([]counted, len(t.tracks))
	for i, track := range t.tracks {
		by := &sum.by[i]
		var drift int64 // since the last gap: samples that come early make up for late ones
		for c := track.cursor(t.step); c.advance(); {
			by.samples += c.run.count
			if c.run.idle {
				by.idle += c.run.count
			}
			if c.run.gap {
				sum.unknown += max(0, drift) + c.run.offset
				drift = 0
			} else {
				drift += c.run.offset
			}
		}
		sum.samples, sum.idle = sum.samples+by.samples, sum.idle+by.idle
		sum.unknown += max(0, drift) + track.unknown
		track.stretches(t.step, func(s dated) { sum.stretches[s.stretch]++ })
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
