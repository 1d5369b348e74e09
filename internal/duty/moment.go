package duty

import (
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// moment is what the newest samples of one GPU say.
type moment struct {
	track *track
	state State
	// lasting is how long it has not computed; 0 for unknown and busy.
	lasting int64
	// stretch is for how long it has rested, or computed when it is busy; expires is
	// until when its newest samples speak.
	stretch  stretch
	expires  int64
	coverage float64
	why      string
	memory   memory
	// assumed says that the GPU is held only because its memory is not measured.
	assumed bool
}

// memory is how much of its memory a GPU holds.
type memory struct {
	used  reading
	total float64 // bytes; 0 unknown
}

func (m memory) measured() bool { return m.used.meter != nil && m.total > 0 }

// newest returns the newest share of memory in use, in percent.
func (m memory) newest() float64 { return 100 * m.used.value() / m.total }

// memoryOf returns the device memory of a GPU: as it was measured, else the sum of what
// was used and free, else the catalog's, which is that of a whole GPU and not of a MIG
// instance.
func (q *question) memoryOf(t *track) memory {
	used := q.read(t, usage.MemUsed)
	if total := q.read(t, usage.MemTotal).value(); total > 0 {
		return memory{used, total}
	}
	if free := q.read(t, usage.MemFree); used.meter != nil && free.meter != nil {
		if used.step() != free.step() || used.start != free.start { // they may meet later, or part
			q.goesOn(used.meter)
			q.goesOn(free.meter)
		}
		if used.at == free.at {
			return memory{used, used.mean + free.mean}
		}
	}
	if t.part {
		return memory{used, 0}
	}
	return memory{used, q.memory}
}

// moment judges one GPU by its newest samples.
func (q *question) moment(t *track, m *moment) {
	*m = moment{track: t, expires: never, stretch: none}
	if len(t.meters) == 0 {
		m.why = unmeasured
		return
	}
	m.memory = q.memoryOf(t)
	var meter, util reading // the meter that vouches, and utilization
	measured := false       // some meter can vouch, now or before
	for i, sig := range usage.Compute() {
		r := q.read(t, sig)
		if sig == usage.GPUUtil {
			util = r
		}
		measured = measured || (i < len(usage.Vouching()) && r.meter != nil)
		if !q.fresh(r) {
			continue
		}
		if i < len(usage.Vouching()) && meter.meter == nil {
			meter = r
		}
		if r.max >= q.floor(r) {
			work := q.work(r)
			m.state, m.coverage = Busy, work.coverage
			m.stretch.to, m.expires = max(m.stretch.to, work.to), max(m.expires, r.until())
		}
	}
	suspect := m.state == Busy && q.fresh(util) && util.mean >= q.k.t.LatchedUtil
	if suspect { // it is busy only as long as something confirms it
		q.confirmed(m, q.read(t, usage.Processes))
		q.confirmed(m, m.memory.used)
		for _, sig := range usage.Compute() {
			q.confirmed(m, q.read(t, sig))
		}
	}
	why, wrong := q.wrong(t)
	switch {
	case wrong && (m.state == Busy || meter.meter != nil):
		m.says(Unknown, why)
	case suspect && q.latched(m):
		m.says(Unknown, q.say(func() string {
			return "utilization reads " + plain.Percent(util.value(), 1) +
				" while nothing else shows work: the meter may be latched"
		}))
	case m.state == Busy && util.meter == nil:
		m.why = "it computes"
	case m.state == Busy && util.max < q.floor(util):
		m.why = q.say(func() string { return q.computes(t) })
	case m.state == Busy:
		m.why = q.say(func() string { return plain.Percent(util.value(), 1) + " utilization" })
	case meter.meter == nil && !measured:
		m.why = unmeasured
	case meter.meter == nil:
		m.why = "its newest sample is too old"
	default:
		q.atRest(m, meter)
	}
}

// computes says which meter shows that a GPU computes while its utilization rests.
func (q *question) computes(t *track) string {
	for _, sig := range usage.Compute() {
		if r := q.read(t, sig); q.fresh(r) && r.max >= q.floor(r) {
			return reads(sig, r.max)
		}
	}
	return "it computes"
}

// unmeasured is what is said of a GPU that no meter can vouch for.
const unmeasured = "its GPU utilization is not measured"

// confirmed narrows the time in which a busy GPU is known to be.
func (q *question) confirmed(m *moment, r reading) {
	if q.fresh(r) {
		m.expires = min(m.expires, r.until())
	}
}

// atRest judges a GPU that does not compute, as its meter shows.
func (q *question) atRest(m *moment, meter reading) {
	m.stretch, m.expires = q.unbroken(meter), meter.until()
	for _, sig := range usage.Compute() {
		if r := q.read(m.track, sig); r.meter != nil {
			m.stretch = q.since(m.stretch, r, q.floor(r))
		}
	}
	if power := q.read(q.whole(m.track), usage.Power); power.meter != nil {
		line := busyPower(q.k.t, q.power)
		if power.mean >= line {
			m.says(Unknown, q.say(func() string {
				return reads(meter.signal, meter.mean) + " while it draws " + plain.Number(power.mean, 0) +
					" W: one of them is wrong"
			}))
			return
		}
		q.narrow(m, power, line)
	}
	m.stretch = m.stretch.after(q.trusted(m.track))
	q.holding(m)
	switch m.coverage, m.lasting = m.stretch.coverage, m.stretch.length(q.now); {
	case q.now > m.expires:
		m.says(Unknown, "the newest sample of its memory, processes or power is too old")
	case m.coverage < q.k.t.MinCoverage:
		m.says(Unknown, q.say(func() string {
			return "samples cover " + plain.Percent(100*m.coverage, 0) + " of the time since it rests"
		}))
	}
}

// holding tells a GPU that does not compute as held or idle. It is idle only since its
// memory and the last process were given back.
func (q *question) holding(m *moment) {
	processes, used := q.read(m.track, usage.Processes), m.memory.used
	line := m.memory.total * q.k.t.HeldMemory / 100
	if !m.memory.measured() {
		line = 1 // of a memory of unknown size every byte may be a model
	}
	switch {
	case q.fresh(processes) && processes.mean > 0:
		m.expires = min(m.expires, processes.until())
		m.says(Held, q.say(func() string {
			if m.memory.measured() {
				return m.memory.share() + " by " + plain.Count(int64(processes.mean), "process")
			}
			return "held by " + plain.Count(int64(processes.mean), "process")
		}))
	case q.fresh(used) && used.mean >= line:
		m.expires = min(m.expires, used.until())
		m.assumed = !m.memory.measured()
		m.says(Held, q.say(func() string {
			if m.assumed {
				return plain.Number(used.mean/(1<<30), 1) + " GiB of a memory of unknown size held"
			}
			return m.memory.share()
		}))
	case used.meter == nil && processes.meter == nil:
		m.assumed = true
		m.says(Held, "its memory is not measured")
	default:
		if used.meter != nil {
			q.narrow(m, used, line)
		}
		if processes.meter != nil {
			q.narrow(m, processes, 1)
		}
		m.says(Idle, "nothing held")
	}
}

func (m memory) share() string { return plain.Percent(m.newest(), 0) + " of memory held" }

// narrow narrows the time of rest to that in which another signal was under a line.
func (q *question) narrow(m *moment, r reading, line float64) {
	m.stretch = m.stretch.and(q.under(r, line))
	m.expires = min(m.expires, r.until())
}

// latched says whether nothing confirms a utilization of 100%: no process and no
// memory in use, or multiprocessors that rest.
func (q *question) latched(m *moment) bool {
	for _, sig := range usage.Compute()[1:] {
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
	return m.memory.newest() < q.k.t.HeldMemory
}

func (m *moment) says(s State, why string) {
	m.state, m.why = s, why
	if s == Unknown {
		m.lasting = 0
	}
}

// label names a GPU before what is said of it.
func (m *moment) label() string {
	if m.track.name == "" {
		return "GPU: "
	}
	return "GPU " + m.track.name + ": "
}
