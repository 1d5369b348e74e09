package duty

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// judge evaluates one window.
type judge struct {
	window     *usage.Window
	now        time.Time
	thresholds Thresholds
	q          *evaluation // evaluates the newest samples
	hostOnly   bool        // the machine has no GPUs
}

// Judge judges a machine over the window. gpus is its number of GPUs: 0 for none, negative for
// unknown. A nil window is an unmeasured machine.
//
// A machine with GPUs is judged by its GPUs first. It is busy if one of them is. It is idle only if
// every GPU was measured over the window, computed nothing and held nothing, and neither CPU,
// network nor a session contradicts that. It is held if none computes and at least one is held, and
// unknown otherwise. Unmeasured CPU and network do not count against idle GPUs; partly measured
// ones do. A series of the whole machine stands for a single GPU, or for all GPUs if the window
// marks it as their maximum.
//
// A computing machine is stalled if the training step and the checkpoints stood still for
// [Thresholds.StalledAfter] at the end of the window. A held machine is starved if data crossed the
// network or the disks at [Thresholds.BusyNetRate] or [Thresholds.BusyDiskRate], on average and in
// the newest sample. A recently launched machine is warming instead of unknown.
//
// A GPU is held if memory or a process holds it while it does not compute. Unmeasured memory or
// processes count as held, not as idle.
//
// A machine without GPUs is idle if CPU and network were measured over the window and both stayed
// below their limits.
func Judge(w *usage.Window, gpus int, now time.Time, t Thresholds) Verdict {
	if w == nil {
		return Verdict{Why: "nothing was measured"}
	}
	q := restoreTracker(w, t).newEvaluation(nanos(now), windowMachine(w, gpus), true)
	j := &judge{window: w, now: now, thresholds: t.orDefault(), q: &q}
	v := Verdict{}
	if gpus == 0 && len(w.GPUs) == 0 && !w.Machine.MeasuresCompute() {
		j.hostOnly = true
		v = j.judgeHostOnly()
	} else {
		v = j.judgeGPUs(gpus)
	}
	if v.State == Unknown {
		a := verdictBuilder{Verdict: v}
		q.applyWarmUp(&a)
		v = a.Verdict
	}
	return v
}

// length returns how long the machine could be measured within the window: since its launch, and
// since the first sample of its GPUs or, without GPUs, of its host.
func (j *judge) length() time.Duration {
	return max(0, j.window.To.Sub(j.window.MeasuredFrom(!j.hostOnly)))
}

// tooShort reports whether the window is too short to call anything idle or held.
func (j *judge) tooShort() bool { return j.length() < j.thresholds.MinWindow }

func (j *judge) tooShortText() string {
	return fmt.Sprintf("it could be measured for %s, which is shorter than %s", plain.Duration(j.length()),
		plain.Duration(j.thresholds.MinWindow))
}

// judgeGPUs judges a machine with GPUs.
func (j *judge) judgeGPUs(gpus int) Verdict {
	tracks, all := j.tracks()
	seen := make([]gpu, 0, len(tracks))
	for _, t := range tracks {
		seen = append(seen, j.gpu(t))
	}
	// A machine-wide series can prove activity; it can prove idleness only if it aggregates all
	// GPUs.
	machine := j.gpu(&j.window.Machine)
	unnamed := machine.Coverage > 0 || machine.State == Busy
	if all == 0 && unnamed && (gpus == 1 || j.window.Aggregated) {
		seen, all = append(seen, machine), max(gpus, 1)
	}
	v := Verdict{Evidence: j.gpuEvidence(seen, all, gpus), Coverage: 1}
	held := make([]gpu, 0, len(seen))
	busy, unknown, first := 0, 0, ""
	for i, g := range seen {
		if g.Name != "" {
			v.GPUs = append(v.GPUs, g.GPU)
		}
		v.Coverage = min(v.Coverage, g.Coverage)
		if i == 0 || g.Duration < v.Duration {
			v.Duration = g.Duration
		}
		switch g.State {
		case Busy:
			busy++
		case Held:
			held = append(held, g)
		case Unknown:
			if unknown++; unknown == 1 {
				first = label(g) + g.Why
			}
		}
	}
	switch {
	case busy > 0:
		return j.checkProgress(v.asBusy("%s", j.busyWhy(seen, busy)), seen)
	case machine.State == Busy:
		v.Coverage = machine.Coverage
		return j.checkProgress(v.asBusy("%s", machine.Why), []gpu{machine})
	case len(seen) == 0 && unnamed:
		v.Coverage = machine.Coverage
		return v.asUnknown("one series of samples stands for an unknown GPU of several")
	case len(seen) == 0:
		v.Coverage = 0
		return v.asUnknown("its GPUs were not measured")
	case gpus < 0:
		return v.asUnknown("its number of GPUs is unknown")
	case all < gpus:
		v.Coverage = 0
		return v.asUnknown("%d of %d GPUs were measured", all, gpus)
	case unknown > 0:
		return v.asUnknown("%s", first)
	}
	return j.judgeByHost(v, held)
}

