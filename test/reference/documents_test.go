package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/curfew-dev/curfew/internal/cli"
)

// workplace is a directory with the examples, in which commands run with their own clock.
type workplace struct {
	t   *testing.T
	dir string
	now time.Time
}

func newWorkplace(t *testing.T) *workplace {
	t.Helper()
	w := &workplace{t, t.TempDir(), time.Date(2026, 11, 18, 9, 30, 0, 0, time.UTC)}
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(w.dir, "examples")); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a command line and returns its output.
func (w *workplace) run(line string) string {
	w.t.Helper()
	var out, errs bytes.Buffer
	code := cli.Run(context.Background(), cli.Process{
		Args: strings.Fields(line), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Version: "test", Dir: w.dir,
		DataDir: filepath.Join(w.dir, "data"), WitnessDir: filepath.Join(w.dir, "witness"), Now: func() time.Time {
			return w.now
		},
		Uptime: func() (string, time.Duration) {
			return "test", w.now.Sub(w.now.Truncate(24*time.Hour)) + 2400*time.Hour
		},
		Lookup: func(name string) (string, bool) { return "ana", name == "CURFEW_IDENTITY" },
	})
	if out.Len() == 0 {
		w.t.Errorf("curfew %s: exit %d\n%s", line, code, errs.String())
	}
	w.now = w.now.Add(time.Minute)
	return out.String()
}

// TestDocumentsValidate validates the JSON output of every command that needs no account.
func TestDocumentsValidate(t *testing.T) {
	files := map[string]string{}
	for _, o := range outputs {
		files[o.schema] = o.file()
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	w := newWorkplace(t)
	const config = " --config examples/jobs/curfew.yaml"
	seen := map[string]bool{}
	check := func(line string) {
		t.Helper()
		text := w.run(line)
		docs := documents(text)
		if len(docs) == 0 && text != "" {
			t.Errorf("curfew %s prints no document: %.300s", line, text)
		}
		for _, doc := range docs {
			var head struct{ Schema string }
			if err := json.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatal(err)
			}
			seen[head.Schema] = true
			v, err := validator.UnmarshalJSON(strings.NewReader(doc))
			if err != nil {
				t.Fatal(err)
			}
			if err := compiled(t, files[head.Schema]).Validate(v); err != nil {
				t.Errorf("curfew %s: %v", line, err)
			}
		}
	}
	for _, line := range []string{
		"scan --demo -o json", "policy check examples/policies -o json", "policy test examples/policies/tests -o json",
		"policy explain llm-eval --demo --policy examples/policies/held-gpus.yaml -o json",
		"policy tune --trace examples/data/gpus.csv.gz -o json",
		"backtest --policy examples/policies/idle-ephemeral.yaml " +
			"--trace examples/data/gpus.csv.gz --baselines -o json",
		"enforce --demo --policy examples/policies/idle-ephemeral.yaml -o json", "tag --demo -o json",
		"enforce --once --cloud trace --trace examples/data/gpus.csv.gz --policy " +
			"examples/policies/idle-ephemeral.yaml -o " +
			"json",
		"estimate examples/jobs/train.yaml -o json",
		"gate examples/jobs/train.yaml -o json" + config, "gate report -o json" + config, "approvals -o json" + config,
		"budget holds -o json" + config, "budget -o json" + config,
		"keep -o json", "confirm -o json", "freeze --reason test -o json", "unfreeze --reason test -o json",
		"settings -o json", "whoami -o json", "audit -o json", "audit --anchor anchor.json -o json",
		"audit --verify --anchor anchor.json -o json",
		"bill import examples/data/focus-2026-10.csv -o json",
		"bill show -o json --since 2026-10-01 --until 2026-11-01",
		"bill reconcile -o json --since 2026-10-01 --until 2026-11-01 --post",
		"costs --since 2026-10-01 --until 2026-11-01 -o json",
		"costs shares examples/data/shares.csv --since 2026-10-01 --until 2026-11-01 -o json",
		"price list -o json", "price show g6.2xlarge -o json", "price show H100 -o json", "price watching -o json",
		"plan mig --gpu A100-80GB --workloads examples/data/workloads.csv -o json",
		"plan mig --gpu A100-80GB --enumerate -o json",
		"plan commit --usage examples/data/hourly.csv.gz --offers examples/data/offers.csv --online -o json",
		"plan capacity --qps 500 --profile a=1ms,b=10ms --p99 50ms -o json",
		"plan capacity --arrivals examples/data/requests.csv.gz --profile a=1ms,b=10ms --p99 100ms -o json",
		"plan spot --trace examples/data/spot.csv --gap 5m --work 6h --deadline 1.5x --restart 5m --spot-price 1 " +
			"--on-demand-price 4 --every 3h -o json",
		"plan checkpoint --trace examples/data/spot.csv --gap 5m --write 30s --restart 3m -o json",
		"plan market --for memory-gib -o json",
		"plan rightsize --usage examples/data/gpus.csv.gz --type g5.12xlarge -o json",
		"plan tco --saving 1200/month --effort 3w --rate 120/h -o json",
		"plan rightsize --from scan --demo -o json", "plan capacity --from scan --demo -o json",
	} {
		check(line)
	}
	for _, id := range findings(t, w) {
		check("fix " + id + " --demo -o json")
	}
	if len(seen) < 39 {
		t.Errorf("the commands printed documents of %d schemas", len(seen))
	}
	for _, o := range outputs {
		if !seen[o.schema] {
			t.Logf("no command here prints %s", o.schema)
		}
	}
}

// findings returns the ids of some findings of the last scan.
func findings(t *testing.T, w *workplace) (ids []string) {
	t.Helper()
	var doc struct {
		Findings []struct{ ID, Rule string }
	}
	if err := json.Unmarshal([]byte(w.run("scan --demo -o json")), &doc); err != nil {
		t.Fatal(err)
	}
	rules := map[string]bool{}
	for _, f := range doc.Findings {
		if !rules[f.Rule] {
			rules[f.Rule], ids = true, append(ids, f.ID)
		}
	}
	if len(ids) < 10 {
		t.Fatalf("%d rules have findings", len(ids))
	}
	return ids
}
