package usage

// Labels that name a machine and a GPU, in the order in which they are believed.
var (
	machineLabels = []string{"instanceid", "instance_id", "hostname", "host", "nodename", "node", "instance"}
	gpuLabels     = []string{
		"gpu", "gpu_id", "index", "gpu_index", "minor_number", "gpudevice", "device", "uuid", "gpu_uuid",
	}
)

// PartOf stands between a GPU and a MIG instance of it, in the name of the latter.
const PartOf = ":"

// partsOf stands between a part and how many parts its GPU has.
const partsOf = "/"

const partLabel = "gpu_i_id"

// partName names the MIG instance of a GPU; the GPU itself where there is none.
func partName(gpu, part string) string {
	if gpu == "" || part == "" {
		return gpu
	}
	return gpu + PartOf + part
}
