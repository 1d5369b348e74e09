package duty

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// What follows is how the present was judged before there were trackers: it looks at a
// whole window of samples each time it is asked. It is the reference of the tests, and
// shares no reading of samples with the tracker.

func naiveUnknown(v Verdict, format string, args ...any) Verdict {
	v.State, v.Why, v.Duration = Unknown, strings.TrimSpace(fmt.Sprintf(format, args...)), 0
	return v
}

// naiveJudge is one judgement of a window.
type naiveJudge struct {
	w   *usage.Window
	now time.Time
	t   Thresholds
}

// naive is one judgement of now.
type naive struct {
	naiveJudge
	// restPeriod is the time in which nothing that decided was active and no sample of it
	// is missing; expires is when the first of what decided becomes too old.
	rest    usage.Stretch
	expires time.Time
	still   string // what rests, for people
}

// naiveNow says what a machine is doing at now, by the newest samples of a window.
func naiveNow(w *usage.Window, gpus int, now time.Time, t Thresholds) Verdict {
	if w == nil {
		return Verdict{Why: "nothing was measured"}
	}
	p := &naive{naiveJudge: naiveJudge{w: w, now: now, t: t.orDefault()}}
	if gpus == 0 && len(w.GPUs) == 0 && !w.Machine.MeasuresCompute() {
		return p.host()
	}
	return p.accelerated(gpus)
}

// judgeGPUs judges a machine with GPUs.
func (p *naive) accelerated(gpus int) Verdict {
	p.still = "0% compute"
	tracks, all := p.tracks()
	seen := make([]naiveMoment, 0, len(tracks))
	for _, t := range tracks {
		seen = append(seen, p.moment(t))
	}
	// A series of the whole machine is one more witness that something computes, and
	// a witness of rest only where it speaks for every GPU.
	machine, unnamed := p.moment(&p.w.Machine), p.w.Machine.MeasuresCompute()
	if all == 0 && unnamed && (gpus == 1 || p.w.Aggregated) {
		seen, all = append(seen, machine), max(gpus, 1)
	}
	var v Verdict
	var busy, resting []naiveMoment
	unknown := ""
	for _, m := range seen {
		switch m.State {
		case Busy:
			busy = append(busy, m)
		case Unknown:
			if unknown == "" {
				unknown = naiveLabel(m.naiveGPU) + m.Why
			}
		default:
			resting = append(resting, m)
		}
		if m.Name != "" {
			v.GPUs = append(v.GPUs, m.GPU)
		}
	}
	if len(busy) == 0 && machine.State == Busy {
		busy = append(busy, machine)
	}
	expected := max(gpus, len(seen))
	switch {
	case p.t.GPUs == AnyGPU && len(resting) > 0 && len(resting) < expected:
		v = p.warming(p.one(v, resting, expected))
	case len(busy) > 0:
		v = p.computing(v, busy, len(seen))
	case len(seen) == 0 && unnamed:
		v = p.warming(naiveUnknown(v, "one series of samples stands for an unknown GPU of several"))
	case len(seen) == 0:
		v = p.warming(naiveUnknown(v, "its GPUs were not measured"))
	case gpus < 0:
		v = p.warming(naiveUnknown(v, "its number of GPUs is unknown"))
	case all < gpus:
		v = p.warming(naiveUnknown(v, "%d of %d GPUs were measured", all, gpus))
	case unknown != "":
		v = p.warming(naiveUnknown(v, "%s", unknown))
	default:
		v = p.warming(p.resting(v, resting))
	}
	v.Evidence = append(p.evidence(v, seen, all, gpus), v.Evidence...)
	return v
}

// busyReason completes the verdict on a machine of which some GPUs compute.
func (p *naive) computing(v Verdict, busy []naiveMoment, all int) Verdict {
	tracks := make([]*usage.Track, len(busy))
	v.Coverage = 1
	for i, m := range busy {
		tracks[i] = m.track
		v.Until, v.Expires = later(v.Until, m.stretch.To), later(v.Expires, m.expires)
		v.Coverage = min(v.Coverage, m.Coverage)
	}
	v.State, v.Why = Busy, busy[0].Why
	if all > 1 {
		v.Why = fmt.Sprintf("%d of %d GPUs compute", len(busy), all)
	}
	if s, ok := p.standstill(tracks); ok {
		v = naiveSince(v, s.Stretch, s.expires, p.now)
		v.State, v.Why = Stalled, s.why
	}
	return v
}

