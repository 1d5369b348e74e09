package prom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/prometheus"
)

// TestExporters checks that metrics of AWS Neuron and AMD, named and labeled as by their exporters,
// are read as the right signals in the right units without configuration.
func TestExporters(t *testing.T) {
	const minutes = 60
	from := at.Add(-minutes * time.Minute)
	flat := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	neuron := func(more string) string {
		return `availability_zone="us-east-1c",instance_id="i-0",instance_name="",instance_type="trn1.32xlarge",region="us-east-1",runtime_tag="367",subnet_id="subnet-1",` + more
	}
	amd := func(more string) string {
		return strings.TrimSuffix(
			`gpu_id="3",gpu_partition_id="0",gpu_compute_partition_type="spx",card_model="102-G30211-0C",card_vendor="AMD",driver_version="6.12.12",serial_number="692409005408",`+
				`hostname="ip-10-0-0-1.ec2.internal",instance="10.0.0.1:5000",job="amd",`+more, ",")
	}
	for _, tc := range []struct {
		name    string
		machine int
		gpu     string
		holder  *Holder
		series  []prometheus.Series
		want    map[string]float64
	}{
		{"neuron-monitor", 0, "5", nil, []prometheus.Series{
			history("neuroncore_utilization_ratio", neuron(`neuroncore="5"`), from, minutes, flat(0.8633)),
			history("neuroncore_memory_usage_constants",
				neuron(`memory_location="None",neuroncore="5"`), from, minutes,
				flat(1e6)),
			history("neuroncore_memory_usage_model_code",
				neuron(`memory_location="None",neuroncore="5"`), from, minutes,
				flat(2e6)),
			history("neuroncore_memory_usage_tensors", neuron(`memory_location="None",neuroncore="5"`), from, minutes,
				flat(4e6)),
			history("neuroncore_memory_usage_tensors",
				neuron(`memory_location="None",neuroncore="5",replica="b"`), from,
				minutes, flat(4e6)),
			history("neuron_runtime_memory_used_bytes", neuron(`memory_location="host"`), from, minutes, flat(9e9)),
		}, map[string]float64{"gpu_util": 86.33, "mem_used_bytes": 7e6}},
		{
			"AMD Device Metrics Exporter", 1, "3", &Holder{GPU: "3", Namespace: "ml", Pod: "train-0", Job: "8"},
			[]prometheus.Series{
				history("gpu_gfx_activity",
					amd(`namespace="ml",pod="train-0",container="main",job_id="8",job_user="ana",job_partition="gpu"`),
					from, minutes,
					flat(97)),
				history("gpu_used_vram", amd(""), from, minutes, flat(1024)),
				history("gpu_total_vram", amd(""), from, minutes, flat(196288)),
				history("gpu_package_power", amd(""), from, minutes, flat(690)),
				history("gpu_junction_temperature", amd(""), from, minutes, flat(71)),
				history("gpu_energy_consumed", amd(""), from, minutes, func(i int) float64 {
					return 2e9 * float64(i+1)
				}),
			}, map[string]float64{
				"gpu_util": 97, "mem_used_bytes": 1 << 30, "mem_total_bytes": 196288 << 20,
				"power_w": 690, "temperature_c": 71,
				"energy_j": 2000 * minutes,
			}},
		{"AMD in a GPU operator", 1, "3", nil, []prometheus.Series{
			history("amd_gpu_gfx_activity", amd(""), from, minutes, flat(5)),
			history("amd_gpu_used_vram", amd(""), from, minutes, flat(1)),
		}, map[string]float64{"gpu_util": 5, "mem_used_bytes": 1 << 20}},
		{"amd_smi_exporter", 1, "2", nil, []prometheus.Series{
			history("amd_gpu_use_percent",
				`gpu_use_percent="2",productname="MI210",instance="10.0.0.1:2021"`, from, minutes,
				flat(40)),
			history("amd_gpu_power", `gpu_power="2",productname="MI210",instance="10.0.0.1:2021"`,
				from, minutes, flat(250e6)),
		}, map[string]float64{"gpu_util": 40, "power_w": 250}},
		{"Omnistat", 1, "1", nil, []prometheus.Series{
			history("rocm_utilization_percentage", `card="1",instance="ip-10-0-0-1:8001"`, from, minutes, flat(12)),
			history("rocm_vram_total_bytes", `card="1",instance="ip-10-0-0-1:8001"`, from,
				minutes, flat(3.4342961152e10)),
			history("rocm_average_socket_power_watts", `card="1",instance="ip-10-0-0-1:8001"`,
				from, minutes, flat(35)),
		}, map[string]float64{"gpu_util": 12, "mem_total_bytes": 3.4342961152e10, "power_w": 35}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := New(Options{Access: Access{URL: servers["Prometheus"](t, tc.series)}})
			if err != nil {
				t.Fatal(err)
			}
			machines := fleetOf(2)
			got, blind := measure(t, s, machines, usage.Interval{From: from, To: at, Step: time.Minute})
			last, counts := map[string]float64{}, map[string]int{}
			for _, p := range got {
				if p.Machine != machines[tc.machine].ID || p.GPU != tc.gpu {
					t.Fatalf("%+v is of another GPU", p)
				}
				last[p.Signal] = p.Max
				counts[p.Signal]++
			}
			if diff := cmp.Diff(tc.want, last, cmp.Comparer(near)); diff != "" || len(blind) > 0 {
				t.Errorf("signals differ (-want +got):\n%s%v", diff, blind)
			}
			for signal, n := range counts {
				if n != minutes {
					t.Errorf("%s has %d points", signal, n)
				}
			}
			if holders := s.Holders(machines[tc.machine].Ref()); tc.holder != nil &&
				fmt.Sprint(holders) != fmt.Sprint([]Holder{*tc.holder}) {
				t.Errorf("it is lent to %+v", holders)
			}
			long := time.Duration(26) * time.Hour
			got, _ = measure(t, s, machines, usage.Interval{From: at.Add(-long), To: at, Step: time.Hour})
			found := map[string]bool{}
			for _, p := range got {
				found[p.Signal] = found[p.Signal] || tc.want[p.Signal] > 0 && near(p.Max, tc.want[p.Signal])
			}
			for signal := range tc.want {
				if !found[signal] {
					t.Errorf("an interval past a day says of %s: %+v", signal, got)
				}
			}
		})
	}
}
