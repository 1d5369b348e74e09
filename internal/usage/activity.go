package usage

import "time"

// Lines that verdicts, findings and advice share.
const (
	// RestingCPU is the CPU peak, in percent, under which a machine may be idle: AWS's
	// line for idle machines.
	RestingCPU = 5
	// PreparingCPU is the CPU utilization, in percent, from which on a managed job whose
	// GPUs rest counts as preparing data: half of its CPUs.
	PreparingCPU = 50
	// RestingBytesPerDay is the traffic in bytes a day under which a machine may be
	// idle: AWS's line for idle machines.
	RestingBytesPerDay = 5e6
	// HeldMemory is the share of device memory, in percent, from which on it is held:
	// AWS's line for G and P machines; drivers use up to a few percent themselves.
	HeldMemory = 5
	// StreamingBytes and StreamingDiskBytes are the traffic in bytes a second from which
	// on data is on its way. Our own choice: 3.6 GB an hour over a network, and what a
	// data set that is unpacked exceeds many times on disks.
	StreamingBytes     = 1e6
	StreamingDiskBytes = 1e7
)

// Activity says which signals mean compute and which of their values are noise; what
// is under its floor is at rest. The zero Activity has the floors in use in the field.
type Activity struct {
	// Floors are those of the signals; nil means [DefaultFloors].
	Floors *Floors
	// Network and Disk are the traffic, in bytes a second, from which on it is work; 0
	// means StreamingBytes and StreamingDiskBytes.
	Network, Disk float64
}

var (
	compute  = [...]Signal{GPUUtil, SMActive, GREngine, TensorActive, DRAMActive}
	hostWork = [...]Signal{CPUUtil, NetBytes}
)

// vouching is the number of compute signals, from the first, that can vouch for a
// GPU. Tensor and memory activity only witness work: code may use neither.
const vouching = 2

// defaultFloors serves windows and activities that were made without any.
var defaultFloors = DefaultFloors()

// Compute returns the signals whose activity means that a GPU computes. The caller
// must not change the slice.
func Compute() []Signal { return compute[:] }

// Vouching returns the compute signals that say on their own that a GPU rests. NVML
// does not offer utilization on MIG instances; there the multiprocessors' activity
// takes its place. The caller must not change the slice.
func Vouching() []Signal { return compute[:vouching] }

// HostWork returns the signals that mean compute on a machine without a measured GPU.
// The caller must not change the slice.
func HostWork() []Signal { return hostWork[:] }

// Floor returns the value at or above which a point of a signal that stands for step
// is work.
func (a Activity) Floor(s Signal, step time.Duration) float64 {
	switch s {
	case NetBytes:
		return rate(a.Network, StreamingBytes) * step.Seconds()
	case DiskBytes:
		return rate(a.Disk, StreamingDiskBytes) * step.Seconds()
	}
	if a.Floors == nil {
		return defaultFloors[s]
	}
	return a.Floors[s]
}

func rate(v, otherwise float64) float64 {
	if v > 0 {
		return v
	}
	return otherwise
}

// MeasuresCompute says whether a track has a signal that can vouch for a GPU.
func (t *Track) MeasuresCompute() bool { return t.stats[GPUUtil] != nil || t.stats[SMActive] != nil }

// Computed says whether any point of a track shows that a GPU computed.
func (t *Track) Computed() bool {
	for _, s := range compute {
		if st := t.stats[s]; st != nil && st.Active > 0 {
			return true
		}
	}
	return false
}

// GPUTracks returns the tracks that hold GPU signals: one a GPU, or the machine's own
// where the source does not tell GPUs apart. A nil window has none.
func (w *Window) GPUTracks() []*Track {
	switch {
	case w == nil:
		return nil
	case len(w.GPUs) > 0:
		return w.GPUs
	case w.Machine.MeasuresCompute():
		return []*Track{&w.Machine}
	}
	return nil
}

// Works says whether the newest point of a signal is at or above its floor.
func (s *Stats) Works() bool { return s != nil && s.Active > 0 && s.LastActive.Equal(s.Last) }
