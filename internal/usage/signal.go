// Package usage holds what was measured of a resource: samples, what they add up
// to over a window, and how much of that window they cover. It never invents a
// value: a signal without samples has no mean, no maximum and no quantile, and a
// gap is unknown time, not idle time.
package usage

import "math"

// Signal is one measured quantity, the same whichever source it came from.
type Signal uint8

// The signals. GPU signals belong to one GPU, the others to the whole resource.
const (
	// GPUUtil is the share of time in which a kernel ran, in percent, 0 to 100
	// (NVML utilization.gpu; DCGM_FI_DEV_GPU_UTIL). One tiny kernel reads 100.
	GPUUtil Signal = iota
	// GREngine is the share of time in which the graphics or compute engine was active,
	// 0 to 1 (DCGM 1001). Where a source has it and no utilization, it stands for both.
	GREngine
	// SMActive is the share of streaming multiprocessors with work, 0 to 1
	// (DCGM 1002).
	SMActive
	// TensorActive is the share of time the tensor pipes work, 0 to 1 (DCGM 1004).
	TensorActive
	// DRAMActive is the share of time device memory transfers, 0 to 1 (DCGM 1005).
	DRAMActive
	// MemUsed, MemTotal and MemFree are device memory in bytes. Sources that do not
	// give the total give what is free ([Window.Memory]).
	MemUsed
	MemTotal
	MemFree
	// Energy is joules since the driver was loaded, a meter that only rises (NVML
	// GetTotalEnergyConsumption; DCGM 156).
	Energy
	// Temperature is that of the GPU in degrees Celsius.
	Temperature
	// Power is watts.
	Power
	// CPUUtil is percent of all CPUs, 0 to 100.
	CPUUtil
	// NetBytes is bytes received and sent within the sample's step.
	NetBytes
	// DiskBytes is bytes read and written within the sample's step.
	DiskBytes
	// Sessions is the number of interactive sessions with real input.
	Sessions
	// Processes is the number of processes that hold the GPU.
	Processes
	// Kernels is the number of notebook kernels that execute something.
	Kernels
	// Step is the training step, a counter.
	Step
	// Checkpoints is the number of completed checkpoints, or the time of the newest
	// one in seconds: a counter.
	Checkpoints
	// HostMemUsed is the host's memory in use, in percent, 0 to 100.
	HostMemUsed
	// DiskOps is operations on a volume within the sample's step.
	DiskOps
	// Requests is requests or invocations served within the sample's step.
	Requests
	// Healthy is the number of healthy targets.
	Healthy
	// Capacity is the number of machines a group wants or a reservation uses.
	Capacity
	// SMOccupancy is the share of the warps that multiprocessors have room for, 0 to 1
	// (DCGM 1003).
	SMOccupancy
	// SlowdownTemperature is the temperature in degrees Celsius at which the GPU slows
	// down (DCGM 158). It is the device's own and does not change.
	SlowdownTemperature
	// Throttle is why clocks are lowered, as NVML's bits of clock event reasons (DCGM 112);
	// see [ThrottledBy].
	Throttle
	// XID is the code of the newest error that the driver reported since it was loaded; 0 is
	// none (DCGM 230).
	XID
	// ECCErrors counts memory errors that were not corrected since the driver was loaded
	// (DCGM 311).
	ECCErrors
	// GPUCount is how many GPUs the driver of a machine sees.
	GPUCount

	numSignals
)

// Signals is how many signals there are.
const Signals = int(numSignals)

// signals are the names of the signals in recorded usage, their units, and what they mean.
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

// Unit returns the unit of the signal's values, for people.
func (s Signal) Unit() string { return signals[s].unit }

// Doc says for people what the signal is.
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

// PerGPU says whether the signal belongs to one GPU and not to the machine.
func (s Signal) PerGPU() bool {
	return s <= Power || s == Processes || s >= SMOccupancy && s <= ECCErrors
}

