package duty

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// judge is one judgement.
type judge struct {
	w   *usage.Window
	now time.Time
	t   Thresholds
	q   *question // what the newest samples say
}

// Judge says what a machine has been doing over the window. gpus is how many GPUs
// it has: 0 for a machine without any, negative where that is not known. A nil
// window is an unmeasured machine.
//
// A machine with GPUs is judged by its GPUs first: it is busy when one of them is;
// idle only when every one of them was measured over the window and computed and
// held nothing, and neither CPU, network nor a session says otherwise; held when
// none computes and at least one is held; and unknown in every other case. CPU and
// unmeasured network do not count against idle GPUs, those measured in
// part do. Where a source knows one series for the whole machine, it speaks for a
// single GPU, or for all when the window says that it is their maximum.
//
// What computes is stalled when at the end of the window the training step and the
// checkpoints have stood still for [Thresholds.StalledAfter]. What is held is starved
// when data crossed the network or the disks at [Thresholds.BusyNetRate] or
// [Thresholds.BusyDiskRate], on average and in the newest sample. A machine that was
// just launched is warming where it would be unknown.
//
// A GPU is held when its memory or a process holds it while it does not compute.
// Unmeasured memory or processes count as held, not as idle,
// because it may be.
//
// A machine without GPUs is idle when CPU and network were measured over the
// window and both stayed under their lines.
func Judge(w *usage.Window, gpus int, now time.Time, t Thresholds) Verdict {
	if w == nil {
		return Verdict{Why: "nothing was measured"}
	}
	q := readings(w, t).question(nanos(now), machineOf(w, gpus), true)
	j := &judge{w: w, now: now, t: t.orDefault(), q: &q}
	v := Verdict{}
	if gpus == 0 && len(w.GPUs) == 0 && !w.Machine.MeasuresCompute() {
		v = j.host()
	} else {
		v = j.accelerated(gpus)
	}
	if v.State == Unknown {
		a := answer{Verdict: v}
		q.warming(&a)
		v = a.Verdict
	}
	return v
}

// length is the window's length.
func (j *judge) length() time.Duration { return j.w.To.Sub(j.w.From) }

// short says whether the window is too short to call anything idle or held.
func (j *judge) short() bool { return j.length() < j.t.MinWindow }

func (j *judge) shortWhy() string {
	return fmt.Sprintf("the window of %s is shorter than %s", plain.Duration(j.length()),
		plain.Duration(j.t.MinWindow))
}

