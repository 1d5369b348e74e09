package prom

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/prometheus"
)

// recordedPoint is a point that a sink received.
type recordedPoint struct {
	Machine, GPU, Signal string
	At                   time.Time
	Mean, Max            float64
	Step                 time.Duration
}

// measure returns all points of a source.
func measure(t testing.TB, s *Source, machines []*inventory.Resource, iv usage.Interval) ([]recordedPoint,
	[]inventory.BlindSpot) {
	t.Helper()
	var out []recordedPoint
	m, err := s.Measure(t.Context(), machines, iv, func(r *inventory.Resource, o usage.SourceInfo) usage.Sink {
		return usage.SinkFunc(func(gpu string, sig usage.Signal, p usage.Point) bool {
			out = append(out, recordedPoint{r.ID, gpu, sig.String(), p.Time, p.Mean, p.Max, o.Step})
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, m.BlindSpots
}

// fleetOf returns machines i-0, i-1 and so on with private addresses as aliases.
func fleetOf(n int) []*inventory.Resource {
	var out []*inventory.Resource
	for i := range n {
		out = append(out, &inventory.Resource{
			Kind: inventory.KindInstance, Cloud: "aws", Account: "1", Region: "r", ID: fmt.Sprintf("i-%d", i),
			State:   inventory.StateRunning,
			Aliases: []string{fmt.Sprintf("ip-10-0-0-%d.ec2.internal", i), fmt.Sprintf("10.0.0.%d", i)}})
	}
	return out
}

// dcgm are the labels of dcgm-exporter in Kubernetes, where Hostname is its pod's name.
func dcgm(machine, gpu int, more string) string {
	return fmt.Sprintf(
		`gpu="%d",UUID="GPU-%d-%d",device="nvidia%d",modelName="NVIDIA H100",Hostname="dcgm-exporter-x%d",instance="ip-10-0-0-%d.ec2.internal:9400",job="dcgm"%s`,
		gpu, machine, gpu, gpu, machine, machine, more)
}

// history returns a series with one value a minute.
func history(name, labels string, from time.Time, minutes int, value func(i int) float64) prometheus.Series {
	s := prometheus.Series{Name: name, Labels: labels}
	for i := range minutes {
		if v := value(i); v >= 0 || math.IsNaN(v) {
			s.Points = append(s.Points, prometheus.Point{At: from.Add(time.Duration(i) * time.Minute), V: v})
		}
	}
	return s
}

// servers starts the real servers that every case runs against.
var servers = map[string]func(testing.TB, []prometheus.Series) string{
	"Prometheus":      func(t testing.TB, h []prometheus.Series) string { return prometheus.Start(t, h, "") },
	"VictoriaMetrics": func(t testing.TB, h []prometheus.Series) string { return prometheus.Victoria(t, h) },
}

// at is the end of the recorded histories.
var at = time.Now().UTC().Truncate(time.Hour)

// TestServers checks against real servers that every sample is read as recorded, gaps stay gaps,
// replicas count as one GPU, and names that match no machine are listed.
func TestServers(t *testing.T) {
	const minutes = 300
	from := at.Add(-minutes * time.Minute)
	random := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, minutes)
	for i := range values {
		values[i] = math.Round(random.Float64() * 100)
		if i >= 100 && i < 123 {
			values[i] = -1 // a gap
		}
	}
	util := func(i int) float64 { return values[i] }
	lost := func(i int) float64 { // a replica that lost other samples
		if i%7 == 0 {
			return -1
		}
		return values[i]
	}
	share := func(i int) float64 { return max(-1, values[i]/100) }
	flat := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	h := []prometheus.Series{
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, `,prometheus_replica="a"`), from, minutes, util),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, `,prometheus_replica="b"`), from, minutes, lost),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 1, `,exported_pod="train-1"`), from, minutes, flat(7)),
		history("DCGM_FI_DEV_FB_USED", dcgm(0, 0, `,prometheus_replica="a"`), from, minutes, flat(1024)),
		history("DCGM_FI_DEV_FB_TOTAL", dcgm(0, 0, `,prometheus_replica="a"`), from, minutes,
			flat(9223372036854775794)),
		history("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
			dcgm(1, 0, `,GPU_I_ID="3",GPU_I_PROFILE="1g.10gb"`), from, minutes,
			share),
		history("DCGM_FI_PROF_SM_ACTIVE", dcgm(1, 0, `,GPU_I_ID="3",GPU_I_PROFILE="1g.10gb"`), from, minutes, share),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(9, 0, ""), from, minutes, flat(3)),
		history("DCGM_FI_DEV_GPU_UTIL", `gpu="0",UUID="GPU-two",node="i-0",instance="10.0.0.1:9400"`, from, minutes,
			flat(3)),
		history("npu_busy_ratio", `gpu="2",instance_id="i-2"`, from, minutes, share),
	}
	for _, cpu := range []string{"0", "1"} {
		for _, mode := range []string{"idle", "user"} {
			spent := 0.0
			h = append(h,
				history("node_cpu_seconds_total",
					fmt.Sprintf(`cpu="%s",mode="%s",instance="10.0.0.0:9100",job="node"`, cpu, mode),
					from, minutes, func(int) float64 {
						spent += map[string]float64{"idle": 45, "user": 15}[mode]
						return spent
					}))
		}
	}
	for _, name := range []string{"node_network_receive_bytes_total", "node_network_transmit_bytes_total"} {
		for device, each := range map[string]float64{"eth0": 6e6, "lo": 6e9} {
			h = append(h,
				history(name, fmt.Sprintf(`device="%s",instance="10.0.0.0:9100",job="node"`, device), from, minutes,
					func(i int) float64 { return each * float64(i) }))
		}
	}
	machines := fleetOf(3)
	iv := usage.Interval{From: from, To: at, Step: time.Minute}
	var want []recordedPoint
	add := func(machine, gpu, signal string, value func(i int) float64) {
		for i := range minutes {
			if v := value(i); v >= 0 {
				want = append(want, recordedPoint{
					machine, gpu, signal, from.Add(time.Duration(i) * time.Minute), v, v, time.Minute,
				})
			}
		}
	}
	add("i-0", "GPU-0-0", "gpu_util", util)
	add("i-0", "GPU-0-1", "gpu_util", flat(7))
	add("i-0", "GPU-0-0", "mem_used_bytes", flat(1<<30))
	add("i-1", "GPU-1-0:3", "gr_engine_active", share)
	add("i-1", "GPU-1-0:3", "gpu_util", func(i int) float64 { return 100 * share(i) })
	add("i-1", "GPU-1-0:3", "sm_active", share)
	add("i-2", "2", "gpu_util", func(i int) float64 { return 100 * share(i) })
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{
				Access: Access{URL: start(t, h)}, Names: map[string]string{"npu_busy_ratio": "gpu_util*100"},
			})
			if err != nil {
				t.Fatal(err)
			}
			got, blind := measure(t, s, machines, iv)
			host := map[string][]recordedPoint{}
			got = slices.DeleteFunc(got, func(x recordedPoint) bool {
				if x.GPU == "" {
					host[x.Signal] = append(host[x.Signal], x)
				}
				return x.GPU == ""
			})
			if diff := cmp.Diff(sorted(want), sorted(got), cmp.Comparer(near)); diff != "" {
				t.Errorf("points differ (-recorded +read):\n%.3000s", diff)
			}
			for signal, value := range map[string]float64{"cpu_util": 25, "net_bytes": 12e6} {
				list := host[signal]
				if len(list) < minutes-5 || len(list) > minutes {
					t.Errorf("%s has %d points of %d", signal, len(list), minutes)
				}
				for _, p := range list[2:] { // the first rates cover less than a whole range
					if p.Machine != "i-0" || math.Abs(p.Max-value) > value/50 || p.Step != time.Minute {
						t.Fatalf("%s is %+v, want %v", signal, p, value)
					}
				}
			}
			unknown, ambiguous := s.Unmatched()
			if diff := cmp.Diff([]string{"dcgm-exporter-x9 / ip-10-0-0-9.ec2.internal"}, unknown); diff != "" {
				t.Errorf("unmatched differ:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"i-0 / 10.0.0.1"}, ambiguous); diff != "" {
				t.Errorf("ambiguous differ:\n%s", diff)
			}
			if len(blind) != 2 {
				t.Errorf("blind spots are %+v", blind)
			}
		})
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

