package usage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNormalize(t *testing.T) {
	for _, tc := range []struct {
		metric string
		value  float64
		want   Reading
	}{
		{"DCGM_FI_DEV_GPU_UTIL", 37, Reading{Signal: GPUUtil, Value: 37}},
		{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, Reading{Signal: GREngine, Value: 0.5}},
		{"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 0.5, Reading{Signal: GREngine, Value: 0.5}},
		{"1001", 0.5, Reading{Signal: GREngine, Value: 0.5}},
		{"203", 37, Reading{Signal: GPUUtil, Value: 37}},
		{"dcgm_fi_prof_sm_active", 0.25, Reading{Signal: SMActive, Value: 0.25}},
		{"DCGM_FI_PROF_SM_UTIL_RATIO", 0.25, Reading{Signal: SMActive, Value: 0.25}},
		{"1002", 0.25, Reading{Signal: SMActive, Value: 0.25}},
		{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.25, Reading{Signal: TensorActive, Value: 0.25}},
		{"DCGM_FI_PROF_TENSOR_UTIL_RATIO", 0.25, Reading{Signal: TensorActive, Value: 0.25}},
		{"1004", 0.25, Reading{Signal: TensorActive, Value: 0.25}},
		{"DCGM_FI_PROF_DRAM_ACTIVE", 0.25, Reading{Signal: DRAMActive, Value: 0.25}},
		{"DCGM_FI_PROF_DRAM_UTIL_RATIO", 0.25, Reading{Signal: DRAMActive, Value: 0.25}},
		{"1005", 0.25, Reading{Signal: DRAMActive, Value: 0.25}},
		{"exported_DCGM_FI_DEV_FB_USED", 2, Reading{Signal: MemUsed, Value: 2 << 20}},
		{"252", 2, Reading{Signal: MemUsed, Value: 2 << 20}},
		{"DCGM_FI_DEV_FB_FREE", 2, Reading{Signal: MemFree, Value: 2 << 20}},
		{"251", 2, Reading{Signal: MemFree, Value: 2 << 20}},
		{"DCGM_FI_DEV_FB_TOTAL", 2, Reading{Signal: MemTotal, Value: 2 << 20}},
		{"250", 2, Reading{Signal: MemTotal, Value: 2 << 20}},
		{"DCGM_FI_DEV_POWER_USAGE", 300, Reading{Signal: Power, Value: 300}},
		{"155", 300, Reading{Signal: Power, Value: 300}},
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 5000, Reading{Signal: Energy, Value: 5}},
		{"156", 5000, Reading{Signal: Energy, Value: 5}},
		{"DCGM_FI_DEV_GPU_TEMP", 61, Reading{Signal: Temperature, Value: 61}},
		{"temperature.gpu", 61, Reading{Signal: Temperature, Value: 61}},
		{"DCGM_FI_PROF_SM_OCCUPANCY", 0.4, Reading{Signal: SMOccupancy, Value: 0.4}},
		{"DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 0.4, Reading{Signal: SMOccupancy, Value: 0.4}},
		{"1003", 0.4, Reading{Signal: SMOccupancy, Value: 0.4}},
		{"NVML_GPM_METRIC_SM_OCCUPANCY", 40, Reading{Signal: SMOccupancy, Value: 0.4}},
		{"DCGM_FI_DEV_SLOWDOWN_TEMP", 90, Reading{Signal: SlowdownTemperature, Value: 90}},
		{"158", 90, Reading{Signal: SlowdownTemperature, Value: 90}},
		{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 0x24, Reading{Signal: Throttle, Value: 0x24}},
		{"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0x24, Reading{Signal: Throttle, Value: 0x24}},
		{"112", 0x24, Reading{Signal: Throttle, Value: 0x24}},
		{"nvidia_smi_clocks_throttle_reasons_active", 4, Reading{Signal: Throttle, Value: 4}},
		{"DCGM_FI_DEV_XID_ERRORS", 79, Reading{Signal: XID, Value: 79}},
		{"230", 79, Reading{Signal: XID, Value: 79}},
		{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2, Reading{Signal: ECCErrors, Value: 2}},
		{"311", 2, Reading{Signal: ECCErrors, Value: 2}},
		{"DCGM_FI_DEV_COUNT", 8, Reading{Signal: GPUCount, Value: 8}},
		{"utilization.gpu [%]", 37, Reading{Signal: GPUUtil, Value: 37}},
		{"memory.used [MiB]", 2, Reading{Signal: MemUsed, Value: 2 << 20}},
		{"memory.free", 2, Reading{Signal: MemFree, Value: 2 << 20}},
		{"power.draw [mW]", 3000, Reading{Signal: Power, Value: 3}},
		{"NVML_GPM_METRIC_GRAPHICS_UTIL", 37, Reading{Signal: GREngine, Value: 0.37}},
		{"NVML_GPM_METRIC_SM_UTIL", 25, Reading{Signal: SMActive, Value: 0.25}},
		{"NVML_GPM_METRIC_ANY_TENSOR_UTIL", 25, Reading{Signal: TensorActive, Value: 0.25}},
		{"NVML_GPM_METRIC_DRAM_BW_UTIL", 25, Reading{Signal: DRAMActive, Value: 0.25}},
		{"nvidia_gpu_duty_cycle", 37, Reading{Signal: GPUUtil, Value: 37}},
		{"nvidia_gpu_power_usage_milliwatts", 3000, Reading{Signal: Power, Value: 3}},
		{"nvidia_smi_utilization_gpu", 37, Reading{Signal: GPUUtil, Value: 37}},
		{"nvidia_smi_memory_used", 2, Reading{Signal: MemUsed, Value: 2 << 20}},
		{"nvidia_smi_memory_used_bytes", 2, Reading{Signal: MemUsed, Value: 2}},
		{"nvidia_smi_power_draw", 300, Reading{Signal: Power, Value: 300}},
		{"cpu_usage_active", 12, Reading{Signal: CPUUtil, Value: 12}},
		{"DCGM_FI_PROF_SM_ACTIVE", 1.004, Reading{Signal: SMActive, Value: 1}},
	} {
		got, ok := Normalize(tc.metric, nil, tc.value)
		if diff := cmp.Diff(tc.want, got); !ok || diff != "" {
			t.Errorf("%s %v: known %v (-want +got):\n%s", tc.metric, tc.value, ok, diff)
		}
	}
}

func TestNormalizeDrops(t *testing.T) {
	for _, tc := range []struct {
		name, metric string
		value        float64
	}{
		{"64-bit sentinel", "DCGM_FI_DEV_FB_USED", 9223372036854775794},
		{"its siblings", "DCGM_FI_DEV_FB_USED", 9223372036854775792},
		{"32-bit sentinel", "DCGM_FI_DEV_GPU_UTIL", 2147483634},
		{"floating sentinel", "DCGM_FI_PROF_SM_ACTIVE", 140737488355328},
		{"a sentinel of a signal without a limit", "DCGM_FI_DEV_POWER_USAGE", 9223372036854775794},
		{"negative", "DCGM_FI_DEV_GPU_UTIL", -1},
		{"NaN", "DCGM_FI_PROF_SM_ACTIVE", math.NaN()},
		{"infinite", "DCGM_FI_PROF_SM_ACTIVE", math.Inf(1)},
		{"a ratio that is a percentage", "DCGM_FI_PROF_SM_ACTIVE", 37},
		{"a percentage over 100", "DCGM_FI_DEV_GPU_UTIL", 137},
		{"more memory than there is", "DCGM_FI_DEV_FB_USED", 1 << 24},
		{"NVML's share of time in which memory is copied", "DCGM_FI_DEV_MEM_COPY_UTIL", 5},
		{"another field's number", "204", 5},
		{"a unit that does not fit", "memory.used [%]", 5},
		{"another metric", "node_load1", 5},
		{"one of our own names, which others use for other things", "step", 5},
	} {
		if got, ok := Normalize(tc.metric, nil, tc.value); ok {
			t.Errorf("%s: read as %+v", tc.name, got)
		}
	}
}

func TestNormalizeLabels(t *testing.T) {
	for _, tc := range []struct {
		name   string
		metric string
		labels map[string]string
		want   Reading
	}{
		{"dcgm-exporter", "DCGM_FI_DEV_POWER_USAGE",
			map[string]string{"gpu": "3", "UUID": "GPU-a", "device": "nvidia3", "modelName": "NVIDIA H100", "Hostname": "node-7", "instance": "10.0.0.7:9400"},
			Reading{Resource: "node-7", GPU: "3"}},
		{"a MIG instance lent to a pod", "DCGM_FI_DEV_POWER_USAGE",
			map[string]string{"GPU": "0", "GPU_I_ID": "9", "GPU_I_PROFILE": "1g.10gb", "HOSTNAME": "n", "pod": "tts", "namespace": "models", "container": "serve"},
			Reading{Resource: "n", GPU: "0:9", Profile: "1g.10gb", Pod: "tts", Namespace: "models", Container: "serve"}},
		{"in lower case", "DCGM_FI_DEV_POWER_USAGE",
			map[string]string{"gpu": "0", "gpu_i_id": "9", "gpu_i_profile": "1g.10gb", "hostname": "n", "pod_name": "tts", "pod_namespace": "models", "container_name": "serve"},
			Reading{Resource: "n", GPU: "0:9", Profile: "1g.10gb", Pod: "tts", Namespace: "models", Container: "serve"}},
		{"labels that Prometheus moved aside", "DCGM_FI_DEV_POWER_USAGE",
			map[string]string{"gpu": "0", "instance": "n:9400", "pod": "dcgm-exporter-x2", "exported_pod": "tts", "namespace": "monitoring", "exported_namespace": "models",
				"container": "exporter", "exported_container": "serve"},
			Reading{Resource: "n", GPU: "0", Pod: "tts", Namespace: "models", Container: "serve"}},
		{"a GPU that no pod has, next to its exporter's pod", "DCGM_FI_DEV_POWER_USAGE",
			map[string]string{"gpu": "0", "pod": "dcgm-exporter-x2", "exported_pod": ""}, Reading{GPU: "0"}},
		{"the CloudWatch agent", "nvidia_smi_power_draw", map[string]string{"InstanceId": "i-1", "index": "2", "host": "ip-10-0-0-1", "name": "Tesla T4"},
			Reading{Resource: "i-1", GPU: "2"}},
		{"only a device", "DCGM_FI_DEV_POWER_USAGE", map[string]string{"device": "nvidia1", "instance": "[::1]:9400"}, Reading{Resource: "::1", GPU: "1"}},
		{"only a UUID", "DCGM_FI_DEV_POWER_USAGE", map[string]string{"uuid": "GPU-a", "node": "n"}, Reading{Resource: "n", GPU: "GPU-a"}},
		{"a signal of the machine", "cpu_usage_active", map[string]string{"InstanceId": "i-1", "device": "nvme0", "cpu": "cpu-total"}, Reading{Resource: "i-1"}},
		{"nothing said", "DCGM_FI_DEV_POWER_USAGE", nil, Reading{}},
	} {
		got, ok := Normalize(tc.metric, tc.labels, 5)
		tc.want.Signal, tc.want.Value = got.Signal, got.Value
		if diff := cmp.Diff(tc.want, got); !ok || diff != "" {
			t.Errorf("%s: known %v (-want +got):\n%s", tc.name, ok, diff)
		}
	}
}

// TestReadExportedColumns: tables of DCGM's metrics with their labels are read as
// they are.
func TestReadExportedColumns(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"labels in any case", "timestamp,Hostname,gpu,UUID,GPU_I_ID,DCGM_FI_DEV_FB_USED,DCGM_FI_DEV_FB_FREE,DCGM_FI_PROF_SM_ACTIVE\n" +
			"60,n1,0,GPU-a,,1,3,0.5\n60,n1,1,GPU-b,7,1,3,0\n",
			[]string{"n1 0 1970-01-01T00:01:00Z sm_active=0.5 mem_used_bytes=1.048576e+06 mem_free_bytes=3.145728e+06",
				"n1 1:7 1970-01-01T00:01:00Z sm_active=0 mem_used_bytes=1.048576e+06 mem_free_bytes=3.145728e+06"}},
		{"utilization and the engine are kept apart", "time,instance_id,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_GR_ENGINE_ACTIVE\n0,i-1,0,100,0\n",
			[]string{"i-1 0 1970-01-01T00:00:00Z gpu_util=100 gr_engine_active=0"}},
		{"whichever comes first", "time,instance_id,gpu,DCGM_FI_PROF_GR_ENGINE_ACTIVE,DCGM_FI_DEV_GPU_UTIL\n0,i-1,0,0.25,100\n",
			[]string{"i-1 0 1970-01-01T00:00:00Z gpu_util=100 gr_engine_active=0.25"}},
		{"and the engine stands for utilization where that is blank", "time,instance_id,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_GR_ENGINE_ACTIVE\n0,i-1,0,40,\n1,i-1,0,,0.25\n",
			[]string{"i-1 0 1970-01-01T00:00:00Z gpu_util=40", "i-1 0 1970-01-01T00:00:01Z gpu_util=25 gr_engine_active=0.25"}},
		{"an index of the table is no GPU", "index,time,host,DCGM_FI_DEV_GPU_UTIL\n17,0,h,40\n", []string{"h  1970-01-01T00:00:00Z gpu_util=40"}},
		{"kernels and checkpoints", "resource,time,kernels,checkpoints,step\na,0,1,3,1200\n", []string{"a  1970-01-01T00:00:00Z kernels=1 step=1200 checkpoints=3"}},
	} {
		got, _, err := readAll(strings.NewReader(tc.in), Format{})
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tc.name, err, diff)
		}
	}
	// Labels are looked for only with standard metrics.
	if _, _, err := readAll(strings.NewReader("time,host,gpu_util\n0,h,1\n"), Format{}); err == nil {
		t.Error("a table of our own columns without a resource was read")
	}
}