// accelerated judges a machine with GPUs.
func (j *judge) accelerated(gpus int) Verdict {
	tracks, all := j.tracks()
	seen := make([]gpu, 0, len(tracks))
	for _, t := range tracks {
		seen = append(seen, j.gpu(t))
	}
	// A series of the whole machine is one more witness that something computes, and
	// a witness of rest only where it speaks for every GPU.
	machine := j.gpu(&j.w.Machine)
	unnamed := machine.Coverage > 0 || machine.State == Busy
	if all == 0 && unnamed && (gpus == 1 || j.w.Aggregated) {
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
		if i == 0 || g.Lasting < v.Lasting {
			v.Lasting = g.Lasting
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
		return j.progress(v.busy("%s", j.busyWhy(seen, busy)), seen)
	case machine.State == Busy:
		v.Coverage = machine.Coverage
		return j.progress(v.busy("%s", machine.Why), []gpu{machine})
	case len(seen) == 0 && unnamed:
		v.Coverage = machine.Coverage
		return v.unknown("one series of samples stands for an unknown GPU of several")
	case len(seen) == 0:
		v.Coverage = 0
		return v.unknown("its GPUs were not measured")
	case gpus < 0:
		return v.unknown("its number of GPUs is unknown")
	case all < gpus:
		v.Coverage = 0
		return v.unknown("%d of %d GPUs were measured", all, gpus)
	case unknown > 0:
		return v.unknown("%s", first)
	}
	return j.hostSays(v, held)
}

// progress returns the verdict on a machine of which some GPUs compute in view of the
// progress they make.
func (j *judge) progress(v Verdict, seen []gpu) Verdict {
	work := worked{none, never}
	for _, g := range seen {
		if g.State == Busy {
			work.add(j.q, j.q.k.named(g.Name))
		}
	}
	if s, ok := j.q.standstill(work); ok {
		v.State, v.Why, v.Lasting = Stalled, s.why, time.Duration(s.length(j.q.now))
	}
	return v
}

// hostSays completes the verdict on a machine none of whose GPUs computes by what
// its CPUs, network and sessions show.
func (j *judge) hostSays(v Verdict, held []gpu) Verdict {
	for _, g := range held {
		if g.assumed {
			continue
		}
		if why, ok := j.streams(); ok {
			v.State, v.Why = Starved, j.heldWhy(held)+" and "+why
			return v
		}
		return v.held("%s", j.heldWhy(held))
	}
	cpu, net := j.w.Machine.Stats(usage.CPUUtil), j.w.Machine.Stats(usage.NetBytes)
	peak, traffic := 0.0, j.networkPerDay()
	if cpu != nil {
		peak = cpu.Max
	}
	resting := "its GPUs rest"
	switch {
	case j.session():
		return v.held("a session is open, 0%% compute for %s", plain.Duration(v.Lasting))
	case peak >= j.t.BusyCPU:
		return v.busy("%s and its CPUs reach %s%%", resting, plain.Number(peak, 0))
	case traffic >= j.t.IdleNetwork:
		return v.busy("%s and %s MB a day cross its network", resting, plain.Number(traffic, 1))
	case peak >= j.t.IdleCPU:
		return v.unknown("%s, but its CPUs reach %s%%, which is neither rest nor work", resting, plain.Number(peak, 1))
	case cpu != nil && !j.known(cpu):
		return v.unknown("%s, but samples of its CPUs are old or cover %s%% of the window", resting,
			plain.Number(100*j.w.Coverage(cpu), 0))
	case net != nil && !j.known(net):
		return v.unknown("%s, but samples of its network are old or cover %s%% of the window", resting,
			plain.Number(100*j.w.Coverage(net), 0))
	case len(held) > 0:
		return v.held("%s", j.heldWhy(held))
	}
	for _, st := range []*usage.Stats{cpu, net} {
		if st != nil {
			v.Coverage = min(v.Coverage, j.w.Coverage(st))
		}
	}
	v.State, v.Why = Idle, "0% compute and nothing held for "+plain.Duration(v.Lasting)
	return v
}

// host judges a machine without GPUs.
func (j *judge) host() Verdict {
	cpu, net := j.w.Machine.Stats(usage.CPUUtil), j.w.Machine.Stats(usage.NetBytes)
	v := Verdict{Evidence: j.hostEvidence(), Coverage: min(j.w.Coverage(cpu), j.w.Coverage(net))}
	if cpu == nil && net == nil {
		return v.unknown("neither CPU nor network was measured")
	}
	if !j.w.Fresh(cpu, j.now) && !j.w.Fresh(net, j.now) {
		return v.unknown("its newest sample is too old")
	}
	traffic := j.networkPerDay()
	switch {
	case cpu != nil && cpu.Max >= j.t.IdleCPU && (j.known(cpu) || j.recent(cpu)):
		v.Coverage = j.w.Coverage(cpu)
		return v.busy("CPU reaches %s%%", plain.Number(cpu.Max, 1))
	case traffic >= j.t.IdleNetwork && j.known(net):
		v.Coverage = j.w.Coverage(net)
		return v.busy("%s MB a day cross its network", plain.Number(traffic, 1))
	case !j.known(cpu):
		return v.unknown("samples of its CPU are old or cover %s%% of the window",
			plain.Number(100*j.w.Coverage(cpu), 0))
	case !j.known(net):
		return v.unknown("samples of its network are old or cover %s%% of the window",
			plain.Number(100*j.w.Coverage(net), 0))
	case j.short():
		return v.unknown("%s", j.shortWhy())
	}
	v.Lasting = j.w.Quiet(cpu)
	if j.session() {
		return v.held("a session is open, CPU under %s%% for %s", plain.Number(j.t.IdleCPU, 0),
			plain.Duration(v.Lasting))
	}
	v.State = Idle
	v.Why = fmt.Sprintf("CPU peak %s%% and %s MB a day for %s", plain.Number(cpu.Max, 1), plain.Number(traffic, 1),
		plain.Duration(v.Lasting))
	return v
}

// session says whether a person works on the machine, or did lately or often.
func (j *judge) session() bool {
	for _, s := range people {
		st := j.w.Machine.Stats(s)
		if newest, err := st.Newest(); err == nil && (newest > 0 || j.active(st)) {
			return true
		}
	}
	return false
}

// streams says whether data has been on its way all the window, and still is.
func (j *judge) streams() (why string, ok bool) {
	for _, s := range flows {
		st, h := j.w.Machine.Stats(s), j.q.host(s)
		if !h.speaks || h.level < h.busy || !j.known(st) {
			continue
		}
		if mean := st.Sum / j.w.Covered(st).Seconds(); mean >= h.busy {
			return fmt.Sprintf("%s MB/s cross its %s", plain.Number(mean/1e6, 1), h.name), true
		}
	}
	return "", false
}

// networkPerDay returns the traffic in megabytes a day of measured time; 0 where
// none was measured.
func (j *judge) networkPerDay() float64 {
	st := j.w.Machine.Stats(usage.NetBytes)
	covered := j.w.Covered(st)
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

// heldWhy gives the reason of the GPU that holds most surely, and how many do.
func (j *judge) heldWhy(held []gpu) string {
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

func label(g gpu) string {
	if g.Name == "" {
		return "GPU: "
	}
	return "GPU " + g.Name + ": "
}

func (v Verdict) busy(format string, args ...any) Verdict {
	v.State, v.Why, v.Lasting = Busy, fmt.Sprintf(format, args...), 0
	return v
}

func (v Verdict) held(format string, args ...any) Verdict {
	v.State, v.Why = Held, fmt.Sprintf(format, args...)
	return v
}

func (v Verdict) unknown(format string, args ...any) Verdict {
	v.State, v.Why, v.Lasting = Unknown, strings.TrimSpace(fmt.Sprintf(format, args...)), 0
	return v
}
