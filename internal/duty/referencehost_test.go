package duty

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// naiveMeter is one signal of the whole machine: under idle it rests, from busy on it
// works, and in between the work is unknown.
type naiveMeter struct {
	signal     usage.Signal
	name       string
	idle, busy float64
	rate       bool // the lines are a second
}

// transferSignals are the meters of data on its way.
func (j *naiveJudge) flows() []naiveMeter {
	return []naiveMeter{
		{usage.NetBytes, "network", j.t.IdleNetRate, j.t.BusyNetRate, true},
		{usage.DiskBytes, "disks", j.t.IdleDiskRate, j.t.BusyDiskRate, true},
	}
}

// userSignals are the meters of a person at work.
func (j *naiveJudge) people() []naiveMeter {
	return []naiveMeter{{usage.Sessions, "sessions", 1, 1, false}, {usage.Kernels, "notebook kernels", 1, 1, false}}
}

func (j *naiveJudge) cpu() naiveMeter {
	return naiveMeter{usage.CPUUtil, "CPUs", j.t.IdleCPU, j.t.BusyCPU, false}
}

func (j *naiveJudge) stats(m naiveMeter) *usage.Stats { return j.w.Machine.Stats(m.signal) }

// unit is the factor from the unit of a threshold to that of the meter's points.
func (j *naiveJudge) unit(m naiveMeter) float64 {
	if m.rate {
		return j.w.StepOf(j.stats(m)).Seconds()
	}
	return 1
}

// level returns the peak within the newest sample, a second for rates; ok is false if the meter
// does not speak of now.
func (j *naiveJudge) level(m naiveMeter) (v float64, ok bool) {
	st := j.stats(m)
	if !j.fresh(st) || j.unit(m) <= 0 {
		return 0, false
	}
	v, ok = j.w.Peak(st, st.Last)
	return v / j.unit(m), ok
}

// narrowRestByHost narrows the time of rest to that in which a meter was under a line.
func (p *naive) uses(m naiveMeter, line float64) {
	if st := p.stats(m); st != nil {
		p.rest = p.rest.Intersect(p.w.Rest(st, line*p.unit(m)))
		p.expires = earlier(p.expires, p.w.Expires(st))
	}
}

// judgeWithoutCompute completes the verdict on a machine that does not compute. holds says what
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

// active is the verdict that a machine is busy by one of its host meters.
func (p *naive) works(v Verdict, m naiveMeter, why string) Verdict {
	now := p.w.Unbroken(p.stats(m))
	v.State, v.Why, v.Coverage, v.Until, v.Expires = Busy, why, now.Coverage, now.To, p.w.Expires(p.stats(m))
	if !p.now.After(p.expires) { // what was known before it still has to be
		v.Expires = earlier(v.Expires, p.expires)
	}
	return v
}

// judgeWithoutTransfer tells held, idle and unknown where no data is on its way.
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
			return Unknown, fmt.Sprintf("%s MB/s cross its %s, which is neither rest nor work",
				plain.Number(level/1e6, 2),
				m.name)
		case level >= m.idle:
			return Unknown, fmt.Sprintf("its %s reach %s%% and nothing is held: work, or a loop", m.name,
				plain.Number(level, 0))
		}
		p.uses(m, m.idle)
	}
	if holds != "" {
		return Held, holds
	}
	return Idle, "nothing held"
}

// hostLimits judges a machine without GPUs.
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

// standstill says for how long GPUs have computed, without a pause, while every counter of progress
// that is measured stood still; ok is false if one of them moved lately, is too old to tell, is
// covered too little, or none is measured.
//
// A pause ends it, because the counters may be of work that is over. Steps stand still after
// [Thresholds.StalledAfter]; checkpoints also only after three times the interval at which they
// came before, so that nothing is said of a run that has not saved two.
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
		both := work.Intersect(j.w.Standstill(st))
		lasting := both.Length(j.now)
		if !j.fresh(st) || lasting < patience || both.Coverage < j.t.MinCoverage {
			return naiveStandstill{}, false
		}
		if !ok {
			s = naiveStandstill{
				both, earlier(expires, j.w.Expires(st)),
				fmt.Sprintf("it computes, and "+c.why, plain.Duration(lasting)),
			}
			ok = true
			continue
		}
		s.Stretch, s.expires = s.Intersect(both), earlier(s.expires, j.w.Expires(st))
	}
	return s, ok
}

// patience returns after how long without a rise a counter stands still; ok is false if it cannot
// tell.
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

// activePeriod returns the time in which the GPU that has computed longest did not pause.
func (j *naiveJudge) work(busy []*usage.Track) (longest usage.Stretch, expires time.Time) {
	for _, t := range busy {
		for _, sig := range usage.ComputeSignals() {
			st := t.Stats(sig)
			if !st.IsActive() || !j.fresh(st) {
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
				Signal: c.name, Value: plain.Decimal(v, 0), Window: still.Length(j.now), Coverage: still.Coverage,
				Source: j.w.SourceOf(st),
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
			e = usage.Evidence{
				Signal: "gpu_mem_used_newest_pct", Window: p.w.StepOf(used), Coverage: p.w.Unbroken(used).Coverage,
				Source: p.w.SourceOf(used),
			}
		}
	}
	e.Value = plain.Decimal(largest, 1)
	return e, measured
}

// highest is evidence of the highest value of a signal over tracks since the state
// began.
func (p *naive) highest(v Verdict, tracks []*usage.Track, sig usage.Signal, digits int) (e usage.Evidence,
	measured bool) {
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

// gpu is the verdict of the samples of one GPU.
type naiveGPU struct {
	GPU
	track *usage.Track
	// heldByAssumption says that the GPU is held only because its memory is not measured.
	assumed bool
	memory  naiveMemory
}

// memory is how much of its memory a GPU holds.
type naiveMemory struct {
	used  *usage.Stats
	total float64 // bytes; 0 unknown
}

func (m naiveMemory) measured() bool { return m.used != nil && m.total > 0 }

// percentages returns the newest and the largest share of memory in use, in percent.
func (m naiveMemory) pct() (newest, largest float64) {
	last, err := m.used.Newest()
	if err != nil {
		return 0, 0
	}
	return 100 * last / m.total, 100 * m.used.Max / m.total
}

// newestPercent returns the newest share of memory in use, in percent.
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