// judgeAnyResting completes the verdict on a machine of which one GPU at rest is enough: an idle
// one rather than a held one, and the one that rests longest.
func (p *naive) one(v Verdict, resting []naiveMoment, all int) Verdict {
	best := resting[0]
	for _, m := range resting[1:] {
		if (m.State == best.State && m.Duration > best.Duration) || (m.State == Idle && best.State != Idle) {
			best = m
		}
	}
	p.rest, p.expires = best.stretch, best.expires
	return p.lasts(v, best.State, fmt.Sprintf("%d of %d GPUs rest: %s%s", len(resting), all, naiveLabel(best.naiveGPU),
		best.Why))
}

// restingCount completes the verdict on a machine none of whose GPUs computes.
func (p *naive) resting(v Verdict, gpus []naiveMoment) Verdict {
	p.rest, p.expires = gpus[0].stretch, gpus[0].expires
	var held []naiveGPU
	sure := false
	for _, m := range gpus {
		p.rest, p.expires = p.rest.Intersect(m.stretch), earlier(p.expires, m.expires)
		if m.State == Held {
			held, sure = append(held, m.naiveGPU), sure || !m.assumed
		}
	}
	holds := ""
	if len(held) > 0 {
		holds = p.heldWhy(held)
	}
	return p.settle(v, holds, sure)
}

// setResting is the verdict that the machine rests in a state for the time that was found;
// where samples are too old or cover too little of that time it is unknown.
func (p *naive) lasts(v Verdict, s State, why string) Verdict {
	switch v.Coverage = p.rest.Coverage; {
	case p.now.After(p.expires):
		return naiveUnknown(v, "the newest sample of what would decide is too old")
	case v.Coverage < p.t.MinCoverage:
		return naiveUnknown(v, "samples cover %s%% of the time since it rests", plain.Number(100*v.Coverage, 0))
	}
	v = naiveSince(v, p.rest, p.expires, p.now)
	v.State, v.Why = s, why+", "+p.still+" for "+plain.Duration(v.Duration)
	return v
}

// since sets how long the state has lasted, and until when it holds.
func naiveSince(v Verdict, s usage.Stretch, expires, now time.Time) Verdict {
	v.Duration, v.Since, v.Until, v.Expires, v.Coverage = s.Length(now), earlier(s.From,
		s.To), s.To, expires, s.Coverage
	return v
}

// applyWarmUp returns the verdict on a machine that does not compute in view of when it
// was launched.
func (j *naiveJudge) warming(v Verdict) Verdict {
	launched := j.w.Launched
	end := launched.Add(j.t.WarmUp)
	if launched.IsZero() || launched.After(j.now) || j.now.After(end) {
		return v
	}
	age := plain.Duration(j.now.Sub(launched))
	v.State, v.Why = Warming, "it was launched "+age+" ago"
	v.Evidence = append(v.Evidence, usage.Fact("age", age, "inventory"))
	v.Duration, v.Since, v.Until, v.Expires = 0, time.Time{}, end, end
	return v
}

// naiveMoment holds the newest samples of one GPU.
type naiveMoment struct {
	naiveGPU
	// stretch is for how long it has rested, or computed when it is busy; expires is
	// until when its newest samples speak.
	stretch usage.Stretch
	expires time.Time
}

// fresh reports whether the newest sample of a signal speaks of now.
func (j *naiveJudge) fresh(st *usage.Stats) bool { return j.w.Fresh(st, j.now) }

// newestPercent returns the newest value of a signal; 0 if it is not measured.
func newest(t *usage.Track, sig usage.Signal) float64 {
	v, err := t.Stats(sig).Newest()
	if err != nil {
		return 0
	}
	return v
}

