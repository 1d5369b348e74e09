package rightsize

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Lines between the reasons for low utilization. Multiprocessors active under half the
// time are likely waste, and device memory reaches about 0.8 of its peak in practice
// (DCGM's guidance); the others are our choices.
const (
	smWaste      = 0.5
	dramFull     = 0.8
	dramBound    = 0.75 * dramFull
	dramLoose    = 0.5 * dramFull
	engineBusy   = 60.0 // percent of the time with a kernel
	cpuBound     = 90.0 // percent of all vCPUs
	networkBound = 0.7  // of the bandwidth that the provider states
	flat         = 0.95 // of its maximum, reached by the median of a rate at its limit
)

// reasons tells the usual causes of low utilization apart. It returns none where the
// GPUs are well used, or computed nothing.
func (m *measured) reasons(v Verdict) []Reason {
	sm, smOK := m.mean(usage.SMActive)
	low := v == Overprovisioned || v == Underutilized || v != Unknown && smOK && sm < smWaste
	if !low || m.active == 0 {
		return nil
	}
	return []Reason{m.smallBatches(), m.cpuBoundInput(), m.memoryBandwidth(), m.transfersBound(), m.concurrency()}
}

// pooled returns a signal over all GPUs in use, nil if one of them misses it.
func (m *measured) pooled(s usage.Signal) *usage.Stats {
	meters := make([]*usage.Stats, len(m.inUse))
	for i, t := range m.inUse {
		if meters[i] = t.Stats(s); !m.known(meters[i]) {
			return nil
		}
	}
	return usage.Pool(meters...)
}

func (m *measured) mean(s usage.Signal) (float64, bool) {
	v, err := m.pooled(s).Mean()
	return v, err == nil
}

func (m *measured) high(s usage.Signal) (float64, bool) {
	v, err := m.pooled(s).Quantile(s, 0.95)
	return v, err == nil
}

// smallBatches: a kernel runs nearly all the time, and fills neither the
// multiprocessors nor the memory bus.
func (m *measured) smallBatches() Reason {
	const name = "small-batches"
	engine, ok := m.high(usage.GPUUtil)
	sm, okSM := m.high(usage.SMActive)
	dram, okDRAM := m.high(usage.DRAMActive)
	switch {
	case ok && engine < engineBusy:
		return reason(name, usage.False, fmt.Sprintf("kernels run at most %s of the time: the GPU waits",
			plain.Percent(engine, 0)))
	case okSM && sm >= smWaste:
		return reason(name, usage.False, fmt.Sprintf("%s of the multiprocessors are active", plain.Share(sm, 0)))
	case okDRAM && dram >= dramLoose:
		return reason(name, usage.False, fmt.Sprintf("GPU memory is active %s of the time", plain.Share(dram, 0)))
	case !ok || !okSM || !okDRAM:
		return reason(name, usage.Unknown, "needs gpu_util, sm_active and dram_active")
	}
	return reason(name, usage.True,
		fmt.Sprintf(
			"kernels run %s%% of the time on %s%% of the multiprocessors, and GPU memory is active %s%% of the time",
			plain.Number(engine, 0), plain.Number(100*sm, 0), plain.Number(100*dram, 0)))
}

// cpuBoundInput: the CPUs are full while the GPU waits.
func (m *measured) cpuBoundInput() Reason {
	const name = "cpu-bound-input"
	st := m.w.Machine.Stats(usage.CPUUtil)
	if !m.known(st) {
		return reason(name, usage.Unknown, "needs cpu_util")
	}
	v, _ := st.Quantile(usage.CPUUtil, 0.95)
	why := fmt.Sprintf("CPU utilization p95 %s", plain.Percent(v, 0))
	if v < cpuBound {
		// One full core of many is not seen in the mean of all.
		if one := 100 / float64(max(m.from.VCPUs, 1)); v >= one {
			return reason(name, usage.Unknown, why+": one saturated core would not show")
		}
	}
	return reason(name, usage.FromBool(v >= cpuBound), why)
}

// memoryBandwidth: device memory transfers near its practical peak.
func (m *measured) memoryBandwidth() Reason {
	const name = "memory-bandwidth"
	v, ok := m.high(usage.DRAMActive)
	if !ok {
		return reason(name, usage.Unknown, "needs dram_active")
	}
	return reason(name, usage.FromBool(v >= dramBound),
		fmt.Sprintf("GPU memory activity p95 %s; the practical peak is about 80%%", plain.Share(v, 0)))
}

// transfersBound: the machine's network is near what the provider states.
func (m *measured) transfersBound() Reason {
	const name = "transfers"
	switch {
	case !m.networkKnown || m.from.NetworkMbps == 0:
		return reason(name, usage.Unknown, "needs net_bytes and the machine's bandwidth")
	case m.network >= networkBound*float64(m.from.NetworkMbps):
		return reason(name, usage.True, fmt.Sprintf("network p95 %s of %s Gbit/s", plain.Number(m.network/1e3, 1),
			plain.Number(float64(m.from.NetworkMbps)/1e3, 1)))
	}
	return reason(name, usage.Unknown,
		fmt.Sprintf("network p95 %s of %s Gbit/s; the bus between host and GPU is unmeasured",
			plain.Number(m.network/1e3, 1), plain.Number(float64(m.from.NetworkMbps)/1e3, 1)))
}

// concurrency: requests stay at one rate, their highest, while the GPU has room.
func (m *measured) concurrency() Reason {
	const name = "concurrency-limit"
	st := m.w.Machine.Stats(usage.Requests)
	if !m.known(st) {
		return reason(name, usage.Unknown, "needs requests")
	}
	median, _ := st.Quantile(usage.Requests, 0.5)
	if st.Max <= 0 {
		return reason(name, usage.False, "no requests")
	}
	if median >= flat*st.Max {
		return reason(name, usage.True,
			fmt.Sprintf("requests stay within %s of their highest rate while the GPU has spare capacity",
				plain.Share(1-flat, 0)))
	}
	return reason(name, usage.False, fmt.Sprintf("the median request rate is %s of the highest",
		plain.Share(median/st.Max, 0)))
}
