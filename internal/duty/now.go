package duty

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// question is one question to a tracker: what does the machine do at now?
type question struct {
	k            *Tracker
	now, horizon int64
	gpus         int // negative where unknown
	memory       float64
	power        float64 // TDP of each GPU in watts; 0 is unknown
	launched     int64   // never where unknown
	words        bool    // says that people want to read the answer
	bare         bool    // says that the machine has no GPUs

	// rest is the time in which nothing that decided was active and no sample of it
	// is missing; expires is when the first of what decided becomes too old.
	rest    stretch
	expires int64
	still   string // what rests, for people

	// next is the next moment at which the answer may change by itself; never where it
	// does not.
	next int64
}

func (k *Tracker) question(now int64, m Machine, words bool) question {
	q := question{
		k: k, now: now, horizon: k.horizon(now), gpus: m.GPUs.Or(-1), memory: m.GPUMemory, power: m.GPUPower,
		launched: never, words: words, next: never,
	}
	if !m.Launched.IsZero() {
		q.launched = nanos(m.Launched)
	}
	return q
}

// answer is a verdict in the making.
type answer struct {
	Verdict
	since, until, expires int64 // never for none
}

func newAnswer() answer { return answer{since: never, until: never, expires: never} }

// reading is a meter as a question sees it; without a meter it is not measured.
type reading struct {
	*meter
	at int64 // of its newest point
}

// read returns what a track knows of a signal between the horizon and now.
func (q *question) read(t *track, s usage.Signal) reading {
	m := t.meter(s)
	if m == nil {
		return reading{}
	}
	at := m.newest(q.now)
	if at < q.horizon {
		return reading{}
	}
	return reading{m, at}
}

// value returns the newest value; 0 where it is not measured.
func (r reading) value() float64 {
	if r.meter == nil {
		return 0
	}
	return r.mean
}

// until returns until when the newest point speaks of now.
func (r reading) until() int64 { return r.at + staleSteps*r.step() }

// fresh says whether the newest point of a signal speaks of now.
func (q *question) fresh(r reading) bool { return r.meter != nil && q.now <= r.until() }

// floor is that of a signal of compute.
func (q *question) floor(r reading) float64 { return q.k.a.Floor(r.signal, r.opened.Step) }

// unbroken returns the time up to the newest point in which none is missing.
func (q *question) unbroken(r reading) stretch {
	if r.meter == nil {
		return none
	}
	return r.meter.unbroken(q.now, q.horizon)
}

// under returns for which time a signal has been under a line without a missing point.
func (q *question) under(r reading, line float64) stretch {
	s := q.unbroken(r)
	if r.meter == nil {
		return s
	}
	return q.since(s, r, line)
}

// since cuts off the time before a signal was at or above a line last.
func (q *question) since(s stretch, r reading, line float64) stretch {
	if at := r.reached(line, q.now, q.horizon); at != never {
		return s.after(at + r.step())
	}
	return s
}

// work returns for which time a signal of compute that is at work has been so without
// a missing point.
func (q *question) work(r reading) stretch {
	s := q.unbroken(r)
	if r.quiet >= q.horizon {
		s = s.after(r.quiet + r.step())
	}
	return s
}

// soon says that the answer may change by itself at a time.
func (q *question) soon(at int64) {
	if at > q.now && (q.next == never || at < q.next) {
		q.next = at
	}
}

// deadlines finds the next moment at which samples expire, runs of samples end, or the
// horizon moves on.
func (q *question) deadlines() {
	any := false
	for _, t := range q.k.gpus {
		any = q.expirations(t) || any
	}
	if q.expirations(&q.k.machine) || any {
		q.soon(q.horizon + q.k.block + q.k.lookBack)
	}
}

