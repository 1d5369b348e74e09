package duty

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// evaluation judges a machine at one time.
type evaluation struct {
	k            *Tracker
	now, horizon int64
	gpus         int // negative if unknown
	memory       float64
	power        float64 // TDP of each GPU in watts; 0 is unknown
	launched     int64   // never if unknown
	withText     bool    // a person reads the verdict: build Why, Evidence and GPUs
	hostOnly     bool    // the machine has no GPUs

	// restPeriod is the time in which no deciding signal was active or missed a sample. expires is
	// when the first of those signals becomes too old.
	restPeriod stretch
	expires    int64
	restText   string // describes the rest, for Why

	// next is the next moment at which the verdict may change without new samples, or never.
	next int64
}

func (k *Tracker) newEvaluation(now int64, m Machine, words bool) evaluation {
	q := evaluation{
		k: k, now: now, horizon: k.horizon(now), gpus: m.GPUs.Or(-1), memory: m.GPUMemory, power: m.GPUPower,
		launched: never, withText: words, next: never,
	}
	if !m.Launched.IsZero() {
		q.launched = nanos(m.Launched)
	}
	return q
}

// verdictBuilder is a verdict with times in nanoseconds.
type verdictBuilder struct {
	Verdict
	since, until, expires int64 // never if unset
}

func newVerdictBuilder() verdictBuilder {
	return verdictBuilder{since: never, until: never, expires: never}
}

// reading is a meter at the time of an evaluation. Without a meter the signal is not measured.
type reading struct {
	*meter
	newestAt int64 // time of the newest point
}

// read returns the meter of a signal if it has points between the horizon and now.
func (q *evaluation) read(t *track, s usage.Signal) reading {
	m := t.meter(s)
	if m == nil {
		return reading{}
	}
	at := m.newestAt(q.now)
	if at < q.horizon {
		return reading{}
	}
	return reading{m, at}
}

// value returns the newest value; 0 if it is not measured.
func (r reading) value() float64 {
	if r.meter == nil {
		return 0
	}
	return r.mean
}

// freshUntil returns the time until which the newest point is fresh.
func (r reading) freshUntil() int64 { return r.newestAt + staleSteps*r.step() }

// fresh reports whether the newest point of a signal is recent enough to describe now.
func (q *evaluation) fresh(r reading) bool { return r.meter != nil && q.now <= r.freshUntil() }

// floor returns the floor of a compute signal.
func (q *evaluation) floor(r reading) float64 { return q.k.activity.Floor(r.signal, r.opened.Step) }

// unbroken returns the time without a gap up to the newest point.
func (q *evaluation) unbroken(r reading) stretch {
	if r.meter == nil {
		return noStretch
	}
	return r.meter.unbroken(q.now, q.horizon)
}

// quietBelow returns the time without a gap for which a signal has been below a limit.
func (q *evaluation) quietBelow(r reading, line float64) stretch {
	s := q.unbroken(r)
	if r.meter == nil {
		return s
	}
	return q.cutToBelow(s, r, line)
}

// cutToBelow cuts off the time up to the last point at or above a limit.
func (q *evaluation) cutToBelow(s stretch, r reading, line float64) stretch {
	if at := r.lastReached(line, q.now, q.horizon); at != never {
		return s.startingAt(at + r.step())
	}
	return s
}

// activePeriod returns the time without a gap for which an active compute signal has been active.
func (q *evaluation) activePeriod(r reading) stretch {
	s := q.unbroken(r)
	if r.lastQuietAt >= q.horizon {
		s = s.startingAt(r.lastQuietAt + r.step())
	}
	return s
}

// changesAt notes that the verdict may change at a time without new samples.
func (q *evaluation) changesAt(at int64) {
	if at > q.now && (q.next == never || at < q.next) {
		q.next = at
	}
}

// findDeadlines notes the next moment at which samples expire, runs of samples end, or the horizon
// moves.
func (q *evaluation) findDeadlines() {
	any := false
	for _, t := range q.k.gpus {
		any = q.findExpirations(t) || any
	}
	if q.findExpirations(&q.k.machine) || any {
		q.changesAt(q.horizon + q.k.block + q.k.lookBack)
	}
}