// gpuState judges one GPU by its newest samples.
func (p *naive) moment(t *usage.Track) naiveMoment {
	m := naiveMoment{naiveGPU: naiveGPU{GPU: GPU{Name: t.Name}, track: t, memory: p.memory(t)}}
	var meter *usage.Stats // the one that vouches
	for i, sig := range usage.ComputeSignals() {
		st := t.Stats(sig)
		if !p.fresh(st) {
			continue
		}
		if i < len(usage.RestSignals()) && meter == nil {
			meter = st
		}
		if st.IsActive() {
			work := p.w.Work(st)
			m.State, m.Coverage = Busy, work.Coverage
			m.stretch.To, m.expires = later(m.stretch.To, work.To), later(m.expires, p.w.Expires(st))
		}
	}
	utilization := plain.Number(newest(t, usage.GPUUtil), 1)
	suspect := m.State == Busy && p.fresh(t.Stats(usage.GPUUtil)) && newest(t, usage.GPUUtil) >= p.t.LatchedUtil
	if suspect { // it is busy only as long as something confirms it
		for _, sig := range append([]usage.Signal{usage.Processes, usage.MemUsed}, usage.ComputeSignals()...) {
			if st := t.Stats(sig); p.fresh(st) {
				m.expires = earlier(m.expires, p.w.Expires(st))
			}
		}
	}
	why := p.wrong(t)
	switch {
	case why != "" && (m.State == Busy || meter != nil):
		return m.says(Unknown, why)
	case suspect && p.latchedNow(t, m.memory):
		return m.says(Unknown,
			"utilization reads "+utilization+"% while nothing else shows work: the meter may be latched")
	case m.State == Busy && t.Stats(usage.GPUUtil) == nil:
		return m.says(Busy, "it computes")
	case m.State == Busy && !t.Stats(usage.GPUUtil).IsActive():
		for _, sig := range usage.ComputeSignals() {
			if st := t.Stats(sig); p.fresh(st) && st.IsActive() {
				peak, _ := p.w.Peak(st, st.Last)
				return m.says(Busy, readingText(sig, peak))
			}
		}
	case m.State == Busy:
		return m.says(Busy, utilization+"% utilization")
	case meter == nil && !t.MeasuresCompute():
		return m.says(Unknown, "its GPU utilization is not measured")
	case meter == nil:
		return m.says(Unknown, "its newest sample is too old")
	}
	m.stretch, m.expires = p.w.Unbroken(meter), p.w.Expires(meter)
	for _, sig := range usage.ComputeSignals() {
		if st := t.Stats(sig); st != nil && !st.LastActive.IsZero() {
			m.stretch = m.stretch.StartingAt(st.LastActive.Add(p.w.StepOf(st)))
		}
	}
	if whole := p.whole(t); whole.Stats(usage.Power) != nil {
		power := whole.Stats(usage.Power)
		if newest(whole, usage.Power) >= p.t.BusyPower {
			says := "its multiprocessors read " + plain.Percent(100*newest(t, usage.SMActive), 1)
			if meter == t.Stats(usage.GPUUtil) {
				says = "utilization reads " + plain.Percent(newest(t, usage.GPUUtil), 1)
			}
			return m.says(Unknown, says+" while it draws "+plain.Number(newest(whole, usage.Power),
				0)+" W: one of them is wrong")
		}
		p.under(&m, power, p.t.BusyPower)
	}
	m.stretch = m.stretch.StartingAt(p.trusted(p.whole(t)))
	m = p.holding(m)
	switch m.Coverage, m.Duration = m.stretch.Coverage, m.stretch.Length(p.now); {
	case p.now.After(m.expires):
		return m.says(Unknown, "the newest sample of its memory, processes or power is too old")
	case m.Coverage < p.t.MinCoverage:
		return m.says(Unknown, "samples cover "+plain.Number(100*m.Coverage, 0)+"% of the time since it rests")
	}
	return m
}

// wholeGPU returns the GPU that a MIG instance is part of, or the GPU itself.
func (p *naive) whole(t *usage.Track) *usage.Track {
	for _, g := range p.w.GPUs {
		if parent, part := t.Parent(); part && g.Name == parent {
			return g
		}
	}
	return t
}

