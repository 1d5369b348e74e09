package duty

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// gpu is what the samples of one GPU say.
type gpu struct {
	GPU
	track *usage.Track
	// assumed says that the GPU is held only because its memory is not measured.
	assumed bool
	memory  gpuMemory
}

// gpuMemory is how much of its memory a GPU holds.
type gpuMemory struct {
	used  *usage.Stats
	total float64 // bytes; 0 unknown
}

func (m gpuMemory) measured() bool { return m.used != nil && m.total > 0 }

// pct returns the newest and the largest share of memory in use, in percent.
func (m gpuMemory) pct() (newest, largest float64) {
	last, err := m.used.Newest()
	if err != nil {
		return 0, 0
	}
	return 100 * last / m.total, 100 * m.used.Max / m.total
}

func (j *judge) memory(t *usage.Track) gpuMemory {
	return gpuMemory{used: t.Stats(usage.MemUsed), total: j.w.Memory(t)}
}

// tracks returns what is judged as a GPU, and how many GPUs of the machine that is.
// Of a GPU that is divided, its MIG instances are judged, and not the whole, whose
// utilization NVML does not offer then.
func (j *judge) tracks() (list []*usage.Track, gpus int) {
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

// known says whether the samples of a signal cover the window and are fresh.
func (j *judge) known(st *usage.Stats) bool {
	return j.w.Fresh(st, j.now) && j.w.Coverage(st) >= j.t.MinCoverage
}

// recent says whether a signal was active within Recent of its newest sample.
func (j *judge) recent(st *usage.Stats) bool {
	return st != nil && !st.LastActive.IsZero() && st.Last.Sub(st.LastActive) < j.t.Recent
}

// active says whether a signal was active too often, or too lately, to be at rest.
func (j *judge) active(st *usage.Stats) bool {
	share, err := st.ActiveShare()
	return err == nil && st.Active > 0 && (1-share <= j.t.InactiveShare || j.recent(st))
}

// gpu judges one GPU.
func (j *judge) gpu(t *usage.Track) gpu {
	g := gpu{GPU: GPU{Name: t.Name}, track: t, memory: j.memory(t)}
	var meter *usage.Stats // the one that vouches
	var fresh, works bool
	for i, sig := range usage.Compute() {
		st := t.Stats(sig)
		if st == nil {
			continue
		}
		if i < len(usage.Vouching()) && (meter == nil || (!j.known(meter) && j.known(st))) {
			meter = st
		}
		fresh = fresh || j.w.Fresh(st, j.now)
		works = works || j.active(st)
	}
	g.Coverage = j.w.Coverage(meter)
	measured, parts := j.partitions(t)
	wrong := j.wrong(t, works)
	switch {
	case meter == nil && !works:
		return g.is(Unknown, "its GPU utilization is not measured")
	case !fresh:
		return g.is(Unknown, "its newest sample is too old")
	case wrong != "":
		return g.is(Unknown, "%s", wrong)
	case works && j.latched(t, g.memory):
		return g.is(Unknown, "utilization never left 100%% while nothing else shows work: the meter may be latched")
	case works && (j.known(meter) || j.recentlyActive(t)):
		util := t.Stats(usage.GPUUtil)
		mean, err := util.Mean()
		if err != nil {
			return g.is(Busy, "it computes")
		}
		if util.Active == 0 {
			return g.is(Busy, "%s at most", j.computes(t))
		}
		return g.is(Busy, "%s%% utilization on average", plain.Number(mean, 1))
	case !j.known(meter):
		return g.is(Unknown, "samples cover %s%% of the window", plain.Number(100*g.Coverage, 0))
	case measured < parts:
		return g.is(Unknown, "%s", partly(measured, parts))
	case j.short():
		return g.is(Unknown, "%s", j.shortWhy())
	}
	g.Lasting = j.w.Quiet(meter)
	for _, sig := range usage.Compute() {
		if st := t.Stats(sig); st != nil && !st.LastActive.IsZero() {
			g.Lasting = min(g.Lasting, j.w.Quiet(st))
		}
	}
	if fall := j.whole(t).Stats(usage.Energy).Fell(); !fall.At.IsZero() {
		g.Lasting = min(g.Lasting, j.w.To.Sub(fall.At))
	}
	return j.atRest(t, g)
}

// computes says which meter shows that a GPU computes while its utilization rests.
func (j *judge) computes(t *usage.Track) string {
	for _, sig := range usage.Compute() {
		if st := t.Stats(sig); j.active(st) {
			return reads(sig, st.Max)
		}
	}
	return "it computes"
}

// partitions returns how many partitions of a track's GPU were measured, and how many it has; 0
// of a GPU that is whole, or in MIG mode.
func (j *judge) partitions(t *usage.Track) (measured, parts int) {
	parts = usage.Parts(t.Name)
	if parts == 0 {
		return 0, 0
	}
	parent, _ := t.Parent()
	for _, other := range j.w.GPUs {
		if of, part := other.Parent(); part && of == parent && other.MeasuresCompute() {
			measured++
		}
	}
	return measured, parts
}

// recentlyActive says whether the newest samples of any meter show computation,
// which holds whatever is missing before them.
func (j *judge) recentlyActive(t *usage.Track) bool {
	for _, sig := range usage.Compute() {
		if st := t.Stats(sig); j.recent(st) && j.w.Fresh(st, j.now) {
			return true
		}
	}
	return false
}

// latched says whether utilization stands at 100% and nothing else confirms it:
// no process and no memory in use, or multiprocessors that rest.
func (j *judge) latched(t *usage.Track, m gpuMemory) bool {
	util := t.Stats(usage.GPUUtil)
	if util == nil || util.Min < j.t.LatchedUtil {
		return false
	}
	confirmed := false
	for _, sig := range usage.Compute()[1:] {
		confirmed = confirmed || j.active(t.Stats(sig))
	}
	if confirmed {
		return false
	}
	if j.known(t.Stats(usage.SMActive)) {
		return true
	}
	processes := t.Stats(usage.Processes)
	if processes != nil && processes.Max > 0 {
		return false
	}
	if !m.measured() {
		return processes != nil
	}
	_, largest := m.pct()
	return largest < j.t.HeldMemory
}

// atRest tells a GPU that does not compute as held or idle.
func (j *judge) atRest(t *usage.Track, g gpu) gpu {
	still := "0% compute for " + plain.Duration(g.Lasting)
	processes := t.Stats(usage.Processes)
	if n, err := processes.Newest(); err == nil && n > 0 && j.w.Fresh(processes, j.now) {
		if g.memory.measured() {
			newest, _ := g.memory.pct()
			return g.is(Held, "%s%% of memory held by %s, %s", plain.Number(newest, 0),
				plain.Count(int64(n), "process"), still)
		}
		return g.is(Held, "held by %s, %s", plain.Count(int64(n), "process"), still)
	}
	if g.memory.measured() {
		newest, largest := g.memory.pct()
		switch {
		case newest >= j.t.HeldMemory && j.w.Fresh(g.memory.used, j.now):
			return g.is(Held, "%s%% of memory held, %s", plain.Number(newest, 0), still)
		case largest >= j.t.HeldMemory:
			return g.is(Held, "up to %s%% of memory was held, %s", plain.Number(largest, 0), still)
		case j.known(g.memory.used):
			g.Coverage = min(g.Coverage, j.w.Coverage(g.memory.used))
			return g.is(Idle, "%s", still)
		}
		g.Coverage = min(g.Coverage, j.w.Coverage(g.memory.used))
		return g.is(Unknown, "samples of its memory cover %s%% of the window", plain.Number(100*g.Coverage, 0))
	}
	if j.known(processes) && processes.Max == 0 {
		return g.is(Idle, "no process, %s", still)
	}
	g.assumed = true
	return g.is(Held, "%s, and its memory is not measured", still)
}

func (g gpu) is(s State, format string, args ...any) gpu {
	g.State, g.Why = s, fmt.Sprintf(format, args...)
	if s == Unknown || s == Busy {
		g.Lasting = 0
	}
	return g
}
