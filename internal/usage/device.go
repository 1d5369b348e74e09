package usage

import (
	"strconv"
	"strings"
)

// Device is the GPU of a series or a row, as its labels or columns describe it.
type Device struct {
	// UUID is unique over machines, Index within a machine.
	UUID, Index string
	// Instance is the MIG instance (dcgm-exporter's GPU_I_ID), and Profile its profile.
	Instance, Profile string
	// Mode is the partition mode of an AMD GPU, such as "cpx", Partition the index of the
	// partition, and Serial the number that all partitions of one GPU share.
	Mode, Partition, Serial string
	// Model is the model as the exporter writes it; empty is unknown.
	Model string
	// InMIGMode is set if the GPU is in MIG mode, or some of its instances were seen.
	InMIGMode bool
}

// partitionModes are the numbers of partitions of an AMD GPU by compute mode
// (https://rocm.docs.amd.com, amdgpu partitioning). CPX has one for each die, of which the MI300A
// has six, the MI308X four and the others eight.
var partitionModes = map[string]int{"dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}

// partCount returns the number of partitions of the GPU; 0 if it has none or the number is unknown.
func (d Device) partCount() int {
	n := partitionModes[strings.ToLower(d.Mode)]
	if n == 8 {
		switch model := strings.ToUpper(d.Model); {
		case strings.Contains(model, "MI300A"):
			return 6
		case strings.Contains(model, "MI308X"):
			return 4
		}
	}
	return n
}

// IsPart reports whether the device is a MIG instance or a partition, not a whole GPU.
func (d Device) IsPart() bool {
	return d.Instance != "" || d.Profile != "" || strings.HasPrefix(d.UUID, migUUID) || d.partCount() > 1
}

// NamesGPU reports whether a series of the metric with that device belongs to a GPU. Intel's power
// of a card is that of all its GPUs, and has no UUID.
func (m Metric) NamesGPU(d Device) bool { return m.Vendor != Intel || d.UUID != "" }

// migUUID starts the UUIDs of MIG instances. In drivers before R470 the UUID of the GPU, the GPU
// instance and the compute instance follow, in later ones a separate UUID (NVIDIA MIG user guide,
// device names).
const migUUID = "MIG-"

// Name returns the name of the device: its UUID, else its index, and for a part the name of its
// GPU, a colon, the index of the part and, if known, the number of parts: "GPU-4f2:3",
// "692407005126:1/2". known is the UUID of the GPU with that index if another series has it. An
// empty name is unknown.
func (d Device) Name(known string) string {
	gpu := d.UUID
	if !IsGPUName(gpu) {
		gpu = known
	}
	if gpu == "" {
		gpu = d.Index
	}
	if whole, instance, ok := strings.Cut(strings.TrimPrefix(gpu, migUUID), "/"); ok &&
		strings.HasPrefix(gpu, migUUID) {
		instance, _, _ = strings.Cut(instance, "/")
		return whole + PartSeparator + instance
	}
	if n := d.partCount(); n > 1 {
		if IsGPUName(d.Serial) {
			gpu = d.Serial
		}
		part := d.Partition
		if p, err := strconv.Atoi(part); err != nil || p < 0 || p >= n {
			part = "0"
		}
		return gpu + PartSeparator + part + countSeparator + strconv.Itoa(n)
	}
	return partName(gpu, d.Instance)
}

// IsGPUName reports whether a text names one GPU. Exporters write zeros if they cannot read the
// UUID (ROCm/device-metrics-exporter, issue 233), or words for no value.
func IsGPUName(text string) bool {
	return strings.Trim(text, "0-") != "" && !isUnmeasured([]byte(text)) || text == "0"
}
