package usage

import (
	"strconv"
	"strings"
)

// Device is what the labels of a series, or the columns of a row, say of the GPU that it is of.
type Device struct {
	// UUID and Index are its names: of all machines, and of its own machine.
	UUID, Index string
	// Instance is the MIG instance (dcgm-exporter's GPU_I_ID), and Profile its profile.
	Instance, Profile string
	// Mode is how a GPU of AMD is divided, such as "cpx"; Partition is which part it is, and
	// Serial the number that all parts of one GPU have.
	Mode, Partition, Serial string
	// Model is the model as the exporter writes it; empty is unknown.
	Model string
	// Divided says that the GPU is in MIG mode, or that some of its instances were seen.
	Divided bool
}

// partitionModes are how many partitions a GPU of AMD has in each compute mode
// (https://rocm.docs.amd.com, amdgpu partitioning): one for each of its dies in CPX, of which
// the MI300A has six, the MI308X four and the others eight.
var partitionModes = map[string]int{"dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}

// parts returns how many partitions the GPU has; 0 where it has none, or none are known of.
func (d Device) parts() int {
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

// Part says whether the device is a MIG instance or a partition, and not a whole GPU.
func (d Device) Part() bool {
	return d.Instance != "" || d.Profile != "" || strings.HasPrefix(d.UUID, migUUID) || d.parts() > 1
}

// Names says whether a series of the metric with that device is of a GPU: the power of a card is
// that of all of its GPUs, and has none of their UUIDs.
func (m Meter) Names(d Device) bool { return m.Vendor != Intel || d.UUID != "" }

// migUUID begins the UUIDs of MIG instances: of drivers before R470 the UUID of the GPU, the
// GPU instance and the compute instance follow, of later ones a UUID of its own (NVIDIA MIG
// user guide, device names).
const migUUID = "MIG-"

// Name returns the name of the device: its UUID, else its place in the machine, and for a part
// the name of its GPU, a colon and which part it is, of how many where that is known:
// "GPU-4f2:3", "692407005126:1/2". known is the UUID of the GPU in that place where another
// series has it. Empty is no name.
func (d Device) Name(known string) string {
	gpu := d.UUID
	if !NamesGPU(gpu) {
		gpu = known
	}
	if gpu == "" {
		gpu = d.Index
	}
	if whole, instance, ok := strings.Cut(strings.TrimPrefix(gpu, migUUID), "/"); ok &&
		strings.HasPrefix(gpu, migUUID) {
		instance, _, _ = strings.Cut(instance, "/")
		return whole + PartOf + instance
	}
	if n := d.parts(); n > 1 {
		if NamesGPU(d.Serial) {
			gpu = d.Serial
		}
		part := d.Partition
		if p, err := strconv.Atoi(part); err != nil || p < 0 || p >= n {
			part = "0"
		}
		return gpu + PartOf + part + partsOf + strconv.Itoa(n)
	}
	return partName(gpu, d.Instance)
}

// NamesGPU says whether a text names one GPU: exporters write zeros where they could not read
// the UUID (ROCm/device-metrics-exporter, issue 233), or words for no value.
func NamesGPU(text string) bool {
	return strings.Trim(text, "0-") != "" && !unmeasured([]byte(text)) || text == "0"
}
