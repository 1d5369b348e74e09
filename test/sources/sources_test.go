// Package sources compares sources of usage: the same fleet and day, from CloudWatch, from
// dcgm-exporter and node_exporter through a real Prometheus, and from a file.
package sources

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/prom"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/prometheus"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// The fleet is drawn by -seed and has -machines machines.
var (
	seed     = flag.Uint64("seed", 1, "what the fleet is drawn by")
	machines = flag.Int("machines", 12, "how many machines the fleet has")
	live     = flag.Duration("live", 15*time.Second, "how long an exporter is scraped")
)

const (
	region  = "us-east-1"
	minutes = 26 * 60 // a day is judged, with two hours before it as history
	// step is the largest step of the sources: EC2 reports every five minutes.
	step = 5 * time.Minute
)

// machine is the activity of one machine, a value per minute; a negative one is a lost sample.
type machine struct {
	id, address, host string
	gpus              int
	util, memory      [][]float64 // of each GPU, percent and MiB
	cpu, network      []float64   // percent, bytes a minute
}

const memTotal = 16384 // MiB

// draw gives a machine an activity that changes every few hours: work, rest, rest with used memory,
// preparation of data, and gaps.
func draw(rng *rand.Rand, m *machine) {
	m.cpu, m.network = make([]float64, minutes), make([]float64, minutes)
	for range m.gpus {
		m.util, m.memory = append(m.util, make([]float64, minutes)), append(m.memory, make([]float64, minutes))
	}
	for at := 0; at < minutes; {
		habit, length := rng.IntN(5), 21+rng.IntN(600) // at any minute, which is rarely a multiple of five
		for i := at; i < min(at+length, minutes); i++ {
			m.cpu[i], m.network[i] = 1, 6e5
			for g := range m.gpus {
				m.util[g][i], m.memory[g][i] = 0, 3
				switch {
				case habit == 0 || habit == 4 && g > 0: // works, or all but the first do
					m.util[g][i], m.memory[g][i] = float64(60+rng.IntN(40)), 12_000
				case habit == 1: // holds memory
					m.memory[g][i] = 12_000
				}
			}
			if habit == 2 { // CPUs prepare data
				m.cpu[i] = 60
			}
		}
		at += length
	}
	for range rng.IntN(3) { // some scrapes are lost
		from := rng.IntN(minutes)
		for i := from; i < min(from+3+rng.IntN(20), minutes); i++ {
			for g := range m.gpus {
				m.util[g][i], m.memory[g][i] = -1, -1
			}
		}
	}
}

// world is the fleet in an account, and its day in all three sources.
type world struct {
	sandbox  *sandbox.Sandbox
	now      time.Time // the end of the day
	machines []*machine
}

func newWorld(t *testing.T) *world {
	s, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for _, e := range s.Env() {
		k, v, _ := strings.Cut(e, "=")
		t.Setenv(k, v)
	}
	w := &world{sandbox: s, now: time.Now().UTC().Truncate(step)}
	rng := rand.New(rand.NewPCG(*seed, 0))
	api := ec2.NewFromConfig(s.Config(region))
	for i := range *machines {
		m := &machine{gpus: 1}
		kind := types.InstanceType("g4dn.xlarge")
		if i%3 == 2 {
			m.gpus, kind = 4, "g4dn.12xlarge"
		}
		out, err := api.RunInstances(t.Context(), &ec2.RunInstancesInput{
			ImageId: aws.String("ami-0000000000000base"), MinCount: aws.Int32(1),
			MaxCount: aws.Int32(1), InstanceType: kind,
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{
				{
					Key: aws.String("Name"), Value: aws.String(fmt.Sprint("m-", i)),
				}, {Key: aws.String("team"), Value: aws.String("vision")}}}}})
		if err != nil {
			t.Fatal(err)
		}
		x := out.Instances[0]
		m.id, m.address, m.host = *x.InstanceId, *x.PrivateIpAddress, *x.PrivateDnsName
		s.Wire.Patch(wire.Patch{
			Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: m.id,
			Set: map[string]any{
				"launchTime": w.now.Add(-60 * time.Hour),
			}, Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
		draw(rng, m)
		w.machines = append(w.machines, m)
	}
	return w
}

// at returns the beginning of a minute of the day.
func (w *world) at(minute int) time.Time {
	return w.now.Add(time.Duration(minute-minutes) * time.Minute)
}

