package backtest

import (
	"math/bits"
	"slices"
	"time"
)

// Released is the course of a release of a resource, by its samples.
type Released struct {
	// End is when the resource is back, a microsecond after the release at the earliest.
	End time.Time
	// ByWork says that work came back to it then. Otherwise a sample is missing, or the
	// trace ends.
	ByWork bool
	// Sampled is how much of the release samples cover, each for one step.
	Sampled time.Duration
}

// Released returns what a release at a time comes to. It lasts to the first sample after
// it in which a signal that means compute is at or above its floor; of stalled work, to
// the first rise of a counter; else until a sample is missing or the trace ends.
//
// GPUs decide where any was measured by then, otherwise the signals of the host; where
// neither was, it ends at once.
func (a *Account) Released(resource int, at time.Time, stalled bool) Released {
	r, t := a.resources[resource], at.UnixMicro()
	return a.released(r, t, stalled, func(k int) runs { return r.series[k].byTime().runsAround(t, a.step) })
}

// Release releases a resource now and returns what that comes to. Until its end the
// resource is not there, and what is sampled within it stays hidden; what there was before
// is forgotten. A resource that is away already is back when it was to be.
func (f *Feed) Release(resource int, stalled bool) Released {
	place := f.place(resource)
	l := f.listeners[place]
	if f.now < l.from {
		return Released{End: instant(f.now)}
	}
	out := f.a.released(l.traced, f.now, stalled, func(k int) runs {
		if p := &l.series[k]; l.plain {
			return runs{player: p.clone(), first: p.was, begun: p.count > 0}
		}
		return l.traced.series[k].byTime().runsAround(f.now, f.a.step)
	})
	l.from, l.next = out.End.UnixMicro(), never
	for k := range l.series {
		p := &l.series[k]
		if l.plain { // what was handed over ahead is handed over again from there on
			p.again, p.given = p.was, 0
		}
		l.next = min(l.next, p.due(l))
	}
	f.queue.push(entry{l.next, place})
	return out
}

// runs reads a series on from a run.
type runs struct {
	player
	first level // before the present run
	begun bool  // the present run has yet to be read
}

// runsAround returns the runs from one on that began two steps before a time or earlier,
// if there is one. What is older says only that a row is missing since.
func (s *series) runsAround(at, step int64) runs {
	p := s.player(step)
	p.seek(at - 2*step)
	return runs{player: p}
}

func (r *runs) next() (l level, values []float64, ok bool) {
	switch {
	case r.first.count > 0:
		l, r.first = r.first, level{}
		return l, []float64{l.value}, true
	case r.begun:
		r.begun = false
	case !r.advance():
		return level{}, nil, false
	}
	return r.level(), r.values, true
}

// released follows every series from a release on. Each ends it where work comes back,
// or a step after the last row before a missing one; the first of them counts.
func (a *Account) released(r *traced, at int64, stalled bool, open func(series int) runs) Released {
	f := followed{at: at, step: a.step, stalled: stalled, host: true, floors: &a.floors, work: never, missing: never}
	for _, s := range r.series {
		f.host = f.host && !s.byTime().has(s.compute, at)
	}
	out := Released{End: instant(at + 1)}
	first := slices.IndexFunc(r.series, func(s *series) bool { return s.byTime().has(f.slots(s), at) })
	if first < 0 {
		return out // nothing was measured, and what is unknown is not released
	}
	for k, s := range r.series {
		if s = s.byTime(); s.compute|s.hostWork|s.counters != 0 {
			f.follow(s, open(k))
		}
	}
	switch {
	case f.work != never && f.work <= f.missing:
		out.End, out.ByWork = instant(f.work), true
	case f.missing != never:
		out.End = instant(max(at+1, f.missing))
	}
	out.Sampled = f.sampled(r.series[first].byTime(), open(first), out.End.UnixMicro())
	return out
}

// has reports whether any of some slots has a value of a time or before.
func (s *series) has(slots uint32, at int64) bool {
	for left := slots; left != 0; left &= left - 1 {
		if s.began[bits.TrailingZeros32(left)] <= at {
			return true
		}
	}
	return false
}

// followed is a release as far as series were followed.
type followed struct {
	at, step int64
	stalled  bool
	host     bool // no GPU was measured: the host's signals decide
	floors   *[32]float64
	// work is when it comes back, missing when the first row is missing.
	work, missing int64
}

// slots returns the slots of a series that say whether there is work.
func (f *followed) slots(s *series) uint32 {
	if f.host {
		return s.compute | s.hostWork
	}
	return s.compute
}

// until returns how many rows of a run are at or before a time.
func (l level) until(t, step int64) int64 {
	if t < l.at {
		return 0
	}
	return min(l.count, (t-l.at)/step+1)
}

func (f *followed) follow(s *series, in runs) {
	slots := f.slots(s)
	// newest is the time of the newest row that says whether there is work; 0 is none of
	// those that are read.
	newest, measured := int64(0), s.has(slots, f.at)
	counters := slices.Clone(in.values)
	for {
		l, values, ok := in.next()
		if !ok {
			break
		}
		before, says := l.until(f.at, f.step), l.has&slots != 0
		if before > 0 {
			copy(counters, values)
			if says {
				newest = l.at + (before-1)*f.step
			}
			if before == l.count {
				continue
			}
		}
		at := l.at + before*f.step
		if measured && at-newest-f.step >= (f.step+1)/2 {
			break
		}
		if end := min(f.work, f.missing); at > end && (!measured || newest+f.step >= end) {
			return
		}
		if f.worked(s, l.has, values, counters, at) {
			f.work = min(f.work, at)
			return
		}
		if says {
			newest, measured = l.at+(l.count-1)*f.step, true
		}
	}
	if measured {
		f.missing = min(f.missing, max(f.at, newest+f.step))
	}
}

// worked reports whether a row ends the release, and keeps its counters.
func (f *followed) worked(s *series, has uint32, values, counters []float64, at int64) bool {
	if !f.stalled {
		for left := has & f.slots(s); left != 0; left &= left - 1 {
			i := bits.TrailingZeros32(left)
			if values[i] >= f.floors[s.slots[i]] {
				return true
			}
		}
		return false
	}
	for left := has & s.counters; left != 0; left &= left - 1 {
		i := bits.TrailingZeros32(left)
		if s.began[i] < at && values[i] > counters[i] {
			return true
		}
		counters[i] = values[i]
	}
	return false
}

// sampled returns how much of the release rows of a series cover.
func (f *followed) sampled(s *series, in runs, end int64) time.Duration {
	slots, covered := f.slots(s), int64(0)
	for {
		l, _, ok := in.next()
		if !ok || l.at >= end {
			return span(covered)
		}
		before := l.until(f.at, f.step)
		if l.has&slots == 0 {
			continue
		}
		if before > 0 { // of the newest row, the rest of its step
			covered = max(0, l.at+before*f.step-f.at)
		}
		covered += (l.until(end-1, f.step) - before) * f.step
	}
}
