package usage

import "time"

// Limits that verdicts, findings and advice share.
const (
	// RestingCPU is the CPU peak, in percent, below which a machine may be idle: AWS's limit for
	// idle machines.
	RestingCPU = 5
	// PreparingCPU is the CPU utilization, in percent, from which a managed job with resting GPUs
	// counts as preparing data: half of its CPUs.
	PreparingCPU = 50
	// RestingBytesPerDay is the traffic in bytes a day below which a machine may be idle: AWS's
	// limit for idle machines.
	RestingBytesPerDay = 5e6
	// HeldMemory is the share of device memory, in percent, from which it counts as held: AWS's
	// limit for G and P machines; drivers use up to a few percent themselves.
	HeldMemory = 5
	// StreamingBytes and StreamingDiskBytes are the traffic in bytes per second from which data is
	// being transferred. Our own choice: 3.6 GB an hour over a network; unpacking a data set
	// exceeds the limit of disks many times.
	StreamingBytes     = 1e6
	StreamingDiskBytes = 1e7
)

// Activity defines which values of a signal are work; values below the floor are rest. The zero
// Activity has the default floors.
type Activity struct {
	// Floors of the signals; nil means [DefaultFloors].
	Floors *Floors
	// Network and Disk are the traffic, in bytes per second, from which it counts as work; 0 means
	// StreamingBytes and StreamingDiskBytes.
	Network, Disk float64
}

var (
	compute  = [...]Signal{GPUUtil, SMActive, GREngine, TensorActive, DRAMActive}
	hostWork = [...]Signal{CPUUtil, NetBytes}
)

// restSignalCount is the number of compute signals, from the first, that can prove rest. Tensor and
// memory activity only prove work: code may use neither.
const restSignalCount = 2

// defaultFloors are the floors of windows and activities without any.
var defaultFloors = DefaultFloors()

// ComputeSignals returns the signals whose activity proves that a GPU computes. The caller must not
// change the slice.
func ComputeSignals() []Signal { return compute[:] }

// RestSignals returns the compute signals that each prove that a GPU rests. NVML does not offer
// utilization on MIG instances; there the multiprocessors' activity takes its place. The caller
// must not change the slice.
func RestSignals() []Signal { return compute[:restSignalCount] }

// HostWorkSignals returns the signals that prove work on a machine without a measured GPU. The
// caller must not change the slice.
func HostWorkSignals() []Signal { return hostWork[:] }

// Floor returns the value from which a point of a signal with that step is work.
func (a Activity) Floor(s Signal, step time.Duration) float64 {
	switch s {
	case NetBytes:
		return positiveOr(a.Network, StreamingBytes) * step.Seconds()
	case DiskBytes:
		return positiveOr(a.Disk, StreamingDiskBytes) * step.Seconds()
	}
	if a.Floors == nil {
		return defaultFloors[s]
	}
	return a.Floors[s]
}

func positiveOr(v, otherwise float64) float64 {
	if v > 0 {
		return v
	}
	return otherwise
}

// MeasuresCompute reports whether a track has a signal that can prove rest of a GPU.
func (t *Track) MeasuresCompute() bool { return t.stats[GPUUtil] != nil || t.stats[SMActive] != nil }

// ShowsCompute reports whether any point of a track shows that a GPU computed.
func (t *Track) ShowsCompute() bool {
	for _, s := range compute {
		if st := t.stats[s]; st != nil && st.Active > 0 {
			return true
		}
	}
	return false
}

// GPUTracks returns the tracks with GPU signals: one per GPU, or the machine's own if the source
// does not tell GPUs apart. A nil window has none.
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

// IsActive reports whether the newest point of a signal is at or above its floor.
func (s *Stats) IsActive() bool { return s != nil && s.Active > 0 && s.LastActive.Equal(s.Last) }
