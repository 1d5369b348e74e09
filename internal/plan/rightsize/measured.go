package rightsize

import (
	"fmt"
	"math"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	gib = 1 << 30
	mib = 1 << 20
)

// measured is the measured demand of a machine's work.
type measured struct {
	w           *usage.Window
	from        price.Machine
	minCoverage float64
	tensor      bool // tensor activity may stand for compute
	warnings    []string
	reason      string // why nothing can be said; empty when something can
	inUse       []*usage.Track

	gpus       int     // the machine has
	covered    int     // GPUs with telemetry
	coverage   float64 // the least of theirs
	aggregated bool    // one series stands for all of several GPUs

	util       *usage.Stats // of all GPUs, percent
	active     int          // GPUs that computed
	heldMemory int          // GPUs that hold memory and never computed
	used       int          // both
	basis      usage.Signal // what compute is taken from
	compute    float64      // TFLOP/s at 16 bits of the busiest GPU, 95th percentile
	total      float64      // TFLOP/s of all GPUs in use
	transfers  bool         // use of memory bandwidth was measured
	transfer   float64      // GB/s of device memory of the busiest GPU, 95th percentile

	memory    bool    // device memory was measured
	device    float64 // bytes of one GPU
	peak, p95 float64 // bytes in use of the fullest GPU
	peaks     float64 // bytes in use of all GPUs

	hostMemory   float64 // MiB, headroom included; 0 unknown
	hostCPU      float64 // vCPUs at the 95th percentile, headroom included; 0 unknown
	hostCPUPeak  float64 // vCPUs
	networkKnown bool
	network      float64 // Mbit/s at the 95th percentile
}

// holding is the share of device memory from which on a GPU that never computed
// still counts as in use.
const holding = usage.HeldMemory / 100.

func measure(w *usage.Window, from price.Machine, acc price.Accelerator, o Options) *measured {
	m := &measured{w: w, from: from, gpus: from.GPUs(), minCoverage: o.MinCoverage, tensor: o.Tensor,
		device: float64(from.AcceleratorMemoryMiB) * mib, basis: usage.GPUUtil}
	tracks := w.GPUs
	if len(tracks) == 0 && w.Machine.MeasuresCompute() {
		tracks = []*usage.Track{&w.Machine}
		m.aggregated = m.gpus > 1
		if m.aggregated && !w.Aggregated {
			m.reason = "one series of samples for several GPUs"
		}
	}
	m.gpusOf(tracks, acc)
	m.hostOf(o)
	switch {
	case m.reason != "":
	case len(tracks) == 0:
		m.reason = "no GPU samples"
	case m.covered < m.gpus && !m.aggregated:
		m.reason = fmt.Sprintf("samples for %d of %d GPUs only", m.covered, m.gpus)
	case m.coverage < o.MinCoverage:
		m.reason = fmt.Sprintf("samples cover %s of the window on a GPU", plain.Share(m.coverage, 0))
	}
	return m
}

