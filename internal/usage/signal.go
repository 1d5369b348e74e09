// Package usage holds the measurements of a resource: samples, their statistics over a window, and
// the share of the window they cover. It never invents a value: a signal without samples has no
// mean, no maximum and no quantile, and a gap is unknown time, not idle time.
package usage

import "math"

// Signal is a measured quantity, the same for all sources.
type Signal uint8

// The signals. GPU signals belong to one GPU, the others to the whole resource.
const (
	// GPUUtil is the share of time in which a kernel ran, in percent, 0 to 100
	// (NVML utilization.gpu; DCGM_FI_DEV_GPU_UTIL). One tiny kernel reads 100.
	GPUUtil Signal = iota
	// GREngine is the share of time in which the graphics or compute engine was active, 0 to 1
	// (DCGM 1001). It replaces the utilization if a source has none.
	GREngine
	// SMActive is the share of streaming multiprocessors with work, 0 to 1
	// (DCGM 1002).
	SMActive
	// TensorActive is the share of time in which the tensor pipes are active, 0 to 1 (DCGM 1004).
	TensorActive
	// DRAMActive is the share of time in which device memory transfers data, 0 to 1 (DCGM 1005).
	DRAMActive
	// MemUsed, MemTotal and MemFree are device memory in bytes. Sources without the total give the
	// free memory ([Window.Memory]).
	MemUsed
	MemTotal
	MemFree
	// Energy is the energy in joules since the driver was loaded, which only rises (NVML
	// GetTotalEnergyConsumption; DCGM 156).
	Energy
	// Temperature of the GPU in degrees Celsius.
	Temperature
	// Power in watts.
	Power
	// CPUUtil is the utilization of all CPUs in percent, 0 to 100.
	CPUUtil
	// NetBytes is the number of bytes received and sent within the sample's step.
	NetBytes
	// DiskBytes is the number of bytes read and written within the sample's step.
	DiskBytes
	// Sessions is the number of interactive sessions with real input.
	Sessions
	// Processes is the number of processes that hold the GPU.
	Processes
	// Kernels is the number of notebook kernels that are executing.
	Kernels
	// Step is the training step, a counter.
	Step
	// Checkpoints is the number of completed checkpoints, or the time of the newest
	// one in seconds: a counter.
	Checkpoints
	// Events is the number of events that the work declared as progress, such as finished parts of an
	// evaluation: a counter.
	Events
	// HostMemUsed is the host's memory in use, in percent, 0 to 100.
	HostMemUsed
	// DiskOps is the number of operations on a volume within the sample's step.
	DiskOps
	// Requests is the number of requests or invocations served within the sample's step.
	Requests
	// Healthy is the number of healthy targets.
	Healthy
	// Capacity is the number of machines that a group wants or a reservation uses.
	Capacity
	// SMOccupancy is the share of the multiprocessors' warp slots in use, 0 to 1 (DCGM 1003).
	SMOccupancy
	// SlowdownTemperature is the temperature in degrees Celsius at which the GPU slows down (DCGM
	// 158), a constant of the device.
	SlowdownTemperature
	// Throttle is the set of reasons for lowered clocks, as NVML's bits of clock event reasons
	// (DCGM 112); see [ThrottledByAny].
	Throttle
	// XID is the code of the newest driver error since the driver was loaded; 0 is none (DCGM 230).
	XID
	// ECCErrors counts uncorrected memory errors since the driver was loaded (DCGM 311).
	ECCErrors
	// GPUCount is the number of GPUs that the driver of a machine sees.
	GPUCount

	numSignals
)

// SignalCount is the number of signals.
const SignalCount = int(numSignals)