func sorted(list []recordedPoint) []recordedPoint {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b recordedPoint) int {
		if a.Machine != b.Machine || a.GPU != b.GPU || a.Signal != b.Signal {
			return cmpText(a.Machine+"|"+a.GPU+"|"+a.Signal, b.Machine+"|"+b.GPU+"|"+b.Signal)
		}
		return a.At.Compare(b.At)
	})
	return out
}

func cmpText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestLongIntervals checks that beyond a day each hour is read as its maximum and mean. An hour
// with too few samples proves no idleness, but one that shows activity counts.
func TestLongIntervals(t *testing.T) {
	const days = 3
	from := at.Add(-days * 24 * time.Hour)
	hour := func(i int) int { return i / 60 }
	util := func(i int) float64 {
		switch h := hour(i); {
		case h == 10 && i%60 >= 30, h == 20: // half of the samples are missing, or all
			return -1
		case h == 30 && i%60 < 45 && i%60 != 7: // a quarter is missing, and one sample shows activity
			return -1
		case h == 30 && i%60 == 7, h == 40 && i%60 == 59:
			return 90
		}
		return 0
	}
	idle := func(each float64) func(int) float64 { return func(i int) float64 { return each * float64(i) } }
	burst := func(i int) float64 { // 20 minutes of work in hour 50
		return 60*float64(i) - 60*float64(min(max(i-50*60, 0), 20))
	}
	minutes := days * 24 * 60
	h := []prometheus.Series{
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, `,replica="a"`), from, minutes, util),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, `,replica="b"`), from, minutes, util),
		history("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", dcgm(0, 0, ""), from, minutes, idle(4e6)),
		history("node_cpu_seconds_total",
			`cpu="0",mode="idle",instance="10.0.0.0:9100",job="node"`, from, minutes, burst),
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{Access: Access{URL: start(t, h)}})
			if err != nil {
				t.Fatal(err)
			}
			one, _ := measure(t, s, fleetOf(1), usage.Interval{From: from, To: at, Step: time.Hour})
			s.maxRaw = 0 // by statistics
			got, blind := measure(t, s, fleetOf(1), usage.Interval{From: from, To: at, Step: time.Hour})
			if diff := cmp.Diff(sorted(got), sorted(one), cmp.Comparer(near)); diff != "" || len(blind) > 0 {
				t.Errorf("blind spots are %+v; by samples and by statistics differ:\n%.2000s", blind, diff)
			}
			hours := map[string]map[int]recordedPoint{}
			for _, p := range got {
				if hours[p.Signal] == nil {
					hours[p.Signal] = map[int]recordedPoint{}
				}
				h := int(p.At.Sub(from) / time.Hour)
				if _, twice := hours[p.Signal][h]; twice || p.Step != time.Hour ||
					!p.At.Equal(from.Add(time.Duration(h)*time.Hour)) {
					t.Fatalf("%+v is there twice, or at no hour", p)
				}
				hours[p.Signal][h] = p
			}
			for h := range days * 24 {
				p, ok := hours["gpu_util"][h]
				want := map[int]float64{30: 90, 40: 90}[h]
				if missing := h == 10 || h == 20; ok == missing || ok && p.Max != want {
					t.Errorf("hour %d of utilization is %+v, %v", h, p, ok)
				}
				if h == 40 && math.Abs(p.Mean-1.5) > 1e-9 {
					t.Errorf("its mean is %v, want 1.5", p.Mean)
				}
			}
			if p := hours["energy_j"][5]; p.Max < 4e3*359 || p.Max > 4e3*361 {
				t.Errorf("energy of hour 5 is %+v", p)
			}
			if p := hours["cpu_util"][50]; p.Max < 90 || p.Mean < 25 || p.Mean > 45 {
				t.Errorf("the CPUs of hour 50 are %+v, want a peak of 100 and a mean of 33", p)
			}
			if p, ok := hours["cpu_util"][55]; !ok || p.Max > 1 {
				t.Errorf("the CPUs of hour 55 are %+v", p)
			}
		})
	}
}

