package duty

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// gpu is the verdict on one GPU over a window.
type gpu struct {
	GPU
	track *usage.Track
	// heldByAssumption is set if the GPU is held only because its memory is not measured.
	heldByAssumption bool
	memory           gpuMemory
}

// gpuMemory is the memory in use on a GPU.
type gpuMemory struct {
	used  *usage.Stats
	total float64 // bytes; 0 unknown
}

func (m gpuMemory) measured() bool { return m.used != nil && m.total > 0 }

// percentages returns the newest and the highest share of memory in use, in percent.
func (m gpuMemory) percentages() (newest, largest float64) {
	last, err := m.used.Newest()
	if err != nil {
		return 0, 0
	}
	return 100 * last / m.total, 100 * m.used.Max / m.total
}

func (j *judge) memory(t *usage.Track) gpuMemory {
	return gpuMemory{used: t.Stats(usage.MemUsed), total: j.window.Memory(t)}
}

// tracks returns the tracks to judge and the number of GPUs they belong to. Of a GPU in MIG mode
// the instances are judged, because NVML offers no utilization of the whole.
func (j *judge) tracks() (list []*usage.Track, gpus int) {
	divided := map[string]bool{}
	for _, t := range j.window.GPUs {
		if parent, part := t.Parent(); part {
			divided[parent] = true
		}
	}
	seen := map[string]bool{}
	for _, t := range j.window.GPUs {
		parent, part := t.Parent()
		if !part && divided[parent] && !t.MeasuresCompute() {
			continue
		}
		seen[parent] = true
		list = append(list, t)
	}
	return list, len(seen)
}

// isKnown reports whether the samples of a signal cover the window and are fresh.
func (j *judge) isKnown(st *usage.Stats) bool {
	return j.window.Fresh(st, j.now) && j.window.MeasuredCoverage(st) >= j.thresholds.MinCoverage
}

// activeRecently reports whether a signal was active within Thresholds.Recent of its newest sample.
func (j *judge) activeRecently(st *usage.Stats) bool {
	return st != nil && !st.LastActive.IsZero() && st.Last.Sub(st.LastActive) < j.thresholds.Recent
}

// isActive reports whether a signal was active too often, or too recently, to be at rest.
func (j *judge) isActive(st *usage.Stats) bool {
	share, err := st.ActiveShare()
	return err == nil && st.Active > 0 && (1-share <= j.thresholds.InactiveShare || j.activeRecently(st))
}

// gpu judges one GPU over the window.
func (j *judge) gpu(t *usage.Track) gpu {
	g := gpu{GPU: GPU{Name: t.Name}, track: t, memory: j.memory(t)}
	var meter *usage.Stats // the signal that can prove rest
	var fresh, works bool
	for i, sig := range usage.ComputeSignals() {
		st := t.Stats(sig)
		if st == nil {
			continue
		}
		if i < len(usage.RestSignals()) && (meter == nil || (!j.isKnown(meter) && j.isKnown(st))) {
			meter = st
		}
		fresh = fresh || j.window.Fresh(st, j.now)
		works = works || j.isActive(st)
	}
	g.Coverage = j.window.MeasuredCoverage(meter)
	measured, parts := j.partitions(t)
	wrong := j.contradiction(t, works)
	switch {
	case meter == nil && !works:
		return g.withState(Unknown, "its GPU utilization is not measured")
	case !fresh:
		return g.withState(Unknown, "its newest sample is too old")
	case wrong != "":
		return g.withState(Unknown, "%s", wrong)
	case works && j.isLatched(t, g.memory):
		return g.withState(Unknown,
			"utilization never left 100%% while nothing else shows work: the meter may be latched")
	case works && (j.isKnown(meter) || j.anyActiveRecently(t)):
		util := t.Stats(usage.GPUUtil)
		mean, err := util.Mean()
		if err != nil {
			return g.withState(Busy, "it computes")
		}
		if util.Active == 0 {
			return g.withState(Busy, "%s at most", j.computeText(t))
		}
		return g.withState(Busy, "%s%% utilization on average", plain.Number(mean, 1))
	case !j.isKnown(meter):
		return g.withState(Unknown, "samples cover %s%% of the window", plain.Number(100*g.Coverage, 0))
	case measured < parts:
		return g.withState(Unknown, "%s", partitionsText(measured, parts))
	case j.tooShort():
		return g.withState(Unknown, "%s", j.tooShortText())
	}
	g.Duration = j.window.Quiet(meter)
	for _, sig := range usage.ComputeSignals() {
		if st := t.Stats(sig); st != nil && !st.LastActive.IsZero() {
			g.Duration = min(g.Duration, j.window.Quiet(st))
		}
	}
	if fall := j.wholeGPU(t).Stats(usage.Energy).LastFall(); !fall.At.IsZero() {
		g.Duration = min(g.Duration, j.window.To.Sub(fall.At))
	}
	return j.judgeRestingGPU(t, g)
}

