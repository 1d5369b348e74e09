package prom

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/usage"
)

// gpuNames are the metrics of GPUs that are asked for: dcgm-exporter's under their old and
// new names, with and without dcp-metrics-included.csv, and those of two exporters of
// nvidia-smi and NVML.
var gpuNames = []string{
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_TOTAL",
	"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
	"DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO",
	"DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
	"DCGM_FI_DEV_SLOWDOWN_TEMP", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
	"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_COUNT",
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
	"DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO",
	"nvidia_smi_utilization_gpu_ratio", "nvidia_smi_memory_used_bytes", "nvidia_smi_memory_total_bytes", "nvidia_smi_memory_free_bytes",
	"nvidia_smi_power_draw_watts", "nvidia_smi_temperature_gpu",
	"nvidia_smi_clocks_throttle_reasons_active", "nvidia_smi_clocks_event_reasons_active", "nvidia_smi_ecc_errors_uncorrected_volatile_total",
	"nvidia_gpu_duty_cycle", "nvidia_gpu_memory_used_bytes", "nvidia_gpu_memory_total_bytes", "nvidia_gpu_power_usage_milliwatts",
}

// mib is a mebibyte, the unit of AMD's memory metrics.
const mib = 1 << 20

// exporters are the metrics of accelerators of other makers.
var exporters = map[string]meter{
	// AWS Neuron: neuron-monitor-prometheus.py of aws-neuronx-tools
	// (https://awsdocs-neuron.readthedocs-hosted.com, neuron-monitor user guide). It tells of
	// cores while a runtime has them: without one there is no series, and the state is unknown.
	// A core's memory is in five parts, which are added up.
	"neuroncore_utilization_ratio":                    {signal: usage.GPUUtil, scale: 100},
	"neuroncore_memory_usage_constants":               {signal: usage.MemUsed, scale: 1, part: true},
	"neuroncore_memory_usage_model_code":              {signal: usage.MemUsed, scale: 1, part: true},
	"neuroncore_memory_usage_model_shared_scratchpad": {signal: usage.MemUsed, scale: 1, part: true},
	"neuroncore_memory_usage_runtime_memory":          {signal: usage.MemUsed, scale: 1, part: true},
	"neuroncore_memory_usage_tensors":                 {signal: usage.MemUsed, scale: 1, part: true},
	// AMD Device Metrics Exporter (https://github.com/ROCm/device-metrics-exporter, list of
	// metrics). GPU operators put amd_ before the names.
	"gpu_gfx_activity":             {signal: usage.GPUUtil, scale: 1},
	"gpu_used_vram":                {signal: usage.MemUsed, scale: mib},
	"gpu_total_vram":               {signal: usage.MemTotal, scale: mib},
	"gpu_free_vram":                {signal: usage.MemFree, scale: mib},
	"gpu_package_power":            {signal: usage.Power, scale: 1},
	"gpu_average_package_power":    {signal: usage.Power, scale: 1},
	"gpu_energy_consumed":          {signal: usage.Energy, scale: 1e-6},
	"gpu_junction_temperature":     {signal: usage.Temperature, scale: 1},
	"amd_gpu_gfx_activity":         {signal: usage.GPUUtil, scale: 1},
	"amd_gpu_used_vram":            {signal: usage.MemUsed, scale: mib},
	"amd_gpu_total_vram":           {signal: usage.MemTotal, scale: mib},
	"amd_gpu_free_vram":            {signal: usage.MemFree, scale: mib},
	"amd_gpu_package_power":        {signal: usage.Power, scale: 1},
	"amd_gpu_energy_consumed":      {signal: usage.Energy, scale: 1e-6},
	"amd_gpu_junction_temperature": {signal: usage.Temperature, scale: 1},
	// The exporter before it (https://github.com/amd/amd_smi_exporter), in microwatts.
	"amd_gpu_use_percent": {signal: usage.GPUUtil, scale: 1},
	"amd_gpu_power":       {signal: usage.Power, scale: 1e-6},
	// Omnistat (https://github.com/ROCm/omnistat, collector_smi.py). It tells memory in percent.
	"rocm_utilization_percentage":     {signal: usage.GPUUtil, scale: 1},
	"rocm_vram_total_bytes":           {signal: usage.MemTotal, scale: 1},
	"rocm_average_socket_power_watts": {signal: usage.Power, scale: 1},
	"rocm_energy_joules":              {signal: usage.Energy, scale: 1},
}

