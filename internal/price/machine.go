package price

import "time"

// perDevice is the number of accelerator units in a whole device.
const perDevice = 1000

// Machine describes a machine type.
type Machine struct {
	// Type is the provider's name ("g6.2xlarge").
	Type  string `json:"type"`
	Cloud string `json:"cloud"`
	// Family is the part of the type before its size.
	Family string `json:"-"`
	// VCPUs is the number of virtual CPUs.
	VCPUs int `json:"vcpus"`
	// MemoryMiB is the memory in MiB.
	MemoryMiB int64 `json:"memory_mib"`
	// Accelerator names the device; empty when it has none.
	Accelerator string `json:"accelerator,omitempty"`
	// AcceleratorMilli is devices × 1000; some machines have a fraction of one.
	AcceleratorMilli int64 `json:"-"`
	// AcceleratorMemoryMiB is the memory of one device, or of the fraction.
	AcceleratorMemoryMiB int64 `json:"accelerator_memory_mib,omitempty"`
	// NetworkMbps is the stated bandwidth in Mbit/s, baseline or "up to"; 0 if the provider gives
	// no number.
	NetworkMbps int64 `json:"network_mbps,omitempty"`
	// InstanceStorageGB is the total of local disks; 0 if there are none.
	InstanceStorageGB int64 `json:"instance_storage_gb,omitempty"`
	// Arch is "x86_64" or "arm64".
	Arch string `json:"arch"`
	// ReleaseYear is the year in which the family became generally available; 0 if unknown.
	ReleaseYear int       `json:"release_year,omitempty"`
	Source      string    `json:"source"`
	AsOf        time.Time `json:"-"`
}

// GPUs returns the number of devices, 1 for a fraction of a device and 0 for none. Trainium and
// Inferentia devices are included.
func (m Machine) GPUs() int {
	if m.AcceleratorMilli <= 0 {
		return 0
	}
	return int(max(1, m.AcceleratorMilli/perDevice))
}
