package usage

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReadsMetricsInSignalUnits checks that exporter metrics are converted to the signal's unit.
func TestReadsMetricsInSignalUnits(t *testing.T) {
	for _, tc := range []struct {
		metric string
		value  float64
		signal Signal
		want   float64
	}{
		{"DCGM_FI_DEV_GPU_UTIL", 37, GPUUtil, 37},
		{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, GREngine, 0.5},
		{"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 0.5, GREngine, 0.5},
		{"dcgm_fi_prof_sm_active", 0.25, SMActive, 0.25},
		{"DCGM_FI_PROF_SM_UTIL_RATIO", 0.25, SMActive, 0.25},
		{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.25, TensorActive, 0.25},
		{"DCGM_FI_PROF_TENSOR_UTIL_RATIO", 0.25, TensorActive, 0.25},
		{"DCGM_FI_PROF_DRAM_ACTIVE", 0.25, DRAMActive, 0.25},
		{"DCGM_FI_PROF_DRAM_UTIL_RATIO", 0.25, DRAMActive, 0.25},
		{"exported_DCGM_FI_DEV_FB_USED", 2, MemUsed, 2 << 20},
		{"DCGM_FI_DEV_FB_FREE", 2, MemFree, 2 << 20},
		{"DCGM_FI_DEV_FB_TOTAL", 2, MemTotal, 2 << 20},
		{"DCGM_FI_DEV_POWER_USAGE", 300, Power, 300},
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 5000, Energy, 5},
		{"DCGM_FI_DEV_GPU_TEMP", 61, Temperature, 61},
		{"temperature.gpu", 61, Temperature, 61},
		{"DCGM_FI_PROF_SM_OCCUPANCY", 0.4, SMOccupancy, 0.4},
		{"DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 0.4, SMOccupancy, 0.4},
		{"NVML_GPM_METRIC_SM_OCCUPANCY", 40, SMOccupancy, 0.4},
		{"DCGM_FI_DEV_SLOWDOWN_TEMP", 90, SlowdownTemperature, 90},
		{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 0x24, Throttle, 0x24},
		{"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0x24, Throttle, 0x24},
		{"nvidia_smi_clocks_throttle_reasons_active", 4, Throttle, 4},
		{"DCGM_FI_DEV_XID_ERRORS", 79, XID, 79},
		{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2, ECCErrors, 2},
		{"DCGM_FI_DEV_COUNT", 8, GPUCount, 8},
		{"memory.free", 2, MemFree, 2 << 20},
		{"NVML_GPM_METRIC_GRAPHICS_UTIL", 37, GREngine, 0.37},
		{"NVML_GPM_METRIC_SM_UTIL", 25, SMActive, 0.25},
		{"NVML_GPM_METRIC_ANY_TENSOR_UTIL", 25, TensorActive, 0.25},
		{"NVML_GPM_METRIC_DRAM_BW_UTIL", 25, DRAMActive, 0.25},
		{"nvidia_gpu_duty_cycle", 37, GPUUtil, 37},
		{"nvidia_gpu_power_usage_milliwatts", 3000, Power, 3},
		{"nvidia_smi_utilization_gpu", 37, GPUUtil, 37},
		{"nvidia_smi_memory_used", 2, MemUsed, 2 << 20},
		{"nvidia_smi_memory_used_bytes", 2, MemUsed, 2},
		{"nvidia_smi_power_draw", 300, Power, 300},
		{"cpu_usage_active", 12, CPUUtil, 12},
	} {
		if signal, scale, ok := SignalOf(tc.metric); !ok || signal != tc.signal ||
			math.Abs(tc.value*scale-tc.want) > 1e-9*tc.want {
			t.Errorf("%s %v: got %v of %s, %v; want %v of %s", tc.metric, tc.value,
				tc.value*scale, signal, ok, tc.want,
				tc.signal)
		}
	}
	for _, metric := range []string{"DCGM_FI_DEV_MEM_COPY_UTIL", "204", "node_load1", "step"} {
		if signal, _, ok := SignalOf(metric); ok {
			t.Errorf("%s: read as %s", metric, signal)
		}
	}
}

// TestReadExportedColumns reads tables of DCGM metrics with their labels without configuration.
func TestReadExportedColumns(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{
			"labels in any case",
			"timestamp,Hostname,gpu,UUID,GPU_I_ID,DCGM_FI_DEV_FB_USED,DCGM_FI_DEV_FB_FREE,DCGM_FI_PROF_SM_ACTIVE\n" +
				"60,n1,0,GPU-a,,1,3,0.5\n60,n1,1,GPU-b,7,1,3,0\n",
			[]string{"n1 0 1970-01-01T00:01:00Z sm_active=0.5 mem_used_bytes=1.048576e+06 mem_free_bytes=3.145728e+06",
				"n1 1:7 1970-01-01T00:01:00Z sm_active=0 mem_used_bytes=1.048576e+06 mem_free_bytes=3.145728e+06"}},
		{
			"utilization and the engine are kept apart",
			"time,instance_id,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_GR_ENGINE_ACTIVE\n0,i-1,0,100,0\n",
			[]string{"i-1 0 1970-01-01T00:00:00Z gpu_util=100 gr_engine_active=0"}},
		{
			"whichever comes first",
			"time,instance_id,gpu,DCGM_FI_PROF_GR_ENGINE_ACTIVE,DCGM_FI_DEV_GPU_UTIL\n0,i-1,0,0.25,100\n",
			[]string{"i-1 0 1970-01-01T00:00:00Z gpu_util=100 gr_engine_active=0.25"}},
		{
			"and the engine stands for utilization where that is blank",
			"time,instance_id,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_GR_ENGINE_ACTIVE\n0,i-1,0,40,\n1,i-1,0,,0.25\n",
			[]string{
				"i-1 0 1970-01-01T00:00:00Z gpu_util=40",
				"i-1 0 1970-01-01T00:00:01Z gpu_util=25 gr_engine_active=0.25",
			}},
		{
			"an index of the table is no GPU", "index,time,host,DCGM_FI_DEV_GPU_UTIL\n17,0,h,40\n",
			[]string{"h  1970-01-01T00:00:00Z gpu_util=40"},
		},
		{
			"kernels and checkpoints", "resource,time,kernels,checkpoints,step\na,0,1,3,1200\n",
			[]string{"a  1970-01-01T00:00:00Z kernels=1 step=1200 checkpoints=3"},
		},
	} {
		got, _, err := readAll(strings.NewReader(tc.in), Format{})
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tc.name, err, diff)
		}
	}
	// Labels are recognized only in tables of exported metrics.
	if _, _, err := readAll(strings.NewReader("time,host,gpu_util\n0,h,1\n"), Format{}); err == nil {
		t.Error("a table of our own columns without a resource was read")
	}
}

func TestWindowMemory(t *testing.T) {
	for _, tc := range []struct {
		name        string
		gpu         string
		used, free  float64
		total, want float64
	}{
		{"measured", "0", 1, 2, 80, 80},
		{"the sum of used and free", "0", 1, 2, -1, 3},
		{"the catalog's", "0", 1, -1, -1, 24},
		{"a part of a GPU has less than the catalog's", "0:3", 1, -1, -1, 0},
	} {
		w := NewWindow(start, at(time.Hour), time.Minute, "test", nil)
		w.GPUMemory = 24
		for s, v := range map[Signal]float64{MemUsed: tc.used, MemFree: tc.free, MemTotal: tc.total} {
			w.Add(tc.gpu, s, point(0, v))
		}
		if got := w.Memory(w.GPUs[0]); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		w.Add(tc.gpu, MemFree, point(time.Minute, 50))
		if got := w.Memory(w.GPUs[0]); got == 51 {
			t.Errorf("%s: %v is the sum of what was used and what was free at another time", tc.name, got)
		}
	}
}
