package prom

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/prometheus"
)

// TestDropsPlaceholderReadings checks that placeholder values of exporters for missing meters are
// not samples, over hours and over days, and that impossible values are counted.
func TestDropsPlaceholderReadings(t *testing.T) {
	const minutes = 27 * 60
	from := at.Add(-minutes * time.Minute)
	flat := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	amd := func(gpu, partition int, mode string) string {
		return fmt.Sprintf(
			`gpu_id="%d",gpu_uuid="00000000-0000-0000-0000-000000000000",serial_number="88%d",gpu_partition_id="%d",gpu_compute_partition_type="%s",card_series="AMD Instinct MI355X",instance="10.0.0.2:5000"`,
			gpu, gpu/2, partition, mode)
	}
	wild := func(i int) float64 {
		if i == minutes-50 || i == minutes-30 {
			return 71_934
		}
		return 6
	}
	h := []prometheus.Series{
		// A GPU with MIG instances: one with profiling metrics, one without, and the whole GPU.
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, `,GPU_I_ID="1",GPU_I_PROFILE="3g.40gb"`), from, minutes, flat(0)),
		history("DCGM_FI_PROF_GR_ENGINE_ACTIVE", dcgm(0, 0, `,GPU_I_ID="1",GPU_I_PROFILE="3g.40gb"`), from, minutes,
			flat(0.5)),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, `,GPU_I_ID="2",GPU_I_PROFILE="3g.40gb"`), from, minutes, flat(0)),
		history("DCGM_FI_DEV_FB_USED", dcgm(0, 0, `,GPU_I_ID="2",GPU_I_PROFILE="3g.40gb"`), from, minutes, flat(11)),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, ""), from, minutes, flat(0)),
		// A GPU in MIG mode without an instance, and a whole one whose meter fails at times.
		history("DCGM_FI_DEV_MIG_MODE", dcgm(0, 1, ""), from, minutes, flat(1)),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 1, ""), from, minutes, flat(0)),
		history("DCGM_FI_DEV_MIG_MODE", dcgm(1, 0, ""), from, minutes, flat(0)),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(1, 0, ""), from, minutes, wild),
		// AMD: two partitions of a GPU, and a whole GPU, none with a UUID.
		history("gpu_gfx_activity", amd(0, 0, "dpx"), from, minutes, flat(0)),
		history("gpu_gfx_busy_instantaneous", amd(0, 0, "dpx"), from, minutes, flat(12)),
		history("gpu_package_power", amd(1, 1, "dpx"), from, minutes, flat(0)),
		history("gpu_used_vram", amd(1, 1, "dpx"), from, minutes, flat(5)),
		history("gpu_gfx_activity", amd(4, 4294967295, "spx"), from, minutes, flat(3)),
		// Intel: a GPU of two tiles, and the power of its card.
		history("xpum_engine_ratio", `uuid="xpu-0",pci_bdf="0000:3a:00.0",sub_dev="0",instance="10.0.0.3:29999"`, from,
			minutes, flat(0.25)),
		history("xpum_memory_used_bytes",
			`uuid="xpu-0",pci_bdf="0000:3a:00.0",sub_dev="0",instance="10.0.0.3:29999"`, from,
			minutes, flat(1e9)),
		history("xpum_memory_used_bytes",
			`uuid="xpu-0",pci_bdf="0000:3a:00.0",sub_dev="1",instance="10.0.0.3:29999"`, from,
			minutes, flat(2e9)),
		history("xpum_power_watts", `card="2147483649",instance="10.0.0.3:29999"`, from, minutes, flat(300)),
		history("xpum_temperature_celsius", `uuid="xpu-0",location="mem",instance="10.0.0.3:29999"`, from, minutes,
			flat(80)),
	}
	want := map[string]float64{
		"i-0 GPU-0-0:1 gr_engine_active": 0.5, "i-0 GPU-0-0:1 gpu_util": 50, "i-0 GPU-0-0:2 mem_used_bytes": 11 << 20,
		"i-1 GPU-1-0 gpu_util": 6,
		"i-2 880:0/2 gpu_util": 12, "i-2 880:1/2 mem_used_bytes": 5 << 20, "i-2 4 gpu_util": 3,
		"i-3 xpu-0 gpu_util": 25, "i-3 xpu-0 mem_used_bytes": 3e9,
	}
	url := servers["Prometheus"](t, h)
	for name, iv := range map[string]usage.Interval{
		"hours":         {From: at.Add(-2 * time.Hour), To: at, Step: time.Minute},
		"days":          {From: from, To: at, Step: time.Hour},
		"days in steps": {From: from, To: at, Step: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			impossible := 0
			s, err := New(Options{Access: Access{URL: url}, Left: func(machine string, signal usage.Signal, n int) {
				if machine != "i-1" || signal != usage.GPUUtil {
					t.Errorf("%d readings of %s on %s cannot be true", n, signal, machine)
				}
				impossible += n
			}})
			if err != nil {
				t.Fatal(err)
			}
			if name == "days in steps" {
				s.maxRaw = 1
			}
			got, blind := measure(t, s, fleetOf(4), iv)
			last := map[string]float64{}
			for _, p := range got {
				last[p.Machine+" "+p.GPU+" "+p.Signal] = p.Max
			}
			if !maps.EqualFunc(want, last, near) || len(blind) > 0 {
				t.Errorf("got %v, want %v; %v", last, slices.Sorted(maps.Keys(want)), blind)
			}
			if impossible == 0 || impossible != s.Impossible() {
				t.Errorf("%d readings were told to be impossible, %d counted", impossible, s.Impossible())
			}
		})
	}
}