// expirations looks at the meters of a track and says whether any was measured.
func (q *question) expirations(t *track) (measured bool) {
	for i := range t.meters {
		m := &t.meters[i]
		at := m.newest(q.now)
		if at < q.horizon {
			q.goesOn(m) // it is measured again
			continue
		}
		measured = true
		if m.signal == usage.MemTotal || m.signal == usage.MemFree {
			continue // their age does not matter
		}
		end := m.end()
		q.soon(end + staleSteps*m.step() + 1)
		if at >= end {
			continue
		}
		if s := m.unbroken(q.now, q.horizon); s.coverage < q.k.t.MinCoverage {
			// Each sample covers a whole step more.
			missing := q.k.t.MinCoverage - s.coverage
			steps := missing * float64(s.to-s.from) / (max(1-q.k.t.MinCoverage, 1e-9) * float64(m.step()))
			if steps < float64(m.count) {
				q.soon(at + max(1, int64(steps)-1)*m.step())
			}
		}
	}
	return measured
}

// goesOn says that the answer may change with the next sample of a meter, where it has
// one already.
func (q *question) goesOn(m *meter) {
	if at := m.newest(q.now); at < m.end() {
		q.soon(at + m.step())
	}
}

// answer tells what the machine does; v is a new answer.
func (q *question) answer(v *answer) {
	measured := 0
	for _, t := range q.k.gpus {
		if t.present(q.now, q.horizon) {
			measured++
		}
	}
	if q.gpus == 0 && measured == 0 && !q.measuresCompute(&q.k.machine) {
		q.bareHost(v)
		return
	}
	q.accelerated(v, measured)
}

// measuresCompute says whether a track has a signal that can vouch for a GPU.
func (q *question) measuresCompute(t *track) bool {
	for _, s := range usage.Vouching() {
		if q.read(t, s).meter != nil {
			return true
		}
	}
	return false
}

// divided says whether a GPU of a machine has MIG instances that are measured.
func (q *question) divided(i int) bool {
	gpu := q.k.gpus[i]
	for _, t := range q.k.gpus[i+1:] {
		if t.parent != gpu.name {
			return false
		}
		if t.part && t.present(q.now, q.horizon) {
			return true
		}
	}
	return false
}

// gathered is what the GPUs of a machine say together.
type gathered struct {
	seen, gpus int // tracks that were judged, and the GPUs they are of
	parent     string

	busy           int
	computing      string // what the first of them does
	until, expires int64
	coverage       float64
	work           worked

	unknown int
	why     string

	resting     int
	rest        stretch
	restExpires int64
	best        moment // where one is enough
	held        int
	holder      moment // that holds most surely, for people
	sure        bool   // one was seen to be held

	// For people: the tracks that were judged, and the verdict on each with a name.
	tracks   []*track
	verdicts []GPU
}

// judged is whether the GPU of a track is judged: of one that is divided, its MIG
// instances are, and not the whole, whose utilization NVML does not offer then.
func (q *question) judged(i int) bool {
	t := q.k.gpus[i]
	return t.present(q.now, q.horizon) && (t.part || q.measuresCompute(t) || !q.divided(i))
}

func (q *question) gather(g *gathered) {
	*g = gathered{until: never, expires: never, coverage: 1, work: worked{none, never}}
	var m moment
	for i, t := range q.k.gpus {
		if !q.judged(i) {
			continue
		}
		if g.gpus == 0 || t.parent != g.parent {
			g.gpus, g.parent = g.gpus+1, t.parent
		}
		q.moment(t, &m)
		q.complete(&m)
		g.add(q, &m)
	}
}

// complete makes a partition that rests unknown while others of its GPU are not measured: what
// they do is not known, and a part is not the whole.
func (q *question) complete(m *moment) {
	if m.track.parts == 0 || m.state == Busy || m.state == Unknown {
		return
	}
	measured := 0
	for i, t := range q.k.gpus {
		if t.part && t.parent == m.track.parent && q.judged(i) {
			measured++
		}
	}
	if measured < int(m.track.parts) {
		m.says(Unknown, q.say(func() string { return partly(measured, int(m.track.parts)) }))
	}
}

// partly says how many partitions of a GPU are measured.
func partly(measured, parts int) string {
	return fmt.Sprintf("%d of the %d partitions of its GPU are measured", measured, parts)
}