// signals are the column names of the signals in recorded usage, their units and descriptions.
var signals = [numSignals]struct{ name, unit, doc string }{
	GPUUtil:      {"gpu_util", "percent, 0 to 100", "share of time in which a kernel ran"},
	GREngine:     {"gr_engine_active", "share, 0 to 1", "share of time in which the graphics or compute engine works"},
	SMActive:     {"sm_active", "share, 0 to 1", "share of streaming multiprocessors with work"},
	TensorActive: {"tensor_active", "share, 0 to 1", "share of time in which tensor cores work"},
	DRAMActive:   {"dram_active", "share, 0 to 1", "share of time in which device memory transfers data"},
	MemUsed:      {"mem_used_bytes", "bytes", "device memory in use"},
	MemTotal:     {"mem_total_bytes", "bytes", "device memory in all"},
	MemFree:      {"mem_free_bytes", "bytes", "free device memory, for sources that do not give the total"},
	Energy:       {"energy_j", "joules", "energy drawn since the driver was loaded"},
	Temperature:  {"temperature_c", "degrees Celsius", "temperature of the GPU"},
	Power:        {"power_w", "watts", "power draw of the GPU"},
	CPUUtil:      {"cpu_util", "percent, 0 to 100", "utilization of all CPUs"},
	HostMemUsed:  {"host_mem_used", "percent, 0 to 100", "memory of the host in use"},
	NetBytes:     {"net_bytes", "bytes in a step", "bytes received and sent"},
	DiskBytes:    {"disk_bytes", "bytes in a step", "bytes read and written"},
	DiskOps:      {"disk_ops", "operations in a step", "operations on a volume"},
	Sessions:     {"sessions", "count", "interactive sessions with real input"},
	Processes:    {"processes", "count", "processes that hold the GPU"},
	Kernels:      {"kernels", "count", "notebook kernels that execute something"},
	Step:         {"step", "counter", "training step; only a rise means work"},
	Checkpoints: {
		"checkpoints", "counter", "completed checkpoints, or the time of the newest in seconds; only a rise counts",
	},
	Events:      {"events", "counter", "events that the work declares as progress; only a rise counts"},
	Requests:    {"requests", "requests in a step", "requests or invocations served"},
	Healthy:     {"healthy_targets", "count", "healthy targets of a load balancer"},
	Capacity:    {"capacity", "count", "machines that a group wants or a reservation uses"},
	SMOccupancy: {"sm_occupancy", "share, 0 to 1", "share of the warps that multiprocessors have room for"},

	SlowdownTemperature: {"slowdown_temperature_c", "degrees Celsius", "temperature at which the GPU slows down"},
	Throttle:            {"throttle_reasons", "bits", "NVML's bits of the reasons for which clocks are lowered"},
	XID:                 {"xid", "code", "newest Xid error since the driver was loaded, 0 for none"},
	ECCErrors:           {"ecc_errors", "count", "uncorrected memory errors since the driver was loaded"},
	GPUCount:            {"gpu_count", "count", "GPUs that the driver of the machine sees"},
}

// String returns the signal's column name in recorded usage.
func (s Signal) String() string {
	if s < numSignals {
		return signals[s].name
	}
	return "signal"
}

// Unit returns the unit of the signal's values, for documentation.
func (s Signal) Unit() string { return signals[s].unit }

// Doc describes the signal, for documentation.
func (s Signal) Doc() string { return signals[s].doc + ", " + signals[s].unit }

// SignalNamed returns the signal with that column name.
func SignalNamed(name string) (Signal, bool) {
	for s := range signals {
		if signals[s].name == name {
			return Signal(s), true
		}
	}
	return 0, false
}

// PerGPU reports whether the signal belongs to one GPU, not to the machine.
func (s Signal) PerGPU() bool {
	return s <= Power || s == Processes || s >= SMOccupancy && s <= ECCErrors
}

// Bits of [Throttle] that mean that a GPU is slower than it could be, as NVML numbers them. An idle
// GPU and clocks set by a person are not among them.
const (
	ThrottledByPower = 0x4 | 0x80                               // the power limit, and the brake of the power supply
	ThrottledByHeat  = 0x20 | 0x40                              // the driver's and the hardware's limits
	ThrottledByAny   = ThrottledByPower | ThrottledByHeat | 0x8 // any of them, and hardware slowdown
)

// XIDFellOffBus is the [XID] of a GPU that its machine has lost.
const XIDFellOffBus = 79

// Counter reports whether only a rise of the signal has a meaning: it counts completed work, and
// restarts from a smaller number.
func (s Signal) Counter() bool { return s == Step || s == Checkpoints || s == Events }

