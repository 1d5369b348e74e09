package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// agentNamespace is the default namespace of the CloudWatch agent.
const agentNamespace = "CWAgent"

// family is a set of GPU metrics that a collector publishes with the same dimensions. Only the
// first is listed; the others have the same dimensions or do not exist.
type family struct {
	namespace string // empty for any
	metrics   []string
	// cores is true if a device has a dimension set per core. The busiest core counts, if all are
	// present: a missing core might be busy.
	cores bool
}

// insights is the namespace of Container Insights with enhanced observability for EKS.
const insights = "ContainerInsights"

// insightsMeters are the metrics of a node's accelerators in Container Insights: percentages, bytes
// and watts. Memory of Neuron devices is published in parts that CloudWatch cannot relate to a
// device, and is left out.
//
// Source: Amazon CloudWatch user guide, "Amazon EKS and Kubernetes Container Insights with enhanced
// observability metrics", "NVIDIA GPU metrics" and "AWS Neuron metrics for AWS Trainium and AWS
// Inferentia".
var insightsMeters = map[string]usage.Signal{
	"node_gpu_utilization":        usage.GPUUtil,
	"node_gpu_memory_used":        usage.MemUsed,
	"node_gpu_memory_total":       usage.MemTotal,
	"node_gpu_power_draw":         usage.Power,
	"node_neuroncore_utilization": usage.GPUUtil,
}

// signalOf returns the signal of a metric, and the factor from the metric's unit to the signal's.
func signalOf(name string) (signal usage.Signal, scale float64, ok bool) {
	if signal, ok := insightsMeters[name]; ok {
		return signal, 1, true
	}
	return usage.SignalOf(name)
}

