package duty

import (
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// Times within a tracker are nanoseconds since 1970.

// never is before every time.
const never = math.MinInt64

// maxSeconds bounds times, in seconds since or before 1970, so that no sum of times overflows.
const maxSeconds = 8_000_000_000

// longestStep bounds the step of a point.
const longestStep = 10 * 365 * 24 * time.Hour

// staleSteps is the age in steps up to which the newest point of a signal is fresh (see
// [usage.Window.Fresh]).
const staleSteps = 3

// blocks is the number of blocks of time that a look-back touches at most (see [Horizon]).
const blocks = 5

// meter keeps one signal of one GPU or of the machine: of its points, only what a verdict at or
// after the newest of them needs.
type meter struct {
	signal usage.Signal
	// opened describes the source of the points. A point of another source or with another step
	// resets the meter.
	opened *usage.SourceInfo
	// start, count, mean and max describe the newest points: equal ones, one step apart. They may
	// extend past the time of an evaluation.
	start, count int64
	mean, max    float64
	// previousAt is the time of the point before those, or never. covered is the time covered up to
	// that point since the last gap, and lastQuietAt the time of the newest point below the floor
	// of compute.
	previousAt, covered, lastQuietAt int64
	marks                            [blocks]mark
	maxima                           maxima
	counter                          *counter // of counters only
	// of signals that a live exporter does not repeat; nil until a value repeats
	repetition *repetition
}

// mark is the first point within a block of time after the last gap, and the time covered since the
// gap up to the end of its step.
type mark struct{ at, covered int64 }

// counter is the additional state of a counter's meter: the value before the newest points, the
// time of the last rise, and for each block its first point and the number of rises.
type counter struct {
	value    float64
	lastRise int64
	blocks   [blocks]tally
}

type tally struct {
	first int64
	rises int32
	// firstRose is set if the first point is one of the rises.
	firstRose bool
}

// newMeter returns a meter of one or several equal points.
func newMeter(s usage.Signal, o *usage.SourceInfo, start, count int64, p usage.Point) meter {
	m := meter{
		signal: s, opened: o, start: start, count: count, mean: p.Mean, max: p.Max, previousAt: never,
		lastQuietAt: never,
	}
	for i := range m.marks {
		m.marks[i].at = never
	}
	if s.Counter() {
		m.counter = &counter{lastRise: never}
		for i := range m.counter.blocks {
			m.counter.blocks[i].first = never
		}
	}
	return m
}

func (m *meter) step() int64 { return int64(m.opened.Step) }

// end returns the time of the newest point, including points after the time of an evaluation.
func (m *meter) end() int64 { return m.start + (m.count-1)*m.step() }

// newestAt returns the time of the newest point at now, which must not be before the newest points.
func (m *meter) newestAt(now int64) int64 {
	end := m.end()
	if now >= end || m.count == 1 {
		return end
	}
	return m.start + (now-m.start)/m.step()*m.step()
}

// isContiguous reports whether no point is missing between the newest points and those before them.
// A gap of less than half a step is jitter.
func (m *meter) isContiguous() bool {
	step := m.step()
	return m.previousAt != never && m.start-m.previousAt-step < (step+1)/2
}

// coverageGain returns the time that the first of the newest points covers and the one before does
// not.
func (m *meter) coverageGain() int64 { return min(m.step(), m.start-m.previousAt) }

// fold moves the newest points into the summary of earlier ones.
func (m *meter) fold(k *Tracker) {
	end := m.end()
	if m.signal.FrozenAfter() > 0 {
		m.recordRepetition()
	}
	if k.keepsPeaks(m.signal) {
		m.maxima = m.maxima.add(end, m.max, k, m)
	}
	if m.max < k.activity.Floor(m.signal, m.opened.Step) {
		m.lastQuietAt = end
	}
	if m.isContiguous() {
		m.covered += m.coverageGain()
	} else {
		m.covered = m.step()
		for i := range m.marks {
			m.marks[i].at = never
		}
	}
	newest := k.blockOf(end)
	for b := max(k.blockOf(m.start), newest-blocks+1); b <= newest; b++ {
		from := b * k.block
		at := m.firstSince(from)
		if at >= from+k.block {
			continue // no point within the block
		}
		i := ((b % blocks) + blocks) % blocks
		if m.marks[i].at < from {
			m.marks[i] = mark{at, m.covered + at - m.start}
		}
		if m.counter != nil {
			m.counter.addPoint(i, from, at, at == m.start && m.hasRisen())
		}
	}
	if m.counter != nil {
		if m.hasRisen() {
			m.counter.lastRise = m.start
		}
		m.counter.value = m.max
	}
	m.covered += end - m.start
	m.previousAt = end
}

// firstSince returns the first of the newest points at or after a time, which is at most one step
// after the last of them.
func (m *meter) firstSince(at int64) int64 {
	if at <= m.start {
		return m.start
	}
	step := m.step()
	return m.start + (at-m.start+step-1)/step*step
}

// hasRisen reports whether the newest points are higher than the previous one.
func (m *meter) hasRisen() bool { return m.previousAt != never && m.max > m.counter.value }

// addPoint adds the first of several equal points within a block.
func (c *counter) addPoint(i, from, at int64, rose bool) {
	t := &c.blocks[i]
	if t.first < from {
		*t = tally{first: at, firstRose: rose}
	}
	if rose {
		t.rises++
	}
}

// stretch is uninterrupted time up to the newest point of a signal (see [usage.Stretch]).
type stretch struct {
	from, to int64
	coverage float64
}

// noStretch is an empty stretch.
var noStretch = stretch{never, never, 0}

// length returns how much of the stretch has passed at now.
func (s stretch) length(now int64) int64 {
	if s.to == never {
		return 0
	}
	return max(0, min(now, s.to)-s.from)
}

// intersect returns the time in both stretches, with the lower coverage.
func (s stretch) intersect(o stretch) stretch {
	return stretch{max(s.from, o.from), min(s.to, o.to), min(s.coverage, o.coverage)}
}

// startingAt cuts off the time before from.
func (s stretch) startingAt(from int64) stretch {
	s.from = max(s.from, from)
	return s
}

// unbroken returns the time without a gap up to the newest point at now, from the horizon on.
func (m *meter) unbroken(now, horizon int64) stretch {
	step := m.step()
	if step <= 0 {
		return noStretch
	}
	last := m.newestAt(now)
	from, covered := m.start, last-m.start+step
	switch {
	case horizon > m.start:
		from = m.firstSince(horizon)
		covered = last - from + step
	case m.previousAt >= horizon && m.isContiguous():
		first := mark{at: math.MaxInt64}
		for _, k := range m.marks {
			if k.at >= horizon && k.at < first.at {
				first = k
			}
		}
		covered += m.covered + m.coverageGain() - first.covered
		from = first.at
	}
	return stretch{from, last + step, float64(covered) / float64(last+step-from)}
}

// lastReached returns the time of the newest point at or above a limit, from the horizon on; never
// without one.
func (m *meter) lastReached(line float64, now, horizon int64) int64 {
	if m.max >= line {
		return m.newestAt(now)
	}
	if at := m.maxima.lastReached(line); at >= horizon {
		return at
	}
	return never
}

// highestSince returns the highest point from a time on.
func (m *meter) highestSince(from int64) float64 {
	return max(m.max, m.maxima.highestSince(from))
}

// progress returns the first point of a counter from the horizon on, the number of rises after it,
// and the time of the last rise; never if there was none.
func (m *meter) progress(horizon int64) (first, rises, rose int64) {
	first, rose = m.firstSince(horizon), never
	if m.previousAt < horizon {
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
	if at.firstRose {
		rises--
	}
	if m.counter.lastRise > at.first {
		rose = m.counter.lastRise
	}
	if m.hasRisen() {
		rises++
		rose = m.start
	}
	return at.first, rises, rose
}