// add adds one GPU.
func (g *gathered) add(q *question, m *moment) {
	g.seen++
	switch m.state {
	case Busy:
		g.computes(q, m)
	case Unknown:
		if g.unknown++; g.unknown == 1 {
			g.why = q.say(func() string { return m.label() + m.why })
		}
	default:
		g.rests(q, m)
	}
	if !q.words {
		return
	}
	g.tracks = append(g.tracks, m.track)
	if m.track.name != "" {
		g.verdicts = append(g.verdicts, GPU{
			Name: m.track.name, State: m.state, Lasting: time.Duration(m.lasting), Coverage: m.coverage, Why: m.why,
		})
	}
}

func (g *gathered) computes(q *question, m *moment) {
	if g.busy++; g.busy == 1 {
		g.computing = m.why
	}
	g.until, g.expires = max(g.until, m.stretch.to), max(g.expires, m.expires)
	g.coverage = min(g.coverage, m.coverage)
	g.work.add(q, m.track)
}

func (g *gathered) rests(q *question, m *moment) {
	if g.resting++; g.resting == 1 {
		g.rest, g.restExpires = m.stretch, m.expires
	} else {
		g.rest, g.restExpires = g.rest.and(m.stretch), min(g.restExpires, m.expires)
	}
	if any := q.k.t.GPUs == AnyGPU; any &&
		(g.resting == 1 || (m.state == g.best.state && m.lasting > g.best.lasting) ||
			(m.state == Idle && g.best.state != Idle)) {
		g.best = *m
	}
	if m.state != Held {
		return
	}
	if g.held++; q.words && (g.held == 1 || (g.holder.assumed && !m.assumed)) {
		g.holder = *m
	}
	g.sure = g.sure || !m.assumed
}

// say returns text for people; without a reader it builds none.
func (q *question) say(words func() string) string {
	if !q.words {
		return ""
	}
	return words()
}

// accelerated judges a machine with GPUs, of which some names were measured.
func (q *question) accelerated(v *answer, names int) {
	q.still = "0% compute"
	var g gathered
	q.gather(&g)
	// A series of the whole machine is one more witness that something computes, and
	// a witness of rest only where it speaks for every GPU.
	var machine moment
	q.moment(&q.k.machine, &machine)
	unnamed := q.measuresCompute(&q.k.machine)
	if alone := g.gpus == 0 && unnamed && (q.gpus == 1 || q.aggregated()); alone {
		g.add(q, &machine)
		g.gpus = max(q.gpus, 1)
	}
	if g.busy == 0 && machine.state == Busy {
		g.computes(q, &machine)
	}
	expected := max(q.gpus, g.seen)
	v.GPUs = g.verdicts
	computes := false
	switch {
	case q.k.t.GPUs == AnyGPU && g.resting > 0 && g.resting < expected:
		q.one(v, &g, expected)
	case g.busy > 0:
		computes = true
		q.computing(v, &g)
	case g.seen == 0 && unnamed:
		v.unknown("one series of samples stands for an unknown GPU of several")
	case g.seen == 0:
		v.unknown("its GPUs were not measured")
	case q.gpus < 0:
		v.unknown("its number of GPUs is unknown")
	case g.gpus < q.gpus:
		v.unknown(q.say(func() string { return fmt.Sprintf("%d of %d GPUs were measured", g.gpus, q.gpus) }))
	case g.unknown > 0:
		v.unknown(g.why)
	default:
		q.resting(v, &g, names)
	}
	if !computes {
		q.warming(v)
	}
	if q.words {
		v.Evidence = append(q.evidence(v, g.tracks, g.gpus), v.Evidence...)
	}
}

// aggregated says whether the GPU signals of the machine as a whole are maxima over
// its GPUs.
func (q *question) aggregated() bool {
	all := true
	for i := range q.k.machine.meters {
		m := &q.k.machine.meters[i]
		if m.signal.PerGPU() && m.newest(q.now) >= q.horizon {
			all = all && m.opened.Aggregated
		}
	}
	return all
}

