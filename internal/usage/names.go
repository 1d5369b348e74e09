package usage

import "strings"

// mib is a mebibyte, the unit of device memory in DCGM and in nvidia-smi.
const mib = 1 << 20

type meter struct {
	signal Signal
	scale  float64
}

// meters maps the metric names of the field, in lower case, to signals. The
// memory utilization that NVML reports (nvidia_smi_utilization_memory) is not
// among them: it is the share of time in which memory was read or written, not
// the share that is used, and no signal here stands for it.
var meters = map[string]meter{
	// DCGM device fields.
	"dcgm_fi_dev_gpu_util":                 {GPUUtil, 1},
	"dcgm_fi_dev_fb_used":                  {MemUsed, mib},
	"dcgm_fi_dev_fb_free":                  {MemFree, mib},
	"dcgm_fi_dev_fb_total":                 {MemTotal, mib},
	"dcgm_fi_dev_power_usage":              {Power, 1},
	"dcgm_fi_dev_gpu_temp":                 {Temperature, 1},
	"dcgm_fi_dev_total_energy_consumption": {Energy, 0.001},
	"dcgm_fi_dev_slowdown_temp":            {SlowdownTemperature, 1},
	"dcgm_fi_dev_clock_throttle_reasons":   {Throttle, 1},
	"dcgm_fi_dev_clocks_event_reasons":     {Throttle, 1},
	"dcgm_fi_dev_xid_errors":               {XID, 1},
	"dcgm_fi_dev_ecc_dbe_vol_total":        {ECCErrors, 1},
	"dcgm_fi_dev_count":                    {GPUCount, 1},
	// DCGM profiling fields under their old and new names.
	"dcgm_fi_prof_gr_engine_active":     {GREngine, 1},
	"dcgm_fi_prof_gr_engine_util_ratio": {GREngine, 1},
	"dcgm_fi_prof_sm_active":            {SMActive, 1},
	"dcgm_fi_prof_sm_util_ratio":        {SMActive, 1},
	"dcgm_fi_prof_sm_occupancy":         {SMOccupancy, 1},
	"dcgm_fi_prof_sm_occupancy_ratio":   {SMOccupancy, 1},
	"dcgm_fi_prof_pipe_tensor_active":   {TensorActive, 1},
	"dcgm_fi_prof_tensor_util_ratio":    {TensorActive, 1},
	"dcgm_fi_prof_dram_active":          {DRAMActive, 1},
	"dcgm_fi_prof_dram_util_ratio":      {DRAMActive, 1},
	// NVML as nvidia-smi names it, and its GPU performance metrics, in percent.
	"utilization.gpu":                       {GPUUtil, 1},
	"memory.used":                           {MemUsed, mib},
	"memory.free":                           {MemFree, mib},
	"memory.total":                          {MemTotal, mib},
	"power.draw":                            {Power, 1},
	"temperature.gpu":                       {Temperature, 1},
	"clocks_throttle_reasons.active":        {Throttle, 1},
	"clocks_event_reasons.active":           {Throttle, 1},
	"ecc.errors.uncorrected.volatile.total": {ECCErrors, 1},
	"nvml_gpm_metric_graphics_util":         {GREngine, 0.01},
	"nvml_gpm_metric_sm_util":               {SMActive, 0.01},
	"nvml_gpm_metric_sm_occupancy":          {SMOccupancy, 0.01},
	"nvml_gpm_metric_any_tensor_util":       {TensorActive, 0.01},
	"nvml_gpm_metric_dram_bw_util":          {DRAMActive, 0.01},
	// Exporters of NVML to Prometheus.
	"nvidia_gpu_duty_cycle":                            {GPUUtil, 1},
	"nvidia_gpu_memory_used_bytes":                     {MemUsed, 1},
	"nvidia_gpu_memory_total_bytes":                    {MemTotal, 1},
	"nvidia_gpu_power_usage_milliwatts":                {Power, 0.001},
	"nvidia_smi_utilization_gpu_ratio":                 {GPUUtil, 100},
	"nvidia_smi_memory_used_bytes":                     {MemUsed, 1},
	"nvidia_smi_memory_free_bytes":                     {MemFree, 1},
	"nvidia_smi_memory_total_bytes":                    {MemTotal, 1},
	"nvidia_smi_power_draw_watts":                      {Power, 1},
	"nvidia_smi_clocks_throttle_reasons_active":        {Throttle, 1},
	"nvidia_smi_clocks_event_reasons_active":           {Throttle, 1},
	"nvidia_smi_ecc_errors_uncorrected_volatile_total": {ECCErrors, 1},
	// The CloudWatch agent.
	"nvidia_smi_utilization_gpu": {GPUUtil, 1},
	"nvidia_smi_memory_used":     {MemUsed, mib},
	"nvidia_smi_memory_free":     {MemFree, mib},
	"nvidia_smi_memory_total":    {MemTotal, mib},
	"nvidia_smi_power_draw":      {Power, 1},
	"nvidia_smi_temperature_gpu": {Temperature, 1},
	"cpu_usage_active":           {CPUUtil, 1},
	"mem_used_percent":           {HostMemUsed, 1},
	// EC2 in CloudWatch.
	"cpuutilization": {CPUUtil, 1},
}

// SignalOf returns the signal that a metric of NVML, DCGM (old and new field
// names), the CloudWatch agent or an exporter stands for, in any letter case and
// with or without the prefix exported_. A value times scale is in the signal's
// unit. ok is false for metrics that no signal stands for.
func SignalOf(metric string) (signal Signal, scale float64, ok bool) {
	m, ok := meterOf(metric)
	return m.signal, m.scale, ok
}

func meterOf(metric string) (meter, bool) {
	m, ok := meters[stem(metric)]
	return m, ok
}

// stem returns a name in lower case and without the prefix that Prometheus puts
// before names that collide with its own.
func stem(name string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), exported)
}

const exported = "exported_"

// Sentinels that stand for "unsupported", "not found" or "not permitted" in
// DCGM's fields: 0x7ffffffffffffff0 and above in 64-bit integers, four values from
// 0x7ffffff0 in 32-bit ones, four from 2^47 in floating point. NVML uses -1, which
// also appears as the largest unsigned 32-bit value.
const (
	blankInt64 = 9.2e18
	blankInt32 = 0x7ffffff0
	blankFloat = 1 << 47
	blankNVML  = 1<<32 - 1
)

// IsMeasurement says whether a value, in the unit of its source, is a measurement: it
// is not for what is no finite number of zero or more, nor for the sentinels of
// unsupported fields.
func IsMeasurement(v float64) bool {
	return v >= 0 && v < blankInt64 && (v < blankInt32 || v >= blankInt32+4) &&
		(v < blankFloat || v >= blankFloat+4) && v != blankNVML
}