// gpusOf reads the tracks of the GPUs.
func (m *measured) gpusOf(tracks []*usage.Track, acc price.Accelerator) {
	w := m.w
	throughput := acc.BF16TFLOPS * fraction(m.from)
	m.basis = usage.SMActive
	m.memory = len(tracks) > 0
	for _, t := range tracks {
		if !m.known(t.Stats(usage.SMActive)) {
			m.basis = usage.GPUUtil
		}
		m.memory = m.memory && m.known(t.Stats(usage.MemUsed))
	}
	if m.basis == usage.GPUUtil && m.tensor && m.onTensors(tracks) {
		m.basis = usage.TensorActive
	}
	meters := make([]*usage.Stats, 0, len(tracks))
	transfers := true
	for i, t := range tracks {
		meter := t.Stats(usage.GPUUtil)
		if meter == nil {
			meter = t.Stats(usage.SMActive)
		} else {
			meters = append(meters, meter)
		}
		c := w.MeasuredCoverage(meter)
		if i == 0 || c < m.coverage {
			m.coverage = c
		}
		var peak float64
		if st := t.Stats(usage.MemUsed); st != nil {
			peak = st.Max
			m.fullest(st)
		}
		if meter == nil {
			continue
		}
		m.covered++
		active := t.ShowsCompute()
		holds := peak >= holding*m.device
		if active {
			m.active++
		} else if holds {
			m.heldMemory++
		}
		if !active && !holds {
			continue
		}
		m.used++
		m.inUse = append(m.inUse, t)
		need := throughput * m.share(t)
		m.compute, m.total = max(m.compute, need), m.total+need
		m.peaks += peak
		if st := t.Stats(usage.DRAMActive); m.known(st) {
			if q, err := st.Quantile(usage.DRAMActive, 0.95); err == nil {
				m.transfer = max(m.transfer, q*acc.MemoryBandwidthGBps*fraction(m.from))
			}
		} else {
			transfers = false
		}
	}
	m.transfers = transfers && m.used > 0
	m.util = usage.Pool(meters...)
	if m.aggregated && m.used > 0 {
		// A maximum over all GPUs may be any number of them.
		m.active, m.used = m.gpus, m.gpus
		m.total, m.peaks = m.compute*float64(m.gpus), m.peak*float64(m.gpus)
		m.warnings = append(m.warnings, "only the maximum over its GPUs is recorded: all of them count as used")
	}
	switch m.basis {
	case usage.GPUUtil:
		m.warnings = append(m.warnings,
			"GPU utilization overstates compute (one small kernel reads 100%); record sm_active")
	case usage.TensorActive:
		m.warnings = append(m.warnings,
			"compute is taken from tensor activity, which excludes other work; record sm_active")
	}
	if !m.memory {
		m.warnings = append(m.warnings, "GPU memory is unmeasured: candidates have at least the current memory")
	}
	if m.heldMemory > 0 {
		m.warnings = append(m.warnings, fmt.Sprintf("%d GPU(s) hold memory without computing: they count as used",
			m.heldMemory))
	}
}

// fullest takes the memory of a GPU where it is the fullest so far, whether or not it computes:
// memory that was read is known also where utilization is not, as in MIG mode.
func (m *measured) fullest(used *usage.Stats) {
	if used.Max < m.peak {
		return
	}
	m.peak = used.Max
	if q, err := used.Quantile(usage.MemUsed, 0.95); err == nil {
		m.p95 = q
	}
}

func (m *measured) known(st *usage.Stats) bool { return m.w.MeasuredCoverage(st) >= m.minCoverage }

// onTensors reports whether tensor activity stands for compute: it and the traffic of
// device memory were measured on every GPU, and each that ran anything used its
// tensor pipes. Alone it would call work on other pipes, or on memory, no work.
func (m *measured) onTensors(tracks []*usage.Track) bool {
	for _, t := range tracks {
		st := t.Stats(usage.TensorActive)
		if !m.known(st) || !m.known(t.Stats(usage.DRAMActive)) {
			return false
		}
		ran := t.Stats(usage.GPUUtil) != nil && t.Stats(usage.GPUUtil).Active > 0
		if q, _ := st.Quantile(usage.TensorActive, 0.95); ran && q < onTensor {
			return false
		}
	}
	return len(tracks) > 0
}

const (
	// onTensor is the tensor activity from which on work counts as tensor work: less
	// may be a few small products in a program of something else. Our choice.
	onTensor = 0.05
	// fullTensor is the tensor activity that counts as a full GPU: kernels of large
	// matrices reach little more, for they also load and store. Our choice.
	fullTensor = 0.6
)

// share returns the 95th percentile of a GPU's compute, 0 to 1.
func (m *measured) share(t *usage.Track) float64 {
	q, _ := t.Stats(m.basis).Quantile(m.basis, 0.95)
	switch m.basis {
	case usage.GPUUtil:
		return q / 100
	case usage.TensorActive:
		return min(q/fullTensor, 1)
	}
	return q
}