// computing completes the verdict on a machine of which some GPUs compute.
func (q *question) computing(v *answer, g *gathered) {
	v.State, v.Coverage, v.until, v.expires, v.Why = Busy, g.coverage, g.until, g.expires, g.computing
	if q.words && g.seen > 1 {
		v.Why = fmt.Sprintf("%d of %d GPUs compute", g.busy, g.seen)
	}
	if s, ok := q.standstill(g.work); ok {
		v.lasts(q, s.stretch, s.expires)
		v.State, v.Why = Stalled, s.why
	}
}

// one completes the verdict on a machine of which one GPU at rest is enough: an idle
// one rather than a held one, and the one that rests longest.
func (q *question) one(v *answer, g *gathered, all int) {
	q.rest, q.expires = g.best.stretch, g.best.expires
	// Another one may rest for longer once the samples of the best stand still.
	for i, t := range q.k.gpus {
		if q.judged(i) && t != g.best.track {
			var m moment
			if q.moment(t, &m); m.state == g.best.state {
				equal := m.stretch.from + max(0, q.rest.to-q.rest.from) // the first of equals is taken
				q.soon(equal)
				q.soon(equal + 1)
			}
		}
	}
	q.lasts(v, g.best.state, func() string {
		return fmt.Sprintf("%d of %d GPUs rest: %s%s", g.resting, all, g.best.label(), g.best.why)
	})
}

// resting completes the verdict on a machine none of whose GPUs computes.
func (q *question) resting(v *answer, g *gathered, names int) {
	q.rest, q.expires = g.rest, g.restExpires
	q.settle(v, holds{any: g.held > 0, sure: g.sure, why: func() string {
		if g.held == 1 && g.holder.track.name == "" || names <= 1 {
			return g.holder.why
		}
		return fmt.Sprintf("%d of %d GPUs held: %s", g.held, names, g.holder.why)
	}})
}

// lasts is the verdict that the machine rests in a state for the time that was found;
// where samples are too old or cover too little of that time it is unknown.
func (q *question) lasts(v *answer, s State, why func() string) {
	switch v.Coverage = q.rest.coverage; {
	case q.now > q.expires:
		v.unknown("the newest sample of what would decide is too old")
		return
	case v.Coverage < q.k.t.MinCoverage:
		v.unknown(q.say(func() string {
			return "samples cover " + plain.Percent(100*v.Coverage, 0) + " of the time since it rests"
		}))
		return
	}
	v.lasts(q, q.rest, q.expires)
	v.State = s
	v.Why = q.say(func() string { return why() + ", " + q.still + " for " + plain.Duration(v.Lasting) })
}

// lasts sets how long the state has lasted, and until when it holds.
func (v *answer) lasts(q *question, s stretch, expires int64) {
	v.Lasting, v.since, v.until, v.expires, v.Coverage = time.Duration(s.length(q.now)), min(s.from,
		s.to), s.to, expires, s.coverage
	if s.from <= s.to {
		return
	}
	for _, t := range append(q.k.gpus[:len(q.k.gpus):len(q.k.gpus)], &q.k.machine) {
		for i := range t.meters { // it has not begun before they say so
			q.goesOn(&t.meters[i])
		}
	}
}

func (v *answer) unknown(why string) {
	v.State, v.Why, v.Lasting = Unknown, why, 0
}

// warming returns the verdict on a machine that does not compute in view of when it
// was launched.
func (q *question) warming(v *answer) {
	end := q.launched + int64(q.k.t.WarmUp)
	if q.launched == never || q.launched > q.now || q.now > end {
		if q.launched != never {
			q.soon(q.launched)
		}
		return
	}
	q.soon(end + 1)
	v.State, v.Lasting, v.since, v.until, v.expires = Warming, 0, never, end, end
	if q.words {
		age := plain.Duration(time.Duration(q.now - q.launched))
		v.Why = "it was launched " + age + " ago"
		v.Evidence = append(v.Evidence, usage.Fact("age", age, "inventory"))
	}
}

// verdict returns the answer with its times.
func (v *answer) verdict() Verdict {
	v.Since, v.Until, v.Expires = instant(v.since), instant(v.until), instant(v.expires)
	return v.Verdict
}