// cloudWatch publishes the day as EC2 and the CloudWatch agent do.
func (w *world) cloudWatch() {
	put := func(i int, namespace, name string, v float64, dims ...wire.Dimension) {
		if v >= 0 {
			w.sandbox.Wire.Metrics.Put(wire.DefaultAccount, region, namespace, name, dims,
				wire.Datum{Time: w.at(i), Sum: v, Min: v, Max: v, Count: 1})
		}
	}
	for _, m := range w.machines {
		host := wire.Dimension{Name: "InstanceId", Value: m.id}
		for i := range minutes {
			put(i, "AWS/EC2", "CPUUtilization", m.cpu[i], host)
			put(i, "AWS/EC2", "NetworkIn", m.network[i]/2, host)
			put(i, "AWS/EC2", "NetworkOut", m.network[i]/2, host)
			for g := range m.gpus {
				card := []wire.Dimension{
					host, {Name: "index", Value: fmt.Sprint(g)}, {Name: "name", Value: "Tesla T4"},
				}
				put(i, "CWAgent", "nvidia_smi_utilization_gpu", m.util[g][i], card...)
				put(i, "CWAgent", "nvidia_smi_memory_used", m.memory[g][i], card...)
				if m.memory[g][i] >= 0 {
					put(i, "CWAgent", "nvidia_smi_memory_total", memTotal, card...)
				}
			}
		}
	}
}

// dcgm returns the day as dcgm-exporter and node_exporter report it: the exporter's pod is the
// Hostname, and two replicas of Prometheus scraped it.
func (w *world) dcgm() []prometheus.Series {
	var out []prometheus.Series
	add := func(name, labels string, value func(i int) float64) {
		s := prometheus.Series{Name: name, Labels: labels}
		for i := range minutes {
			if v := value(i); v >= 0 {
				s.Points = append(s.Points, prometheus.Point{At: w.at(i), V: v})
			}
		}
		out = append(out, s)
	}
	for n, m := range w.machines {
		for g := range m.gpus {
			for _, replica := range []string{"a", "b"} {
				labels := fmt.Sprintf(
					`gpu="%d",UUID="GPU-%d-%d",device="nvidia%d",modelName="Tesla T4",Hostname="dcgm-exporter-%d",instance="%s:9400",job="dcgm",prometheus_replica="%s"`, g, n, g, g, n, m.host, replica)
				add("DCGM_FI_DEV_GPU_UTIL", labels, func(i int) float64 { return m.util[g][i] })
				add("DCGM_FI_DEV_FB_USED", labels, func(i int) float64 { return m.memory[g][i] })
				add("DCGM_FI_DEV_FB_FREE", labels, func(i int) float64 {
					return max(-1, min(memTotal-m.memory[g][i], memTotal)) - btoi(m.memory[g][i] < 0)*1e6
				})
			}
		}
		host := fmt.Sprintf(`instance="%s:9100",job="node"`, m.address)
		idle, received := 0.0, 0.0
		add("node_cpu_seconds_total", `cpu="0",mode="idle",`+host, func(i int) float64 {
			idle += 60 * (1 - m.cpu[i]/100)
			return idle
		})
		for _, name := range []string{"node_network_receive_bytes_total", "node_network_transmit_bytes_total"} {
			received = 0
			add(name, `device="ens5",`+host, func(i int) float64 {
				received += m.network[i] / 2
				return received
			})
		}
	}
	return out
}