// TestRequestsOfModelServers reads the requests of the model server of each machine: one that rose once,
// one that never rose, one of which only a gauge of running requests is there.
func TestRequestsOfModelServers(t *testing.T) {
	const days = 3
	from, minutes := at.Add(-days*24*time.Hour), days*24*60
	asked := func(i int) float64 { // 60 requests in hour 50
		return float64(min(max(i-50*60, 0), 60))
	}
	labels := func(machine int, more string) string {
		return fmt.Sprintf(`instance="10.0.0.%d:8000",job="embed",model_name="m"%s`, machine, more)
	}
	still := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	h := []prometheus.Series{
		history("vllm:request_success_total", labels(0, `,finished_reason="stop"`), from, minutes, asked),
		history("vllm:request_success_total", labels(0, `,finished_reason="length"`), from, minutes, still(0)),
		history("vllm:num_requests_running", labels(0, ""), from, minutes, still(0)),
		history("tgi_request_count", labels(1, ""), from, minutes, still(7)),
		history("vllm:num_requests_running", labels(2, ""), from, minutes, still(0)),
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{Access: Access{URL: start(t, h)}})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := measure(t, s, fleetOf(3), usage.Interval{From: from, To: at, Step: time.Hour})
			most, hours := map[string]float64{}, map[string]int{}
			for _, p := range got {
				if p.Signal == "requests" {
					most[p.Machine] = max(most[p.Machine], p.Max)
					hours[p.Machine]++
				}
			}
			first, second, third := fleetOf(3)[0].ID, fleetOf(3)[1].ID, fleetOf(3)[2].ID
			if most[first] < 1 || hours[first] < days*24-2 {
				t.Errorf("the server that was asked: at most %v in %d hours", most[first], hours[first])
			}
			if most[second] != 0 || hours[second] < days*24-2 {
				t.Errorf("the server that no one asked: at most %v in %d hours", most[second], hours[second])
			}
			if hours[third] != 0 {
				t.Errorf("a gauge of 0 counts as %d hours without requests", hours[third])
			}
		})
	}
}