// Reasons in [Throttle] for which a GPU is slower than it could be, as NVML numbers them. An
// idle GPU, and clocks that a person set, are none.
const (
	ThrottledByPower = 0x4 | 0x80                               // the power limit, and the brake of the power supply
	ThrottledByHeat  = 0x20 | 0x40                              // the driver's and the hardware's limits
	ThrottledBy      = ThrottledByPower | ThrottledByHeat | 0x8 // any of them, and hardware slowdown
)

// FellOffTheBus is the [XID] of a GPU that its machine has lost.
const FellOffTheBus = 79

// Counter says whether only a rise of the signal means something: it counts what
// was completed, and starts again from a smaller number after a restart.
func (s Signal) Counter() bool { return s == Step || s == Checkpoints }

// Repeats returns after how many equal values in a row the signal shows that its exporter
// is frozen; 0 where it may repeat itself without end. Power and temperature of a live GPU
// differ sooner or later in their last digits, where their meters have such digits (see
// [Signal.Steady]). Energy rises all the time, and five scrapes are more than an exporter
// takes for one reading.
func (s Signal) Repeats() int {
	switch s {
	case Power, Temperature:
		return 10
	case Energy:
		return 5
	}
	return 0
}

// Steady says whether a live exporter may repeat a value of the signal without end: AMD's
// power is in whole watts, which a resting GPU does not leave for hours. Temperature is in whole
// degrees everywhere, and says nothing alone.
func (s Signal) Steady(v float64) bool { return s == Power && v == math.Trunc(v) }

// maxMemory is more than any accelerator holds, in bytes: 8 TiB. What is above
// it is a sentinel in another unit.
const maxMemory = 1 << 43

// maxPower and maxTemperature are more than any accelerator draws, in watts, and stands, in
// degrees Celsius: AMD's library writes 65535 for what a device does not support.
const (
	maxPower       = 10_000
	maxTemperature = 200
)

// limit is the largest value the signal can have; 0 where there is none.
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

// Reading is what a value of a source turns out to be.
type Reading uint8

// The readings. Everything but Valid is left out, and counted.
const (
	// Valid values are measurements.
	Valid Reading = iota
	// Unsupported values stand for "not supported", "not found" or "not permitted", or are of
	// a metric that means nothing on the device.
	Unsupported
	// Impossible values cannot be true: below zero, or over the end of the signal's range.
	// DCGM gives utilizations of a thousand to billions now and then (NVIDIA/DCGM, issue 199;
	// dcgm-exporter, issue 418), and AMD's library the largest integer of a field.
	Impossible
)

// Check returns a value in the signal's unit as it counts, and whether it does. It is the one
// rule for files, servers and agents. Meters that divide two counters overshoot by rounding:
// up to a hundredth over the end of its range, a value is that end.
func (s Signal) Check(v float64) (float64, Reading) {
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
	case limit <= 100 && v <= limit*(1+noise):
		return limit, Valid
	}
	return 0, Impossible
}

// Clean returns a point of the signal as it counts, and false for one that is no measurement
// (see [Signal.Check]).
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

// Floors are the values at or above which a signal counts as activity. A GPU
// busy for under 1 % of a sample is noise (gpu-pruner's threshold; a strict zero
// misses real machines, whose drivers wake up now and then); a CPU peak under 5 %
// is AWS's own line for an idle machine. Counters have none: they are active where
// they rise.
type Floors [numSignals]float64

// DefaultFloors returns the floors used in the field.
func DefaultFloors() *Floors {
	f := &Floors{GPUUtil: 1, GREngine: 0.01, SMActive: 0.01, TensorActive: 0.01, DRAMActive: 0.01, CPUUtil: RestingCPU}
	for _, s := range []Signal{
		NetBytes, DiskBytes, DiskOps, Sessions, Processes, Kernels, Requests, Healthy, Capacity, MemUsed,
	} {
		f[s] = 1
	}
	return f
}
