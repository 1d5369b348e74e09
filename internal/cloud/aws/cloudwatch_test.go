package aws

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestCallsCoverSeries checks for any series that no call splits or loses one, that their
// order is kept, and that no call exceeds CloudWatch's limits unless a single series does.
func TestCallsCoverSeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := batch{to: now, period: time.Hour}
		b.from = now.Add(-time.Duration(rapid.IntRange(1, 60*24).Draw(t, "hours")) * time.Hour)
		want := 0
		for i := range rapid.IntRange(0, 300).Draw(t, "series") {
			n := rapid.IntRange(1, 12).Draw(t, "statistics")
			want += n
			b.series = append(b.series, series{
				resource: &inventory.Resource{ID: fmt.Sprint(i)}, statistics: make([]statistic, n),
			})
		}
		periods := int(b.to.Sub(b.from) / b.period) // whole hours here
		got, next := 0, 0
		for _, call := range b.calls() {
			n := 0
			for _, s := range call {
				if s.resource.ID != fmt.Sprint(next) {
					t.Fatalf("series %s comes after series %d", s.resource.ID, next-1)
				}
				next++
				n += len(s.statistics)
			}
			if len(call) > 1 && (n > maxQueries || n*periods > maxDatapoints) {
				t.Fatalf("a call of %d statistics over %d periods", n, periods)
			}
			got += n
		}
		if got != want {
			t.Fatalf("%d statistics in the calls, want %d", got, want)
		}
	})
}

func TestFortnightFitsOnePage(t *testing.T) {
	b := batchOf(now, 14*24*time.Hour, time.Hour)
	if got := b.perCall(); got != 299 {
		t.Errorf("%d statistics a call over 14 days of 337 hours, want 299: at most 100,800 datapoints", got)
	}
	if b.from != time.Date(2026, 11, 7, 9, 0, 0, 0, time.UTC) || b.to != now {
		t.Errorf("the batch is [%s, %s)", b.from, b.to)
	}
}

// hours returns hourly points up to the end; NaN for none.
func hours(values ...float64) []point {
	var out []point
	for i, v := range values {
		if !math.IsNaN(v) {
			out = append(out, point{now.Truncate(time.Hour).Add(time.Duration(i-len(values)) * time.Hour), v})
		}
	}
	return out
}

// fortnight is two weeks.
var fortnight = usage.Interval{From: now.Add(-14 * 24 * time.Hour), To: now}

// testMeters returns meters of a fictitious place with a machine and its subject.
func testMeters() (*meters, *inventory.Resource, *subject) {
	p := &place{scan: &scan{cloud: &Cloud{}}, region: "us-east-1", account: &account{id: "1"}}
	m := p.meters(fortnight)
	r := &inventory.Resource{ID: "i-1", Kind: inventory.KindInstance, CreatedAt: now.Add(-48 * time.Hour)}
	return m, r, m.subject(r, &m.usual, r.CreatedAt)
}

// windowOf returns the window for given responses to one of a subject's series.
func windowOf(s *subject, x measurement, data [][]point) *usage.Window {
	w := usage.NewWindow(s.opened.From, now, s.opened.Step, s.opened.Source, nil)
	s.hold(x, data)
	(&scan{}).handOver(s, func(*inventory.Resource, usage.SourceInfo) usage.Sink { return w })
	return w
}

func TestUsageSourceStatesItsWindow(t *testing.T) {
	m, _, s := testMeters()
	want := usage.SourceInfo{
		From: time.Date(2026, 11, 19, 10, 0, 0, 0, time.UTC), Step: time.Hour, Source: "cloudwatch",
	}
	if s.opened != want {
		t.Errorf("a machine of two days is opened for %+v, want %+v", s.opened, want)
	}
	old := &inventory.Resource{ID: "i-2"}
	if s := m.subject(old, &m.usual, now.AddDate(0, -3, 0)); s.opened.From != m.usual.from {
		t.Errorf("an old machine is read from %s, want %s", s.opened.From, m.usual.from)
	}
	if s := m.subject(&inventory.Resource{ID: "i-3"}, &m.usual, now.Add(-10*time.Minute)); s != nil {
		t.Errorf("a machine of ten minutes is opened for %+v", s.opened)
	}
}