func TestMemoryOfAGPU(t *testing.T) {
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

const exposition = `# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="n1",pod="a \"b\"\\\n"} 100
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",Hostname="n1",} 40 1782864000250
DCGM_FI_PROF_GR_ENGINE_ACTIVE { gpu = "0" , Hostname="n1" } 1e-2
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="2",Hostname="n1"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="2",Hostname="n1"} 100
DCGM_FI_DEV_FB_USED{gpu="0",Hostname="n1"}	3
DCGM_FI_DEV_FB_TOTAL{gpu="0",Hostname="n1"} 9223372036854775794
{"DCGM_FI_DEV_POWER_USAGE",gpu="0",Hostname="n1"} 300 # {trace="x"} 1
go_goroutines 12

cpu_usage_active{host="n1"} NaN
`

func TestReadExposition(t *testing.T) {
	read := func(in string, f Format) (got []string, err error) {
		err = ReadExposition(context.Background(), strings.NewReader(in), f, start, func(s *Sample) error {
			got = append(got, flat(s))
			return nil
		})
		return got, err
	}
	got, err := read(exposition, Format{})
	want := []string{
		"n1 0 2026-07-01T00:00:00Z gpu_util=100 gr_engine_active=0.01 mem_used_bytes=3.145728e+06 power_w=300",
		"n1 1 2026-07-01T00:00:00.25Z gpu_util=40",
		"n1 2 2026-07-01T00:00:00Z gpu_util=100 gr_engine_active=0",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err = read("DCGM_FI_DEV_GPU_UTIL 7\n", Format{Resource: "i-1"}); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "i-1  ") {
		t.Errorf("a row without labels of a named machine reads as %v, %v", got, err)
	}
	for in, want := range map[string]string{
		"DCGM_FI_DEV_GPU_UTIL 7": "m:1: DCGM_FI_DEV_GPU_UTIL has no label that names its machine",
		"\nup{a=\"b\"} x":        "m:2:11: a number is expected",
		"up 1 yesterday":         "m:1:6: the time",
		"up{a=\"b\" c=\"d\"} 1":  "m:1:10: a comma",
		"up{a=b} 1":              "m:1:6: label",
		"up{a=\"b} 1":            "m:1:11: a label's value is not closed",
		"{a=\"b\"} 1":            "m:1:8: the name of a metric",
		"up":                     "m:1:3: a number",
		"up{" + strings.Repeat("x", maxLine) + "}": "m:1: the line is over",
	} {
		got, err := read(in+"\n"+exposition, Format{Name: "m"})
		var e *FileError
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) || len(got) > 0 {
			t.Errorf("%.40q: read %v, %v; want no sample and %q", in, got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ReadExposition(ctx, strings.NewReader(exposition), Format{}, start, func(*Sample) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// FuzzReadExposition: whatever a scrape holds, it ends, is wrong in one line, and
// gives only measurements within their range; and what is written of what was read
// reads the same again.
func FuzzReadExposition(f *testing.F) {
	f.Add(exposition)
	f.Add("a{b=\"\\\\\"} 0x1p-2 1.5\n{\"1001\"} 1e400\n")
	f.Fuzz(func(t *testing.T, in string) {
		read := func(in string) (out []string, samples []Sample, err error) {
			err = ReadExposition(context.Background(), strings.NewReader(in), Format{Resource: "r"}, start, func(s *Sample) error {
				out, samples = append(out, flat(s)), append(samples, *s)
				return nil
			})
			return out, samples, err
		}
		got, samples, err := read(in)
		if err != nil {
			var e *FileError
			if !errors.As(err, &e) || e.Line < 1 || strings.ContainsAny(e.Reason, "\n") {
				t.Fatalf("%q is not one line of a *FileError", err)
			}
			return
		}
		var b strings.Builder
		for _, s := range samples {
			for sig, metric := range map[Signal]string{GPUUtil: "NVML_GPM_METRIC_GRAPHICS_UTIL", MemUsed: "nvidia_gpu_memory_used_bytes"} {
				if v, ok := s.Get(sig); ok {
					fmt.Fprintf(&b, "%s{gpu=%s} %v %d\n", metric, quotedLabel(s.GPU), v, s.Time.UnixMilli())
				}
			}
			for sig := range numSignals {
				v, ok := s.Get(sig)
				if limit := sig.limit(); ok && (!(v >= 0) || math.IsInf(v, 0) || (limit > 0 && v > limit)) {
					t.Fatalf("%s is %v", sig, v)
				}
			}
		}
		_, again, err := read(b.String())
		if err != nil {
			t.Fatalf("%v; written of %v", err, got)
		}
		for _, a := range again {
			found := false
			for _, s := range samples {
				found = found || s.GPU == a.GPU && s.Time.Equal(a.Time)
			}
			if !found {
				t.Fatalf("%s was not in %v", flat(&a), got)
			}
		}
	})
}

func quotedLabel(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
