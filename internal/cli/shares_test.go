package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/prometheus"
)

// sharesDoc has the fields of the document that the test reads.
type sharesDoc struct {
	Machines []struct {
		Resource    string          `json:"resource"`
		Amount      string          `json:"total_usd"`
		Unallocated string          `json:"unallocated_usd"`
		Workloads   []workloadShare `json:"workloads"`
		Use         struct {
			Unknown    string `json:"unknown_usd"`
			Idle       string `json:"idle_by_use_usd"`
			Unmeasured string `json:"unmeasured_by_use_usd"`
		} `json:"use"`
	} `json:"machines"`
	Totals []workloadShare `json:"totals"`
}

type workloadShare struct {
	Workload string `json:"workload"`
	Amount   string `json:"total_usd"`
	Used     string `json:"used_usd"`
	Idle     string `json:"idle_usd"`
	Use      struct {
		ByUse string `json:"by_use_usd"`
	} `json:"use"`
}

// TestSharesOfPods checks that the ledger charges two machines for four hours, a real Prometheus
// says which pods held their GPUs, and together they give the cost of each pod and team.
func TestSharesOfPods(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Minute)
	l := &ladderTest{t: t, dir: t.TempDir(), now: now.Add(-4 * time.Hour)}
	var h []prometheus.Series
	tell := func(name, labels string, v float64) {
		s := prometheus.Series{Name: name, Labels: labels}
		for i := range 6 * 60 {
			s.Points = append(s.Points, prometheus.Point{At: now.Add(time.Duration(i-6*60) * time.Minute), V: v})
		}
		h = append(h, s)
	}
	// dgx has a pod on one of its two GPUs; sliced has one GPU in four slices.
	tell("DCGM_FI_DEV_GPU_UTIL", `gpu="0",UUID="GPU-d0",node="dgx",exported_namespace="ml",exported_pod="train-0"`, 50)
	tell("DCGM_FI_DEV_GPU_UTIL", `gpu="1",UUID="GPU-d1",node="dgx"`, 0)
	for name, slices := range map[string]float64{"chat-0": 2, "embed-0": 1} {
		id := fmt.Sprintf(`namespace="serving",pod="%s"`, name)
		tell("DCGM_FI_DEV_GPU_UTIL",
			`gpu="0",UUID="GPU-s0",node="sliced",exported_namespace="serving",exported_pod="`+name+
				`"`, 30)
		tell("kube_pod_container_resource_requests",
			id+`,container="main",node="sliced",resource="nvidia_com_gpu"`, slices)
		tell("kube_pod_status_phase", id+`,phase="Succeeded"`, 0)
		tell("kube_pod_labels", id+`,job="ksm",label_team="search"`, 1)
	}
	tell("kube_node_status_allocatable", `node="sliced",resource="nvidia_com_gpu"`, 4)
	server := prometheus.Start(t, h, "")
	l.write("curfew.yaml", `machines:
  - {name: dgx, gpu: H100, gpus: 2, since: 2026-01-15, tags: {team: vision}}
  - {name: sliced, gpu: H100, gpus: 1, since: 2026-01-15, tags: {team: vision}}
rates: {gpu_hour: {H100-80GB: 3}, source: finance, as_of: 2026-01-01}
`)
	l.curfew(ExitDone, "scan", "--cloud", "onprem")
	l.jump(4 * time.Hour)
	l.curfew(ExitDone, "scan", "--cloud", "onprem")

	inUSD := func(text string) float64 { return float64(amount(t, text)) / float64(money.USD) }
	var d sharesDoc
	ask := []string{"costs", "shares", "--cloud", "onprem", "--since", "5h", "--metrics-source", server}
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, append(ask, "-o", "json")...)), &d); err != nil {
		t.Fatal(err)
	}
	got := map[string][4]float64{} // cost, used, idle, by use
	for _, w := range d.Totals {
		got[w.Workload] = [4]float64{inUSD(w.Amount), inUSD(w.Used), inUSD(w.Idle), inUSD(w.Use.ByUse)}
	}
	// A slot of five minutes may be missing at either end.
	const most = 0.5
	for name, want := range map[string][4]float64{
		"ml/train-0": {12, 6, 6, 6}, "serving/chat-0": {6, 2.4, 3.6, 2.4}, "serving/embed-0": {3, 1.2, 1.8, 1.2},
	} {
		for i := range want {
			if math.Abs(got[name][i]-want[i]) > most {
				t.Errorf("%s: %v, want %v", name, got[name], want)
			}
		}
	}
	for _, m := range d.Machines {
		sum, byUse := inUSD(m.Unallocated), inUSD(m.Use.Idle)+inUSD(m.Use.Unmeasured)
		for _, w := range m.Workloads {
			sum, byUse = sum+inUSD(w.Amount), byUse+inUSD(w.Use.ByUse)
		}
		// Each is rounded to cents.
		if math.Abs(sum-inUSD(m.Amount)) > 0.021 || math.Abs(byUse-inUSD(m.Amount)) > 0.021 ||
			inUSD(m.Amount) != map[string]float64{"dgx": 24, "sliced": 12}[m.Resource] || inUSD(m.Use.Unknown) > most {
			t.Errorf("%s: %+v adds up to %v, by use %v", m.Resource, m, sum, byUse)
		}
	}
	var teams sharesDoc
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, append(ask, "-o", "json", "--by", "team")...)),
		&teams); err != nil {
		t.Fatal(err)
	}
	if len(teams.Totals) != 2 || teams.Totals[0].Workload != "" || teams.Totals[1].Workload != "search" ||
		math.Abs(inUSD(teams.Totals[1].Amount)-9) > most {
		t.Errorf("teams are %+v", teams.Totals)
	}
	rows, err := csv.NewReader(strings.NewReader(l.curfew(ExitDone, append(ask, "-o", "csv")...))).ReadAll()
	if err != nil || len(rows) != 1+1+1+2+1 || rows[1][1] != "ml/train-0" {
		t.Errorf("the CSV is %v, %v", rows, err)
	}
	for output, want := range map[string]string{
		"table": "that several shared", "md": "serving/chat-0", "html": "<svg",
	} {
		if text := l.curfew(ExitDone, append(ask, "-o", output)...); !strings.Contains(text, want) {
			t.Errorf("%s lacks %q:\n%s", output, want, text)
		}
	}
	if exit, _, errs := l.curfewAny("costs", "shares", "shares.csv", "--metrics-source", server); exit != ExitUsage ||
		!strings.Contains(errs, "not both") {
		t.Errorf("a file and a server: exit %d, %s", exit, errs)
	}
	if exit, _, errs := l.curfewAny("costs", "shares", "--cloud", "onprem"); exit != ExitUsage ||
		!strings.Contains(errs, "neither a file nor a metrics server") {
		t.Errorf("nothing that says who shared: exit %d, %s", exit, errs)
	}
}