// checkProgress turns a busy verdict into stalled if the computing GPUs make no progress.
func (j *judge) checkProgress(v Verdict, seen []gpu) Verdict {
	work := workPeriod{noStretch, never}
	for _, g := range seen {
		if g.State == Busy {
			work.add(j.q, j.q.k.trackNamed(g.Name))
		}
	}
	if s, ok := j.q.standstill(work); ok {
		v.State, v.Why, v.Duration = Stalled, s.why, time.Duration(s.length(j.q.now))
	}
	return v
}

// judgeByHost completes the verdict on a machine without a computing GPU by its CPUs, network and
// sessions.
func (j *judge) judgeByHost(v Verdict, held []gpu) Verdict {
	for _, g := range held {
		if g.heldByAssumption {
			continue
		}
		if why, ok := j.transfersData(); ok {
			v.State, v.Why = Starved, j.heldWhy(held)+" and "+why
			return v
		}
		return v.asHeld("%s", j.heldWhy(held))
	}
	cpu, net := j.window.Machine.Stats(usage.CPUUtil), j.window.Machine.Stats(usage.NetBytes)
	peak, traffic := 0.0, j.networkPerDay()
	if cpu != nil {
		peak = cpu.Max
	}
	resting := "its GPUs rest"
	switch {
	case j.hasSession():
		return v.asHeld("a session is open, 0%% compute for %s", plain.Duration(v.Duration))
	case peak >= j.thresholds.BusyCPU:
		return v.asBusy("%s and its CPUs reach %s%%", resting, plain.Number(peak, 0))
	case traffic >= j.thresholds.IdleNetwork:
		return v.asBusy("%s and %s MB a day cross its network", resting, plain.Number(traffic, 1))
	case peak >= j.thresholds.IdleCPU:
		return v.asUnknown("%s, but its CPUs reach %s%%, which is neither rest nor work",
			resting, plain.Number(peak, 1))
	case cpu != nil && !j.isKnown(cpu):
		return v.asUnknown("%s, but samples of its CPUs are old or cover %s%% of the window", resting,
			plain.Number(100*j.window.MeasuredCoverage(cpu), 0))
	case net != nil && !j.isKnown(net):
		return v.asUnknown("%s, but samples of its network are old or cover %s%% of the window", resting,
			plain.Number(100*j.window.MeasuredCoverage(net), 0))
	case len(held) > 0:
		return v.asHeld("%s", j.heldWhy(held))
	}
	for _, st := range []*usage.Stats{cpu, net} {
		if st != nil {
			v.Coverage = min(v.Coverage, j.window.MeasuredCoverage(st))
		}
	}
	v.State, v.Why = Idle, "0% compute and nothing held for "+plain.Duration(v.Duration)
	return v
}

