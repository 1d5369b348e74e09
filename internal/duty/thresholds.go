package duty

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// Thresholds are the limits between the states. A zero field means its default, so no threshold can
// be left out by mistake. The floor from which a GPU counts as computing belongs to the measured
// window (usage.Floors).
type Thresholds struct {
	// MinCoverage is the share of the window, 0 to 1, that samples must cover on every GPU for a
	// machine to be called idle or held; below it the state is unknown. Default 0.9.
	MinCoverage float64 `yaml:"min_coverage"`
	// MinWindow is the shortest window in which a machine can be called idle or held. Default 24 h.
	MinWindow time.Duration `yaml:"min_window"`
	// InactiveShare is the share of inactive samples, 0 to 1, above which a GPU does not count as
	// busy. Default 0.99: AWS calls a G or P machine idle whose GPUs were inactive for more than
	// 99% of the time.
	InactiveShare float64 `yaml:"inactive_share"`
	// Recent is how long after its last activity a GPU still counts as busy, however rarely it is.
	// Default 1 h, the time after which Northeastern's IdleBot cancels.
	Recent time.Duration `yaml:"recent"`
	// HeldMemory is the share of device memory, in percent, from which it counts as held. Default
	// 5: AWS's limit for G and P machines; drivers use up to a few percent themselves.
	HeldMemory float64 `yaml:"held_memory_pct"`
	// IdleCPU is the CPU peak, in percent, below which a machine may be idle. Default 5: AWS's
	// limit for idle machines.
	IdleCPU float64 `yaml:"idle_cpu_pct"`
	// BusyCPU is the CPU peak, in percent, from which a machine with resting GPUs is busy with its
	// CPUs, such as preparing data. Between IdleCPU and BusyCPU its state is unknown. Default 20,
	// our own choice.
	BusyCPU float64 `yaml:"busy_cpu_pct"`
	// IdleNetwork is the traffic, in megabytes (1e6 bytes) received and sent per day, below which a
	// machine may be idle. Default 5: AWS's limit for idle machines.
	IdleNetwork float64 `yaml:"idle_net_mb_per_day"`
	// LatchedUtil is the utilization, in percent, that a latched meter never falls below: some
	// Blackwell boards read 100 at rest. Default 99.
	LatchedUtil float64 `yaml:"latched_util_pct"`

	// IdleNetRate is the traffic, in bytes received and sent per second, below which a machine may
	// be idle now. Default 100,000, our own choice: agents, logs and an open editor stay below it.
	IdleNetRate float64 `yaml:"idle_net_bytes_per_second"`
	// BusyNetRate is the traffic, in bytes per second, from which data is being transferred: the
	// machine downloads, or waits for it. Between IdleNetRate and BusyNetRate its state is unknown.
	// Default 1,000,000, our own choice: 3.6 GB an hour.
	BusyNetRate float64 `yaml:"busy_net_bytes_per_second"`
	// IdleDiskRate is the limit like IdleNetRate for bytes read from and written to disks. Default
	// 1,000,000, our own choice: a system at rest writes logs.
	IdleDiskRate float64 `yaml:"idle_disk_bytes_per_second"`
	// BusyDiskRate is the limit like BusyNetRate for disks. Default 10,000,000, our own choice: a
	// data set is unpacked or read at many times that.
	BusyDiskRate float64 `yaml:"busy_disk_bytes_per_second"`
	// BusyPower is the power of one GPU, in watts, that contradicts rest whatever its other meters
	// read; its state is then unknown. Default 300, our own choice: no accelerator on the market
	// draws as much at rest. Smaller models draw less at work, and gpu-pruner leaves its veto by
	// power to the user as well.
	BusyPower float64 `yaml:"busy_power_w"`
	// StalledAfter is how long training computes without a step or a checkpoint until it is
	// stalled. Default 30 min: PyTorch's own limit for a collective that hangs (10 min with NCCL).
	StalledAfter time.Duration `yaml:"stalled_after"`
	// WarmUp is how long after its launch a machine that does not compute is warming. Default 15
	// min, the idle time after which Northeastern's IdleBot first writes.
	WarmUp time.Duration `yaml:"warm_up"`
	// GPUs is "all" if every GPU of a machine must rest for it to be held or idle now, "any" if one
	// is enough while others compute. Default "all", and audits always use it: the rule "any" ends
	// machines of which seven GPUs of eight work, as dstack's does.
	GPUs string `yaml:"gpus" enum:"all,any"`
}

// The values of [Thresholds.GPUs].
const (
	AllGPUs = "all"
	AnyGPU  = "any"
)

