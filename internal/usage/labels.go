package usage

// Labels of a machine and a GPU, in order of preference.
var (
	machineLabels = []string{"instanceid", "instance_id", "hostname", "host", "nodename", "node", "instance"}
	gpuLabels     = []string{
		"gpu", "gpu_id", "index", "gpu_index", "minor_number", "gpudevice", "device", "uuid", "gpu_uuid",
	}
)

// PartSeparator separates a GPU and its MIG instance in the name of the instance.
const PartSeparator = ":"

// countSeparator separates a part and the number of parts of its GPU.
const countSeparator = "/"

const partLabel = "gpu_i_id"

// partName names the MIG instance of a GPU, or the GPU itself without an instance.
func partName(gpu, part string) string {
	if gpu == "" || part == "" {
		return gpu
	}
	return gpu + PartSeparator + part
}
