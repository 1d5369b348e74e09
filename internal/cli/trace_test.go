package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/backtest"
)

// tracePolicies are replayed each for itself.
var tracePolicies = map[string]string{
	"idle": `    select: {kind: instance, lifetime: ephemeral}
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("10m")
    then: [{warn: {notify: [owner], grace: 5m}}, {do: stop}]
`,
	"dead-mans-switch": `    when: resource.age > duration("90m")
    then: [{warn: {grace: 10m}}, {do: stop, even_if_busy: true}]
`,
	"over-budget": `    when: budget.state == "over" || budget.used_share > 0.5 && duty.state == "idle"
    then: [{warn: {grace: 10m}}, {do: stop, even_if_busy: true}]
`,
}

// writeTrace writes three hours of six machines: idle under and over the noise floor, busy,
// not sampled, two of one run, one launched, one of a type of which one GPU of eight is
// sampled. It returns when it begins and ends.
func writeTrace(t *testing.T, dir string) (start, end time.Time) {
	t.Helper()
	r := rand.New(rand.NewPCG(4, 2))
	var b strings.Builder
	b.WriteString("resource,time,gpu_util,type,tags,launched\n")
	start = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for m := range 6 {
		typ, tags, launched := "g6.2xlarge", "team=vision", ""
		switch m {
		case 2, 3:
			tags = "curfew:gang=run"
		case 4:
			launched = start.Format(time.RFC3339)
		case 5:
			typ = "p4d.24xlarge"
		}
		for at := 0; at < 180; {
			kind, n := r.IntN(4), 3+r.IntN(37)
			for ; n > 0; n, at = n-1, at+1 {
				util := []float64{0, 0.4, 80}[min(kind, 2)]
				if kind < 3 {
					if over := start.Add(time.Duration(at+1) * time.Minute); over.After(end) {
						end = over
					}
					fmt.Fprintf(&b, "m%d,%s,%g,%s,%s,%s\n", m,
						start.Add(time.Duration(at)*time.Minute).Format(time.RFC3339), util,
						typ, tags, launched)
				}
			}
		}
	}
	write(t, filepath.Join(dir, "trace.csv"), b.String())
	return start, end
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func runIn(t *testing.T, dir string, args ...string) (int, string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(context.Background(), Process{
		Args: args, Dir: dir, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Lookup: func(string) (string, bool) {
			return "", false
		}, Now: time.Now, DataDir: filepath.Join(dir, "data"), WitnessDir: filepath.Join(dir, "witness"),
		ConfigDir: filepath.Join(dir, "config")})
	if code != ExitDone && code != ExitPartial && code != ExitDenied {
		t.Fatalf("curfew %s: exit %d\n%s%s", strings.Join(args, " "), code, out.String(), errs.String())
	}
	return code, out.String()
}

func readDecisions(t *testing.T, name string) (out []backtest.Decision) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var d backtest.Decision
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

// TestEnforceDecidesAsBacktest runs one process of enforce at each multiple of a cadence
// over a trace, on state in a database, and backtest --every over the same file: the lines
// of both are the same, and policy explain agrees with each of them: in the state of the
// processes, and by the cadence in a state that knows of none.
func TestEnforceDecidesAsBacktest(t *testing.T) {
	for name, text := range tracePolicies {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			start, end := writeTrace(t, dir)
			write(t, filepath.Join(dir, "curfew.yaml"), "budgets: [{id: all, purpose: any, amount: 60}]\n")
			write(t, filepath.Join(dir, "p.yaml"),
				"apiVersion: curfew.policy/v1\npolicies:\n  - name: "+name+"\n"+text+
					"    mode: enforce\n")
			trace := []string{"--trace", "trace.csv", "--policy", "p.yaml"}
			runIn(t, dir,
				append([]string{"backtest", "--every", "10m", "--decisions", "replay.jsonl", "--baselines=false"},
					trace...)...)
			for at := start; !at.After(end); at = at.Add(10 * time.Minute) {
				runIn(t, dir, append([]string{
					"enforce", "--once", "--enforce", "--cloud", "trace", "--at",
					at.Format(time.RFC3339), "--decisions",
					"processes.jsonl",
				}, trace...)...)
			}
			want, got := readDecisions(t, filepath.Join(dir, "replay.jsonl")), readDecisions(t,
				filepath.Join(dir, "processes.jsonl"))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("decisions (-replay +processes):\n%s", diff)
			}
			steps := map[string]int{}
			for _, d := range want {
				if steps[d.Step]++; d.Step != "warn" {
					continue
				}
				for _, state := range [][]string{nil, {"--data-dir", "none", "--every", "10m"}} {
					args := append([]string{
						"policy", "explain", d.Resource, "--at", d.Time.Format(time.RFC3339), "-o", "json",
					},
						state...)
					if _, out := runIn(t, dir, append(args, trace...)...); !strings.Contains(out, `"answer": "true"`) {
						t.Errorf("%s is warned about at %s, and %v is not explained so: %s",
							d.Resource, d.Time, state, out)
					}
				}
			}
			if steps["warn"] == 0 || steps["stop"] == 0 {
				t.Errorf("too few decisions to tell: %v", steps)
			}
		})
	}
}