// findExpirations notes the deadlines of a track's meters and reports whether any was measured.
func (q *evaluation) findExpirations(t *track) (measured bool) {
	for i := range t.meters {
		m := &t.meters[i]
		at := m.newestAt(q.now)
		if at < q.horizon {
			q.changesWithNextSample(m) // it is measured again after a gap
			continue
		}
		measured = true
		if m.signal == usage.MemTotal || m.signal == usage.MemFree {
			continue // their age does not matter
		}
		end := m.end()
		q.changesAt(end + staleSteps*m.step() + 1)
		if at >= end {
			continue
		}
		if s := m.unbroken(q.now, q.horizon); s.coverage < q.k.thresholds.MinCoverage {
			// Each sample covers one more step.
			missing := q.k.thresholds.MinCoverage - s.coverage
			steps := missing * float64(s.to-s.from) / (max(1-q.k.thresholds.MinCoverage, 1e-9) * float64(m.step()))
			if steps < float64(m.count) {
				q.changesAt(at + max(1, int64(steps)-1)*m.step())
			}
		}
	}
	return measured
}

// changesWithNextSample notes that the verdict may change with the next sample of a meter's run.
func (q *evaluation) changesWithNextSample(m *meter) {
	if at := m.newestAt(q.now); at < m.end() {
		q.changesAt(at + m.step())
	}
}

// evaluate fills a new verdict.
func (q *evaluation) evaluate(v *verdictBuilder) {
	measured := 0
	for _, t := range q.k.gpus {
		if t.hasSamples(q.now, q.horizon) {
			measured++
		}
	}
	if q.gpus == 0 && measured == 0 && !q.measuresCompute(&q.k.machine) {
		q.judgeHostOnly(v)
		return
	}
	q.judgeGPUs(v, measured)
}

// measuresCompute reports whether a track has a signal that can prove rest of a GPU.
func (q *evaluation) measuresCompute(t *track) bool {
	for _, s := range usage.RestSignals() {
		if q.read(t, s).meter != nil {
			return true
		}
	}
	return false
}

// hasMIGInstances reports whether a GPU has measured MIG instances.
func (q *evaluation) hasMIGInstances(i int) bool {
	gpu := q.k.gpus[i]
	for _, t := range q.k.gpus[i+1:] {
		if t.parent != gpu.name {
			return false
		}
		if t.isPart && t.hasSamples(q.now, q.horizon) {
			return true
		}
	}
	return false
}

// gpuSummary combines the verdicts on the GPUs of a machine.
type gpuSummary struct {
	trackCount, gpuCount int // judged tracks, and the GPUs they belong to
	parent               string

	busyCount              int
	busyReason             string // the reason of the first busy one
	busyUntil, busyExpires int64
	coverage               float64
	work                   workPeriod

	unknownCount  int
	unknownReason string

	restingCount  int
	restPeriod    stretch
	restExpires   int64
	bestResting   gpuState // if one GPU is enough (AnyGPU)
	heldCount     int
	surestHolder  gpuState // the most certain one, for Why
	certainlyHeld bool     // at least one is held by a measurement

	// For text only: the judged tracks, and the verdict on each with a name.
	tracks   []*track
	verdicts []GPU
}

// isJudged reports whether a track is judged. Of a GPU in MIG mode the instances are judged,
// because NVML offers no utilization of the whole.
func (q *evaluation) isJudged(i int) bool {
	t := q.k.gpus[i]
	return t.hasSamples(q.now, q.horizon) && (t.isPart || q.measuresCompute(t) || !q.hasMIGInstances(i))
}

func (q *evaluation) summarize(g *gpuSummary) {
	*g = gpuSummary{busyUntil: never, busyExpires: never, coverage: 1, work: workPeriod{noStretch, never}}
	var m gpuState
	for i, t := range q.k.gpus {
		if !q.isJudged(i) {
			continue
		}
		if g.gpuCount == 0 || t.parent != g.parent {
			g.gpuCount, g.parent = g.gpuCount+1, t.parent
		}
		q.judgeGPU(t, &m)
		q.requireAllPartitions(&m)
		g.add(q, &m)
	}
}

// requireAllPartitions makes a resting partition unknown if others of its GPU are not measured: a
// part does not stand for the whole.
func (q *evaluation) requireAllPartitions(m *gpuState) {
	if m.track.partCount == 0 || m.state == Busy || m.state == Unknown {
		return
	}
	measured := 0
	for i, t := range q.k.gpus {
		if t.isPart && t.parent == m.track.parent && q.isJudged(i) {
			measured++
		}
	}
	if measured < int(m.track.partCount) {
		m.set(Unknown, q.text(func() string { return partitionsText(measured, int(m.track.partCount)) }))
	}
}

// partitionsText describes how many partitions of a GPU are measured.
func partitionsText(measured, parts int) string {
	return fmt.Sprintf("%d of the %d partitions of its GPU are measured", measured, parts)
}

