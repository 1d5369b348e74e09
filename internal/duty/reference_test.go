package duty

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// What follows is how the present was judged before there were trackers: it looks at a
// whole window of samples each time it is asked. It is the reference of the tests, and
// shares no reading of samples with the tracker.

func naiveUnknown(v Verdict, format string, args ...any) Verdict {
	v.State, v.Why, v.Lasting = Unknown, strings.TrimSpace(fmt.Sprintf(format, args...)), 0
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
	// rest is the time in which nothing that decided was active and no sample of it
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

// accelerated judges a machine with GPUs.
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

// computing completes the verdict on a machine of which some GPUs compute.
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

// one completes the verdict on a machine of which one GPU at rest is enough: an idle
// one rather than a held one, and the one that rests longest.
func (p *naive) one(v Verdict, resting []naiveMoment, all int) Verdict {
	best := resting[0]
	for _, m := range resting[1:] {
		if (m.State == best.State && m.Lasting > best.Lasting) || (m.State == Idle && best.State != Idle) {
			best = m
		}
	}
	p.rest, p.expires = best.stretch, best.expires
	return p.lasts(v, best.State, fmt.Sprintf("%d of %d GPUs rest: %s%s", len(resting), all, naiveLabel(best.naiveGPU), best.Why))
}

// resting completes the verdict on a machine none of whose GPUs computes.
func (p *naive) resting(v Verdict, gpus []naiveMoment) Verdict {
	p.rest, p.expires = gpus[0].stretch, gpus[0].expires
	var held []naiveGPU
	sure := false
	for _, m := range gpus {
		p.rest, p.expires = p.rest.And(m.stretch), earlier(p.expires, m.expires)
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

// lasts is the verdict that the machine rests in a state for the time that was found;
// where samples are too old or cover too little of that time it is unknown.
func (p *naive) lasts(v Verdict, s State, why string) Verdict {
	switch v.Coverage = p.rest.Coverage; {
	case p.now.After(p.expires):
		return naiveUnknown(v, "the newest sample of what would decide is too old")
	case v.Coverage < p.t.MinCoverage:
		return naiveUnknown(v, "samples cover %s%% of the time since it rests", plain.Number(100*v.Coverage, 0))
	}
	v = naiveSince(v, p.rest, p.expires, p.now)
	v.State, v.Why = s, why+", "+p.still+" for "+plain.Duration(v.Lasting)
	return v
}

// since sets how long the state has lasted, and until when it holds.
func naiveSince(v Verdict, s usage.Stretch, expires, now time.Time) Verdict {
	v.Lasting, v.Since, v.Until, v.Expires, v.Coverage = s.Length(now), earlier(s.From, s.To), s.To, expires, s.Coverage
	return v
}

// warming returns the verdict on a machine that does not compute in view of when it
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
	v.Lasting, v.Since, v.Until, v.Expires = 0, time.Time{}, end, end
	return v
}

// moment is what the newest samples of one GPU say.
type naiveMoment struct {
	naiveGPU
	// stretch is for how long it has rested, or computed when it is busy; expires is
	// until when its newest samples speak.
	stretch usage.Stretch
	expires time.Time
}

// fresh says whether the newest sample of a signal speaks of now.
func (j *naiveJudge) fresh(st *usage.Stats) bool { return j.w.Fresh(st, j.now) }

// newest returns the newest value of a signal; 0 where it is not measured.
func newest(t *usage.Track, sig usage.Signal) float64 {
	v, err := t.Stats(sig).Newest()
	if err != nil {
		return 0
	}
	return v
}

// moment judges one GPU by its newest samples.
func (p *naive) moment(t *usage.Track) naiveMoment {
	m := naiveMoment{naiveGPU: naiveGPU{GPU: GPU{Name: t.Name}, track: t, memory: p.memory(t)}}
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
	utilization := plain.Number(newest(t, usage.GPUUtil), 1)
	suspect := m.State == Busy && p.fresh(t.Stats(usage.GPUUtil)) && newest(t, usage.GPUUtil) >= p.t.LatchedUtil
	if suspect { // it is busy only as long as something confirms it
		for _, sig := range append([]usage.Signal{usage.Processes, usage.MemUsed}, usage.Compute()...) {
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
		return m.says(Unknown, "utilization reads "+utilization+"% while nothing else shows work: the meter may be latched")
	case m.State == Busy && t.Stats(usage.GPUUtil) == nil:
		return m.says(Busy, "it computes")
	case m.State == Busy && !t.Stats(usage.GPUUtil).Works():
		for _, sig := range usage.Compute() {
			if st := t.Stats(sig); p.fresh(st) && st.Works() {
				peak, _ := p.w.Peak(st, st.Last)
				return m.says(Busy, reads(sig, peak))
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
	for _, sig := range usage.Compute() {
		if st := t.Stats(sig); st != nil && !st.LastActive.IsZero() {
			m.stretch = m.stretch.After(st.LastActive.Add(p.w.StepOf(st)))
		}
	}
	if whole := p.whole(t); whole.Stats(usage.Power) != nil {
		power := whole.Stats(usage.Power)
		if newest(whole, usage.Power) >= p.t.BusyPower {
			says := "its multiprocessors read " + plain.Percent(100*newest(t, usage.SMActive), 1)
			if meter == t.Stats(usage.GPUUtil) {
				says = "utilization reads " + plain.Percent(newest(t, usage.GPUUtil), 1)
			}
			return m.says(Unknown, says+" while it draws "+plain.Number(newest(whole, usage.Power), 0)+" W: one of them is wrong")
		}
		p.under(&m, power, p.t.BusyPower)
	}
	m.stretch = m.stretch.After(p.trusted(p.whole(t)))
	m = p.holding(m)
	switch m.Coverage, m.Lasting = m.stretch.Coverage, m.stretch.Length(p.now); {
	case p.now.After(m.expires):
		return m.says(Unknown, "the newest sample of its memory, processes or power is too old")
	case m.Coverage < p.t.MinCoverage:
		return m.says(Unknown, "samples cover "+plain.Number(100*m.Coverage, 0)+"% of the time since it rests")
	}
	return m
}

// whole returns the GPU that a MIG instance is part of, or the GPU itself.
func (p *naive) whole(t *usage.Track) *usage.Track {
	for _, g := range p.w.GPUs {
		if parent, part := t.Parent(); part && g.Name == parent {
			return g
		}
	}
	return t
}

// wrong says which signals of a GPU cannot be true, in the words of the tracker.
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
	sm, tensor := "its multiprocessors read "+pct(usage.SMActive, 100), "its tensor pipes read "+pct(usage.TensorActive, 100)
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
	if p.fresh(energy) && newest(t, usage.Energy) > 0 && draws && energy.Repeated() {
		draw := ""
		if power != nil {
			draw = " while it draws " + plain.Number(newest(t, usage.Power), 1) + " W"
		}
		return "its energy meter stands still at " + plain.Number(newest(t, usage.Energy), 0) + " J" + draw + ": its exporter is frozen"
	}
	if p.fresh(power) && p.fresh(heat) && draws && power.Repeated() && heat.Repeated() {
		return "power stands still at " + plain.Number(newest(t, usage.Power), 3) + " W and temperature at " + plain.Number(newest(t, usage.Temperature), 1) +
			" C for 10 samples: its exporter is frozen"
	}
	if fall := energy.Fell(); p.fresh(energy) && fall.At.Equal(energy.Last) {
		return fmt.Sprintf("its energy meter fell from %s J to %s J: the driver or the exporter was restarted", plain.Number(fall.From, 0), plain.Number(fall.To, 0))
	}
	return ""
}

// trusted returns from when on the meters of a GPU are believed.
func (p *naive) trusted(t *usage.Track) (from time.Time) {
	power, heat, energy := t.Stats(usage.Power), t.Stats(usage.Temperature), t.Stats(usage.Energy)
	draws := power == nil || newest(t, usage.Power) > 0
	if at := power.Froze(); !at.IsZero() && draws && !heat.Froze().Before(at) {
		from = at.Add(p.w.StepOf(power))
	}
	if at := energy.Froze(); !at.IsZero() && draws && newest(t, usage.Energy) > 0 {
		from = later(from, at.Add(p.w.StepOf(energy)))
	}
	return later(from, energy.Fell().At)
}

// holding tells a GPU that does not compute as held or idle. It is idle only since its
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

// under narrows the time of rest to that in which another signal was under a line.
func (p *naive) under(m *naiveMoment, st *usage.Stats, line float64) {
	m.stretch = m.stretch.And(p.w.Rest(st, line))
	m.expires = earlier(m.expires, p.w.Expires(st))
}

// latchedNow says whether nothing confirms a utilization of 100%: no process and no
// memory in use, or multiprocessors that rest.
func (p *naive) latchedNow(t *usage.Track, m naiveMemory) bool {
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

func (m naiveMoment) says(s State, why string) naiveMoment {
	m.State, m.Why = s, why
	if s == Unknown || s == Busy {
		m.Lasting = 0
	}
	return m
}

// naiveMeter is one signal of the whole machine: under idle it rests, from busy on it
// works, and in between the work is unknown.
type naiveMeter struct {
	signal     usage.Signal
	name       string
	idle, busy float64
	rate       bool // the lines are a second
}

// flows are the meters of data on its way.
func (j *naiveJudge) flows() []naiveMeter {
	return []naiveMeter{
		{usage.NetBytes, "network", j.t.IdleNetRate, j.t.BusyNetRate, true},
		{usage.DiskBytes, "disks", j.t.IdleDiskRate, j.t.BusyDiskRate, true},
	}
}

// people are the meters of a person at work.
func (j *naiveJudge) people() []naiveMeter {
	return []naiveMeter{{usage.Sessions, "sessions", 1, 1, false}, {usage.Kernels, "notebook kernels", 1, 1, false}}
}

func (j *naiveJudge) cpu() naiveMeter {
	return naiveMeter{usage.CPUUtil, "CPUs", j.t.IdleCPU, j.t.BusyCPU, false}
}

func (j *naiveJudge) stats(m naiveMeter) *usage.Stats { return j.w.Machine.Stats(m.signal) }

// unit is what a line is multiplied by to be in the unit of the meter's points.
func (j *naiveJudge) unit(m naiveMeter) float64 {
	if m.rate {
		return j.w.StepOf(j.stats(m)).Seconds()
	}
	return 1
}

// level returns the peak within the newest sample, a second for rates; ok is false
// where the meter does not speak of now.
func (j *naiveJudge) level(m naiveMeter) (v float64, ok bool) {
	st := j.stats(m)
	if !j.fresh(st) || j.unit(m) <= 0 {
		return 0, false
	}
	v, ok = j.w.Peak(st, st.Last)
	return v / j.unit(m), ok
}

// uses narrows the time of rest to that in which a meter was under a line.
func (p *naive) uses(m naiveMeter, line float64) {
	if st := p.stats(m); st != nil {
		p.rest = p.rest.And(p.w.Rest(st, line*p.unit(m)))
		p.expires = earlier(p.expires, p.w.Expires(st))
	}
}

// settle completes the verdict on a machine that does not compute. holds says what
// holds its GPUs, and sure that this was seen and not only assumed. required are
// meters without which nothing is idle.
func (p *naive) settle(v Verdict, holds string, sure bool, required ...usage.Signal) Verdict {
	for _, m := range p.flows() {
		rate, ok := p.level(m)
		if !ok || rate < m.busy {
			continue
		}
		why := fmt.Sprintf("%s MB/s cross its %s", plain.Number(rate/1e6, 1), m.name)
		if sure {
			p.expires = earlier(p.expires, p.w.Expires(p.stats(m)))
			return p.lasts(v, Starved, holds+" and "+why)
		}
		return p.works(v, m, why)
	}
	state, why := p.quiet(holds, sure, required)
	if state == Unknown {
		return naiveUnknown(v, "%s", why)
	}
	return p.lasts(v, state, why)
}

// works is the verdict that a machine is busy by one of its host meters.
func (p *naive) works(v Verdict, m naiveMeter, why string) Verdict {
	now := p.w.Unbroken(p.stats(m))
	v.State, v.Why, v.Coverage, v.Until, v.Expires = Busy, why, now.Coverage, now.To, p.w.Expires(p.stats(m))
	if !p.now.After(p.expires) { // what was known before it still has to be
		v.Expires = earlier(v.Expires, p.expires)
	}
	return v
}

// quiet tells held, idle and unknown where no data is on its way.
func (p *naive) quiet(holds string, sure bool, required []usage.Signal) (s State, why string) {
	for _, m := range p.flows() {
		if p.stats(m) != nil && !p.fresh(p.stats(m)) {
			return Unknown, "the newest sample of its " + m.name + " is too old"
		}
		p.uses(m, m.busy)
	}
	if sure {
		return Held, holds
	}
	for _, m := range p.people() {
		if n, ok := p.level(m); ok && n >= m.busy {
			p.expires = earlier(p.expires, p.w.Expires(p.stats(m)))
			return Held, plain.Number(n, 0) + " of its " + m.name + " at work"
		}
	}
	for _, m := range slices.Concat(p.flows(), p.people(), []naiveMeter{p.cpu()}) {
		level, ok := p.level(m)
		switch {
		case p.stats(m) == nil && slices.Contains(required, m.signal):
			return Unknown, "its " + m.name + " is not measured"
		case p.stats(m) == nil:
			continue
		case !ok:
			return Unknown, "the newest sample of its " + m.name + " is too old"
		case level >= m.idle && m.rate:
			return Unknown, fmt.Sprintf("%s MB/s cross its %s, which is neither rest nor work", plain.Number(level/1e6, 2), m.name)
		case level >= m.idle:
			return Unknown, fmt.Sprintf("its %s reach %s%% and nothing is held: work, or a loop", m.name, plain.Number(level, 0))
		}
		p.uses(m, m.idle)
	}
	if holds != "" {
		return Held, holds
	}
	return Idle, "nothing held"
}

// host judges a machine without GPUs.
func (p *naive) host() Verdict {
	var v Verdict
	cpu := p.stats(p.cpu())
	if peak, ok := p.level(p.cpu()); ok && peak >= p.t.IdleCPU {
		v = p.works(v, p.cpu(), "CPU reaches "+plain.Number(peak, 1)+"%")
	} else {
		p.still = "CPU under " + plain.Percent(p.t.IdleCPU, 1)
		p.rest, p.expires = p.w.Rest(cpu, p.t.IdleCPU), p.w.Expires(cpu)
		v = p.settle(v, "", false, usage.CPUUtil, usage.NetBytes)
	}
	if v.State != Busy {
		v = p.warming(v)
	}
	v.Evidence = append(p.evidence(v, nil, 0, 0), v.Evidence...)
	return v
}

// standstill is computation without progress.
type naiveStandstill struct {
	usage.Stretch
	expires time.Time
	why     string
}

// standstill says for how long GPUs have computed, without a pause, while every
// counter of progress that is measured stood still; ok is false where one of them
// moved lately, is too old to tell, is covered too little, or none is measured.
//
// A pause ends it, because the counters may be of work that is over. Steps stand still
// after [Thresholds.StalledAfter]; checkpoints also only after three times the
// interval at which they came before, so that nothing is said of a run that has not
// saved two.
func (j *naiveJudge) standstill(busy []*usage.Track) (s naiveStandstill, ok bool) {
	work, expires := j.work(busy)
	for _, c := range []struct {
		signal usage.Signal
		why    string
	}{{usage.Step, "no step for %s"}, {usage.Checkpoints, "no checkpoint for %s"}} {
		st := j.w.Machine.Stats(c.signal)
		patience, judged := j.patience(c.signal, st)
		if !judged {
			continue
		}
		both := work.And(j.w.Standstill(st))
		lasting := both.Length(j.now)
		if !j.fresh(st) || lasting < patience || both.Coverage < j.t.MinCoverage {
			return naiveStandstill{}, false
		}
		if !ok {
			s = naiveStandstill{both, earlier(expires, j.w.Expires(st)), fmt.Sprintf("it computes, and "+c.why, plain.Duration(lasting))}
			ok = true
			continue
		}
		s.Stretch, s.expires = s.And(both), earlier(s.expires, j.w.Expires(st))
	}
	return s, ok
}

// patience returns after how long without a rise a counter stands still; ok is false
// where it cannot tell.
func (j *naiveJudge) patience(sig usage.Signal, st *usage.Stats) (d time.Duration, ok bool) {
	switch {
	case st == nil:
		return 0, false
	case sig == usage.Step:
		return j.t.StalledAfter, true
	case st.Active < 2:
		return 0, false
	}
	usual := st.LastActive.Sub(st.First) / time.Duration(st.Active)
	return max(j.t.StalledAfter, missedCheckpoints*usual), true
}

// work returns the time in which the GPU that has computed longest did not pause.
func (j *naiveJudge) work(busy []*usage.Track) (longest usage.Stretch, expires time.Time) {
	for _, t := range busy {
		for _, sig := range usage.Compute() {
			st := t.Stats(sig)
			if !st.Works() || !j.fresh(st) {
				continue
			}
			if s := j.w.Work(st); expires.IsZero() || s.From.Before(longest.From) {
				longest, expires = s, j.w.Expires(st)
			}
		}
	}
	return longest, expires
}

// progressEvidence lists the counters of progress.
func (j *naiveJudge) progressEvidence() []usage.Evidence {
	var out []usage.Evidence
	for _, c := range []struct {
		signal usage.Signal
		name   string
	}{{usage.Step, "training_step"}, {usage.Checkpoints, "checkpoints"}} {
		st := j.w.Machine.Stats(c.signal)
		if v, err := st.Newest(); err == nil {
			still := j.w.Standstill(st)
			out = append(out, usage.Evidence{
				Signal: c.name, Value: plain.Decimal(v, 0), Window: still.Length(j.now), Coverage: still.Coverage, Source: j.w.SourceOf(st),
			})
		}
	}
	return out
}

// evidence lists what was seen of a machine now: of each signal the highest value
// since the state began, or in the newest sample where the state has no beginning.
func (p *naive) evidence(v Verdict, seen []naiveMoment, all, gpus int) []usage.Evidence {
	var out []usage.Evidence
	if gpus != 0 || all > 0 {
		of := fmt.Sprint(all)
		if gpus >= 0 {
			of = fmt.Sprintf("%d of %d", all, gpus)
		}
		out = append(out, usage.Fact("gpus_measured", of, p.w.Source))
	}
	var gpu []*usage.Track
	for _, m := range seen {
		gpu = append(gpu, m.track)
	}
	host := []*usage.Track{&p.w.Machine}
	for _, s := range []struct {
		signal usage.Signal
		tracks []*usage.Track
		name   string
		digits int
		always bool // also where it is not measured
	}{
		{usage.GPUUtil, gpu, "gpu_util_max_pct", 1, all > 0 || gpus != 0},
		{usage.GREngine, gpu, "gr_engine_active_max", 3, false},
		{usage.SMActive, gpu, "sm_active_max", 3, false},
		{usage.TensorActive, gpu, "tensor_active_max", 3, false},
		{usage.DRAMActive, gpu, "dram_active_max", 3, false},
		{usage.Power, gpu, "power_max_w", 0, false},
		{usage.Processes, gpu, "gpu_processes_max", 0, false},
		{usage.CPUUtil, host, "cpu_util_max_pct", 1, true},
		{usage.NetBytes, host, "net_bytes_per_second_max", 0, true},
		{usage.DiskBytes, host, "disk_bytes_per_second_max", 0, false},
		{usage.Sessions, host, "sessions_max", 0, false},
		{usage.Kernels, host, "kernels_max", 0, false},
	} {
		e, measured := p.highest(v, s.tracks, s.signal, s.digits)
		if e.Signal = s.name; measured || s.always {
			out = append(out, e)
		}
	}
	if e, measured := p.heldNow(seen); measured {
		out = append(out, e)
	}
	return append(out, p.progressEvidence()...)
}

// heldNow is evidence of the largest share of memory in use on any GPU.
func (p *naive) heldNow(seen []naiveMoment) (e usage.Evidence, measured bool) {
	largest := 0.0
	for _, m := range seen {
		if used := m.memory.used; m.memory.measured() && m.memory.newest() >= largest {
			largest, measured = m.memory.newest(), true
			e = usage.Evidence{Signal: "gpu_mem_used_newest_pct", Window: p.w.StepOf(used), Coverage: p.w.Unbroken(used).Coverage, Source: p.w.SourceOf(used)}
		}
	}
	e.Value = plain.Decimal(largest, 1)
	return e, measured
}

// highest is evidence of the highest value of a signal over tracks since the state
// began.
func (p *naive) highest(v Verdict, tracks []*usage.Track, sig usage.Signal, digits int) (e usage.Evidence, measured bool) {
	e = usage.Evidence{Value: notMeasured, Source: p.w.Source}
	highest := 0.0
	for _, t := range tracks {
		st := t.Stats(sig)
		if st == nil {
			continue
		}
		from := st.Last
		if !v.Since.IsZero() && v.Since.Before(from) {
			from = v.Since
		}
		peak, _ := p.w.Peak(st, from)
		if sig == usage.NetBytes || sig == usage.DiskBytes {
			peak /= max(p.w.StepOf(st).Seconds(), 1e-9)
		}
		unbroken := p.w.Unbroken(st)
		if !measured {
			e.Coverage, measured = unbroken.Coverage, true
		}
		highest = max(highest, peak)
		e.Coverage = min(e.Coverage, unbroken.Coverage)
		e.Window = max(e.Window, st.Last.Add(p.w.StepOf(st)).Sub(from))
		e.Source = p.w.SourceOf(st)
	}
	if measured {
		e.Value = plain.Decimal(highest, digits)
	}
	return e, measured
}

// gpu is what the samples of one GPU say.
type naiveGPU struct {
	GPU
	track *usage.Track
	// assumed says that the GPU is held only because its memory is not measured.
	assumed bool
	memory  naiveMemory
}

// memory is how much of its memory a GPU holds.
type naiveMemory struct {
	used  *usage.Stats
	total float64 // bytes; 0 unknown
}

func (m naiveMemory) measured() bool { return m.used != nil && m.total > 0 }

// pct returns the newest and the largest share of memory in use, in percent.
func (m naiveMemory) pct() (newest, largest float64) {
	last, err := m.used.Newest()
	if err != nil {
		return 0, 0
	}
	return 100 * last / m.total, 100 * m.used.Max / m.total
}

// newest returns the newest share of memory in use, in percent.
func (m naiveMemory) newest() float64 {
	share, _ := m.pct()
	return share
}

func (j *naiveJudge) memory(t *usage.Track) naiveMemory {
	return naiveMemory{used: t.Stats(usage.MemUsed), total: j.w.Memory(t)}
}

// tracks returns what is judged as a GPU, and how many GPUs of the machine that is.
// Of a GPU that is divided, its MIG instances are judged, and not the whole, whose
// utilization NVML does not offer then.
func (j *naiveJudge) tracks() (list []*usage.Track, gpus int) {
	divided := map[string]bool{}
	for _, t := range j.w.GPUs {
		if parent, part := t.Parent(); part {
			divided[parent] = true
		}
	}
	seen := map[string]bool{}
	for _, t := range j.w.GPUs {
		parent, part := t.Parent()
		if !part && divided[parent] && !t.MeasuresCompute() {
			continue
		}
		seen[parent] = true
		list = append(list, t)
	}
	return list, len(seen)
}

// heldWhy gives the reason of the GPU that holds most surely, and how many do.
func (j *naiveJudge) heldWhy(held []naiveGPU) string {
	best := held[0]
	for _, g := range held[1:] {
		if best.assumed && !g.assumed {
			best = g
		}
	}
	if len(held) == 1 && best.Name == "" {
		return best.Why
	}
	if len(j.w.GPUs) <= 1 {
		return best.Why
	}
	return fmt.Sprintf("%d of %d GPUs held: %s", len(held), len(j.w.GPUs), best.Why)
}

func naiveLabel(g naiveGPU) string {
	if g.Name == "" {
		return "GPU: "
	}
	return "GPU " + g.Name + ": "
}
