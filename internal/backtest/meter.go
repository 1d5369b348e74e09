package backtest

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Decisions of policies are told apart to the nanosecond: their times are
// nanoseconds since 1970, while samples and what they add up to are microseconds.

// never is a time that does not come.
const never = math.MaxInt64

func nanos(us int64) int64 { return us * 1000 }

func moment(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// nanosOf returns a time in nanoseconds, never for the zero time.
func nanosOf(t time.Time) int64 {
	if t.IsZero() {
		return never
	}
	return t.UnixNano()
}

// meter tells what one resource does from the samples that it has taken, as
// [duty.Now] does live.
type meter interface {
	// next is the time of the next sample that does more than let what is known last
	// on; never after the last one.
	next() int64
	// take takes the samples up to and at that time.
	take() news
	// verdict is what the resource does at a time before the next sample.
	verdict(now int64) duty.Verdict
	// expires is the last moment at which the verdict holds without newer samples.
	expires() int64
	// gpus is how many GPUs were seen so far.
	gpus() int
}

// news is what samples show.
type news struct {
	// work is a sample that is not idle, gap a sample missing before.
	work, gap bool
	// same says that nothing changed but the time that it has lasted.
	same bool
}

// staleAfter is how many steps after its newest sample the state of a resource is
// unknown (see [usage.Window.Fresh]).
const staleAfter = 3

// verdicts are those on one GPU of which only the utilisation was measured, and
// the coverage under which its rest is unknown.
type verdicts struct {
	rest, work, unknown duty.Verdict
	coverage            float64
}

// judged asks duty for the verdicts on such a GPU, without times.
func judged(step time.Duration, t duty.Thresholds) verdicts {
	at := time.Unix(0, 0).UTC()
	verdict := func(util float64, now time.Time) duty.Verdict {
		w := usage.NewWindow(at, at.Add(step), step, source, floors(0))
		w.Add("0", usage.GPUUtil, usage.Point{Time: at, Mean: util, Max: util})
		v := duty.Now(w, 1, now, t)
		return duty.Verdict{State: v.State, Coverage: v.Coverage, Why: v.Why}
	}
	k := verdicts{rest: verdict(0, at), work: verdict(somewhat, at), unknown: verdict(0, at.Add(staleAfter*step+1)), coverage: t.MinCoverage}
	if k.coverage == 0 {
		k.coverage = duty.DefaultThresholds().MinCoverage
	}
	return k
}

// source is what windows of recorded usage name as their source.
const source = "recorded"

// somewhat is the utilisation of a sample that is not idle, where only that is kept.
const somewhat = 50

// floors are those of a window in which a GPU under idleBelow percent rests; at 0
// only one at exactly 0 does.
func floors(idleBelow float64) *usage.Floors {
	f := usage.DefaultFloors()
	f[usage.GPUUtil] = max(idleBelow, math.SmallestNonzeroFloat64)
	return f
}

// runMeter is the meter of a resource with one GPU of which only the utilisation was
// measured. It takes whole runs of equal samples.
type runMeter struct {
	cursor
	known *verdicts
	// since is when the present rest began, until the end of the newest run.
	since, until int64
	// from is when the time without a missing sample began, filled how much of it up
	// to until samples cover; jitter leaves holes.
	from, filled int64
	// turns is when, within the newest run, a sample more changes what is known of its
	// coverage; never where none does.
	turns int64
	// exact says that the policy asks for coverage, so that any change of it matters.
	exact bool
}

func (m *runMeter) next() int64 {
	if m.turns != never {
		return nanos(m.turns)
	}
	if start, ok := m.peek(); ok {
		return nanos(start)
	}
	return never
}

func (m *runMeter) take() news {
	if m.turns != never {
		m.turn(m.turns)
		return news{work: !m.run.idle}
	}
	first, rested, covered := m.until == 0, m.run.idle, m.covered(m.until)
	m.advance()
	n := news{work: !m.run.idle, gap: m.run.gap}
	if first || m.run.gap {
		m.since, m.from, m.filled = m.run.start, m.run.start, 0
	} else {
		m.filled += min(0, m.run.offset)
		if !rested && m.run.idle {
			m.since = m.until
		}
	}
	m.filled += m.run.count * m.step
	m.until = m.run.start + m.run.count*m.step
	now := m.covered(m.run.start)
	n.same = !first && !m.run.gap && m.run.idle == rested && m.enough(now) == m.enough(covered) && (now == covered || !m.exact)
	m.turn(m.run.start)
	return n
}

// turn finds the sample after a time whose coverage matters: the first with enough, or
// where the policy asks for it, any.
func (m *runMeter) turn(after int64) {
	m.turns = never
	left := (m.until-after)/m.step - 1 // samples of the run
	switch {
	case m.exact && left > 0 && m.covered(after) != 1:
		m.turns = after + m.step
	case !m.enough(m.covered(after)) && m.enough(m.covered(m.until)):
		nth := sort.Search(int(left), func(i int) bool { return m.enough(m.covered(after + int64(i+1)*m.step)) })
		m.turns = after + int64(nth+1)*m.step
	}
}

// newest returns the end of the newest sample's step at a time within or after the run.
func (m *runMeter) newest(at int64) int64 {
	return min(m.until, m.run.start+((at-m.run.start)/m.step+1)*m.step)
}

// covered is the share of the time without a missing sample that samples cover, up to
// the newest at a time.
func (m *runMeter) covered(at int64) float64 {
	to := m.newest(at)
	return float64(m.filled-(m.until-to)) / float64(to-m.from)
}

func (m *runMeter) enough(coverage float64) bool { return coverage >= m.known.coverage }

func (m *runMeter) expires() int64 { return nanos(m.until + (staleAfter-1)*m.step) }

func (m *runMeter) gpus() int { return 1 }

// rests says whether the resource is known to rest.
func (m *runMeter) rests(now int64) bool {
	return m.run.idle && now <= m.expires() && m.enough(m.covered(now/1000))
}

func (m *runMeter) verdict(now int64) duty.Verdict {
	if now > m.expires() || m.run.idle && !m.rests(now) {
		return m.known.unknown
	}
	v := m.known.work
	if m.run.idle {
		v = m.known.rest
		v.Since = instant(m.since)
		v.Lasting = max(0, time.Duration(min(now, nanos(m.until))-nanos(m.since)))
	}
	v.Until, v.Expires, v.Coverage = instant(m.until), moment(m.expires()), m.covered(now/1000)
	return v
}

// windowMeter is the meter of every other resource: it keeps a window of the samples
// and asks duty.
type windowMeter struct {
	readings []reading // in order of time
	taken    int
	names    []string // of GPUs
	step     int64
	floors   *usage.Floors
	judge    duty.Thresholds
	// lean says that only utilisation was measured, and of that only whether it is
	// idle, so that equal samples change nothing.
	lean   bool
	window *usage.Window
	// last is the newest sample of each GPU.
	last  []glimpse
	named int
	at    int64 // of the verdict that was asked for last
	told  duty.Verdict
}

// glimpse is the newest sample of the utilisation of a GPU. ragged says that samples
// since the last gap are not all a step apart, so that every one changes the coverage.
type glimpse struct {
	at                 int64
	seen, idle, ragged bool
}

// reading is one measurement.
type reading struct {
	at     int64
	value  float64
	gpu    int32
	signal usage.Signal
}

// lookback is how far back a window reaches at least; live it is shorter. At twice
// that it is made anew, so that memory does not grow.
const lookback = 14 * 24 * time.Hour

func (m *windowMeter) next() int64 {
	if m.taken < len(m.readings) {
		return nanos(m.readings[m.taken].at)
	}
	return never
}

func (m *windowMeter) take() news {
	at := m.readings[m.taken].at
	m.open(at)
	n := news{same: m.lean && m.taken > 0}
	for ; m.taken < len(m.readings) && m.readings[m.taken].at == at; m.taken++ {
		r := m.readings[m.taken]
		m.add(r)
		if r.signal == usage.GPUUtil {
			m.glimpse(r, &n)
		}
	}
	m.at = never
	return n
}

// glimpse compares a sample of a GPU's utilisation with the one before.
func (m *windowMeter) glimpse(r reading, n *news) {
	idle := r.value < m.floors[usage.GPUUtil]
	n.work = n.work || !idle
	g := &m.last[r.gpu]
	if !g.seen {
		n.same = false
		if m.names[r.gpu] != "" {
			m.named++
		}
	} else {
		gap := r.at-g.at-m.step >= (m.step+1)/2
		g.ragged = !gap && (g.ragged || r.at != g.at+m.step)
		n.gap = n.gap || gap
		n.same = n.same && !gap && !g.ragged && g.idle == idle
	}
	g.at, g.seen, g.idle = r.at, true, idle
}

// open makes room for samples at a time.
func (m *windowMeter) open(at int64) {
	now, step := instant(at), span(m.step)
	if m.window == nil || now.Sub(m.window.From) > 2*lookback {
		first := 0
		if m.window != nil {
			from := at - micros(lookback)
			first, _ = slices.BinarySearchFunc(m.readings[:m.taken], from, func(r reading, t int64) int { return cmp.Compare(r.at, t) })
			now = instant(from)
		}
		m.window = usage.NewWindow(now, instant(at+m.step), step, source, m.floors)
		for _, r := range m.readings[first:m.taken] {
			m.add(r)
		}
	}
	m.window.To = instant(at + m.step)
}

func (m *windowMeter) add(r reading) {
	m.window.Add(m.names[r.gpu], r.signal, usage.Point{Time: instant(r.at), Mean: r.value, Max: r.value})
}

func (m *windowMeter) gpus() int { return max(1, m.named) }

func (m *windowMeter) expires() int64 { return nanosOf(m.told.Expires) }

func (m *windowMeter) verdict(now int64) duty.Verdict {
	if m.at != now {
		m.at, m.told = now, duty.Now(m.window, m.gpus(), moment(now), m.judge)
	}
	return m.told
}
