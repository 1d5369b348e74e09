package duty

import (
	"fmt"
	"time"
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
	// inactive for more than 99 % of the time.
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
	// LatchedUtil is the utilisation, in percent, that a meter never leaves when it
	// is latched: some Blackwell boards read 100 while they rest. 99.
	LatchedUtil float64 `yaml:"latched_util_pct"`
}

// DefaultThresholds returns the thresholds in use in the field; each says where it
// is from.
func DefaultThresholds() Thresholds {
	return Thresholds{
		MinCoverage: 0.9, MinWindow: 24 * time.Hour, InactiveShare: 0.99, Recent: time.Hour, HeldMemory: 5,
		IdleCPU: 5, BusyCPU: 20, IdleNetwork: 5, LatchedUtil: 99,
	}
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
		{"min_window", t.MinWindow.Seconds(), 1e9},
		{"recent", t.Recent.Seconds(), 1e9},
	} {
		if !(c.v >= 0 && c.v <= c.highest) {
			return fmt.Errorf("%s is %v: 0 (the default) to %v is expected", c.name, c.v, c.highest)
		}
	}
	if t = t.orDefault(); t.BusyCPU < t.IdleCPU {
		return fmt.Errorf("busy_cpu_pct is %v, below idle_cpu_pct, %v", t.BusyCPU, t.IdleCPU)
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
		{&t.IdleCPU, d.IdleCPU}, {&t.BusyCPU, d.BusyCPU}, {&t.IdleNetwork, d.IdleNetwork}, {&t.LatchedUtil, d.LatchedUtil},
	} {
		if !(*f.v > 0) {
			*f.v = f.otherwise
		}
	}
	if t.MinWindow <= 0 {
		t.MinWindow = d.MinWindow
	}
	if t.Recent <= 0 {
		t.Recent = d.Recent
	}
	return t
}