// TestDownSampledLowersCoverage checks that samples every five minutes where there was one a minute lower the
// coverage and are reported.
func TestDownSampledLowersCoverage(t *testing.T) {
	from := at.Add(-48 * time.Hour)
	util := func(i int) float64 {
		if i < 40*60 && i%5 != 0 {
			return -1
		}
		return 0
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{
				Access: Access{
					URL: start(t, []prometheus.Series{
						history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, ""), from, 48*60, util),
					}),
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			thinned(t, s, from)
		})
	}
}

// thinned checks that only the last 8 of 48 hours prove idleness, because the first 40 are
// down-sampled.
func thinned(t *testing.T, s *Source, from time.Time) {
	t.Helper()
	for _, s.maxRaw = range []float64{maxRaw, 0} {
		onceThinned(t, s, from)
	}
}

func onceThinned(t *testing.T, s *Source, from time.Time) {
	t.Helper()
	got, blind := measure(t, s, fleetOf(1), usage.Interval{From: from, To: at, Step: time.Hour})
	if len(got) != 8 || got[0].At.Before(from.Add(40*time.Hour)) || len(blind) != 1 ||
		blind[0].Effect != "rest in that time counts as unknown" {
		t.Errorf("%d hours, and %+v", len(got), blind)
	}
}

