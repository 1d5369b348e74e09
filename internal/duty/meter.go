package duty

import (
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// Times within a tracker are nanoseconds since 1970.

// never is before every time.
const never = math.MinInt64

// forever is longer than anything is remembered, in seconds since or before 1970; no
// sum of times overflows below it.
const forever = 8_000_000_000

// longestStep bounds what a point can stand for.
const longestStep = 10 * 365 * 24 * time.Hour

// staleSteps is how many steps old the newest point of a signal may be for it to say
// anything of now (see [usage.Window.Fresh]).
const staleSteps = 3

// blocks is how many blocks of time the look-back touches at most (see [Horizon]).
const blocks = 5

// meter is one signal of one GPU or of the machine: of its points, what a verdict can
// ask about any time from the newest points on.
type meter struct {
	signal usage.Signal
	// opened is what the points were handed over with. Points of another source, or of
	// another step, start the meter again.
	opened *usage.Opened
	// start, count, mean and max are the newest points: equal ones, a step apart from
	// one another. They may reach past the time that is asked about.
	start, count int64
	mean, max    float64
	// last is the time of the point before those, never without one. covered is the
	// time that points have covered since one was missing last, up to that point, and
	// quiet the time of the newest of them under the floor of compute.
	last, covered, quiet int64
	marks                [blocks]mark
	crest                crest
	counter              *counter // of signals that count
	repeats              *repeats // of signals that a live exporter does not repeat; nil before one was
}

// mark is the first point within a block of time since one was missing last, and what
// points had covered of the unbroken time at the end of its step.
type mark struct{ at, covered int64 }

// counter is what a meter that counts keeps besides: the value of the last point before
// the newest ones, when it rose last, and for each block of time its first point and
// how many points rose.
type counter struct {
	value  float64
	rose   int64
	blocks [blocks]tally
}

type tally struct {
	first int64
	rises int32
	// rose says that the first point is one of the rises.
	rose bool
}

// newMeter returns a meter of one point or of several equal ones.
func newMeter(s usage.Signal, o *usage.Opened, start, count int64, p usage.Point) meter {
	m := meter{signal: s, opened: o, start: start, count: count, mean: p.Mean, max: p.Max, last: never, quiet: never}
	for i := range m.marks {
		m.marks[i].at = never
	}
	if s.Counter() {
		m.counter = &counter{rose: never}
		for i := range m.counter.blocks {
			m.counter.blocks[i].first = never
		}
	}
	return m
}

func (m *meter) step() int64 { return int64(m.opened.Step) }

// end returns the time of the newest point of all.
func (m *meter) end() int64 { return m.start + (m.count-1)*m.step() }

// newest returns the time of the newest point at a time that is not before the newest
// points.
func (m *meter) newest(now int64) int64 {
	end := m.end()
	if now >= end || m.count == 1 {
		return end
	}
	return m.start + (now-m.start)/m.step()*m.step()
}

// joins says whether no point is missing between the newest points and those before
// them: jitter leaves a hole of less than half a step.
func (m *meter) joins() bool {
	step := m.step()
	return m.last != never && m.start-m.last-step < (step+1)/2
}

// gain is the time that the first of the newest points covers and the one before does
// not.
func (m *meter) gain() int64 { return min(m.step(), m.start-m.last) }

// fold makes the newest points those that came before.
func (m *meter) fold(k *Tracker) {
	end := m.end()
	if m.signal.Repeats() > 0 {
		m.repeat()
	}
	if k.keepsPeaks(m.signal) {
		m.crest = m.crest.add(end, m.max, k, m)
	}
	if m.max < k.a.Floor(m.signal, m.opened.Step) {
		m.quiet = end
	}
	if m.joins() {
		m.covered += m.gain()
	} else {
		m.covered = m.step()
		for i := range m.marks {
			m.marks[i].at = never
		}
	}
	newest := k.blockOf(end)
	for b := max(k.blockOf(m.start), newest-blocks+1); b <= newest; b++ {
		from := b * k.block
		at := m.from(from)
		if at >= from+k.block {
			continue // no point within the block
		}
		i := ((b % blocks) + blocks) % blocks
		if m.marks[i].at < from {
			m.marks[i] = mark{at, m.covered + at - m.start}
		}
		if m.counter != nil {
			m.counter.count(i, from, at, at == m.start && m.rises())
		}
	}
	if m.counter != nil {
		if m.rises() {
			m.counter.rose = m.start
		}
		m.counter.value = m.max
	}
	m.covered += end - m.start
	m.last = end
}

// from returns the first of the newest points that is not before a time, which is not
// after the last of them by more than a step.
func (m *meter) from(at int64) int64 {
	if at <= m.start {
		return m.start
	}
	step := m.step()
	return m.start + (at-m.start+step-1)/step*step
}

// rises says whether the newest points are higher than the one before.
func (m *meter) rises() bool { return m.last != never && m.max > m.counter.value }

// count adds the first of several equal points within a block.
func (c *counter) count(i, from, at int64, rose bool) {
	t := &c.blocks[i]
	if t.first < from {
		*t = tally{first: at, rose: rose}
	}
	if rose {
		t.rises++
	}
}

// stretch is unbroken time up to the newest point of a signal (see [usage.Stretch]).
type stretch struct {
	from, to int64
	coverage float64
}

// none is no time at all.
var none = stretch{never, never, 0}

// length returns how much of the stretch has passed at now.
func (s stretch) length(now int64) int64 {
	if s.to == never {
		return 0
	}
	return max(0, min(now, s.to)-s.from)
}

// and returns the time in both.
func (s stretch) and(o stretch) stretch {
	return stretch{max(s.from, o.from), min(s.to, o.to), min(s.coverage, o.coverage)}
}

// after cuts off what is before a time.
func (s stretch) after(from int64) stretch {
	s.from = max(s.from, from)
	return s
}

// unbroken returns the time up to the newest point at now in which none is missing, of
// the points from the horizon on.
func (m *meter) unbroken(now, horizon int64) stretch {
	step := m.step()
	if step <= 0 {
		return none
	}
	last := m.newest(now)
	from, covered := m.start, last-m.start+step
	switch {
	case horizon > m.start:
		from = m.from(horizon)
		covered = last - from + step
	case m.last >= horizon && m.joins():
		first := mark{at: math.MaxInt64}
		for _, k := range m.marks {
			if k.at >= horizon && k.at < first.at {
				first = k
			}
		}
		covered += m.covered + m.gain() - first.covered
		from = first.at
	}
	return stretch{from, last + step, float64(covered) / float64(last+step-from)}
}

// reached returns the time of the newest point at now that is at or above a line, of
// the points from the horizon on; never without one.
func (m *meter) reached(line float64, now, horizon int64) int64 {
	if m.max >= line {
		return m.newest(now)
	}
	if at := m.crest.reached(line); at >= horizon {
		return at
	}
	return never
}

// peak returns the highest point from a time on.
func (m *meter) peak(from int64) float64 {
	return max(m.max, m.crest.from(from))
}

// progress returns the first point of a counter from the horizon on, how many rose
// after it, and when the last one did; never where none did.
func (m *meter) progress(horizon int64) (first, rises, rose int64) {
	first, rose = m.from(horizon), never
	if m.last < horizon {
		return first, 0, never
	}
	at := tally{first: math.MaxInt64}
	for _, t := range m.counter.blocks {
		if t.first < horizon {
			continue
		}
		rises += int64(t.rises)
		if t.first < at.first {
			at = t
		}
	}
	if at.rose {
		rises--
	}
	if m.counter.rose > at.first {
		rose = m.counter.rose
	}
	if m.rises() {
		rises++
		rose = m.start
	}
	return at.first, rises, rose
}
