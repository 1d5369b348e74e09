package duty

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// notMeasured is the value of a signal that would have counted and has no samples.
const notMeasured = "not measured"

// evidenceOf returns evidence of a signal over the window.
func (j *judge) evidenceOf(signal, value string, coverage float64, st *usage.Stats) usage.Evidence {
	return usage.Evidence{
		Signal: signal, Value: value, Window: j.length(), Coverage: coverage, Source: j.window.SourceOf(st),
	}
}

// gpuEvidence lists the evidence of a machine with GPUs: the highest value of each signal over its
// GPUs, and the lowest coverage.
func (j *judge) gpuEvidence(seen []gpu, all, gpus int) []usage.Evidence {
	of := fmt.Sprint(all)
	if gpus >= 0 {
		of = fmt.Sprintf("%d of %d", all, gpus)
	}
	out := []usage.Evidence{usage.Fact("gpus_measured", of, j.window.Source)}
	tracks := j.window.GPUs
	if len(tracks) == 0 {
		tracks = []*usage.Track{&j.window.Machine}
	}
	for _, s := range []struct {
		signal usage.Signal
		name   string
		digits int
	}{
		{usage.GPUUtil, "gpu_util_max_pct", 1},
		{usage.GREngine, "gr_engine_active_max", 3},
		{usage.SMActive, "sm_active_max", 3},
		{usage.DRAMActive, "dram_active_max", 3},
		{usage.Processes, "gpu_processes_max", 0},
	} {
		pool, coverage := j.poolTracks(tracks, s.signal)
		switch {
		case pool != nil:
			out = append(out, j.evidenceOf(s.name, plain.Decimal(pool.Max, s.digits), coverage, pool))
		case s.signal == usage.GPUUtil:
			out = append(out, j.evidenceOf(s.name, notMeasured, 0, nil))
		}
		if share, err := pool.ActiveShare(); err == nil && s.signal == usage.GPUUtil {
			out = append(out, j.evidenceOf("gpu_active_share_pct", plain.Decimal(100*share, 2), coverage, pool))
		}
	}
	out = append(out, j.memoryEvidence(seen)...)
	return append(out, j.hostEvidence()...)
}

// poolTracks pools a signal over tracks. The coverage is the lowest of any track, 0 if one has no
// samples.
func (j *judge) poolTracks(tracks []*usage.Track, s usage.Signal) (*usage.Stats, float64) {
	meters := make([]*usage.Stats, len(tracks))
	coverage := 1.0
	for i, t := range tracks {
		meters[i] = t.Stats(s)
		coverage = min(coverage, j.window.MeasuredCoverage(meters[i]))
	}
	return usage.Pool(meters...), coverage
}

// memoryEvidence returns the newest and the highest share of memory in use over the GPUs, or the
// bytes if the size of the memory is unknown.
func (j *judge) memoryEvidence(seen []gpu) []usage.Evidence {
	var newest, largest, bytes float64
	var st *usage.Stats
	coverage, shares, any := 1.0, true, false
	for _, g := range seen {
		coverage = min(coverage, j.window.MeasuredCoverage(g.memory.used))
		if g.memory.used == nil {
			continue
		}
		any, st = true, g.memory.used
		bytes = max(bytes, g.memory.used.Max)
		if !g.memory.measured() {
			shares = false
			continue
		}
		n, l := g.memory.percentages()
		newest, largest = max(newest, n), max(largest, l)
	}
	switch {
	case !any:
		return []usage.Evidence{j.evidenceOf("gpu_mem_used_max_pct", notMeasured, 0, nil)}
	case !shares:
		return []usage.Evidence{j.evidenceOf("gpu_mem_used_max_gib", plain.Decimal(bytes/(1<<30), 1), coverage, st)}
	}
	return []usage.Evidence{
		j.evidenceOf("gpu_mem_used_max_pct", plain.Decimal(largest, 1), coverage, st),
		j.evidenceOf("gpu_mem_used_newest_pct", plain.Decimal(newest, 1), coverage, st),
	}
}