// judgeHostOnly judges a machine without GPUs.
func (j *judge) judgeHostOnly() Verdict {
	cpu, net := j.window.Machine.Stats(usage.CPUUtil), j.window.Machine.Stats(usage.NetBytes)
	v := Verdict{Evidence: j.hostEvidence(), Coverage: min(
		j.window.MeasuredCoverage(cpu), j.window.MeasuredCoverage(net))}
	if cpu == nil && net == nil {
		return v.asUnknown("neither CPU nor network was measured")
	}
	if !j.window.Fresh(cpu, j.now) && !j.window.Fresh(net, j.now) {
		return v.asUnknown("its newest sample is too old")
	}
	traffic := j.networkPerDay()
	switch {
	case cpu != nil && cpu.Max >= j.thresholds.IdleCPU && (j.isKnown(cpu) || j.activeRecently(cpu)):
		v.Coverage = j.window.MeasuredCoverage(cpu)
		return v.asBusy("CPU reaches %s%%", plain.Number(cpu.Max, 1))
	case traffic >= j.thresholds.IdleNetwork && j.isKnown(net):
		v.Coverage = j.window.MeasuredCoverage(net)
		return v.asBusy("%s MB a day cross its network", plain.Number(traffic, 1))
	case !j.isKnown(cpu):
		return v.asUnknown("samples of its CPU are old or cover %s%% of the window",
			plain.Number(100*j.window.MeasuredCoverage(cpu), 0))
	case !j.isKnown(net):
		return v.asUnknown("samples of its network are old or cover %s%% of the window",
			plain.Number(100*j.window.MeasuredCoverage(net), 0))
	case j.tooShort():
		return v.asUnknown("%s", j.tooShortText())
	}
	v.Duration = j.window.Quiet(cpu)
	if j.hasSession() {
		return v.asHeld("a session is open, CPU under %s%% for %s", plain.Number(j.thresholds.IdleCPU, 0),
			plain.Duration(v.Duration))
	}
	v.State = Idle
	v.Why = fmt.Sprintf("CPU peak %s%% and %s MB a day for %s", plain.Number(cpu.Max, 1), plain.Number(traffic, 1),
		plain.Duration(v.Duration))
	return v
}

// hasSession reports whether a person works on the machine, or did recently or often.
func (j *judge) hasSession() bool {
	for _, s := range userSignals {
		st := j.window.Machine.Stats(s)
		if newest, err := st.Newest(); err == nil && (newest > 0 || j.isActive(st)) {
			return true
		}
	}
	return false
}

// transfersData reports whether data was transferred throughout the window and still is.
func (j *judge) transfersData() (why string, ok bool) {
	for _, s := range transferSignals {
		st, h := j.window.Machine.Stats(s), j.q.readHost(s)
		if !h.isFresh || h.level < h.busy || !j.isKnown(st) {
			continue
		}
		if mean := st.Sum / j.window.Covered(st).Seconds(); mean >= h.busy {
			return fmt.Sprintf("%s MB/s cross its %s", plain.Number(mean/1e6, 1), h.name), true
		}
	}
	return "", false
}

// networkPerDay returns the traffic in megabytes per day of measured time; 0 if none was measured.
func (j *judge) networkPerDay() float64 {
	st := j.window.Machine.Stats(usage.NetBytes)
	covered := j.window.Covered(st)
	if covered <= 0 {
		return 0
	}
	return st.Sum / 1e6 / (float64(covered) / float64(24*time.Hour))
}

func (j *judge) busyWhy(seen []gpu, busy int) string {
	for _, g := range seen {
		if g.State == Busy && len(seen) == 1 {
			return g.Why
		}
	}
	return fmt.Sprintf("%d of %d GPUs compute", busy, len(seen))
}

// heldWhy returns the reason of the most certainly held GPU, and how many are held.
func (j *judge) heldWhy(held []gpu) string {
	best := held[0]
	for _, g := range held[1:] {
		if best.heldByAssumption && !g.heldByAssumption {
			best = g
		}
	}
	if len(held) == 1 && best.Name == "" {
		return best.Why
	}
	if len(j.window.GPUs) <= 1 {
		return best.Why
	}
	return fmt.Sprintf("%d of %d GPUs held: %s", len(held), len(j.window.GPUs), best.Why)
}

func label(g gpu) string {
	if g.Name == "" {
		return "GPU: "
	}
	return "GPU " + g.Name + ": "
}

func (v Verdict) asBusy(format string, args ...any) Verdict {
	v.State, v.Why, v.Duration = Busy, fmt.Sprintf(format, args...), 0
	return v
}

func (v Verdict) asHeld(format string, args ...any) Verdict {
	v.State, v.Why = Held, fmt.Sprintf(format, args...)
	return v
}

func (v Verdict) asUnknown(format string, args ...any) Verdict {
	v.State, v.Why, v.Duration = Unknown, strings.TrimSpace(fmt.Sprintf(format, args...)), 0
	return v
}