// add adds the verdict on one GPU.
func (g *gpuSummary) add(q *evaluation, m *gpuState) {
	g.trackCount++
	switch m.state {
	case Busy:
		g.addBusy(q, m)
	case Unknown:
		if g.unknownCount++; g.unknownCount == 1 {
			g.unknownReason = q.text(func() string { return m.label() + m.why })
		}
	default:
		g.addResting(q, m)
	}
	if !q.withText {
		return
	}
	g.tracks = append(g.tracks, m.track)
	if m.track.name != "" {
		g.verdicts = append(g.verdicts, GPU{
			Name: m.track.name, State: m.state, Duration: time.Duration(m.duration), Coverage: m.coverage, Why: m.why,
		})
	}
}

func (g *gpuSummary) addBusy(q *evaluation, m *gpuState) {
	if g.busyCount++; g.busyCount == 1 {
		g.busyReason = m.why
	}
	g.busyUntil, g.busyExpires = max(g.busyUntil, m.stretch.to), max(g.busyExpires, m.expires)
	g.coverage = min(g.coverage, m.coverage)
	g.work.add(q, m.track)
}

func (g *gpuSummary) addResting(q *evaluation, m *gpuState) {
	if g.restingCount++; g.restingCount == 1 {
		g.restPeriod, g.restExpires = m.stretch, m.expires
	} else {
		g.restPeriod, g.restExpires = g.restPeriod.intersect(m.stretch), min(g.restExpires, m.expires)
	}
	if any := q.k.thresholds.GPUs == AnyGPU; any &&
		(g.restingCount == 1 || (m.state == g.bestResting.state && m.duration > g.bestResting.duration) ||
			(m.state == Idle && g.bestResting.state != Idle)) {
		g.bestResting = *m
	}
	if m.state != Held {
		return
	}
	if g.heldCount++; q.withText && (g.heldCount == 1 || (g.surestHolder.heldByAssumption && !m.heldByAssumption)) {
		g.surestHolder = *m
	}
	g.certainlyHeld = g.certainlyHeld || !m.heldByAssumption
}

// text returns a description if a person reads the verdict, else "" without building it.
func (q *evaluation) text(words func() string) string {
	if !q.withText {
		return ""
	}
	return words()
}

// judgeGPUs judges a machine with GPUs, of which names were measured.
func (q *evaluation) judgeGPUs(v *verdictBuilder, names int) {
	q.restText = "0% compute"
	var g gpuSummary
	q.summarize(&g)
	// A machine-wide series can prove activity; it can prove idleness only if it aggregates all
	// GPUs.
	var machine gpuState
	q.judgeGPU(&q.k.machine, &machine)
	unnamed := q.measuresCompute(&q.k.machine)
	if alone := g.gpuCount == 0 && unnamed && (q.gpus == 1 || q.isAggregated()); alone {
		g.add(q, &machine)
		g.gpuCount = max(q.gpus, 1)
	}
	if g.busyCount == 0 && machine.state == Busy {
		g.addBusy(q, &machine)
	}
	expected := max(q.gpus, g.trackCount)
	v.GPUs = g.verdicts
	computes := false
	switch {
	case q.k.thresholds.GPUs == AnyGPU && g.restingCount > 0 && g.restingCount < expected:
		q.judgeAnyResting(v, &g, expected)
	case g.busyCount > 0:
		computes = true
		q.judgeBusy(v, &g)
	case g.trackCount == 0 && unnamed:
		v.setUnknown("one series of samples stands for an unknown GPU of several")
	case g.trackCount == 0:
		v.setUnknown("its GPUs were not measured")
	case q.gpus < 0:
		v.setUnknown("its number of GPUs is unknown")
	case g.gpuCount < q.gpus:
		v.setUnknown(q.text(func() string { return fmt.Sprintf("%d of %d GPUs were measured", g.gpuCount, q.gpus) }))
	case g.unknownCount > 0:
		v.setUnknown(g.unknownReason)
	default:
		q.judgeResting(v, &g, names)
	}
	if !computes {
		q.applyWarmUp(v)
	}
	if q.withText {
		v.Evidence = append(q.evidence(v, g.tracks, g.gpuCount), v.Evidence...)
	}
}

// isAggregated reports whether the machine-wide GPU signals are maxima over its GPUs.
func (q *evaluation) isAggregated() bool {
	all := true
	for i := range q.k.machine.meters {
		m := &q.k.machine.meters[i]
		if m.signal.PerGPU() && m.newestAt(q.now) >= q.horizon {
			all = all && m.opened.Aggregated
		}
	}
	return all
}

