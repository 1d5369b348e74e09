package estimate

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/spec"
)

func TestJoin(t *testing.T) {
	src, err := os.ReadFile("../spec/testdata/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	join := func(src string) (*Estimate, []*Estimate) {
		t.Helper()
		specs, err := spec.Read("m.yaml", []byte(src), nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []*Estimate
		for _, s := range specs {
			e, err := New(s, testBook(t), Params{Now: now, Defaults: Defaults{Regions: []string{"us-east-1"}}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		e, err := Join("m.yaml", all)
		if err != nil {
			t.Fatal(err)
		}
		return e, all
	}
	e, all := join(string(src))
	if len(all) != 2 || e.P50 != all[0].P50+all[1].P50 || e.P95 != all[0].P95+all[1].P95 ||
		e.Hourly != all[0].Hourly+all[1].Hourly {
		t.Errorf("%s and %s of %d", e.P50, e.P95, len(all))
	}
	// Two pods of 4 fit on one machine of 8; four of 1 on one of 4.
	if e.Machines != 2 || e.GPUs["A100-80GB"] != 8 || e.GPUs["A10G"] != 4 || e.Owner.Team != "" || e.Purpose != "" {
		t.Errorf("%+v", e)
	}
	if e.Longest() != 4*time.Hour || all[0].Longest() != 2*time.Hour {
		t.Errorf("two workloads of %s take %s", all[0].Longest(), e.Longest())
	}
	if len(e.Unknown) != 2 || !strings.HasPrefix(e.Unknown[0], "finetune: how often") ||
		!strings.HasPrefix(e.Unknown[1], "sweep.fit: how often") {
		t.Errorf("unknown %q", e.Unknown)
	}
	if other, _ := join(strings.Replace(string(src), "train:1", "train:2", 1)); other.SpecHash == e.SpecHash {
		t.Error("an edited workload has the same hash")
	}
	if one, err := Join("m.yaml", all[:1]); one != all[0] || err != nil {
		t.Errorf("%v, %v", one, err)
	}
	if e.Unpriced() {
		t.Error("what is priced has no price")
	}
	if _, err := Join("m.yaml", nil); err == nil {
		t.Error("nothing was estimated")
	}
}

// TestFileAsksAboutUnknownParts checks that a part of a file that cannot be estimated is open, with
// the amounts of the rest, and owner and purpose are those of the known parts.
func TestFileAsksAboutUnknownParts(t *testing.T) {
	const (
		known = "apiVersion: v1\nkind: Pod\nmetadata: {name: known, labels: {team: nlp, purpose: training}}\nspec: " +
			"{activeDeadlineSeconds: 3600, nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}, " +
			"containers: " +
			"[{resources: {limits: {nvidia.com/gpu: 8}}}]}\n"
		bare = "apiVersion: v1\nkind: Pod\nmetadata: {name: bare}\nspec: {activeDeadlineSeconds: 3600, containers: " +
			"[{resources: {limits: {nvidia.com/gpu: 3}}}]}\n"
		unknown = "apiVersion: example.com/v1\nkind: Fleet\nmetadata: {name: fleet}\n"
	)
	file := func(documents ...string) (*Estimate, error) {
		t.Helper()
		specs, err := spec.Read("m.yaml", []byte(strings.Join(documents, "---\n")), nil)
		if err != nil {
			t.Fatal(err)
		}
		return File("m", specs, testBook(t), Params{Now: now, Defaults: Defaults{Regions: []string{"us-east-1"}}})
	}
	alone, err := file(known)
	if err != nil || len(alone.Open) != 0 {
		t.Fatalf("%+v, %v", alone, err)
	}
	for name, tc := range map[string]struct {
		documents []string
		want      string
	}{
		"a kind that is not read": {
			[]string{unknown, known}, "fleet: what Fleet (example.com) fleet (line 1) runs: its kind is not read",
		},
		"no machine is named": {[]string{known, bare}, "bare: what 1 × 3 GPUs of an unknown type cost"},
	} {
		e, err := file(tc.documents...)
		if err != nil || e.P95 != alone.P95 || e.Machines != 1 || e.Owner.Team != "nlp" || e.Purpose != "training" ||
			e.Unpriced() {
			t.Errorf("%s: %+v, %v", name, e, err)
			continue
		}
		if open := strings.Join(e.Open, "\n"); !strings.Contains(open, tc.want) {
			t.Errorf("%s: open %q, want %q", name, open, tc.want)
		}
		if e.SpecHash == alone.SpecHash {
			t.Errorf("%s: the hash is that of a part", name)
		}
	}
	if e, err := file(unknown); err != nil || !e.Unpriced() || e.SpecHash == "" {
		t.Errorf("nothing is read: %+v, %v", e, err)
	}
	if e, err := file(bare, bare); err == nil || !strings.Contains(err.Error(), "estimate.nodes") {
		t.Errorf("no machine is named at all: %+v, %v", e, err)
	}
}