func TestPeriods(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct{ length, step, want time.Duration }{
		{3 * time.Hour, 0, time.Minute}, {12 * time.Hour, 0, 5 * time.Minute}, {14 * day, 0, time.Hour},
		{12 * time.Hour, time.Minute, time.Minute}, {12 * time.Hour, time.Second, time.Minute},
		{12 * time.Hour, 61 * time.Second, 2 * time.Minute},
		{14 * day, time.Minute, time.Minute}, {15*day + 1, time.Minute, 5 * time.Minute},
		{16 * day, 6 * time.Minute, 10 * time.Minute},
		{64 * day, time.Minute, time.Hour}, {64 * day, day, day},
	} {
		if got := periodOf(usage.Interval{From: now.Add(-tc.length), To: now, Step: tc.step}); got != tc.want {
			t.Errorf("%s by %s: a period of %s, want %s", tc.length, tc.step, got, tc.want)
		}
	}
}

func TestFolding(t *testing.T) {
	nan := math.NaN()
	one, two := metric{name: "a"}, metric{name: "b"}
	for _, tc := range []struct {
		name      string
		add       func(s *subject)
		data      [][]point
		signal    usage.Signal
		count     int
		mean, max float64
	}{
		{"mean and maximum", func(s *subject) {
			s.level("", usage.CPUUtil, 1, true, one)
		}, [][]point{hours(2, 4), hours(5, 9)}, usage.CPUUtil, 2, 3, 9},
		{"a mean without its maximum is nothing", func(s *subject) {
			s.level("", usage.CPUUtil, 1, true, one)
		}, [][]point{hours(2, 4), hours(nan, 9)}, usage.CPUUtil, 1, 4, 9},
		{"of all hosts, the highest", func(s *subject) {
			s.level("", usage.GPUUtil, 1, true, one, two)
		}, [][]point{hours(0, 0), hours(0, 0), hours(50, nan), hours(80, nan)}, usage.GPUUtil, 1, 50, 80},
		{"of one GPU's series, any", func(s *subject) {
			s.level("", usage.GPUUtil, 1, false, one, two)
		}, [][]point{hours(10, nan), hours(10, nan), hours(30, 20), hours(40, 20)}, usage.GPUUtil, 2, 25, 40},
		{"amounts add up", func(s *subject) {
			s.counter(usage.NetBytes, one, two)
		}, [][]point{hours(1, 0), hours(2, 0)}, usage.NetBytes, 2, 1.5, 3},
		{"half of nothing is unknown", func(s *subject) {
			s.counter(usage.NetBytes, one, two)
		}, [][]point{hours(0, 0), hours(nan, 0)}, usage.NetBytes, 1, 0, 0},
		{"half of something is something", func(s *subject) {
			s.counter(usage.NetBytes, one, two)
		}, [][]point{hours(7), hours(nan)}, usage.NetBytes, 1, 7, 7},
		{"nothing stays nothing", func(s *subject) {
			s.counter(usage.Requests, one)
		}, [][]point{nil}, usage.Requests, 0, 0, 0},
		// Utilization of a GPU that may be divided, with its used memory.
		{"work on a GPU that may be divided", func(s *subject) {
			s.undivided("", []metric{one})
		}, [][]point{hours(0, 20), hours(0, 40), hours(8<<30, 8<<30)}, usage.GPUUtil, 1, 20, 40},
		{"a GPU that may be divided and holds nothing", func(s *subject) {
			s.undivided("", []metric{one})
		}, [][]point{hours(0, 0), hours(0, 0), hours(3<<20, 8<<30)}, usage.GPUUtil, 1, 0, 0},
		{"nothing is known of the memory", func(s *subject) {
			s.undivided("", []metric{one})
		}, [][]point{hours(0, 5), hours(0, 9), nil}, usage.GPUUtil, 1, 5, 9},
		{"a gauge in another unit", func(s *subject) {
			s.gauge("", usage.MemTotal, 1<<20, maximum, one)
		}, [][]point{hours(2)}, usage.MemTotal, 1, 2 << 20, 2 << 20},
	} {
		_, _, s := testMeters()
		tc.add(s)
		if n := len(s.series[0].statistics); n != len(tc.data) {
			t.Fatalf("%s: %d statistics, the test has data for %d", tc.name, n, len(tc.data))
		}
		st := windowOf(s, s.series[0], tc.data).Machine.Stats(tc.signal)
		if st == nil {
			if tc.count != 0 {
				t.Errorf("%s: nothing was added", tc.name)
			}
			continue
		}
		if mean, err := st.Mean(); err != nil || st.Count != tc.count || mean != tc.mean || st.Max != tc.max {
			t.Errorf("%s: got %d points, mean %g, maximum %g, %v; want %d, %g, %g", tc.name,
				st.Count, mean, st.Max, err,
				tc.count, tc.mean, tc.max)
		}
	}
}

