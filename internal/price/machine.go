package price

import "time"

// perDevice is the part of a device in which accelerators are counted.
const perDevice = 1000

// Machine is what is known of a machine type.
type Machine struct {
	// Type is the provider's name ("g6.2xlarge"), Family the part before its size.
	Type, Cloud, Family string
	VCPUs               int
	MemoryMiB           int64
	// Accelerator names the device as in [Accelerator]; empty when it has none.
	Accelerator string
	// AcceleratorMilli is devices × 1000; some machines have a fraction of one.
	AcceleratorMilli int64
	// AcceleratorMemoryMiB is the memory of one device, or of the fraction.
	AcceleratorMemoryMiB int64
	// NetworkMbps is the bandwidth the provider states, baseline or "up to"; 0
	// where it states words only.
	NetworkMbps int64
	// InstanceStorageGB is all local disks together; 0 when it has none.
	InstanceStorageGB int64
	// Arch is "x86_64" or "arm64".
	Arch string
	// ReleaseYear is the year in which the family became generally available; 0 not
	// known.
	ReleaseYear int
	Source      string
	AsOf        time.Time
}

// GPUs returns the number of devices, whole ones, and 1 for a fraction of one; 0
// when the machine has no accelerator. Trainium and Inferentia devices count too.
func (m Machine) GPUs() int {
	if m.AcceleratorMilli <= 0 {
		return 0
	}
	return int(max(1, m.AcceleratorMilli/perDevice))
}
