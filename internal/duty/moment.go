package duty

import (
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// moment is what the newest samples of one GPU say.
type moment struct {
	gpu
	// stretch is for how long it has rested, or computed when it is busy; expires is
	// until when its newest samples speak.
	stretch usage.Stretch
	expires time.Time
}

// fresh says whether the newest sample of a signal speaks of now.
func (j *judge) fresh(st *usage.Stats) bool { return j.w.Fresh(st, j.now) }

// newest returns the newest value of a signal; 0 where nobody measured it.
func newest(t *usage.Track, sig usage.Signal) float64 {
	v, err := t.Stats(sig).Newest()
	if err != nil {
		return 0
	}
	return v
}

// moment judges one GPU by its newest samples.
func (p *present) moment(t *usage.Track) moment {
	m := moment{gpu: gpu{GPU: GPU{Name: t.Name}, track: t, memory: p.memory(t)}}
	var meter *usage.Stats // the one that vouches
	for i, sig := range usage.Compute() {
		st := t.Stats(sig)
		if !p.fresh(st) {
			continue
		}
		if i < len(usage.Vouching()) && meter == nil {
			meter = st
		}
		if st.Works() {
			work := p.w.Work(st)
			m.State, m.Coverage = Busy, work.Coverage
			m.stretch.To, m.expires = later(m.stretch.To, work.To), later(m.expires, p.w.Expires(st))
		}
	}
	utilisation := usage.Number(newest(t, usage.GPUUtil), 1)
	suspect := m.State == Busy && p.fresh(t.Stats(usage.GPUUtil)) && newest(t, usage.GPUUtil) >= p.t.LatchedUtil
	if suspect { // it is busy only as long as something confirms it
		for _, sig := range append([]usage.Signal{usage.Processes, usage.MemUsed}, usage.Compute()...) {
			if st := t.Stats(sig); p.fresh(st) {
				m.expires = earlier(m.expires, p.w.Expires(st))
			}
		}
	}
	switch {
	case suspect && p.latchedNow(t, m.memory):
		return m.says(Unknown, "utilisation reads "+utilisation+" % while nothing else shows work: the meter may be latched")
	case m.State == Busy && t.Stats(usage.GPUUtil) == nil:
		return m.says(Busy, "it computes")
	case m.State == Busy:
		return m.says(Busy, utilisation+" % utilisation")
	case meter == nil && !t.MeasuresCompute():
		return m.says(Unknown, "nobody measured whether it computes")
	case meter == nil:
		return m.says(Unknown, "its newest sample is too old")
	}
	m.stretch, m.expires = p.w.Unbroken(meter), p.w.Expires(meter)
	for _, sig := range usage.Compute() {
		if st := t.Stats(sig); st != nil && !st.LastActive.IsZero() {
			m.stretch = m.stretch.After(st.LastActive.Add(p.w.StepOf(st)))
		}
	}
	if power := t.Stats(usage.Power); power != nil && p.t.BusyPower > 0 {
		if newest(t, usage.Power) >= p.t.BusyPower {
			return m.says(Unknown, "its meters show no work, but it draws "+usage.Number(newest(t, usage.Power), 0)+" W")
		}
		p.under(&m, power, p.t.BusyPower)
	}
	m = p.holding(m)
	switch m.Coverage, m.Lasting = m.stretch.Coverage, m.stretch.Length(p.now); {
	case p.now.After(m.expires):
		return m.says(Unknown, "the newest sample of its memory, processes or power is too old")
	case m.Coverage < p.t.MinCoverage:
		return m.says(Unknown, "samples cover "+usage.Number(100*m.Coverage, 0)+" % of the time since it rests")
	}
	return m
}

// holding tells a GPU that does not compute as held or idle. It is idle only since its
// memory and the last process were given back.
func (p *present) holding(m moment) moment {
	processes, used := m.track.Stats(usage.Processes), m.memory.used
	count := newest(m.track, usage.Processes)
	share := usage.Number(m.memory.newest(), 0) + " % of memory held"
	line := m.memory.total * p.t.HeldMemory / 100
	if !m.memory.measured() {
		line = 1 // of a memory of unknown size every byte may be a model
	}
	switch {
	case p.fresh(processes) && count > 0:
		m.expires = earlier(m.expires, p.w.Expires(processes))
		if m.memory.measured() {
			return m.says(Held, share+" by "+processCount(count))
		}
		return m.says(Held, "held by "+processCount(count))
	case p.fresh(used) && newest(m.track, usage.MemUsed) >= line:
		m.expires = earlier(m.expires, p.w.Expires(used))
		if m.assumed = !m.memory.measured(); m.assumed {
			share = usage.Number(newest(m.track, usage.MemUsed)/(1<<30), 1) + " GiB of a memory of unknown size held"
		}
		return m.says(Held, share)
	case used == nil && processes == nil:
		m.assumed = true
		return m.says(Held, "nobody measured its memory")
	}
	if used != nil {
		p.under(&m, used, line)
	}
	if processes != nil {
		p.under(&m, processes, 1)
	}
	return m.says(Idle, "nothing held")
}

// under narrows the time of rest to that in which another signal was under a line.
func (p *present) under(m *moment, st *usage.Stats, line float64) {
	m.stretch = m.stretch.And(p.w.Rest(st, line))
	m.expires = earlier(m.expires, p.w.Expires(st))
}

// latchedNow says whether nothing confirms a utilisation of 100 %: no process and no
// memory in use, or multiprocessors that rest.
func (p *present) latchedNow(t *usage.Track, m memory) bool {
	for _, sig := range usage.Compute()[1:] {
		if st := t.Stats(sig); p.fresh(st) && st.Works() {
			return false
		}
	}
	if p.fresh(t.Stats(usage.SMActive)) {
		return true
	}
	processes := p.fresh(t.Stats(usage.Processes))
	if processes && newest(t, usage.Processes) > 0 {
		return false
	}
	if !m.measured() || !p.fresh(m.used) {
		return processes
	}
	return m.newest() < p.t.HeldMemory
}

func (m moment) says(s State, why string) moment {
	m.State, m.Why = s, why
	if s == Unknown || s == Busy {
		m.Lasting = 0
	}
	return m
}