// TestAggregated imitates Thanos, which serves blocks at a resolution of five minutes with the min,
// max, sum and count of the aggregated samples (thanos-io/thanos, pkg/compact/downsample,
// ResLevel1; pkg/query, aggrsFromFunc). Maxima are exact there, and count_over_time counts the
// aggregates, 12 an hour.
func TestAggregated(t *testing.T) {
	from := at.Add(-48 * time.Hour)
	const labels = `{"UUID":"GPU-1","gpu":"0","instance":"10.0.0.0:9400"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.FormValue("query")
		statistic, _, _ := strings.Cut(strings.TrimPrefix(q, "("), "_over_time(DCGM_FI_DEV_GPU_UTIL{")
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[`)
		switch {
		case strings.HasPrefix(q, "{__name__=~"): // the newest samples are not aggregated yet
			fmt.Fprintf(w, `{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL",%s,"values":[`, labels[1:])
			for i, comma := 0, ""; i < 48*60; i++ {
				if i >= 40*60 || i%5 == 4 {
					fmt.Fprintf(w, `%s[%d,"0"]`, comma, from.Add(time.Duration(i)*time.Minute).Unix())
					comma = ","
				}
			}
			fmt.Fprint(w, `]}`)
		case statistic == "count", statistic == "max", statistic == "avg":
			fmt.Fprintf(w, `{"metric":%s,"values":[`, labels)
			for h := 1; h <= 48; h++ {
				v := 0
				if statistic == "count" {
					if v = 60; h <= 40 {
						v = 12
					}
				}
				fmt.Fprintf(w, `%s[%d,"%d"]`, strings.Repeat(",", min(h-1, 1)),
					from.Add(time.Duration(h)*time.Hour).Unix(), v)
			}
			fmt.Fprint(w, `]}`)
		}
		fmt.Fprint(w, `]}}`)
	}))
	defer server.Close()
	s, err := New(Options{Access: Access{URL: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	thinned(t, s, from)
}

// TestReplicasDisagree checks that where two replicas disagree about a GPU the higher value is used
// and values are never summed. Samples of an exporter whose clock is an hour ahead are dropped.
func TestReplicasDisagree(t *testing.T) {
	const minutes = 27 * 60
	from := at.Add(-minutes * time.Minute)
	value := func(of int) func(int) float64 {
		return func(i int) float64 { // each works for five minutes of an hour, one after the other
			if i%60/5 == of {
				return float64(60 + 10*of)
			}
			return 0
		}
	}
	h := []prometheus.Series{
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, `,replica="a"`), from, minutes, value(0)),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(0, 0, `,replica="b"`), from, minutes, value(1)),
		history("DCGM_FI_DEV_GPU_UTIL", dcgm(1, 0, ""), at.Add(-time.Hour), 120, func(int) float64 { return 0 }),
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{Access: Access{URL: start(t, h)}})
			if err != nil {
				t.Fatal(err)
			}
			got, blind := measure(t, s, fleetOf(2), usage.Interval{
				From: at.Add(-2 * time.Hour), To: at, Step: time.Minute,
			})
			sum := 0.0
			for _, p := range got {
				want := 0.0
				switch i := int(p.At.Sub(from)/time.Minute) % 60; {
				case i < 5:
					want = 60
				case i < 10:
					want = 70
				}
				if sum += p.Max; p.Max != want || p.Machine != "i-0" {
					t.Errorf("%+v, want %v", p, want)
				}
			}
			if len(got) != 120 || sum != 2*5*130 || len(blind) != 1 ||
				!strings.Contains(blind[0].Why, "samples of i-1 are stamped with a time that is still to come") {
				t.Errorf("%d points add up to %v; %+v", len(got), sum, blind)
			}
			got, _ = measure(t, s, fleetOf(2), usage.Interval{From: from, To: at, Step: time.Hour})
			for _, p := range got {
				if p.Max != 70 || p.Machine != "i-0" || p.Mean > 70 {
					t.Errorf("an hour is %+v", p)
				}
			}
			if len(got) != 27 {
				t.Errorf("%d hours", len(got))
			}
		})
	}
}

// TestCloseSamples checks that samples closer than the step are aggregated, and that a minute with
// most samples missing proves no idleness.
func TestCloseSamples(t *testing.T) {
	from := at.Add(-time.Hour)
	s := prometheus.Series{Name: "DCGM_FI_DEV_GPU_UTIL", Labels: dcgm(0, 0, "")}
	for i := range 240 {
		switch minute := i / 4; {
		case minute == 20 && i%4 > 0, minute == 30 && i%4 < 3:
			continue // three of four samples are missing
		case minute == 30 || minute == 40 && i%4 == 2:
			s.Points = append(s.Points, prometheus.Point{At: from.Add(time.Duration(i) * 15 * time.Second), V: 80})
		default:
			s.Points = append(s.Points, prometheus.Point{At: from.Add(time.Duration(i) * 15 * time.Second), V: 0})
		}
	}
	src, err := New(Options{Access: Access{URL: servers["Prometheus"](t, []prometheus.Series{s})}})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := measure(t, src, fleetOf(1), usage.Interval{From: from, To: at, Step: time.Minute})
	minutes := map[int]recordedPoint{}
	for _, p := range got {
		minutes[int(p.At.Sub(from)/time.Minute)] = p
	}
	if _, there := minutes[20]; there || len(got) != 59 || minutes[30].Max != 80 || minutes[40].Max != 80 ||
		minutes[40].Mean != 20 || minutes[50].Max != 0 {
		t.Errorf("%d minutes; 30: %+v, 40: %+v", len(got), minutes[30], minutes[40])
	}
}