// FrozenAfter returns the number of equal values in a row that proves a frozen exporter; 0 if the
// signal may repeat indefinitely. Power and temperature of a live GPU eventually differ in their
// last digits, if their meters have such digits (see [Signal.MayRepeat]). Energy rises all the
// time, and an exporter does not repeat one reading for five scrapes.
func (s Signal) FrozenAfter() int {
	switch s {
	case Power, Temperature:
		return 10
	case Energy:
		return 5
	}
	return 0
}

// MayRepeat reports whether a live exporter may repeat a value of the signal indefinitely: AMD's
// power is in whole watts, which a resting GPU keeps for hours. Temperature is in whole degrees
// everywhere, and proves nothing alone.
func (s Signal) MayRepeat(v float64) bool { return s == Power && v == math.Trunc(v) }

// maxMemory is more than any accelerator has, in bytes: 8 TiB. A larger value is a sentinel in
// another unit.
const maxMemory = 1 << 43

// maxPower and maxTemperature are more than any accelerator reaches, in watts and degrees Celsius:
// AMD's library writes 65535 for unsupported values.
const (
	maxPower       = 10_000
	maxTemperature = 200
)

// limit returns the largest valid value of the signal; 0 without a limit.
func (s Signal) limit() float64 {
	switch s {
	case GPUUtil, CPUUtil, HostMemUsed:
		return 100
	case GREngine, SMActive, TensorActive, DRAMActive, SMOccupancy:
		return 1
	case MemUsed, MemTotal, MemFree:
		return maxMemory
	case Power:
		return maxPower
	case Temperature, SlowdownTemperature:
		return maxTemperature
	}
	return 0
}

// Validity classifies a value of a source.
type Validity uint8

// The validities. All but Valid are dropped and counted.
const (
	// Valid values are measurements.
	Valid Validity = iota
	// Unsupported values stand for "not supported", "not found" or "not permitted", or are not a
	// measurement of the device.
	Unsupported
	// Impossible values are below zero or above the signal's range. DCGM sometimes gives
	// utilizations of a thousand to billions (NVIDIA/DCGM, issue 199; dcgm-exporter, issue 418),
	// and AMD's library the largest integer of a field.
	Impossible
)

// Check classifies a value in the signal's unit and returns it, limited to the signal's range. It
// is the one rule for files, servers and agents. Meters that divide two counters overshoot by
// rounding: a value up to a hundredth above the range is its end.
func (s Signal) Check(v float64) (float64, Validity) {
	if s >= numSignals || v != v || v == -1 {
		return 0, Unsupported
	}
	if !IsMeasurement(v) {
		if v < 0 || math.IsInf(v, 1) {
			return 0, Impossible
		}
		return 0, Unsupported
	}
	limit := s.limit()
	switch {
	case limit == 0 || v <= limit:
		return v, Valid
	case limit <= 100 && v <= limit*(1+overshoot):
		return limit, Valid
	}
	return 0, Impossible
}

// Clean returns a point with checked values, and false if it is not a measurement (see
// [Signal.Check]).
func (s Signal) Clean(p Point) (Point, bool) {
	largest, reading := s.Check(p.Max)
	if reading != Valid {
		return p, false
	}
	if p.Mean == p.Max {
		p.Mean, p.Max = largest, largest
		return p, true
	}
	if p.Mean, reading = s.Check(p.Mean); reading != Valid {
		return p, false
	}
	p.Max = largest
	return p, true
}

// Floors are the values from which a signal counts as active. A GPU busy for under 1 % of a sample
// is noise (gpu-pruner's threshold; a strict zero misses real machines, whose drivers wake up
// sometimes); a CPU peak under 5 % is AWS's limit for an idle machine. Counters have no floor: they
// are active when they rise.
type Floors [numSignals]float64

// DefaultFloors returns the default floors.
func DefaultFloors() *Floors {
	f := &Floors{GPUUtil: 1, GREngine: 0.01, SMActive: 0.01, TensorActive: 0.01, DRAMActive: 0.01, CPUUtil: RestingCPU}
	for _, s := range []Signal{
		NetBytes, DiskBytes, DiskOps, Sessions, Processes, Kernels, Requests, Healthy, Capacity, MemUsed,
	} {
		f[s] = 1
	}
	return f
}