// Metric families with utilization, best first, and families with further metrics.
var (
	busyFamilies = []family{
		{
			metrics: []string{
				"nvidia_smi_utilization_gpu", "nvidia_smi_memory_used", "nvidia_smi_memory_total",
				"nvidia_smi_power_draw",
			},
		},
		{metrics: []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"}},
		{metrics: []string{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"}},
		{metrics: []string{"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"}},
		{
			namespace: insights,
			metrics: []string{
				"node_gpu_utilization", "node_gpu_memory_used", "node_gpu_memory_total", "node_gpu_power_draw",
			},
		},
		{namespace: insights, metrics: []string{"node_neuroncore_utilization"}, cores: true},
	}
	deepFamilies = []family{
		{metrics: []string{"DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"}},
		{
			metrics: []string{
				"DCGM_FI_PROF_SM_UTIL_RATIO", "DCGM_FI_PROF_DRAM_UTIL_RATIO", "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
			},
		},
	}
)

// maxSources bounds the dimension sets read for one GPU. There are several if a collector puts a
// changing value, such as the power state, into a dimension.
const maxSources = 8

// gpuSources are the dimension sets of a machine's GPUs in one family, by GPU; the empty name
// stands for a set that names only the machine.
type gpuSources map[string][]metric

// size returns the size of a machine type.
func (c *Cloud) size(machine string) inventory.Size {
	if c.options.Size == nil {
		return inventory.Size{}
	}
	return c.options.Size(machine)
}

// accelerators returns the number of accelerators of a machine type.
func (c *Cloud) accelerators(machine string) (gpus int, known bool) {
	return c.size(machine).GPUs.Get()
}

// gpuMemory returns the memory of one accelerator of a machine type in bytes.
func (c *Cloud) gpuMemory(machine string) (bytes float64, known bool) {
	n, known := c.size(machine).GPUMemory.Get()
	return float64(n), known
}

// cores returns the number of virtual CPUs of a machine type, 0 if unknown.
func (c *Cloud) cores(machine string) int { return int(c.size(machine).MilliCPUs.Or(0) / 1000) }

// gpus adds the series of the GPUs of machines. If metrics can be listed, only existing ones are
// read, per GPU; otherwise the agent's metrics for the whole machine are tried.
func (m *meters) gpus(ctx context.Context, machines []*subject) {
	byID := make(map[string]*inventory.Resource, len(machines))
	for _, s := range machines {
		byID[s.resource.ID] = s.resource
	}
	busy, err := m.discover(ctx, busyFamilies, byID)
	if err != nil {
		op := index["cloudwatch:ListMetrics"]
		code, _ := reason(err)
		m.place.scan.leaveUnmeasured(maps.Values(byID), code+": "+op.API())
		m.place.explain(ctx, op, err, fmt.Sprintf("%s: of %s only what the agent publishes for the machine as a whole",
			op.Effect, plain.Count(len(byID), "GPU machine")))
		for _, s := range machines {
			m.gpuFamily(s, busyFamilies[0], gpuSources{"": {{agentNamespace, "", dims("InstanceId", s.resource.ID)}}})
		}
		return
	}
	deep, err := m.discover(ctx, deepFamilies, byID)
	if err != nil {
		op := index["cloudwatch:ListMetrics"]
		m.place.explain(ctx, op, err, "how much of each GPU works is not seen")
	}
	for _, s := range machines {
		id := s.resource.ID
		if best := bestFamily(busy, id); best >= 0 {
			m.gpuFamily(s, busyFamilies[best], busy[best][id])
		}
		if best := bestFamily(deep, id); best >= 0 {
			m.gpuFamily(s, deepFamilies[best], deep[best][id])
		}
	}
}

// bestFamily returns the first family with metrics per GPU of a machine, otherwise the first with
// any, or -1.
func bestFamily(found []map[string]gpuSources, machine string) int {
	whole := -1
	for i, f := range found {
		sources, ok := f[machine]
		if !ok {
			continue
		}
		if _, only := sources[""]; !only {
			return i
		}
		if whole < 0 {
			whole = i
		}
	}
	return whole
}

// discover lists the GPUs of machines in each family.
func (m *meters) discover(ctx context.Context, families []family, machines map[string]*inventory.Resource) (
	[]map[string]gpuSources, error) {
	found := make([]map[string]gpuSources, len(families))
	for i, f := range families {
		found[i] = map[string]gpuSources{}
		err := m.place.listMetrics(ctx, f.namespace, f.metrics[0], func(x types.Metric) {
			id, gpu := m.place.identifyGPU(x.Dimensions)
			if machines[id] == nil || !measures(f.metrics[0], gpu) {
				return
			}
			if found[i][id] == nil {
				found[i][id] = gpuSources{}
			}
			if s := found[i][id][gpu]; f.cores || len(s) < maxSources {
				found[i][id][gpu] = append(s, metric{namespace: awssdk.ToString(x.Namespace), dims: x.Dimensions})
			}
		})
		if err != nil {
			return nil, err
		}
		for _, sources := range found[i] {
			if len(sources) > 1 {
				delete(sources, "") // a duplicate without the GPU
			}
		}
	}
	return found, nil
}

// measures reports whether a metric measures a GPU: utilization is not supported on MIG instances,
// for which collectors publish 0. The next family then covers the instance.
func measures(name, gpu string) bool {
	if _, node := insightsMeters[name]; node {
		return !strings.Contains(gpu, partOf)
	}
	m, ok := usage.LookupMetric(name)
	return ok && (m.MeasuresParts() || !strings.Contains(gpu, partOf))
}

// gpuFamily adds the series of one family for a machine's GPUs.
func (m *meters) gpuFamily(s *subject, f family, sources gpuSources) {
	memoryKnown := s.resource.Size.GPUMemory.Known()
	for _, gpu := range slices.Sorted(maps.Keys(sources)) {
		name := gpu
		if gpu == "" && s.resource.Size.GPUs.Or(0) == 1 {
			name = "0" // the machine's only GPU
		}
		for _, x := range f.metrics {
			signal, scale, ok := signalOf(x)
			if !ok || (signal == usage.MemTotal && memoryKnown && !strings.Contains(gpu, partOf)) {
				continue
			}
			if signal == usage.GREngine { // the family's only utilization metric
				signal, scale = usage.GPUUtil, 100*scale
			}
			metrics := make([]metric, len(sources[gpu]))
			for i, of := range sources[gpu] {
				metrics[i] = metric{of.namespace, x, of.dims}
			}
			switch {
			case signal == usage.GPUUtil && f.namespace == insights && dividable(s.resource.Size.GPU) && !f.cores:
				s.undivided(name, metrics)
			case signal == usage.MemTotal:
				s.gauge(name, signal, scale, maximum, metrics...)
			case signal == usage.Power:
				s.gauge(name, signal, scale, average, metrics...)
			default:
				s.level(name, signal, scale, f.cores, metrics...)
			}
		}
	}
}

// dividedModels are name prefixes of GPUs that support MIG.
//
// Source: NVIDIA Multi-Instance GPU user guide, "Supported GPUs".
var dividedModels = []string{
	"A100", "A30", "H100", "H200", "H20", "GH200", "B200", "B300", "GB200", "GB300", "RTX-PRO-6000", "RTX-PRO-5000",
}

// dividable reports whether a GPU may be divided into MIG instances; one of an unknown model may.
func dividable(model string) bool {
	return model == "" || slices.ContainsFunc(dividedModels, func(m string) bool {
		return strings.HasPrefix(model, m)
	})
}

// leastContext is less than the memory of any process with a CUDA context, in bytes.
const leastContext = 256 << 20

// undivided adds the utilization of a GPU that may be divided, if the metrics do not show whether
// it is. A divided GPU is published with a utilization of 0 (NVIDIA/dcgm-exporter, issues 216 and
// 430), so 0 counts only while no memory is in use.
func (s *subject) undivided(gpu string, metrics []metric) {
	x := measurement{gpu: gpu, signal: usage.GPUUtil}
	for _, of := range metrics {
		memory := metric{of.namespace, "node_gpu_memory_used", of.dims}
		x.statistics = append(x.statistics, statistic{of, average}, statistic{of, maximum}, statistic{memory, maximum})
	}
	x.value = func(at moment) (mean, most float64, ok bool) {
		for i := 0; i < len(at.values); i += 3 {
			if !at.given[i] || !at.given[i+1] {
				continue
			}
			empty := at.given[i+2] && at.values[i+2] < leastContext
			if at.values[i+1] > 0 || empty {
				mean, most, ok = max(mean, at.values[i]), max(most, at.values[i+1]), true
			}
		}
		return mean, most, ok
	}
	s.series = append(s.series, x)
}

// Dimensions that name a machine and a GPU, in lower case, in order of precedence. The names are
// those of the CloudWatch agent, dcgm-exporter and Container Insights.
var (
	machineDimensions = []string{"instanceid", "instance_id", "instance"}
	hostDimensions    = []string{"hostname", "host", "nodename", "node"}
	gpuDimensions     = []string{
		"index", "gpu", "gpu_index", "minor_number", "gpudevice", "neurondevice", "device", "uuid", "gpu_uuid",
	}
	partDimension = "gpu_i_id"
)

// partOf separates a GPU and its MIG instance in the instance's name.
const partOf = ":"

// identifyGPU returns the machine and GPU named by a metric's dimensions, or "". A MIG instance
// counts as a GPU.
func (p *place) identifyGPU(dimensions []types.Dimension) (machine, gpu string) {
	values := make(map[string]string, len(dimensions))
	for _, d := range dimensions {
		values[strings.ToLower(awssdk.ToString(d.Name))] = awssdk.ToString(d.Value)
	}
	for _, name := range machineDimensions {
		if v := values[name]; strings.HasPrefix(v, "i-") {
			machine = v
			break
		}
	}
	for _, name := range hostDimensions {
		if v := values[name]; machine == "" && v != "" {
			machine = p.hosts[v]
			if strings.HasPrefix(v, "i-") {
				machine = v
			}
		}
	}
	for _, name := range gpuDimensions {
		if v := values[name]; v != "" {
			gpu = v
			break
		}
	}
	if part := values[partDimension]; part != "" && gpu != "" {
		gpu += partOf + part
	}
	return machine, gpu
}

// dims returns dimensions from alternating names and values.
func dims(pairs ...string) []types.Dimension {
	out := make([]types.Dimension, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, dim(pairs[i], pairs[i+1]))
	}
	return out
}

// trainingHost returns the name of a training job's machine in its metrics, numbered from one.
func trainingHost(job string, n int64) string { return job + "/algo-" + strconv.FormatInt(n+1, 10) }