// hostOf reads what the host needs.
func (m *measured) hostOf(o Options) {
	w := m.w
	if st := w.Machine.Stats(usage.HostMemUsed); m.known(st) {
		m.hostMemory = max(st.Max/100*float64(m.from.MemoryMiB)*(1+o.Headroom), 1)
	} else {
		m.warnings = append(m.warnings, "host memory is unmeasured: candidates keep the current memory per used GPU")
	}
	if st := w.Machine.Stats(usage.CPUUtil); m.known(st) {
		if q, err := st.Quantile(usage.CPUUtil, 0.95); err == nil {
			m.hostCPU = max(q/100*float64(m.from.VCPUs)*(1+o.Headroom), 1)
			m.hostCPUPeak = st.Max / 100 * float64(m.from.VCPUs)
		}
	} else {
		m.warnings = append(m.warnings, "CPU is unmeasured: candidates keep the current vCPUs per used GPU")
	}
	if st := w.Machine.Stats(usage.NetBytes); m.known(st) {
		if q, err := st.Quantile(usage.NetBytes, 0.95); err == nil {
			m.network, m.networkKnown = q*8/1e6/w.StepOf(st).Seconds(), true
		}
	}
}

// verdict rates the use of the GPUs.
func (m *measured) verdict(p inventory.Purpose) (Verdict, string) {
	if m.reason != "" {
		return Unknown, m.reason
	}
	mean, err := m.util.Mean()
	if err != nil {
		return Unknown, "no utilization samples"
	}
	return judge(mean, p), fmt.Sprintf("%s mean GPU utilization, %d of %d GPUs used", plain.Percent(mean, 1), m.active,
		m.gpus)
}

// judge names a mean utilization in percent.
func judge(mean float64, p inventory.Purpose) Verdict {
	switch {
	case mean < OverprovisionedBelow:
		return Overprovisioned
	case mean < UnderutilizedBelow:
		return Underutilized
	case p == inventory.Inference && mean > ScaleOutAbove:
		return ScaleOut
	}
	return WellUsed
}

// report fills in the figures.
func (m *measured) report(a *Advice) {
	a.Coverage, a.GPUsUsed, a.Warnings = m.coverage, m.active, m.warnings
	a.MemoryKnown, a.MemoryPeakGiB, a.MemoryP95GiB = m.memory, m.peak/gib, m.p95/gib
	a.ComputeTFLOPS, a.Basis = m.compute, m.basis
	if m.util != nil {
		a.Samples, a.UtilMax = m.util.Count, m.util.Max
		a.UtilMean, _ = m.util.Mean()
		a.UtilP50, _ = m.util.Quantile(usage.GPUUtil, 0.5)
		a.UtilP95, _ = m.util.Quantile(usage.GPUUtil, 0.95)
	}
	window := m.w.To.Sub(m.w.From)
	add := func(signal, value string) {
		a.Evidence = append(a.Evidence, usage.Evidence{
			Signal: signal, Value: value, Window: window, Coverage: m.coverage, Source: m.w.SourceOf(m.util),
		})
	}
	if a.Samples > 0 {
		add("gpu_util_mean_pct", plain.Number(a.UtilMean, 1))
		add("gpu_util_p95_pct", plain.Number(a.UtilP95, 1))
		add("gpus_used_max", fmt.Sprintf("%d of %d", m.active, m.gpus))
	}
	if m.memory {
		add("gpu_mem_peak_gib", plain.Number(a.MemoryPeakGiB, 1))
	}
	if m.basis != usage.GPUUtil && m.compute > 0 {
		add("compute_p95_tflops", plain.Number(m.compute, 0))
	}
}

// fraction is the part of a device that a machine has, 1 for whole ones.
func fraction(m price.Machine) float64 {
	if m.AcceleratorMilli <= 0 {
		return 0
	}
	return math.Min(1, float64(m.AcceleratorMilli)/1000)
}