func TestIdentifyGPU(t *testing.T) {
	p := &place{hosts: map[string]string{"ip-10-0-0-1.ec2.internal": "i-7"}}
	for _, tc := range []struct {
		name         string
		dims         []types.Dimension
		machine, gpu string
	}{
		{"agent, machine only", dims("InstanceId", "i-1"), "i-1", ""},
		{
			"agent, each GPU",
			dims("InstanceId", "i-1", "index", "3", "name", "NVIDIA A100", "arch", "Ampere",
				"host", "ip-10-0-0-9"), "i-1",
			"3",
		},
		{
			"exporter",
			dims("Hostname", "ip-10-0-0-1.ec2.internal", "gpu", "2", "UUID", "GPU-a", "device", "nvidia2", "modelName",
				"NVIDIA H100"),
			"i-7", "2",
		},
		{"exporter with the machine's id", dims("instance_id", "i-2", "UUID", "GPU-a"), "i-2", "GPU-a"},
		{"a MIG instance", dims("InstanceId", "i-1", "gpu", "0", "GPU_I_ID", "5"), "i-1", "0:5"},
		{
			"a node of Container Insights",
			dims("ClusterName", "c", "InstanceId", "i-1", "InstanceType", "g5.xlarge", "NodeName",
				"ip-10-0-0-1.ec2.internal",
				"GpuDevice", "nvidia0"),
			"i-1", "nvidia0",
		},
		{
			"a NeuronCore of Container Insights",
			dims("ClusterName", "c", "InstanceId", "i-1", "InstanceType", "trn1.2xlarge",
				"NodeName", "n", "NeuronDevice",
				"device0", "NeuronCore", "core1"),
			"i-1", "device0",
		},
		{"all nodes of Container Insights", dims("ClusterName", "c"), "", ""},
		{"scrape target as instance", dims("instance", "10.0.0.1:9400", "gpu", "0"), "", "0"},
		{"an unknown host", dims("Hostname", "elsewhere", "gpu", "0"), "", "0"},
		{"nothing", nil, "", ""},
	} {
		if machine, gpu := p.identifyGPU(tc.dims); machine != tc.machine || gpu != tc.gpu {
			t.Errorf("%s: got %q, %q; want %q, %q", tc.name, machine, gpu, tc.machine, tc.gpu)
		}
	}
}