// contradiction says which signals of a GPU cannot be true, in the words of the tracker.
func (p *naive) wrong(t *usage.Track) string {
	rests := func(s usage.Signal, floor float64) bool {
		st := t.Stats(s)
		if !p.fresh(st) {
			return false
		}
		v, _ := p.w.Peak(st, st.Last)
		return v < floor
	}
	works := func(s usage.Signal, line float64) bool { return p.fresh(t.Stats(s)) && newest(t, s) >= line }
	pct := func(s usage.Signal, scale float64) string { return plain.Percent(scale*newest(t, s), 1) }
	util, engine := "utilization reads "+pct(usage.GPUUtil, 1), "the graphics engine reads "+pct(usage.GREngine, 100)
	sm, tensor := "its multiprocessors read "+pct(usage.SMActive,
		100), "its tensor pipes read "+pct(usage.TensorActive,
		100)
	why := ""
	switch noEngine := rests(usage.GREngine, 0.01); {
	case works(usage.GPUUtil, 10) && noEngine:
		why = util + " while " + engine
	case works(usage.SMActive, 0.1) && noEngine:
		why = sm + " while " + engine
	case works(usage.TensorActive, 0.1) && rests(usage.SMActive, 0.01):
		why = tensor + " while " + sm
	case works(usage.TensorActive, 0.1) && noEngine:
		why = tensor + " while " + engine
	}
	if why != "" {
		return why + ": one of them is wrong"
	}
	t = p.whole(t)
	power, heat, energy := t.Stats(usage.Power), t.Stats(usage.Temperature), t.Stats(usage.Energy)
	draws := power == nil || newest(t, usage.Power) > 0
	if p.fresh(energy) && newest(t, usage.Energy) > 0 && draws && energy.IsFrozen() {
		draw := ""
		if power != nil {
			draw = " while it draws " + plain.Number(newest(t, usage.Power), 1) + " W"
		}
		return "its energy meter stands still at " + plain.Number(newest(t, usage.Energy), 0) + " J" + draw +
			": its exporter is frozen"
	}
	if p.fresh(power) && p.fresh(heat) && draws && power.IsFrozen() && heat.IsFrozen() {
		return "power stands still at " + plain.Number(newest(t, usage.Power), 3) +
			" W and temperature at " + plain.Number(
			newest(t, usage.Temperature), 1) +
			" C for 10 samples: its exporter is frozen"
	}
	if fall := energy.LastFall(); p.fresh(energy) && fall.At.Equal(energy.Last) {
		return fmt.Sprintf("its energy meter fell from %s J to %s J: the driver or the exporter was restarted",
			plain.Number(fall.Before, 0), plain.Number(fall.After, 0))
	}
	return ""
}

// trustedSince returns from when on the meters of a GPU are believed.
func (p *naive) trusted(t *usage.Track) (from time.Time) {
	power, heat, energy := t.Stats(usage.Power), t.Stats(usage.Temperature), t.Stats(usage.Energy)
	draws := power == nil || newest(t, usage.Power) > 0
	if at := power.LastFrozen(); !at.IsZero() && draws && !heat.LastFrozen().Before(at) {
		from = at.Add(p.w.StepOf(power))
	}
	if at := energy.LastFrozen(); !at.IsZero() && draws && newest(t, usage.Energy) > 0 {
		from = later(from, at.Add(p.w.StepOf(energy)))
	}
	return later(from, energy.LastFall().At)
}

// judgeHolding tells a GPU that does not compute as held or idle. It is idle only since its
// memory and the last process were given back.
func (p *naive) holding(m naiveMoment) naiveMoment {
	processes, used := m.track.Stats(usage.Processes), m.memory.used
	count := newest(m.track, usage.Processes)
	share := plain.Percent(m.memory.newest(), 0) + " of memory held"
	line := m.memory.total * p.t.HeldMemory / 100
	if !m.memory.measured() {
		line = 1 // of a memory of unknown size every byte may be a model
	}
	switch {
	case p.fresh(processes) && count > 0:
		m.expires = earlier(m.expires, p.w.Expires(processes))
		if m.memory.measured() {
			return m.says(Held, share+" by "+plain.Count(int64(count), "process"))
		}
		return m.says(Held, "held by "+plain.Count(int64(count), "process"))
	case p.fresh(used) && newest(m.track, usage.MemUsed) >= line:
		m.expires = earlier(m.expires, p.w.Expires(used))
		if m.assumed = !m.memory.measured(); m.assumed {
			share = plain.Number(newest(m.track, usage.MemUsed)/(1<<30), 1) + " GiB of a memory of unknown size held"
		}
		return m.says(Held, share)
	case used == nil && processes == nil:
		m.assumed = true
		return m.says(Held, "its memory is not measured")
	}
	if used != nil {
		p.under(&m, used, line)
	}
	if processes != nil {
		p.under(&m, processes, 1)
	}
	return m.says(Idle, "nothing held")
}

// quietBelow narrows the time of rest to that in which another signal was under a line.
func (p *naive) under(m *naiveMoment, st *usage.Stats, line float64) {
	m.stretch = m.stretch.Intersect(p.w.Rest(st, line))
	m.expires = earlier(m.expires, p.w.Expires(st))
}

// latchedNow reports whether nothing confirms a utilization of 100%: no process and no memory in
// use, or multiprocessors that rest.
func (p *naive) latchedNow(t *usage.Track, m naiveMemory) bool {
	for _, sig := range usage.ComputeSignals()[1:] {
		if st := t.Stats(sig); p.fresh(st) && st.IsActive() {
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

func (m naiveMoment) says(s State, why string) naiveMoment {
	m.State, m.Why = s, why
	if s == Unknown || s == Busy {
		m.Duration = 0
	}
	return m
}