// DefaultThresholds returns the default of each field, whose comment has the source.
func DefaultThresholds() Thresholds {
	return Thresholds{
		MinCoverage: 0.9, MinWindow: 24 * time.Hour, InactiveShare: 0.99, Recent: time.Hour,
		HeldMemory: usage.HeldMemory,
		IdleCPU:    usage.RestingCPU, BusyCPU: 20, IdleNetwork: usage.RestingBytesPerDay / 1e6, LatchedUtil: 99,
		IdleNetRate: 1e5, BusyNetRate: usage.StreamingBytes, IdleDiskRate: 1e6, BusyDiskRate: usage.StreamingDiskBytes,
		BusyPower: 300, StalledAfter: 30 * time.Minute, WarmUp: 15 * time.Minute, GPUs: AllGPUs,
	}
}

// Activity returns the definition of work under these thresholds. floors are those of the GPU
// signals, nil for the defaults.
func (t Thresholds) Activity(floors *usage.Floors) usage.Activity {
	t = t.orDefault()
	if floors == nil {
		floors = usage.DefaultFloors()
	}
	f := *floors
	f[usage.CPUUtil] = t.IdleCPU
	return usage.Activity{Floors: &f, Network: t.BusyNetRate, Disk: t.BusyDiskRate}
}

// Validate returns an error if a threshold is out of range.
func (t Thresholds) Validate() error {
	for _, c := range []struct {
		name    string
		v       float64
		highest float64
	}{
		{"min_coverage", t.MinCoverage, 1},
		{"inactive_share", t.InactiveShare, 1},
		{"held_memory_pct", t.HeldMemory, 100},
		{"idle_cpu_pct", t.IdleCPU, 100},
		{"busy_cpu_pct", t.BusyCPU, 100},
		{"idle_net_mb_per_day", t.IdleNetwork, 1e9},
		{"latched_util_pct", t.LatchedUtil, 100},
		{"idle_net_bytes_per_second", t.IdleNetRate, 1e15},
		{"busy_net_bytes_per_second", t.BusyNetRate, 1e15},
		{"idle_disk_bytes_per_second", t.IdleDiskRate, 1e15},
		{"busy_disk_bytes_per_second", t.BusyDiskRate, 1e15},
		{"busy_power_w", t.BusyPower, 1e6},
		{"min_window", t.MinWindow.Seconds(), 1e9},
		{"recent", t.Recent.Seconds(), 1e9},
		{"stalled_after", t.StalledAfter.Seconds(), 1e9},
		{"warm_up", t.WarmUp.Seconds(), 1e9},
	} {
		if !(c.v >= 0 && c.v <= c.highest) {
			return fmt.Errorf("%s is %v: 0 (the default) to %v is expected", c.name, c.v, c.highest)
		}
	}
	t = t.orDefault()
	for _, c := range []struct {
		name       string
		busy, idle float64
	}{
		{"cpu_pct", t.BusyCPU, t.IdleCPU},
		{"net_bytes_per_second", t.BusyNetRate, t.IdleNetRate},
		{"disk_bytes_per_second", t.BusyDiskRate, t.IdleDiskRate},
	} {
		if c.busy < c.idle {
			return fmt.Errorf("busy_%s is %v, below idle_%s, %v", c.name, c.busy, c.name, c.idle)
		}
	}
	if t.GPUs != AllGPUs && t.GPUs != AnyGPU {
		return fmt.Errorf("gpus is %q: %s or %s is expected", t.GPUs, AllGPUs, AnyGPU)
	}
	return nil
}

// orDefault replaces zero fields by their defaults.
func (t Thresholds) orDefault() Thresholds {
	d := DefaultThresholds()
	for _, f := range []struct {
		v         *float64
		otherwise float64
	}{
		{&t.MinCoverage, d.MinCoverage}, {&t.InactiveShare, d.InactiveShare}, {&t.HeldMemory, d.HeldMemory},
		{&t.IdleCPU, d.IdleCPU}, {&t.BusyCPU, d.BusyCPU}, {&t.IdleNetwork, d.IdleNetwork},
		{&t.LatchedUtil, d.LatchedUtil},
		{&t.IdleNetRate, d.IdleNetRate}, {&t.BusyNetRate, d.BusyNetRate},
		{&t.IdleDiskRate, d.IdleDiskRate}, {&t.BusyDiskRate, d.BusyDiskRate}, {&t.BusyPower, d.BusyPower},
	} {
		if !(*f.v > 0) {
			*f.v = f.otherwise
		}
	}
	for _, f := range []struct {
		v         *time.Duration
		otherwise time.Duration
	}{
		{&t.MinWindow, d.MinWindow}, {&t.Recent, d.Recent}, {&t.StalledAfter, d.StalledAfter}, {&t.WarmUp, d.WarmUp},
	} {
		if *f.v <= 0 {
			*f.v = f.otherwise
		}
	}
	if t.GPUs == "" {
		t.GPUs = d.GPUs
	}
	return t
}