// judgeBusy completes the verdict on a machine with computing GPUs.
func (q *evaluation) judgeBusy(v *verdictBuilder, g *gpuSummary) {
	v.State, v.Coverage, v.until, v.expires, v.Why = Busy, g.coverage, g.busyUntil, g.busyExpires, g.busyReason
	if q.withText && g.trackCount > 1 {
		v.Why = fmt.Sprintf("%d of %d GPUs compute", g.busyCount, g.trackCount)
	}
	if s, ok := q.standstill(g.work); ok {
		v.setPeriod(q, s.stretch, s.expires)
		v.State, v.Why = Stalled, s.why
	}
}

// judgeAnyResting completes the verdict on a machine of which one resting GPU is enough: an idle
// one before a held one, and the one that has rested longest.
func (q *evaluation) judgeAnyResting(v *verdictBuilder, g *gpuSummary, all int) {
	q.restPeriod, q.expires = g.bestResting.stretch, g.bestResting.expires
	// Another GPU may have rested longer once the samples of the best end.
	for i, t := range q.k.gpus {
		if q.isJudged(i) && t != g.bestResting.track {
			var m gpuState
			if q.judgeGPU(t, &m); m.state == g.bestResting.state {
				equal := m.stretch.from + max(0, q.restPeriod.to-q.restPeriod.from) // of equals the first is taken
				q.changesAt(equal)
				q.changesAt(equal + 1)
			}
		}
	}
	q.setResting(v, g.bestResting.state, func() string {
		return fmt.Sprintf("%d of %d GPUs rest: %s%s", g.restingCount, all, g.bestResting.label(), g.bestResting.why)
	})
}

// judgeResting completes the verdict on a machine without a computing GPU.
func (q *evaluation) judgeResting(v *verdictBuilder, g *gpuSummary, names int) {
	q.restPeriod, q.expires = g.restPeriod, g.restExpires
	q.judgeWithoutCompute(v, holding{found: g.heldCount > 0, certain: g.certainlyHeld, why: func() string {
		if g.heldCount == 1 && g.surestHolder.track.name == "" || names <= 1 {
			return g.surestHolder.why
		}
		return fmt.Sprintf("%d of %d GPUs held: %s", g.heldCount, names, g.surestHolder.why)
	}})
}

// setResting sets a state of rest for the rest period that was found, or unknown if samples are too
// old or cover too little of it.
func (q *evaluation) setResting(v *verdictBuilder, s State, why func() string) {
	switch v.Coverage = q.restPeriod.coverage; {
	case q.now > q.expires:
		v.setUnknown("the newest sample of what would decide is too old")
		return
	case v.Coverage < q.k.thresholds.MinCoverage:
		v.setUnknown(q.text(func() string {
			return "samples cover " + plain.Percent(100*v.Coverage, 0) + " of the time since it rests"
		}))
		return
	}
	v.setPeriod(q, q.restPeriod, q.expires)
	v.State = s
	v.Why = q.text(func() string { return why() + ", " + q.restText + " for " + plain.Duration(v.Duration) })
}

// setPeriod sets how long the state has lasted and until when it holds.
func (v *verdictBuilder) setPeriod(q *evaluation, s stretch, expires int64) {
	v.Duration, v.since, v.until, v.expires, v.Coverage = time.Duration(s.length(q.now)), min(s.from,
		s.to), s.to, expires, s.coverage
	if s.from <= s.to {
		return
	}
	for _, t := range append(q.k.gpus[:len(q.k.gpus):len(q.k.gpus)], &q.k.machine) {
		for i := range t.meters { // the period begins only with a later sample
			q.changesWithNextSample(&t.meters[i])
		}
	}
}

func (v *verdictBuilder) setUnknown(why string) {
	v.State, v.Why, v.Duration = Unknown, why, 0
}

// applyWarmUp turns the verdict on a machine that does not compute into warming if it was recently
// launched.
func (q *evaluation) applyWarmUp(v *verdictBuilder) {
	end := q.launched + int64(q.k.thresholds.WarmUp)
	if q.launched == never || q.launched > q.now || q.now > end {
		if q.launched != never {
			q.changesAt(q.launched)
		}
		return
	}
	q.changesAt(end + 1)
	v.State, v.Duration, v.since, v.until, v.expires = Warming, 0, never, end, end
	if q.withText {
		age := plain.Duration(time.Duration(q.now - q.launched))
		v.Why = "it was launched " + age + " ago"
		v.Evidence = append(v.Evidence, usage.Fact("age", age, "inventory"))
	}
}

// build returns the verdict with its times.
func (v *verdictBuilder) build() Verdict {
	v.Since, v.Until, v.Expires = instant(v.since), instant(v.until), instant(v.expires)
	return v.Verdict
}
