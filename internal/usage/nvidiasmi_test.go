package usage

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadNvidiaSMI(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		format   Format
		want     []string
	}{
		{
			"units and what is not available",
			"timestamp, uuid, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]\n" +
				"2026/07/01 00:00:00.250, GPU-a, 37 %, 1024 MiB, 81920 MiB, 70.50 W\n" +
				"2026/07/01 00:00:00.250, GPU-b, [N/A], 0 MiB, 81920 MiB, [Not Supported]\n", Format{Resource: "i-1"},
			[]string{
				"i-1 GPU-a 2026-07-01T00:00:00.25Z gpu_util=37 mem_used_bytes=1.073741824e+09 " +
					"mem_total_bytes=8.589934592e+10 " +
					"power_w=70.5",
				"i-1 GPU-b 2026-07-01T00:00:00.25Z mem_used_bytes=0 mem_total_bytes=8.589934592e+10"}},
		{
			"without units",
			"timestamp, index, utilization.gpu [%], memory.used [MiB]\n2026/07/01 00:00:00.000, 3, 37, 2\n",
			Format{Resource: "i-1"},
			[]string{"i-1 3 2026-07-01T00:00:00Z gpu_util=37 mem_used_bytes=2.097152e+06"}},
		{
			"another unit in the field", "timestamp, memory.used [MiB]\n2026/07/01 00:00:00.000, 2 GiB\n",
			Format{Resource: "i-1"},
			[]string{"i-1  2026-07-01T00:00:00Z mem_used_bytes=2.147483648e+09"}},
		{
			"index and uuid, unused fields",
			"timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], temperature.gpu\n" +
				"2026/07/01 00:00:00.000, 0, GPU-a, NVIDIA A100, 5 %, 99 %, 30\n", Format{Resource: "i-1"},
			[]string{"i-1 GPU-a 2026-07-01T00:00:00Z gpu_util=5 temperature_c=30"}},
		{
			"health", "timestamp, index, count, utilization.gpu [%], clocks_event_reasons.active, " +
				"clocks_throttle_reasons.active, ecc.errors.uncorrected.volatile.total\n" +
				"2026/07/01 00:00:00.000, 0, 8, 5 %, 0x0000000000000024, 0x0000000000000000, 2\n2026/07/01 " +
				"00:00:00.000, 1, 8, " +
				"5 %, [N/A], 0x0000000000000000, [N/A]\n", Format{Resource: "i-1"},
			[]string{
				"i-1 0 2026-07-01T00:00:00Z gpu_util=5 throttle_reasons=36 ecc_errors=2 gpu_count=8",
				"i-1 1 2026-07-01T00:00:00Z gpu_util=5 gpu_count=8",
			}},
		{
			"a zone of its own", "timestamp, utilization.gpu [%]\n2026/07/01 02:00:00.000, 5 %\n",
			Format{Resource: "i-1", Location: time.FixedZone("", 7200)},
			[]string{"i-1  2026-07-01T00:00:00Z gpu_util=5"}},
		{
			"begun again",
			"timestamp, utilization.gpu [%]\n2026/07/01 00:00:00.000, 5 %\ntimestamp, utilization.gpu " +
				"[%]\n2026/07/01 00:00:01.000, 6 %\n", Format{Resource: "i-1"},
			[]string{"i-1  2026-07-01T00:00:00Z gpu_util=5", "i-1  2026-07-01T00:00:01Z gpu_util=6"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := readAll(strings.NewReader(tc.in), tc.format)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("samples differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadRejectsInvalidNvidiaSMI(t *testing.T) {
	for _, tc := range []struct {
		name, in, want string
		format         Format
	}{
		{
			"no resource", "timestamp, utilization.gpu [%]\n",
			"smi.csv:1: this is the output of nvidia-smi, which does not name its machine", Format{},
		},
		{
			"a map", "timestamp, utilization.gpu [%]\n", "takes no map",
			Format{Resource: "i-1", Map: map[string]string{"gpu": "x"}},
		},
		{"no timestamp", "uuid, utilization.gpu [%]\n", "has no timestamp", Format{Resource: "i-1"}},
		{
			"several GPUs and no index",
			"timestamp, utilization.gpu [%]\n2026/07/01 00:00:00.000, 5 %\n2026/07/01 00:00:00.000, 6 %\n",
			"smi.csv:3: a second row at the same time", Format{Resource: "i-1"}},
		{
			"a unit that does not fit", "timestamp, utilization.gpu [%]\n2026/07/01 00:00:00.000, 5 W\n",
			`smi.csv:2:2: utilization.gpu "5 W" has a unit`, Format{Resource: "i-1"},
		},
		{
			"a header unit that does not fit", "timestamp, memory.used [furlong]\n",
			`smi.csv:1:2: memory.used is in "furlong": MiB is expected`, Format{Resource: "i-1"},
		},
		{
			"no number", "timestamp, utilization.gpu [%]\n2026/07/01 00:00:00.000, high %\n",
			`smi.csv:2:2: utilization.gpu "high %" is not a number`, Format{Resource: "i-1"},
		},
		{
			"a field twice", "timestamp, utilization.gpu [%], utilization.gpu [%]\n",
			"smi.csv:1:3: utilization.gpu is there again", Format{Resource: "i-1"},
		},
		{
			"a date that is none",
			"timestamp, utilization.gpu [%]\n2026/13/01 00:00:00.000, 5 %\n", "smi.csv:2:1: time",
			Format{Resource: "i-1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.format.Name = "smi.csv"
			_, _, err := readAll(strings.NewReader(tc.in), tc.format)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %s", err, tc.want)
			}
		})
	}
}