// meter is the signal that a metric stands for.
type meter struct {
	signal usage.Signal
	scale  float64
	// part says that the metrics of the signal are parts of it, to be added up.
	part bool
}

// dictionary is what metrics of a server mean, by their names.
type dictionary map[string]meter

// newDictionary adds configured names to the known ones: {"habanalabs_utilization":
// "gpu_util"}.
func newDictionary(own map[string]string) (dictionary, error) {
	d := maps.Clone(dictionary(exporters))
	for _, name := range gpuNames {
		s, scale, _ := usage.SignalOf(name)
		d[name] = meter{signal: s, scale: scale}
	}
	for name, column := range own {
		to, factor, scaled := strings.Cut(column, "*")
		m := meter{scale: 1}
		var ok bool
		if m.signal, ok = usage.SignalNamed(strings.TrimSpace(to)); !ok {
			return nil, fmt.Errorf("metrics.sources names: %q stands for %q, which is no column of recorded usage", name, to)
		}
		if scaled {
			var err error
			if m.scale, err = strconv.ParseFloat(strings.TrimSpace(factor), 64); err != nil || !(m.scale > 0) {
				return nil, fmt.Errorf("metrics.sources names: %q is multiplied by %q, which is no number over 0", name, factor)
			}
		}
		if !isName(name) {
			return nil, fmt.Errorf("metrics.sources names: %q is no name of a metric", name)
		}
		d[name] = m
	}
	return d, nil
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c == ':' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// addend is the metric where its signal is the sum of several.
func (d dictionary) addend(name string) string {
	if d[name].part {
		return name
	}
	return ""
}

// names lists the metrics, in order.
func (d dictionary) names() []string { return slices.Sorted(maps.Keys(d)) }

// read returns a value in the unit of its signal; ok is false for metrics that are not
// asked for and for what is no measurement.
func (d dictionary) read(name string, v float64) (usage.Signal, float64, bool) {
	m, ok := d[name]
	if !ok {
		return 0, 0, false
	}
	if !usage.IsMeasurement(v) { // which is told in the exporter's own unit
		return 0, 0, false
	}
	v *= m.scale
	p, ok := m.signal.Clean(usage.Point{Mean: v, Max: v})
	return m.signal, p.Max, ok
}

// host is a signal of the host that is computed from counters of node_exporter. The
// expression has RANGE where its range goes, and its value is multiplied by the step in
// seconds where it is a rate.
type hostExpression struct {
	signal usage.Signal
	expr   string
	rate   bool
}

// Interfaces and disks that carry the same bytes again are left out: loopback, those of
// containers and bridges; partitions, mapped and RAID devices.
const (
	networks = `device!~"lo|veth.*|cali.*|cni.*|docker.*|flannel.*|br-.*|virbr.*|lxc.*|tunl.*|cilium.*"`
	disks    = `device=~"nvme[0-9]+n[0-9]+|[a-z]+d[a-z]+|mmcblk[0-9]+"`
)

var hostExpressions = []hostExpression{
	{usage.CPUUtil, `100 * (1 - avg without (cpu, mode) (rate(node_cpu_seconds_total{mode="idle"SELECT}[RANGE])))`, false},
	{usage.NetBytes, `sum without (device) (rate(node_network_receive_bytes_total{` + networks + `SELECT}[RANGE])) + sum without (device) (rate(node_network_transmit_bytes_total{` + networks + `SELECT}[RANGE]))`, true},
	{usage.DiskBytes, `sum without (device) (rate(node_disk_read_bytes_total{` + disks + `SELECT}[RANGE])) + sum without (device) (rate(node_disk_written_bytes_total{` + disks + `SELECT}[RANGE]))`, true},
	{usage.HostMemUsed, `100 * (1 - last_over_time(node_memory_MemAvailable_bytes{job!=""SELECT}[RANGE]) / last_over_time(node_memory_MemTotal_bytes{job!=""SELECT}[RANGE]))`, false},
}