func TestBestFamily(t *testing.T) {
	whole, each := gpuSources{"": {{}}}, gpuSources{"0": {{}}, "1": {{}}}
	for _, tc := range []struct {
		name  string
		found []map[string]gpuSources
		want  int
	}{
		{"none", []map[string]gpuSources{{}, {}}, -1},
		{"the machine only", []map[string]gpuSources{{}, {"i-1": whole}}, 1},
		{"each GPU beats the machine", []map[string]gpuSources{{"i-1": whole}, {"i-1": each}}, 1},
		{"the first of two", []map[string]gpuSources{{"i-1": each}, {"i-1": each}}, 0},
		{"another machine's", []map[string]gpuSources{{"i-2": each}}, -1},
	} {
		if got := bestFamily(tc.found, "i-1"); got != tc.want {
			t.Errorf("%s: got family %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestInstancesHaveNoUtilization covers the metrics of whole GPUs and of MIG instances.
func TestInstancesHaveNoUtilization(t *testing.T) {
	for _, f := range busyFamilies {
		profiling := strings.Contains(f.metrics[0], "_PROF_")
		if whole, instance := measures(f.metrics[0], "0"), measures(f.metrics[0], "0:2"); !whole ||
			instance != profiling {
			t.Errorf("%s is a measurement of a whole GPU: %t, of an instance: %t", f.metrics[0], whole, instance)
		}
	}
}

// TestContainerInsightsFamilies checks the utilization of each device by its Container Insights
// name; the cores of a Neuron device count together, and only if all are present.
func TestContainerInsightsFamilies(t *testing.T) {
	family := func(first string) family {
		for _, f := range busyFamilies {
			if f.metrics[0] == first {
				return f
			}
		}
		t.Fatalf("no family begins with %s", first)
		return busyFamilies[0]
	}
	set := func(pairs ...string) metric { return metric{insights, "", dims(pairs...)} }
	cores := gpuSources{
		"device0": {
			set("NeuronDevice", "device0", "NeuronCore", "core0"),
			set("NeuronDevice", "device0", "NeuronCore", "core1"),
		},
	}
	gpu := gpuSources{"nvidia0": {set("GpuDevice", "nvidia0")}}
	for _, tc := range []struct {
		name, model, metric string
		sources             gpuSources
		data                [][]point
		want                string // mean of the device in percent, or why there is none
	}{
		{
			"a GPU at rest that cannot be divided", "A10G", "node_gpu_utilization", gpu, [][]point{hours(0), hours(0)},
			"0",
		},
		{"a GPU at work", "A10G", "node_gpu_utilization", gpu, [][]point{hours(35), hours(90)}, "35"},
		{
			"a GPU that may be divided, with memory in use", "H100-80GB", "node_gpu_utilization", gpu,
			[][]point{hours(0), hours(0), hours(20 << 30)}, "none",
		},
		{
			"a GPU of an unknown model, with memory in use", "", "node_gpu_utilization", gpu,
			[][]point{hours(0), hours(0), hours(20 << 30)}, "none",
		},
		{
			"a GPU that may be divided, without memory in use", "H100-80GB", "node_gpu_utilization", gpu,
			[][]point{hours(0), hours(0), hours(0)}, "0",
		},
		{
			"one core works", "Trainium", "node_neuroncore_utilization", cores,
			[][]point{hours(0), hours(0), hours(60), hours(80)}, "60",
		},
		{
			"no core works", "Trainium", "node_neuroncore_utilization", cores,
			[][]point{hours(0), hours(0), hours(0), hours(0)}, "0",
		},
		{
			"a core is silent", "Trainium", "node_neuroncore_utilization", cores,
			[][]point{hours(0), hours(0), nil, nil},
			"none",
		},
	} {
		m, r, subject := testMeters()
		r.Size = inventory.Size{GPUs: inventory.Known(1), GPU: tc.model}
		m.gpuFamily(subject, family(tc.metric), tc.sources)
		got := "none"
		for _, x := range subject.series {
			if x.signal != usage.GPUUtil {
				continue
			}
			if x.statistics[0].name != tc.metric || x.statistics[0].namespace != "ContainerInsights" {
				t.Errorf("%s: it asks for %s", tc.name, x.statistics[0].name)
			}
			if len(x.statistics) != len(tc.data) {
				t.Fatalf("%s: %d statistics, the test has data for %d", tc.name, len(x.statistics), len(tc.data))
			}
			for _, g := range windowOf(subject, x, tc.data).GPUs {
				if mean, err := g.Stats(usage.GPUUtil).Mean(); err == nil {
					got = fmt.Sprint(mean)
				}
				if _, ok := tc.sources[g.Name]; !ok {
					t.Errorf("%s: the device is called %q", tc.name, g.Name)
				}
			}
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestGPUFamilyNamesTheOnlyGPU(t *testing.T) {
	for _, tc := range []struct {
		name   string
		gpus   int
		memory bool
		want   []string // queried signals
		gpu    string   // the GPU of the utilization
	}{
		{
			"one GPU, memory in the catalog", 1, true,
			[]string{"nvidia_smi_memory_used", "nvidia_smi_power_draw", "nvidia_smi_utilization_gpu"}, "0",
		},
		{
			"eight GPUs in one series", 8, false,
			[]string{
				"nvidia_smi_memory_total", "nvidia_smi_memory_used", "nvidia_smi_power_draw",
				"nvidia_smi_utilization_gpu",
			},
			"",
		},
	} {
		m, r, subject := testMeters()
		r.Size.GPUs = inventory.Known(tc.gpus)
		if tc.memory {
			r.Size.GPUMemory = inventory.Known(int64(1 << 30))
		}
		m.gpuFamily(subject, busyFamilies[0], gpuSources{"": {{agentNamespace, "", dims("InstanceId", r.ID)}}})
		var asked []string
		var w *usage.Window
		for _, x := range subject.series {
			asked = append(asked, x.statistics[0].name)
			if x.statistics[0].name == "nvidia_smi_utilization_gpu" {
				w = windowOf(subject, x, [][]point{hours(50), hours(60)})
			}
		}
		slices.Sort(asked)
		if !slices.Equal(asked, tc.want) {
			t.Errorf("%s: asked for %v, want %v", tc.name, asked, tc.want)
		}
		if subject.opened.Aggregated {
			t.Errorf("%s: the series is taken as the maximum of all GPUs", tc.name)
		}
		named := len(w.GPUs) == 1 && w.GPUs[0].Name == tc.gpu
		if tc.gpu == "" {
			named = len(w.GPUs) == 0 && w.Machine.Stats(usage.GPUUtil) != nil
		}
		if !named {
			t.Errorf("%s: the utilization is not that of GPU %q", tc.name, tc.gpu)
		}
	}
}
