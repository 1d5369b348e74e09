package duty

import (
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// gpuState is the verdict on one GPU by its newest samples.
type gpuState struct {
	track *track
	state State
	// duration is how long the GPU has not computed; 0 for unknown and busy.
	duration int64
	// stretch is the time for which it has rested, or computed if it is busy. expires is the time
	// until which its newest samples are fresh.
	stretch  stretch
	expires  int64
	coverage float64
	why      string
	memory   memory
	// heldByAssumption is set if the GPU is held only because its memory is not measured.
	heldByAssumption bool
}

// memory is the memory in use on a GPU.
type memory struct {
	used  reading
	total float64 // bytes; 0 unknown
}

func (m memory) measured() bool { return m.used.meter != nil && m.total > 0 }

// newestPercent returns the newest share of memory in use, in percent.
func (m memory) newestPercent() float64 { return 100 * m.used.value() / m.total }

// memoryOf returns the device memory of a GPU: the measured size, else the sum of used and free
// memory, else the catalog's size, which is that of a whole GPU and not of a MIG instance.
func (q *evaluation) memoryOf(t *track) memory {
	used := q.read(t, usage.MemUsed)
	if total := q.read(t, usage.MemTotal).value(); total > 0 {
		return memory{used, total}
	}
	if free := q.read(t, usage.MemFree); used.meter != nil && free.meter != nil {
		// their newest points may coincide later, or cease to
		if used.step() != free.step() || used.start != free.start {
			q.changesWithNextSample(used.meter)
			q.changesWithNextSample(free.meter)
		}
		if used.newestAt == free.newestAt {
			return memory{used, used.mean + free.mean}
		}
	}
	if t.isPart {
		return memory{used, 0}
	}
	return memory{used, q.memory}
}

// judgeGPU judges one GPU by its newest samples.
func (q *evaluation) judgeGPU(t *track, m *gpuState) {
	*m = gpuState{track: t, expires: never, stretch: noStretch}
	if len(t.meters) == 0 {
		m.why = utilNotMeasured
		return
	}
	m.memory = q.memoryOf(t)
	var meter, util reading // the signal that can prove rest, and utilization
	measured := false       // a signal that can prove rest has samples, fresh or not
	for i, sig := range usage.ComputeSignals() {
		r := q.read(t, sig)
		if sig == usage.GPUUtil {
			util = r
		}
		measured = measured || (i < len(usage.RestSignals()) && r.meter != nil)
		if !q.fresh(r) {
			continue
		}
		if i < len(usage.RestSignals()) && meter.meter == nil {
			meter = r
		}
		if r.max >= q.floor(r) {
			work := q.activePeriod(r)
			m.state, m.coverage = Busy, work.coverage
			m.stretch.to, m.expires = max(m.stretch.to, work.to), max(m.expires, r.freshUntil())
		}
	}
	suspect := m.state == Busy && q.fresh(util) && util.mean >= q.k.thresholds.LatchedUtil
	if suspect { // it stays busy only while something confirms it
		q.narrowExpiry(m, q.read(t, usage.Processes))
		q.narrowExpiry(m, m.memory.used)
		for _, sig := range usage.ComputeSignals() {
			q.narrowExpiry(m, q.read(t, sig))
		}
	}
	why, wrong := q.contradiction(t)
	switch {
	case wrong && (m.state == Busy || meter.meter != nil):
		m.set(Unknown, why)
	case suspect && q.isLatched(m):
		m.set(Unknown, q.text(func() string {
			return "utilization reads " + plain.Percent(util.value(), 1) +
				" while nothing else shows work: the meter may be latched"
		}))
	case m.state == Busy && util.meter == nil:
		m.why = "it computes"
	case m.state == Busy && util.max < q.floor(util):
		m.why = q.text(func() string { return q.computeText(t) })
	case m.state == Busy:
		m.why = q.text(func() string { return plain.Percent(util.value(), 1) + " utilization" })
	case meter.meter == nil && !measured:
		m.why = utilNotMeasured
	case meter.meter == nil:
		m.why = "its newest sample is too old"
	default:
		q.judgeRestingGPU(m, meter)
	}
}

// computeText describes the signal that shows work on a GPU whose utilization is 0.
func (q *evaluation) computeText(t *track) string {
	for _, sig := range usage.ComputeSignals() {
		if r := q.read(t, sig); q.fresh(r) && r.max >= q.floor(r) {
			return readingText(sig, r.max)
		}
	}
	return "it computes"
}

// utilNotMeasured is the reason if no signal can prove rest of a GPU.
const utilNotMeasured = "its GPU utilization is not measured"

// narrowExpiry limits the time for which a busy verdict holds by the freshness of a reading.
func (q *evaluation) narrowExpiry(m *gpuState, r reading) {
	if q.fresh(r) {
		m.expires = min(m.expires, r.freshUntil())
	}
}

// judgeRestingGPU judges a GPU whose meter shows no computation.
func (q *evaluation) judgeRestingGPU(m *gpuState, meter reading) {
	m.stretch, m.expires = q.unbroken(meter), meter.freshUntil()
	for _, sig := range usage.ComputeSignals() {
		if r := q.read(m.track, sig); r.meter != nil {
			m.stretch = q.cutToBelow(m.stretch, r, q.floor(r))
		}
	}
	if power := q.read(q.wholeGPU(m.track), usage.Power); power.meter != nil {
		line := busyPower(q.k.thresholds, q.power)
		if power.mean >= line {
			m.set(Unknown, q.text(func() string {
				return readingText(meter.signal, meter.mean) + " while it draws " + plain.Number(power.mean, 0) +
					" W: one of them is wrong"
			}))
			return
		}
		q.narrowRest(m, power, line)
	}
	m.stretch = m.stretch.startingAt(q.trustedSince(m.track))
	q.judgeHolding(m)
	switch m.coverage, m.duration = m.stretch.coverage, m.stretch.length(q.now); {
	case q.now > m.expires:
		m.set(Unknown, "the newest sample of its memory, processes or power is too old")
	case m.coverage < q.k.thresholds.MinCoverage:
		m.set(Unknown, q.text(func() string {
			return "samples cover " + plain.Percent(100*m.coverage, 0) + " of the time since it rests"
		}))
	}
}

// judgeHolding decides whether a GPU that does not compute is held or idle. It is idle only since
// its memory and its last process were released.
func (q *evaluation) judgeHolding(m *gpuState) {
	processes, used := q.read(m.track, usage.Processes), m.memory.used
	line := m.memory.total * q.k.thresholds.HeldMemory / 100
	if !m.memory.measured() {
		line = 1 // of a memory of unknown size any byte may be a model
	}
	switch {
	case q.fresh(processes) && processes.mean > 0:
		m.expires = min(m.expires, processes.freshUntil())
		m.set(Held, q.text(func() string {
			if m.memory.measured() {
				return m.memory.heldText() + " by " + plain.Count(int64(processes.mean), "process")
			}
			return "held by " + plain.Count(int64(processes.mean), "process")
		}))
	case q.fresh(used) && used.mean >= line:
		m.expires = min(m.expires, used.freshUntil())
		m.heldByAssumption = !m.memory.measured()
		m.set(Held, q.text(func() string {
			if m.heldByAssumption {
				return plain.Number(used.mean/(1<<30), 1) + " GiB of a memory of unknown size held"
			}
			return m.memory.heldText()
		}))
	case used.meter == nil && processes.meter == nil:
		m.heldByAssumption = true
		m.set(Held, "its memory is not measured")
	default:
		if used.meter != nil {
			q.narrowRest(m, used, line)
		}
		if processes.meter != nil {
			q.narrowRest(m, processes, 1)
		}
		m.set(Idle, "nothing held")
	}
}

func (m memory) heldText() string { return plain.Percent(m.newestPercent(), 0) + " of memory held" }

// narrowRest cuts the rest period to the time in which another signal was below a limit.
func (q *evaluation) narrowRest(m *gpuState, r reading, line float64) {
	m.stretch = m.stretch.intersect(q.quietBelow(r, line))
	m.expires = min(m.expires, r.freshUntil())
}

// isLatched reports whether nothing confirms a utilization of 100%: no process and no memory in
// use, or inactive multiprocessors.
func (q *evaluation) isLatched(m *gpuState) bool {
	for _, sig := range usage.ComputeSignals()[1:] {
		if r := q.read(m.track, sig); q.fresh(r) && r.max >= q.floor(r) {
			return false
		}
	}
	if q.fresh(q.read(m.track, usage.SMActive)) {
		return true
	}
	processes := q.read(m.track, usage.Processes)
	fresh := q.fresh(processes)
	if fresh && processes.mean > 0 {
		return false
	}
	if !m.memory.measured() || !q.fresh(m.memory.used) {
		return fresh
	}
	return m.memory.newestPercent() < q.k.thresholds.HeldMemory
}

func (m *gpuState) set(s State, why string) {
	m.state, m.why = s, why
	if s == Unknown {
		m.duration = 0
	}
}

// label names a GPU at the start of a reason.
func (m *gpuState) label() string {
	if m.track.name == "" {
		return "GPU: "
	}
	return "GPU " + m.track.name + ": "
}
