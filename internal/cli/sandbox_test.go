package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// noTurns is the configuration in which no call waits for its turn.
const noTurns = "aws: {requests_per_second: 10000}\n"

// requiredTags are the tags that the seeded account is tagged with.
const requiredTags = "required_tags: [team, project, environment, cost-center]\n"

// scanJSON scans the account that the environment names and reads the document.
func scanJSON(t *testing.T, want int, args ...string) view.Scan {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(noTurns+requiredTags), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	p := Process{Args: append([]string{"scan", "-o", "json", "--no-save"}, args...), Stdout: &out, Stderr: &errs,
		Lookup: os.LookupEnv, Now: time.Now, Dir: dir, Version: "test"}
	if got := Run(context.Background(), p); got != want {
		t.Fatalf("scan %s: exit %d, want %d\n%s\n%s", strings.Join(args, " "), got, want, errs.String(),
			head(out.String(), "blind_spots"))
	}
	doc, err := view.LoadScan(&out)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// head returns the text after a word, for messages.
func head(s, word string) string {
	if at := strings.Index(s, word); at >= 0 {
		s = s[at:]
	}
	return s[:min(len(s), 2000)]
}

// found indexes findings by rule and resource.
func found(doc view.Scan) map[string]view.Finding {
	out := map[string]view.Finding{}
	for _, f := range doc.Findings {
		out[key(f.Rule, f.Resource.Region, f.Resource.ID)] = f
	}
	return out
}

func key(rule, region, id string) string { return rule + " " + region + " " + id }

// TestSandbox audits a seeded AWS API: every planted waste is found with the right
// rule, owner and dollars, and nothing that only looks like waste is.
func TestSandbox(t *testing.T) {
	s, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	truth, err := s.Seed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	regions := "--regions=" + strings.Join(truth.Regions, ",")
	whole := scanJSON(t, ExitDone, regions)

	t.Run("planted waste is found", func(t *testing.T) { checkPlanted(t, whole, truth.Planted) })

	t.Run("look-alikes are not", func(t *testing.T) {
		got := found(whole)
		for _, l := range truth.LookAlikes {
			for _, rule := range l.Not {
				if f, ok := got[key(rule, l.Region, l.ID)]; ok {
					t.Errorf("%s was reported for %s %s in %s (%s): %s", rule, l.Kind, l.ID,
						l.Region, l.Note, f.Because)
				}
			}
		}
	})

	t.Run("everything that was seeded is there", func(t *testing.T) {
		byKind := map[string]int{}
		for _, r := range truth.Resources {
			byKind[string(r.Kind)]++
		}
		for kind, n := range byKind {
			if got := whole.Resources.ByKind[kind]; got < n {
				t.Errorf("%d of kind %s, %d were seeded", got, kind, n)
			}
		}
	})

	t.Run("waste adds up", func(t *testing.T) {
		if len(whole.BlindSpots) > 0 {
			t.Errorf("blind spots in a healthy account: %+v", whole.BlindSpots)
		}
	})

	t.Run("a second account next to it", func(t *testing.T) {
		both := scanJSON(t, ExitDone, regions, "--assume-role", truth.OtherRole)
		if !slices.Contains(both.Accounts, truth.OtherAccount) || !slices.Contains(both.Accounts, truth.Account) {
			t.Errorf("accounts %v, want %s and %s", both.Accounts, truth.Account, truth.OtherAccount)
		}
		checkPlanted(t, both, truth.Other)
	})

	// Every service in turn is denied: the facts that it alone decides are missing, the rest is
	// unchanged, and the blind spot names it.
	for _, tc := range []struct {
		service string
		// loses are the rules that need the service; other findings must not move.
		loses []string
	}{
		{"ecr", []string{"repository-no-lifecycle", "repository-untagged"}},
		{"logs", []string{"log-group-no-retention"}},
		{
			"sagemaker",
			[]string{
				"endpoint-idle", "notebook-idle", "training-overrun", "training-stalled", "inference-overprovisioned",
				"compute-away-from-data", "model-optimize",
				"bucket-no-lifecycle", "checkpoint-stale", // training jobs name the data that they read
			},
		},
		{"elasticloadbalancing", []string{"load-balancer-idle"}},
	} {
		t.Run("denied "+tc.service, func(t *testing.T) {
			t.Cleanup(s.Wire.Inject(wire.Fault{Service: tc.service, Kind: wire.AccessDenied}))
			partial := scanJSON(t, ExitPartial, regions)
			if !slices.ContainsFunc(partial.BlindSpots, func(b inventory.BlindSpot) bool {
				return strings.Contains(b.What, tc.service) &&
					strings.Contains(b.Why, "AccessDenied") && b.Effect != ""
			}) {
				t.Errorf("no blind spot names %s: %+v", tc.service, partial.BlindSpots)
			}
			got := found(partial)
			for k, f := range found(whole) {
				lost := slices.Contains(tc.loses, f.Rule) || f.Rule == "tag-missing"
				g, ok := got[k]
				switch {
				case !ok && !lost:
					t.Errorf("%s is gone", k)
				case ok && !lost && g.MonthlySavingsUSD.Cents() != f.MonthlySavingsUSD.Cents():
					t.Errorf("%s saves %s, with all services %s", k, g.MonthlySavingsUSD, f.MonthlySavingsUSD)
				}
				delete(got, k)
			}
			for k := range got {
				t.Errorf("%s is reported only without %s", k, tc.service)
			}
		})
	}

	t.Run("without metrics nothing is idle", func(t *testing.T) {
		t.Cleanup(s.Wire.Inject(wire.Fault{Service: "cloudwatch", Kind: wire.AccessDenied}))
		blind := scanJSON(t, ExitPartial, regions)
		for _, f := range blind.Findings {
			switch f.Rule {
			case "gpu-instance-idle", "gpu-held", "instance-idle", "always-on", "training-stalled", "endpoint-idle",
				"nat-gateway-idle", "gpu-underutilized", "gpu-count-over", "gpu-memory-over":
				t.Errorf("%s of %s without any metric: %s", f.Rule, f.Resource.ID, f.Because)
			case "telemetry-missing":
				t.Errorf("%s has no telemetry, where none could be read", f.Resource.ID)
			}
		}
		for _, u := range blind.CannotJudge {
			if u.Resource.Kind == "instance" && (!strings.Contains(u.Why, "could not be read") ||
				!strings.Contains(u.Why, "cloudwatch:")) {
				t.Errorf("%s is not judged because %s", u.Resource.ID, u.Why)
			}
		}
		if len(blind.CannotJudge) == 0 {
			t.Error("every machine is judged without metrics")
		}
	})

	t.Run("nothing was changed", func(t *testing.T) {
		s.Wire.Recorder.Reset()
		scanJSON(t, ExitDone, regions)
		if calls := s.Wire.Recorder.Mutating(); len(calls) > 0 {
			t.Errorf("calls that change something: %v", calls)
		}
	})
}

func checkPlanted(t *testing.T, doc view.Scan, planted []sandbox.Planted) {
	t.Helper()
	got := found(doc)
	for _, p := range planted {
		f, ok := got[key(p.Rule, p.Region, p.ID)]
		if !ok {
			t.Errorf("%s of %s %s in %s is missing (%s)", p.Rule, p.Kind, p.ID, p.Region, p.Note)
			continue
		}
		var owner map[string]string
		b, err := json.Marshal(f.Resource.Owner)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &owner); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"team": p.Owner.Team, "project": p.Owner.Project, "user": p.Owner.User, "environment": p.Owner.Environment,
			"cost_center": p.Owner.CostCenter,
		}
		for k, v := range want {
			if v == "" {
				delete(want, k)
			}
		}
		if owner == nil {
			owner = map[string]string{}
		}
		if diff := cmp.Diff(want, owner); diff != "" {
			t.Errorf("%s of %s: owner (-want +got):\n%s", p.Rule, p.ID, diff)
		}
		for _, money := range []struct{ what, want, got string }{
			{"saves", p.SavingsUSD, f.MonthlySavingsUSD.Cents()},
			{"wastes", p.WasteUSD, f.MonthlyWasteUSD.Cents()},
			{"saves at most", p.UpperBoundUSD, f.SavingsUpperBoundUSD.Cents()},
		} {
			if money.want != "" && money.want != money.got {
				t.Errorf("%s of %s %s %s, want %s (%s)", p.Rule, p.ID, money.what, money.got, money.want, p.Note)
			}
		}
		if p.Unknown && f.MonthlySavingsUSD.Known() {
			t.Errorf("%s of %s saves %s, want unknown", p.Rule, p.ID, f.MonthlySavingsUSD)
		}
	}
}