// hostEvidence lists the evidence of CPU, network and sessions.
func (j *judge) hostEvidence() []usage.Evidence {
	var out []usage.Evidence
	m := &j.window.Machine
	if cpu := m.Stats(usage.CPUUtil); cpu != nil {
		out = append(out, j.evidenceOf("cpu_util_max_pct", plain.Decimal(cpu.Max, 1),
			j.window.MeasuredCoverage(cpu), cpu))
	} else {
		out = append(out, j.evidenceOf("cpu_util_max_pct", notMeasured, 0, nil))
	}
	if net := m.Stats(usage.NetBytes); net != nil {
		out = append(out, j.evidenceOf("net_mb_per_day", plain.Decimal(j.networkPerDay(), 1),
			j.window.MeasuredCoverage(net), net))
	} else {
		out = append(out, j.evidenceOf("net_mb_per_day", notMeasured, 0, nil))
	}
	if s := m.Stats(usage.Sessions); s != nil {
		out = append(out, j.evidenceOf("sessions_max", plain.Decimal(s.Max, 0), j.window.MeasuredCoverage(s), s))
	}
	if k := m.Stats(usage.Kernels); k != nil {
		out = append(out, j.evidenceOf("kernels_max", plain.Decimal(k.Max, 0), j.window.MeasuredCoverage(k), k))
	}
	return append(out, j.q.progressEvidence()...)
}

// evidence lists the evidence of the newest samples: the highest value of each signal since the
// state began, or in the newest sample if the state has no beginning. gpu are the tracks that were
// judged, which belong to `all` GPUs.
func (q *evaluation) evidence(v *verdictBuilder, gpu []*track, all int) []usage.Evidence {
	var out []usage.Evidence
	if q.gpus != 0 || all > 0 {
		of := fmt.Sprint(all)
		if q.gpus >= 0 {
			of = fmt.Sprintf("%d of %d", all, q.gpus)
		}
		out = append(out, usage.Fact("gpus_measured", of, q.source()))
	}
	host := []*track{&q.k.machine}
	for _, s := range []struct {
		signal usage.Signal
		tracks []*track
		name   string
		digits int
		always bool // listed even if it is not measured
	}{
		{usage.GPUUtil, gpu, "gpu_util_max_pct", 1, all > 0 || q.gpus != 0},
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
		e, measured := q.highest(v, s.tracks, s.signal, s.digits)
		if e.Signal = s.name; measured || s.always {
			out = append(out, e)
		}
	}
	if e, measured := q.heldNow(gpu); measured {
		out = append(out, e)
	}
	return append(out, q.progressEvidence()...)
}

// source returns the source of the machine's samples, of its GPUs first.
func (q *evaluation) source() string {
	for _, t := range append(q.k.gpus[:len(q.k.gpus):len(q.k.gpus)], &q.k.machine) {
		for s := range lastTracked + 1 {
			if r := q.read(t, s); r.meter != nil {
				return r.opened.Source
			}
		}
	}
	return ""
}

// heldNow returns evidence of the largest share of memory in use on any GPU.
func (q *evaluation) heldNow(tracks []*track) (e usage.Evidence, measured bool) {
	largest := 0.0
	for _, t := range tracks {
		if m := q.memoryOf(t); m.measured() && m.newestPercent() >= largest {
			largest, measured = m.newestPercent(), true
			e = usage.Evidence{
				Signal: "gpu_mem_used_newest_pct", Window: m.used.opened.Step, Coverage: q.unbroken(m.used).coverage,
				Source: m.used.opened.Source,
			}
		}
	}
	e.Value = plain.Decimal(largest, 1)
	return e, measured
}

// highest returns evidence of the highest value of a signal over tracks since the state began.
func (q *evaluation) highest(v *verdictBuilder, tracks []*track, sig usage.Signal, digits int) (e usage.Evidence,
	measured bool) {
	e = usage.Evidence{Value: notMeasured, Source: q.source()}
	highest := 0.0
	for _, t := range tracks {
		r := q.read(t, sig)
		if r.meter == nil {
			continue
		}
		from := r.newestAt
		if v.since != never {
			from = min(from, v.since)
		}
		peak := r.highestSince(from)
		if sig == usage.NetBytes || sig == usage.DiskBytes {
			peak /= max(r.opened.Step.Seconds(), 1e-9)
		}
		unbroken := q.unbroken(r)
		if !measured {
			e.Coverage, measured = unbroken.coverage, true
		}
		highest = max(highest, peak)
		e.Coverage = min(e.Coverage, unbroken.coverage)
		e.Window = max(e.Window, time.Duration(r.newestAt+r.step()-from))
		e.Source = r.opened.Source
	}
	if measured {
		e.Value = plain.Decimal(highest, digits)
	}
	return e, measured
}
