package usage

import (
	"slices"
	"strings"
)

// mib is a mebibyte, the unit of device memory in DCGM, nvidia-smi and AMD's exporter.
const mib = 1 << 20

// Vendor is the maker of an accelerator.
type Vendor string

// The vendors whose metrics are known.
const (
	UnknownVendor Vendor = ""
	NVIDIA        Vendor = "NVIDIA"
	AMD           Vendor = "AMD"
	Intel         Vendor = "Intel"
	AWS           Vendor = "AWS"
)

// scope is the set of devices of which a metric is a measurement. On others exporters write 0 or
// the value of the whole GPU.
type scope uint8

const (
	everyDevice scope = iota
	wholeGPUs         // not GPUs divided into MIG instances or partitions, nor the parts
	partitions        // only the parts of divided GPUs
	sensors           // whole GPUs; a value of 0 on a part is no reading
)

// Metric describes a metric of an exporter: its signal, its unit, and the devices it measures.
type Metric struct {
	Signal Signal
	// Scale converts the metric's unit to the signal's.
	Scale  float64
	Vendor Vendor
	// Additive is set if several metrics have to be summed for the signal.
	Additive bool
	// Label and Value are a label that a series must have to count; an empty Label is no condition.
	Label, Value string
	scope        scope
}

// metrics are the known metric names, in lower case: the only table of their meaning by vendor and
// mode, for files and servers ([Metric.Read]).
//
// NVIDIA does not support utilization in MIG mode: dcgm-exporter gives 0 there
// (NVIDIA/dcgm-exporter, issues 216 and 430; NVML, nvmlDeviceGetUtilizationRates), and offers the
// profiling fields of the instance instead. Memory is that of the instance as well; power,
// temperature, energy and errors are those of the whole GPU on every instance. A time-sliced vGPU
// has the readings of its physical GPU.
//
// AMD's graphics activity applies to GPUs that are not partitioned (device-metrics-exporter,
// release notes of 1.3.1, and docs/configuration/metricslist.md), and is 13% at rest on some
// virtual ones (issue 139), which errs toward work. On a partition the instantaneous activity of
// its cores is used instead; sensors read 0 on all partitions but the first.
//
// Intel's XPU Manager gives its ratios for a GPU and for each of its tiles, and the power of a
// card, which names no GPU (intel/xpumanager, rest/prometheus_exporter.py).
//
// NVML's memory utilization (nvidia_smi_utilization_memory) is missing on purpose: it is the share
// of time in which memory was read or written, not the share in use, and has no signal.
var metrics = map[string]Metric{
	// DCGM device fields.
	"dcgm_fi_dev_gpu_util":                 {Signal: GPUUtil, Scale: 1, Vendor: NVIDIA, scope: wholeGPUs},
	"dcgm_fi_dev_fb_used":                  {Signal: MemUsed, Scale: mib, Vendor: NVIDIA},
	"dcgm_fi_dev_fb_free":                  {Signal: MemFree, Scale: mib, Vendor: NVIDIA},
	"dcgm_fi_dev_fb_total":                 {Signal: MemTotal, Scale: mib, Vendor: NVIDIA},
	"dcgm_fi_dev_power_usage":              {Signal: Power, Scale: 1, Vendor: NVIDIA, scope: sensors},
	"dcgm_fi_dev_gpu_temp":                 {Signal: Temperature, Scale: 1, Vendor: NVIDIA, scope: sensors},
	"dcgm_fi_dev_total_energy_consumption": {Signal: Energy, Scale: 0.001, Vendor: NVIDIA, scope: sensors},
	"dcgm_fi_dev_slowdown_temp":            {Signal: SlowdownTemperature, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_dev_clock_throttle_reasons":   {Signal: Throttle, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_dev_clocks_event_reasons":     {Signal: Throttle, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_dev_xid_errors":               {Signal: XID, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_dev_ecc_dbe_vol_total":        {Signal: ECCErrors, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_dev_count":                    {Signal: GPUCount, Scale: 1, Vendor: NVIDIA},
	// DCGM profiling fields under their old and new names.
	"dcgm_fi_prof_gr_engine_active":     {Signal: GREngine, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_gr_engine_util_ratio": {Signal: GREngine, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_sm_active":            {Signal: SMActive, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_sm_util_ratio":        {Signal: SMActive, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_sm_occupancy":         {Signal: SMOccupancy, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_sm_occupancy_ratio":   {Signal: SMOccupancy, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_pipe_tensor_active":   {Signal: TensorActive, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_tensor_util_ratio":    {Signal: TensorActive, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_dram_active":          {Signal: DRAMActive, Scale: 1, Vendor: NVIDIA},
	"dcgm_fi_prof_dram_util_ratio":      {Signal: DRAMActive, Scale: 1, Vendor: NVIDIA},
	// NVML as nvidia-smi names it, and its GPU performance metrics, in percent.
	"utilization.gpu":                       {Signal: GPUUtil, Scale: 1, Vendor: NVIDIA, scope: wholeGPUs},
	"memory.used":                           {Signal: MemUsed, Scale: mib, Vendor: NVIDIA},
	"memory.free":                           {Signal: MemFree, Scale: mib, Vendor: NVIDIA},
	"memory.total":                          {Signal: MemTotal, Scale: mib, Vendor: NVIDIA},
	"power.draw":                            {Signal: Power, Scale: 1, Vendor: NVIDIA, scope: sensors},
	"temperature.gpu":                       {Signal: Temperature, Scale: 1, Vendor: NVIDIA, scope: sensors},
	"clocks_throttle_reasons.active":        {Signal: Throttle, Scale: 1, Vendor: NVIDIA},
	"clocks_event_reasons.active":           {Signal: Throttle, Scale: 1, Vendor: NVIDIA},
	"ecc.errors.uncorrected.volatile.total": {Signal: ECCErrors, Scale: 1, Vendor: NVIDIA},
	"nvml_gpm_metric_graphics_util":         {Signal: GREngine, Scale: 0.01, Vendor: NVIDIA},
	"nvml_gpm_metric_sm_util":               {Signal: SMActive, Scale: 0.01, Vendor: NVIDIA},
	"nvml_gpm_metric_sm_occupancy":          {Signal: SMOccupancy, Scale: 0.01, Vendor: NVIDIA},
	"nvml_gpm_metric_any_tensor_util":       {Signal: TensorActive, Scale: 0.01, Vendor: NVIDIA},
	"nvml_gpm_metric_dram_bw_util":          {Signal: DRAMActive, Scale: 0.01, Vendor: NVIDIA},
	// Exporters of NVML to Prometheus.
	"nvidia_gpu_duty_cycle":             {Signal: GPUUtil, Scale: 1, Vendor: NVIDIA, scope: wholeGPUs},
	"nvidia_gpu_memory_used_bytes":      {Signal: MemUsed, Scale: 1, Vendor: NVIDIA},
	"nvidia_gpu_memory_total_bytes":     {Signal: MemTotal, Scale: 1, Vendor: NVIDIA},
	"nvidia_gpu_power_usage_milliwatts": {Signal: Power, Scale: 0.001, Vendor: NVIDIA, scope: sensors},
	"nvidia_smi_utilization_gpu_ratio": {
		Signal: GPUUtil, Scale: 100, Vendor: NVIDIA, scope: wholeGPUs,
	},
	"nvidia_smi_memory_used_bytes":                     {Signal: MemUsed, Scale: 1, Vendor: NVIDIA},
	"nvidia_smi_memory_free_bytes":                     {Signal: MemFree, Scale: 1, Vendor: NVIDIA},
	"nvidia_smi_memory_total_bytes":                    {Signal: MemTotal, Scale: 1, Vendor: NVIDIA},
	"nvidia_smi_power_draw_watts":                      {Signal: Power, Scale: 1, Vendor: NVIDIA, scope: sensors},
	"nvidia_smi_clocks_throttle_reasons_active":        {Signal: Throttle, Scale: 1, Vendor: NVIDIA},
	"nvidia_smi_clocks_event_reasons_active":           {Signal: Throttle, Scale: 1, Vendor: NVIDIA},
	"nvidia_smi_ecc_errors_uncorrected_volatile_total": {Signal: ECCErrors, Scale: 1, Vendor: NVIDIA},
	"nvidia_smi_energy_joules_total":                   {Signal: Energy, Scale: 1, Vendor: NVIDIA, scope: sensors},
	"nvidia_smi_mig_memory_used_bytes":                 {Signal: MemUsed, Scale: 1, Vendor: NVIDIA},
	"nvidia_smi_mig_memory_total_bytes":                {Signal: MemTotal, Scale: 1, Vendor: NVIDIA},
	"nvidia_smi_mig_memory_free_bytes":                 {Signal: MemFree, Scale: 1, Vendor: NVIDIA},
	// The CloudWatch agent.
	"nvidia_smi_utilization_gpu": {Signal: GPUUtil, Scale: 1, Vendor: NVIDIA, scope: wholeGPUs},
	"nvidia_smi_memory_used":     {Signal: MemUsed, Scale: mib, Vendor: NVIDIA},
	"nvidia_smi_memory_free":     {Signal: MemFree, Scale: mib, Vendor: NVIDIA},
	"nvidia_smi_memory_total":    {Signal: MemTotal, Scale: mib, Vendor: NVIDIA},
	"nvidia_smi_power_draw":      {Signal: Power, Scale: 1, Vendor: NVIDIA, scope: sensors},
	"nvidia_smi_temperature_gpu": {Signal: Temperature, Scale: 1, Vendor: NVIDIA, scope: sensors},
	"cpu_usage_active":           {Signal: CPUUtil, Scale: 1},
	"mem_used_percent":           {Signal: HostMemUsed, Scale: 1},
	// EC2 in CloudWatch.
	"cpuutilization": {Signal: CPUUtil, Scale: 1},
	// AWS Neuron: neuron-monitor-prometheus.py of aws-neuronx-tools
	// (https://awsdocs-neuron.readthedocs-hosted.com, neuron-monitor user guide). It reports cores
	// only while a runtime has them: without one there is no series, and the state is unknown. A
	// core's memory has five parts, which are summed.
	"neuroncore_utilization_ratio":                    {Signal: GPUUtil, Scale: 100, Vendor: AWS},
	"neuroncore_memory_usage_constants":               {Signal: MemUsed, Scale: 1, Vendor: AWS, Additive: true},
	"neuroncore_memory_usage_model_code":              {Signal: MemUsed, Scale: 1, Vendor: AWS, Additive: true},
	"neuroncore_memory_usage_model_shared_scratchpad": {Signal: MemUsed, Scale: 1, Vendor: AWS, Additive: true},
	"neuroncore_memory_usage_runtime_memory":          {Signal: MemUsed, Scale: 1, Vendor: AWS, Additive: true},
	"neuroncore_memory_usage_tensors":                 {Signal: MemUsed, Scale: 1, Vendor: AWS, Additive: true},
	// AMD Device Metrics Exporter (https://github.com/ROCm/device-metrics-exporter, list of
	// metrics). Its configuration may prefix names with amd_ ([LookupMetric]). The profiler's
	// metrics are percentages: of cycles of the graphics engine, of vector and of matrix units.
	"gpu_gfx_activity":               {Signal: GPUUtil, Scale: 1, Vendor: AMD, scope: wholeGPUs},
	"gpu_gfx_busy_instantaneous":     {Signal: GPUUtil, Scale: 1, Vendor: AMD, scope: partitions},
	"gpu_prof_gui_util_percent":      {Signal: GREngine, Scale: 0.01, Vendor: AMD},
	"gpu_prof_sm_active":             {Signal: SMActive, Scale: 0.01, Vendor: AMD},
	"gpu_prof_tensor_active_percent": {Signal: TensorActive, Scale: 0.01, Vendor: AMD},
	"gpu_used_vram":                  {Signal: MemUsed, Scale: mib, Vendor: AMD},
	"gpu_total_vram":                 {Signal: MemTotal, Scale: mib, Vendor: AMD},
	"gpu_free_vram":                  {Signal: MemFree, Scale: mib, Vendor: AMD},
	"gpu_package_power":              {Signal: Power, Scale: 1, Vendor: AMD, scope: sensors},
	"gpu_average_package_power":      {Signal: Power, Scale: 1, Vendor: AMD, scope: sensors},
	"gpu_energy_consumed":            {Signal: Energy, Scale: 1e-6, Vendor: AMD, scope: sensors},
	"gpu_junction_temperature":       {Signal: Temperature, Scale: 1, Vendor: AMD, scope: sensors},
	// The earlier exporter (https://github.com/amd/amd_smi_exporter), in microwatts.
	"amd_gpu_use_percent": {Signal: GPUUtil, Scale: 1, Vendor: AMD, scope: wholeGPUs},
	"amd_gpu_power":       {Signal: Power, Scale: 1e-6, Vendor: AMD, scope: sensors},
	// Omnistat (https://github.com/ROCm/omnistat, collector_smi.py). It reports memory in percent.
	"rocm_utilization_percentage":     {Signal: GPUUtil, Scale: 1, Vendor: AMD, scope: wholeGPUs},
	"rocm_vram_total_bytes":           {Signal: MemTotal, Scale: 1, Vendor: AMD},
	"rocm_average_socket_power_watts": {Signal: Power, Scale: 1, Vendor: AMD, scope: sensors},
	"rocm_energy_joules":              {Signal: Energy, Scale: 1, Vendor: AMD, scope: sensors},
	// Intel XPU Manager.
	"xpum_engine_ratio":           {Signal: GPUUtil, Scale: 100, Vendor: Intel},
	"xpum_engine_group_ratio":     {Signal: GREngine, Scale: 1, Vendor: Intel, Label: "type", Value: "compute"},
	"xpum_eu_active_ratio":        {Signal: SMActive, Scale: 1, Vendor: Intel},
	"xpum_memory_bandwidth_ratio": {Signal: DRAMActive, Scale: 1, Vendor: Intel},
	"xpum_memory_used_bytes":      {Signal: MemUsed, Scale: 1, Vendor: Intel, Additive: true},
	"xpum_power_watts":            {Signal: Power, Scale: 1, Vendor: Intel, scope: sensors},
	"xpum_energy_joules_total":    {Signal: Energy, Scale: 1, Vendor: Intel, scope: sensors},
	"xpum_temperature_celsius": {
		Signal: Temperature, Scale: 1, Vendor: Intel, scope: sensors, Label: "location", Value: "gpu",
	},
}

// SignalOf returns the signal of a metric of NVML, DCGM (old and new field names), the CloudWatch
// agent or an exporter, in any letter case and with or without the prefix exported_. A value times
// scale is in the signal's unit. ok is false for unknown metrics.
func SignalOf(metric string) (signal Signal, scale float64, ok bool) {
	m, ok := LookupMetric(metric)
	return m.Signal, m.Scale, ok
}

// LookupMetric returns the description of a metric by its name in any letter case, with or without
// the prefixes exported_ and, of AMD's exporter, amd_. ok is false for unknown metrics.
func LookupMetric(metric string) (m Metric, ok bool) {
	name := stem(metric)
	if m, ok = metrics[name]; ok {
		return m, true
	}
	if name, ok = strings.CutPrefix(name, "amd_"); !ok {
		return Metric{}, false
	}
	if m = metrics[name]; m.Vendor != AMD {
		return Metric{}, false
	}
	return m, true
}

// MetricNames returns the known metrics of servers in order, each as its exporter writes it.
func MetricNames() []string {
	var out []string
	for name, m := range metrics {
		switch {
		case strings.Contains(name, "."): // a field of nvidia-smi
		case strings.HasPrefix(name, "dcgm_"), strings.HasPrefix(name, "nvml_"):
			out = append(out, strings.ToUpper(name))
		case m.Vendor == AMD && strings.HasPrefix(name, "gpu_"):
			out = append(out, name, "amd_"+name)
		default:
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// migModeMetrics are metrics whose value of 1 means that a GPU is in MIG mode: DCGM field 67, and
// those of nvidia_gpu_exporter (docs/METRICS.md).
var migModeMetrics = []string{"DCGM_FI_DEV_MIG_MODE", "nvidia_smi_mig_mode_current", "nvidia_smi_mig_info"}

// MIGModeMetrics returns the metrics whose value of 1 means that a GPU is in MIG mode. The caller
// must not change the slice.
func MIGModeMetrics() []string { return migModeMetrics }

// stem returns a name in lower case without the prefix that Prometheus adds to names that collide
// with its own.
func stem(name string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), exported)
}

const exported = "exported_"

// Sentinels for "unsupported", "not found" or "not permitted" in DCGM's fields: 0x7ffffffffffffff0
// and above in 64-bit integers, four values from 0x7ffffff0 in 32-bit ones, four from 2^47 in
// floating point. NVML uses -1, which also appears as the largest unsigned 32-bit value.
const (
	blankInt64 = 9.2e18
	blankInt32 = 0x7ffffff0
	blankFloat = 1 << 47
	blankNVML  = 1<<32 - 1
)

// IsMeasurement reports whether a value, in the unit of its source, is a measurement: a finite
// number of zero or more that is not a sentinel of an unsupported field.
func IsMeasurement(v float64) bool {
	return v >= 0 && v < blankInt64 && (v < blankInt32 || v >= blankInt32+4) &&
		(v < blankFloat || v >= blankFloat+4) && v != blankNVML
}

// Read converts a value of the metric on a device to the unit of its signal. Sentinels are checked
// in the exporter's own unit.
func (m Metric) Read(v float64, d Device) (float64, Validity) {
	if v != v || v == -1 || v > 0 && !IsMeasurement(v) {
		return 0, Unsupported
	}
	if !m.appliesTo(v, d) {
		return 0, Unsupported
	}
	return m.Signal.Check(v * m.Scale)
}

// MeasuresParts reports whether the metric is a measurement of MIG instances and partitions.
func (m Metric) MeasuresParts() bool { return m.scope != wholeGPUs }

// appliesTo reports whether a value of the metric is a measurement of the device.
func (m Metric) appliesTo(v float64, d Device) bool {
	switch m.scope {
	case wholeGPUs:
		return !d.InMIGMode && !d.IsPart()
	case partitions:
		return d.IsPart()
	case sensors:
		return v > 0 || !d.IsPart()
	}
	return true
}

// VendorOf returns the maker of an accelerator model, as the price book, configuration or an
// exporter writes it; UnknownVendor if the name does not tell.
func VendorOf(model string) Vendor {
	name := strings.ToUpper(model)
	for _, v := range []struct {
		vendor Vendor
		words  []string
	}{
		{AWS, []string{"TRAINIUM", "INFERENTIA"}},
		{AMD, []string{"MI1", "MI2", "MI3", "MI4", "INSTINCT", "RADEON", "AMD ", "V520", "V710"}},
		{Intel, []string{"INTEL", "GAUDI", "FLEX 1", "MAX 1", "ARC "}},
		{
			NVIDIA,
			[]string{
				"NVIDIA", "TESLA", "QUADRO", "RTX", "GTX", "GH200", "A100", "A10", "A16", "A30", "A40",
				"A6000", "B100", "B200",
				"B300", "GB200", "GB300", "H100", "H200", "H20", "H800", "A800", "L4", "L40", "K80",
				"M60", "P4", "P40", "P100",
				"T4", "V100",
			},
		},
	} {
		for _, word := range v.words {
			if strings.HasPrefix(name, word) || strings.Contains(name, " "+word) {
				return v.vendor
			}
		}
	}
	return UnknownVendor
}
