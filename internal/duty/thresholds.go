package duty

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// Thresholds are the lines between the states. A field that is zero means its
// default, so that no threshold can be left out by mistake. The floor from which
// on a GPU counts as computing belongs to the measured window (usage.Floors).
type Thresholds struct {
	// MinCoverage is the share of the window, 0 to 1, that samples must cover on
	// every GPU for a machine to be called idle or held. 0.9; under it the state is
	// unknown.
	MinCoverage float64 `yaml:"min_coverage"`
	// MinWindow is the shortest window in which a machine can be called idle or
	// held. 24 h.
	MinWindow time.Duration `yaml:"min_window"`
	// InactiveShare is the share of the samples, 0 to 1, that must be over for a GPU
	// not to count as busy. 0.99: AWS calls a G or P machine idle whose GPUs were
	// inactive for more than 99% of the time.
	InactiveShare float64 `yaml:"inactive_share"`
	// Recent is how long after its last activity a GPU still counts as busy, however
	// rarely it is. 1 h, the time after which Northeastern's IdleBot cancels.
	Recent time.Duration `yaml:"recent"`
	// HeldMemory is the share of device memory, in percent, from which on it is
	// held. 5: AWS's line for G and P machines; drivers use up to a few percent
	// themselves.
	HeldMemory float64 `yaml:"held_memory_pct"`
	// IdleCPU is the CPU peak, in percent, under which a machine may be idle. 5:
	// AWS's line for idle machines.
	IdleCPU float64 `yaml:"idle_cpu_pct"`
	// BusyCPU is the CPU peak, in percent, from which on a machine whose GPUs rest is
	// busy with its CPUs, preparing data for one. Between IdleCPU and BusyCPU its
	// state is unknown. 20, our own choice.
	BusyCPU float64 `yaml:"busy_cpu_pct"`
	// IdleNetwork is the traffic, in megabytes (1e6 bytes) a day received and sent,
	// under which a machine may be idle. 5: AWS's line for idle machines.
	IdleNetwork float64 `yaml:"idle_net_mb_per_day"`
	// LatchedUtil is the utilization, in percent, that a meter never leaves when it
	// is latched: some Blackwell boards read 100 while they rest. 99.
	LatchedUtil float64 `yaml:"latched_util_pct"`

	// IdleNetRate is the traffic, in bytes a second received and sent, under which a
	// machine may be idle now. 100,000, our own choice: agents, logs and an open
	// editor stay under it.
	IdleNetRate float64 `yaml:"idle_net_bytes_per_second"`
	// BusyNetRate is the traffic, in bytes a second, from which on data is on its way:
	// the machine downloads, or waits for it. Between the two its state is unknown.
	// 1,000,000, our own choice: 3.6 GB an hour.
	BusyNetRate float64 `yaml:"busy_net_bytes_per_second"`
	// IdleDiskRate is the same as IdleNetRate for bytes read from and written to
	// disks. 1,000,000, our own choice: a system at rest writes logs.
	IdleDiskRate float64 `yaml:"idle_disk_bytes_per_second"`
	// BusyDiskRate is the same as BusyNetRate for disks. 10,000,000, our own choice:
	// a data set is unpacked or read at many times that.
	BusyDiskRate float64 `yaml:"busy_disk_bytes_per_second"`
	// BusyPower is the power of one GPU, in watts, from which on it does not rest
	// whatever its other meters say; its state is then unknown. 300, our own choice: no
	// accelerator on the market draws as much at rest. What smaller models draw at work
	// is less, and gpu-pruner leaves its veto by power to the user as well.
	BusyPower float64 `yaml:"busy_power_w"`
	// StalledAfter is how long training computes without a step or a checkpoint until
	// it is stalled. 30 min: PyTorch's own limit for a collective that hangs (10 min
	// with NCCL).
	StalledAfter time.Duration `yaml:"stalled_after"`
	// WarmUp is how long after its launch a machine that does not compute is warming
	// up. 15 min, the idle time after which Northeastern's IdleBot first writes.
	WarmUp time.Duration `yaml:"warm_up"`
	// GPUs is "all" when every GPU of a machine must rest for the machine to be held
	// or idle now, "any" when one is enough although the others compute. "all", and
	// audits know no other: a rule of any ends machines of which seven GPUs of eight
	// work, as dstack's does.
	GPUs string `yaml:"gpus" enum:"all,any"`
}

// The values of [Thresholds.GPUs].
const (
	AllGPUs = "all"
	AnyGPU  = "any"
)

// DefaultThresholds returns the thresholds in use in the field; each says where it
// is from.
func DefaultThresholds() Thresholds {
	return Thresholds{
		MinCoverage: 0.9, MinWindow: 24 * time.Hour, InactiveShare: 0.99, Recent: time.Hour,
		HeldMemory: usage.HeldMemory,
		IdleCPU:    usage.RestingCPU, BusyCPU: 20, IdleNetwork: usage.RestingBytesPerDay / 1e6, LatchedUtil: 99,
		IdleNetRate: 1e5, BusyNetRate: usage.StreamingBytes, IdleDiskRate: 1e6, BusyDiskRate: usage.StreamingDiskBytes,
		BusyPower: 300, StalledAfter: 30 * time.Minute, WarmUp: 15 * time.Minute, GPUs: AllGPUs,
	}
}

// Activity says what counts as work under these thresholds. Floors are those of the
// GPU signals, nil the default ones.
func (t Thresholds) Activity(floors *usage.Floors) usage.Activity {
	t = t.orDefault()
	if floors == nil {
		floors = usage.DefaultFloors()
	}
	f := *floors
	f[usage.CPUUtil] = t.IdleCPU
	return usage.Activity{Floors: &f, Network: t.BusyNetRate, Disk: t.BusyDiskRate}
}

// Validate says which threshold is out of its range.
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

// orDefault fills what is not set.
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