func btoi(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// file writes the day as recorded usage.
func (w *world) file(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "day.csv")
	var b strings.Builder
	b.WriteString("resource,time,gpu,gpu_util,mem_used_bytes,mem_total_bytes,cpu_util,net_bytes\n")
	for _, m := range w.machines {
		for i := range minutes {
			at := w.at(i).Format(time.RFC3339)
			fmt.Fprintf(&b, "%s,%s,,,,,%v,%v\n", m.id, at, m.cpu[i], m.network[i])
			for g := range m.gpus {
				if m.util[g][i] >= 0 {
					fmt.Fprintf(&b, "%s,%s,%d,%v,%v,%v,,\n", m.id, at, g, m.util[g][i],
						m.memory[g][i]*(1<<20), memTotal*(1<<20))
				}
			}
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const ask = `apiVersion: curfew.policy/v1
policies:
  - {name: idle, select: {kind: instance}, when: 'duty.state == "idle"', then: [{warn: {grace: 30m}}, {do: stop}]}
`

// setting returns the account at a time with one source of usage, which keep selects.
func (w *world) setting(t *testing.T, at time.Time, f clouds.Source, keep func(usage.Source) bool) round.Setting {
	lookup := func(name string) (string, bool) { return os.LookupEnv(name) }
	req := runtime.NewProcess(runtime.Host{Now: func() time.Time {
		return at
	}, Lookup: lookup, Dir: t.TempDir(), DataDir: t.TempDir(), Log: io.Discard}).Request()
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Metrics.Sources = []config.MetricsSource{}
	f.Cloud, f.Regions, f.Transient = "aws", []string{region}, true
	s, err := clouds.Setting(t.Context(), req, cfg, f)
	if err != nil {
		t.Fatal(err)
	}
	s.Sources = slices.DeleteFunc(s.Sources, func(x usage.Source) bool { return !keep(x) })
	if len(s.Sources) != 1 {
		t.Fatalf("%d sources are left", len(s.Sources))
	}
	s.Query.Kinds = map[inventory.Kind]bool{inventory.KindInstance: true}
	return s
}

// verdicts returns the duty of every machine at a time.
func verdicts(t *testing.T, s round.Setting) map[string]duty.Verdict {
	set, err := policy.Parse("ask.yaml", []byte(ask))
	if err != nil {
		t.Fatal(err)
	}
	s.Policies = set
	r, err := round.New(s).Round(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.BlindSpots) > 0 {
		t.Logf("blind spots: %+v", r.BlindSpots)
	}
	out := map[string]duty.Verdict{}
	for _, f := range r.Facts {
		if f.Duty != nil {
			out[f.Resource.Name] = *f.Duty
		}
	}
	return out
}

// findings returns the findings of an audit of the day, as rule and machine, with their savings.
func findings(t *testing.T, s round.Setting) map[string]string {
	s.Query.Window = 24 * time.Hour
	s.Audit = &round.Audit{Rules: clouds.RulesOf("aws")}
	r, err := round.New(s).Round(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range r.Findings {
		out[f.Rule+" "+f.Resource.Name] = fmt.Sprintf("%+v", f.Savings)
	}
	return out
}

// timeless is a proxy that hides that the test queries past times: it removes the server's clock,
// and samples after the queried time, because readers distrust clocks and samples that are ahead.
func timeless(t *testing.T, server string) string {
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error { r.Header.Del("Date"); return nil },
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("query=last_over_time")) {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestOneDayInThreeTellings checks that a machine has the same duty at every time, and an audit the
// same findings, in all sources.
func TestOneDayInThreeTellings(t *testing.T) {
	w := newWorld(t)
	w.cloudWatch()
	server, file := timeless(t, prometheus.Start(t, w.dcgm(), "")), w.file(t)
	ways := map[string]func(at time.Time) round.Setting{
		"CloudWatch": func(at time.Time) round.Setting {
			return w.setting(t, at, clouds.Source{}, func(s usage.Source) bool { return s.Name() == "cloudwatch" })
		},
		"Prometheus": func(at time.Time) round.Setting {
			return w.setting(t, at, clouds.Source{Metrics: []string{server}}, func(s usage.Source) bool {
				_, ok := s.(*prom.Source)
				return ok
			})
		},
		"CSV": func(at time.Time) round.Setting {
			return w.setting(t, at, clouds.Source{Usage: []string{file}}, func(s usage.Source) bool {
				return s.Name() == file
			})
		},
	}
	names := slices.Sorted(maps.Keys(ways))
	states, asked, excused := map[duty.State]int{}, 0, 0
	for minute := minutes; minute > minutes-24*60; minute -= 115 {
		told := map[string]map[string]duty.Verdict{}
		for _, name := range names {
			told[name] = verdicts(t, ways[name](w.at(minute)))
		}
		for i := range w.machines {
			m := fmt.Sprint("m-", i)
			want := told["CSV"][m]
			states[want.State]++
			for _, name := range names {
				got := told[name][m]
				apart := got.Since.Sub(want.Since).Abs()
				if asked++; got.State != want.State && w.turns(i, minute) {
					excused++
				} else if got.State != want.State || apart > step {
					t.Errorf("minute %d, %s: %s says %s (%s) since %s, CSV %s (%s) since %s", minute, m,
						name, got.State, got.Why,
						got.Since.Format(time.TimeOnly),
						want.State, want.Why, want.Since.Format(time.TimeOnly))
				}
			}
		}
	}
	t.Logf("states: %v; %d of %d verdicts differ within a step of a change", states, excused, asked)
	if excused*20 > asked {
		t.Errorf("%d of %d verdicts differ, however close to a change", excused, asked)
	}
	if states[duty.Idle] == 0 || states[duty.Held] == 0 || states[duty.Busy] == 0 || states[duty.Unknown] == 0 {
		t.Errorf("the fleet has only %v", states)
	}
	want := findings(t, ways["CSV"](w.now))
	for _, name := range names {
		if diff := cmp.Diff(want, findings(t, ways[name](w.now))); diff != "" {
			t.Errorf("findings of %s differ (-CSV +%s):\n%s", name, name, diff)
		}
	}
	if len(want) == 0 {
		t.Error("nothing is found at all")
	}
}

// TestLabelsOfAScrape checks a real Prometheus that scrapes an exporter with the metrics and labels
// of dcgm-exporter in Kubernetes, with target labels that replace those of the pods, and with two
// jobs for the same exporter.
func TestLabelsOfAScrape(t *testing.T) {
	began := time.Now()
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge")
		for g := range 2 {
			labels := fmt.Sprintf(
				`gpu="%d",UUID="GPU-%d",pci_bus_id="00000000:0%d:00.0",device="nvidia%d",modelName="NVIDIA A100-SXM4-40GB",Hostname="dcgm-exporter-7x2kp",DCGM_FI_DRIVER_VERSION="535.104.05",container="main",namespace="vision",pod="train-%d"`, g, g, g, g, g)
			fmt.Fprintf(w, "DCGM_FI_DEV_GPU_UTIL{%s} %d\n", labels, 40*g)
			fmt.Fprintf(w, "DCGM_FI_DEV_FB_USED{%s} %d\nDCGM_FI_DEV_FB_FREE{%s} %d\n", labels, 1000, labels, 39000)
			fmt.Fprintf(w, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{%s} %d\n", labels,
				1e9+int(time.Since(began).Milliseconds())*60)
		}
		fmt.Fprintf(w,
			"DCGM_FI_PROF_SM_ACTIVE{gpu=\"2\",UUID=\"GPU-2\",GPU_I_ID=\"7\",GPU_I_PROFILE=\"1g.5gb\",Hostname=\"dcgm-exporter-7x2kp\"} 0.25\n")
	}))
	defer exporter.Close()
	target := strings.TrimPrefix(exporter.URL, "http://")
	server := prometheus.Start(t, nil, fmt.Sprintf(`global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: gpu-metrics, static_configs: [{targets: [%q], labels: {node: gpu-node-1, pod: dcgm-exporter-7x2kp, namespace: monitoring}}]}
  - {job_name: gpu-metrics-again, static_configs: [{targets: [%q], labels: {node: gpu-node-1}}]}
`, target, target))
	time.Sleep(*live)
	source, err := prom.New(prom.Options{Access: prom.Access{URL: server}})
	if err != nil {
		t.Fatal(err)
	}
	node := &inventory.Resource{
		Kind: inventory.KindInstance, Cloud: "aws", ID: "i-1", State: inventory.StateRunning,
		Aliases: []string{"gpu-node-1"},
	}
	to := time.Now().UTC()
	got := usage.NewWindow(to.Add(-*live), to, time.Second, "", nil)
	m, err := source.Measure(t.Context(), []*inventory.Resource{
		node,
	}, usage.Interval{From: got.From, To: to, Step: time.Second},
		func(*inventory.Resource, usage.SourceInfo) usage.Sink { return got })
	if err != nil || len(m.BlindSpots) > 0 {
		t.Fatalf("%v, %+v", err, m.BlindSpots)
	}
	var gpus []string
	for _, g := range got.GPUs {
		gpus = append(gpus, g.Name)
	}
	if diff := cmp.Diff([]string{"GPU-0", "GPU-1", "GPU-2:7"}, gpus); diff != "" {
		t.Fatalf("GPUs differ:\n%s", diff)
	}
	holders := []prom.Holder{
		{GPU: "GPU-0", Namespace: "vision", Pod: "train-0"}, {GPU: "GPU-1", Namespace: "vision", Pod: "train-1"},
	}
	if diff := cmp.Diff(holders, source.Holders(node.Ref())); diff != "" {
		t.Errorf("holders differ:\n%s", diff)
	}
	seconds := int(live.Seconds())
	for i, util := range []float64{0, 40} {
		st := got.GPUs[i].Stats(usage.GPUUtil)
		if st.Max != util || st.Count < seconds/2 || st.Count > seconds+1 {
			t.Errorf("GPU %d: %d samples of %d s, at most %v", i, st.Count, seconds, st.Max)
		}
		if memory := got.Memory(got.GPUs[i]); memory != 40000<<20 {
			t.Errorf("GPU %d has %v bytes", i, memory)
		}
		if got.GPUs[i].Stats(usage.Energy).IsFrozen() {
			t.Errorf("the energy of GPU %d seems to stand still", i)
		}
	}
}

// turns reports whether the activity of a machine changes within one step before a minute, or
// samples are lost there.
func (w *world) turns(i, minute int) bool {
	m := w.machines[i]
	line := func(v float64, line float64) int {
		switch {
		case v < 0:
			return -1
		case v >= line:
			return 1
		}
		return 0
	}
	for back := 1; back <= int(step/time.Minute)+3 && minute-back-1 >= 0; back++ {
		k := minute - back
		if line(m.cpu[k], 20) != line(m.cpu[k-1], 20) {
			return true
		}
		for g := range m.gpus {
			if line(m.util[g][k], 1) != line(m.util[g][k-1], 1) ||
				line(m.memory[g][k], 1000) != line(m.memory[g][k-1], 1000) {
				return true
			}
		}
	}
	return false
}
