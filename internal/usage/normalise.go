package usage

import (
	"maps"
	"net"
	"strings"
)

// Reading is one value of one metric, told in the same words whichever source it
// came from.
type Reading struct {
	// Resource is the machine that the labels name: its id, else its host name, else
	// the host that was scraped. Empty where they name none.
	Resource string
	// GPU is the GPU's index, else its UUID; of a MIG instance "0:3", GPU and
	// instance. Empty for signals of the machine.
	GPU string
	// Profile is the MIG profile, "1g.10gb"; empty for a whole GPU.
	Profile string
	// Namespace, Pod and Container hold the GPU where Kubernetes lent it out.
	Namespace, Pod, Container string

	Signal Signal
	// Value is in the signal's unit.
	Value float64
}

// Normalize reads one value of a metric as NVML, nvidia-smi, DCGM (by number, by old
// or new name), exporters of them or the CloudWatch agent name it, with the labels
// that came with it, whose letter case does not matter. Where Prometheus has moved a
// label aside for one of its own, the one moved aside (exported_pod) is meant. ok is
// false for metrics that no signal stands for and for values that are no
// measurement: sentinels of unsupported fields, negative values, NaN, and what is
// out of the signal's range.
func Normalize(metric string, labels map[string]string, value float64) (r Reading, ok bool) {
	name, unit := smiName(metric)
	if field, ok := fieldNames[name]; ok {
		name = field
	}
	m, ok := meterOf(name)
	if !ok || !IsMeasurement(value) {
		return Reading{}, false
	}
	if unit != "" {
		if m.scale, ok = unitScale(m.signal, unit); !ok {
			return Reading{}, false
		}
	}
	v, err := check(m.signal, value*m.scale)
	if err != nil {
		return Reading{}, false
	}
	l := normal(labels)
	r = Reading{
		Resource: l.machine(), Namespace: l.first("namespace", "pod_namespace"), Pod: l.first("pod", "pod_name"),
		Container: l.first("container", "container_name"), Signal: m.signal, Value: v,
	}
	if m.signal.PerGPU() {
		r.GPU, r.Profile = l.gpu(), l.first("gpu_i_profile")
	}
	return r, true
}

// labelSet is labels in lower case, those that were moved aside in the place of the
// ones that took theirs.
type labelSet map[string]string

func normal(labels map[string]string) labelSet {
	own, moved := labelSet{}, labelSet{}
	for name, value := range labels {
		name = strings.ToLower(strings.TrimSpace(name))
		if base, ok := strings.CutPrefix(name, exported); ok {
			moved[base] = max(moved[base], value)
		} else {
			own[name] = max(own[name], value)
		}
	}
	maps.Copy(own, moved)
	return own
}

// first returns the first label that is there.
func (l labelSet) first(names ...string) string {
	for _, name := range names {
		if v := l[name]; v != "" {
			return v
		}
	}
	return ""
}

// Labels that name a machine and a GPU, in the order in which they are believed.
var (
	machineLabels = []string{"instanceid", "instance_id", "hostname", "host", "nodename", "node", "instance"}
	gpuLabels     = []string{"gpu", "index", "gpu_index", "minor_number", "gpudevice", "device", "uuid", "gpu_uuid"}
)

// PartOf stands between a GPU and a MIG instance of it, in the name of the latter.
const PartOf = ":"

const partLabel = "gpu_i_id"

func (l labelSet) machine() string {
	v := l.first(machineLabels...)
	if host, _, err := net.SplitHostPort(v); err == nil {
		return host
	}
	return v
}

func (l labelSet) gpu() string {
	gpu := l.first(gpuLabels...)
	if index, ok := strings.CutPrefix(gpu, "nvidia"); ok && digits(index) {
		gpu = index // the device of /dev
	}
	return partName(gpu, l[partLabel])
}

// partName names the MIG instance of a GPU; the GPU itself where there is none.
func partName(gpu, part string) string {
	if gpu == "" || part == "" {
		return gpu
	}
	return gpu + PartOf + part
}
