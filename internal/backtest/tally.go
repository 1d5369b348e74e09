package backtest

import (
	"maps"
	"math"
	"slices"

	"github.com/curfew-dev/curfew/internal/money"
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
	by      []counted // by resource
	unknown int64
	rests
	// rated divides the resources by their price an hour, class says in which part each is.
	rated []rated
	class []int
}

// rests counts stretches by what they have in common.
type rests map[stretch]int64

// rated is the resources of one price an hour; nil is not known.
type rated struct {
	hourly *money.Amount
	counted
	rests
}

// divide makes a part for each price.
func (s *totals) divide(hourly []*money.Amount) {
	known := map[money.Amount]int{}
	unknown := -1
	for _, h := range hourly {
		i, ok := unknown, unknown >= 0
		if h != nil {
			i, ok = known[*h]
		}
		if !ok {
			if i = len(s.rated); h != nil {
				known[*h] = i
			} else {
				unknown = i
			}
			s.rated = append(s.rated, rated{hourly: h, rests: rests{}})
		}
		s.class = append(s.class, i)
	}
	if len(s.rated) == 1 {
		s.rated[0].rests = s.rests
	}
}

// share is a part of the resources, of one price an hour, and what a rule did with it.
type share struct {
	hourly *money.Amount
	counted
	tally
}

func (c *counted) count(o counted) { c.samples, c.idle = c.samples+o.samples, c.idle+o.idle }

// together adds up shares; its price is none.
func together(parts []share) share {
	var all share
	for i := range parts {
		all.count(parts[i].counted)
		all.add(parts[i].tally)
	}
	return all
}

// shares returns an empty share for each price.
func (s *totals) shares() []share {
	out := make([]share, len(s.rated))
	for i := range out {
		out[i].hourly = s.rated[i].hourly
	}
	return out
}

// each is what a rule does with every share of the resources.
func (s *totals) each(does func(rests) tally) []share {
	out := s.shares()
	for i := range out {
		out[i].counted, out[i].tally = s.rated[i].counted, does(s.rated[i].rests)
	}
	return out
}

// split adds up by share what a rule did with each resource.
func (s *totals) split(by []tally) []share {
	out := s.shares()
	for i := range by {
		out[s.class[i]].count(s.by[i])
		out[s.class[i]].add(by[i])
	}
	return out
}

func (t *trace) totals() totals {
	sum := totals{rests: rests{}, by: make([]counted, len(t.tracks))}
	sum.divide(t.hourly)
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
		sum.count(*by)
		sum.unknown += max(0, drift) + track.unknown
		part := &sum.rated[sum.class[i]]
		part.count(*by)
		track.stretches(t.step, func(s dated) {
			if sum.rests[s.stretch]++; len(sum.rated) > 1 {
				part.rests[s.stretch]++
			}
		})
	}
	return sum
}

// fixed is what a fixed wait before letting go does.
func (s rests) fixed(wait, step, restart int64) tally {
	var sum tally
	for st, n := range s {
		if length := st.samples*step - wait; length > 0 {
			sum.release(length, st.busy, restart, n)
		}
	}
	return sum
}

// oracle is what knowing the future does: a stretch is released whole where that
// is longer than a restart costs, or no restart follows.
func (s rests) oracle(step, restart int64) tally {
	var sum tally
	for st, n := range s {
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
func (s rests) bestFixed(step, restart int64) (wait int64, best tally) {
	lengths := map[int64][2]int64{0: {}} // how many, and how many that work ended
	for st, n := range s {
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