// computeText describes the signal that shows work on a GPU whose utilization is 0.
func (j *judge) computeText(t *usage.Track) string {
	for _, sig := range usage.ComputeSignals() {
		if st := t.Stats(sig); j.isActive(st) {
			return readingText(sig, st.Max)
		}
	}
	return "it computes"
}

// partitions returns how many partitions of a track's GPU were measured and how many it has; 0 for
// a whole GPU or one in MIG mode.
func (j *judge) partitions(t *usage.Track) (measured, parts int) {
	parts = usage.PartCount(t.Name)
	if parts == 0 {
		return 0, 0
	}
	parent, _ := t.Parent()
	for _, other := range j.window.GPUs {
		if of, part := other.Parent(); part && of == parent && other.MeasuresCompute() {
			measured++
		}
	}
	return measured, parts
}

// anyActiveRecently reports whether the newest samples of any signal show computation, which holds
// despite missing samples before them.
func (j *judge) anyActiveRecently(t *usage.Track) bool {
	for _, sig := range usage.ComputeSignals() {
		if st := t.Stats(sig); j.activeRecently(st) && j.window.Fresh(st, j.now) {
			return true
		}
	}
	return false
}

// isLatched reports whether utilization is stuck at 100% and nothing confirms it: no process and no
// memory in use, or inactive multiprocessors.
func (j *judge) isLatched(t *usage.Track, m gpuMemory) bool {
	util := t.Stats(usage.GPUUtil)
	if util == nil || util.Min < j.thresholds.LatchedUtil {
		return false
	}
	confirmed := false
	for _, sig := range usage.ComputeSignals()[1:] {
		confirmed = confirmed || j.isActive(t.Stats(sig))
	}
	if confirmed {
		return false
	}
	if j.isKnown(t.Stats(usage.SMActive)) {
		return true
	}
	processes := t.Stats(usage.Processes)
	if processes != nil && processes.Max > 0 {
		return false
	}
	if !m.measured() {
		return processes != nil
	}
	_, largest := m.percentages()
	return largest < j.thresholds.HeldMemory
}

// judgeRestingGPU decides whether a GPU that does not compute is held or idle.
func (j *judge) judgeRestingGPU(t *usage.Track, g gpu) gpu {
	still := "0% compute for " + plain.Duration(g.Duration)
	processes := t.Stats(usage.Processes)
	if n, err := processes.Newest(); err == nil && n > 0 && j.window.Fresh(processes, j.now) {
		if g.memory.measured() {
			newest, _ := g.memory.percentages()
			return g.withState(Held, "%s%% of memory held by %s, %s", plain.Number(newest, 0),
				plain.Count(int64(n), "process"), still)
		}
		return g.withState(Held, "held by %s, %s", plain.Count(int64(n), "process"), still)
	}
	if g.memory.measured() {
		newest, largest := g.memory.percentages()
		switch {
		case newest >= j.thresholds.HeldMemory && j.window.Fresh(g.memory.used, j.now):
			return g.withState(Held, "%s%% of memory held, %s", plain.Number(newest, 0), still)
		case largest >= j.thresholds.HeldMemory:
			return g.withState(Held, "up to %s%% of memory was held, %s", plain.Number(largest, 0), still)
		case j.isKnown(g.memory.used):
			g.Coverage = min(g.Coverage, j.window.MeasuredCoverage(g.memory.used))
			return g.withState(Idle, "%s", still)
		}
		g.Coverage = min(g.Coverage, j.window.MeasuredCoverage(g.memory.used))
		return g.withState(Unknown, "samples of its memory cover %s%% of the window", plain.Number(100*g.Coverage, 0))
	}
	if j.isKnown(processes) && processes.Max == 0 {
		return g.withState(Idle, "no process, %s", still)
	}
	g.heldByAssumption = true
	return g.withState(Held, "%s, and its memory is not measured", still)
}

func (g gpu) withState(s State, format string, args ...any) gpu {
	g.State, g.Why = s, fmt.Sprintf(format, args...)
	if s == Unknown || s == Busy {
		g.Duration = 0
	}
	return g
}
