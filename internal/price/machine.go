package price

import "time"

// perDevice is the part of a device in which accelerators are counted.
const perDevice = 1000

// Machine is the data of a machine type.
type Machine struct {
	// Type is the provider's name ("g6.2xlarge").
	Type  string `json:"type"`
	Cloud string `json:"cloud"`
	// Family is the part of the type before its size.
	Family string `json:"-"`
	// VCPUs are how many CPUs it has.
	VCPUs int `json:"vcpus"`
	// MemoryMiB is the memory in MiB.
	MemoryMiB int64 `json:"memory_mib"`
	// Accelerator names the device; empty when it has none.
	Accelerator string `json:"accelerator,omitempty"`
	// AcceleratorMilli is devices × 1000; some machines have a fraction of one.
	AcceleratorMilli int64 `json:"-"`
	// AcceleratorMemoryMiB is the memory of one device, or of the fraction.
	AcceleratorMemoryMiB int64 `json:"accelerator_memory_mib,omitempty"`
	// NetworkMbps is the bandwidth in Mbit/s that the provider states, baseline or "up to";
	// 0 where it states words only.
	NetworkMbps int64 `json:"network_mbps,omitempty"`
	// InstanceStorageGB is all local disks together; 0 when it has none.
	InstanceStorageGB int64 `json:"instance_storage_gb,omitempty"`
	// Arch is "x86_64" or "arm64".
	Arch string `json:"arch"`
	// ReleaseYear is the year in which the family became generally available; 0 is
	// unknown.
	ReleaseYear int       `json:"release_year,omitempty"`
	Source      string    `json:"source"`
	AsOf        time.Time `json:"-"`
}

// GPUs returns the number of devices, whole ones, and 1 for a fraction of one; 0
// when the machine has no accelerator. Trainium and Inferentia devices count too.
func (m Machine) GPUs() int {
	if m.AcceleratorMilli <= 0 {
		return 0
	}
	return int(max(1, m.AcceleratorMilli/perDevice))
}
