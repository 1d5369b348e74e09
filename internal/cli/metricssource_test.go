package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/prometheus"
)

// TestMetricsSource audits machines by a real Prometheus alone: the metrics of a machine at rest,
// of one at work, of one whose signals contradict each other, and of none; the doctor names the
// missing metrics of each, and a recording of them replays to the same.
func TestMetricsSource(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Minute)
	l := &ladderTest{t: t, dir: t.TempDir(), now: now}
	var h []prometheus.Series
	tell := func(machine, metric string, value func(i int) float64) {
		s := prometheus.Series{
			Name:   metric,
			Labels: fmt.Sprintf(`gpu="0",UUID="GPU-%s",Hostname="exporter-pod",node="%s"`, machine, machine),
		}
		if strings.HasPrefix(metric, "node_") {
			s.Labels = fmt.Sprintf(`instance="%s:9100",job="node",device="eth0"`, machine)
			if metric == "node_cpu_seconds_total" {
				s.Labels = fmt.Sprintf(`instance="%s:9100",job="node",cpu="0",mode="idle"`, machine)
			}
		}
		const hours = 30
		for i := range hours * 60 {
			s.Points = append(s.Points, prometheus.Point{
				At: now.Add(time.Duration(i-hours*60) * time.Minute), V: value(i),
			})
		}
		h = append(h, s)
	}
	flat := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	for machine, util := range map[string]float64{"rests": 0, "works": 90, "lies": 99} {
		tell(machine, "DCGM_FI_DEV_GPU_UTIL", flat(util))
		tell(machine, "DCGM_FI_DEV_FB_USED", flat(10+util*100))
		tell(machine, "DCGM_FI_DEV_FB_FREE", flat(80000-util*100))
		tell(machine, "node_cpu_seconds_total", func(i int) float64 { return 59.5 * float64(i) })
		tell(machine, "node_network_receive_bytes_total", func(i int) float64 { return 600 * float64(i) })
		tell(machine, "node_network_transmit_bytes_total", func(i int) float64 { return 600 * float64(i) })
	}
	h = append(h, prometheus.Series{
		Name:   "DCGM_FI_DEV_GPU_UTIL",
		Labels: `gpu="0",UUID="GPU-works",node="works",exported_namespace="vision",exported_pod="train-0",hpc_job="77"`,
		Points: []prometheus.Point{{At: now.Add(-time.Minute), V: 90}}})
	h = append(h, prometheus.Series{
		Name: "kube_node_labels", Labels: `node="works",job="ksm",label_team="search",label_project="ranking"`,
		Points: []prometheus.Point{{At: now.Add(-time.Minute), V: 1}},
	})
	tell("lies", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", flat(0))
	tell("lies", "DCGM_FI_DEV_POWER_USAGE", func(i int) float64 { return 690 + float64(i%7)/10 })
	tell("stranger", "DCGM_FI_DEV_GPU_UTIL", flat(1))
	server := prometheus.Start(t, h, "")
	l.write("curfew.yaml", `machines:
  - {name: rests, gpu: H100, gpus: 1, since: 2026-01-15, tags: {team: vision}}
  - {name: works, gpu: H100, gpus: 1, since: 2026-01-15, tags: {team: vision}}
  - {name: lies, gpu: H100, gpus: 1, since: 2026-01-15, tags: {team: vision}}
  - {name: silent, gpu: H100, gpus: 1, since: 2026-01-15, tags: {team: vision}}
rates: {gpu_hour: {H100-80GB: 2.10}, source: finance, as_of: 2026-01-01}
metrics: {sources: [{url: `+server+`}]}
`)
	l.write("idle.yaml", `apiVersion: curfew.policy/v1
policies:
  - {name: idle, select: {kind: instance}, when: 'duty.state in ["idle", "held"] && duty.lasting >= duration("30m")', then: [{warn: {grace: 15m}}, {do: stop}]}
`)

	var doctor view.Doctor
	text := l.curfew(ExitPartial, "doctor", "metrics", "--cloud", "onprem", "-o", "json")
	if err := json.Unmarshal([]byte(text), &doctor); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, m := range doctor.Machines {
		states[m.ID] = m.Now.State
		lacks := ""
		for _, x := range m.Missing {
			if lacks += x.What + "; "; x.Fix == "" {
				t.Errorf("nothing fixes that %s lacks %s", m.ID, x.What)
			}
		}
		if (m.ID == "silent") != strings.Contains(lacks, "GPU utilization") {
			t.Errorf("%s lacks %q", m.ID, lacks)
		}
		if m.ID == "works" &&
			(len(m.HeldBy) != 1 || m.HeldBy[0] != view.DoctorHolder{
				GPU: "GPU-works", Namespace: "vision", Pod: "train-0", Job: "77",
			}) {
			t.Errorf("it is lent to %+v", m.HeldBy)
		}
		owner, disputes := inventory.Owner{Team: "vision"}, 0
		if m.ID == "works" { // whose node's labels say its project, and another team
			owner.Project, disputes = "ranking", 1
		}
		if m.Owner != owner || len(m.Disputes) != disputes {
			t.Errorf("%s belongs to %+v, disputed: %+v", m.ID, m.Owner, m.Disputes)
		}
		if m.ID == "lies" && !strings.Contains(m.Why, "utilization reads 99% while the graphics engine reads 0%") {
			t.Errorf("the liar is unknown because %q", m.Why)
		}
	}
	if fmt.Sprint(states) != "map[lies:unknown rests:idle silent:unknown works:busy]" {
		t.Errorf("states are %v", states)
	}
	if len(doctor.Sources) != 1 || doctor.Sources[0].Queries == 0 ||
		strings.Join(doctor.Sources[0].Unmatched, ",") != "stranger / exporter-pod" {
		t.Errorf("sources are %+v", doctor.Sources)
	}
	for _, output := range []string{"table", "md", "html"} {
		if text := l.curfew(ExitPartial, "doctor", "metrics", "--cloud", "onprem", "-o",
			output); !strings.Contains(text,
			"dcgm-exporter") || !strings.Contains(text, "lent to vision/train-0 job 77") ||
			!strings.Contains(text, "its tags say team vision, labels say search") {
			t.Errorf("%s names no fix:\n%s", output, text)
		}
	}

	var scan view.Scan
	if err := json.Unmarshal([]byte(l.curfew(ExitPartial, "scan", "--cloud", "onprem", "--window", "28h", "-o", "json",
		"--metrics-source", server)), &scan); err != nil {
		t.Fatal(err)
	}
	rules := map[string]string{}
	for _, f := range scan.Findings {
		rules[f.Resource.Name] += f.Rule + " "
	}
	if !strings.Contains(rules["rests"], "gpu-instance-idle") ||
		!strings.Contains(rules["silent"], "telemetry-missing") || strings.Contains(rules["works"], "idle") ||
		strings.Contains(rules["lies"], "idle") {
		t.Errorf("findings are %v", rules)
	}

	out := l.curfew(ExitPartial, "record", "--cloud", "onprem", "--since", "24h", "-o", "trace.parquet", "--format",
		"json")
	var record view.Record
	if err := json.Unmarshal([]byte(out), &record); err != nil || record.Machines != 3 ||
		record.Samples < 3*24*60*2*9/10 {
		t.Errorf("recorded %+v, %v", record, err)
	}
	for machine, want := range map[string]string{
		"rests": "idle", "works": "busy", "lies": "utilization reads 99% while the graphics engine reads 0%",
	} {
		if text := l.curfew(ExitDone, "policy", "explain", machine, "--trace", "trace.parquet",
			"--policy", "idle.yaml",
			"--at", now.Add(-2*time.Minute).Format(time.RFC3339)); !strings.Contains(text, want) {
			t.Errorf("the trace says of %s, and not %q:\n%s", machine, want, text)
		}
	}
	if text := l.curfew(ExitDone, "backtest", "--trace", "trace.parquet", "--policy", "idle.yaml"); !strings.Contains(
		text, "idle") {
		t.Errorf("the backtest says:\n%s", text)
	}
	if exit, _, errs := l.curfewAny("record", "--from", "prometheus", "--demo", "-o",
		"x.parquet"); exit != ExitUsage ||
		!strings.Contains(errs, "there is no such source") {
		t.Errorf("a recording of nothing: exit %d, %s", exit, errs)
	}
	if exit, _, errs := l.curfewAny("scan", "--cloud", "onprem", "--metrics-source",
		"prometheus:9090"); exit != ExitUsage || !strings.Contains(errs, "is no URL") {
		t.Errorf("a source that is none: exit %d, %s", exit, errs)
	}
}
