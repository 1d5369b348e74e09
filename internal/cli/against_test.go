package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// TestPolicyCheckAgainstLastScan: policies find the resources of the last scan.
func TestPolicyCheckAgainstLastScan(t *testing.T) {
	d := newDesktop(t)
	d.write("curfew.yaml", "governance: [{lifetime: ephemeral}]\n")
	policies, err := filepath.Abs(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := d.run("policy", "check", "--against", "last", policies); code != ExitError {
		t.Errorf("without a scan: exit %d, %s", code, errs)
	}
	if code, _, errs := d.run("policy", "check", "--against", "first", policies); code != ExitUsage {
		t.Errorf("another scan: exit %d, %s", code, errs)
	}
	d.now = d.clock()
	if code, _, errs := d.run("scan", "--demo"); code != ExitDone {
		t.Fatalf("scan: exit %d, %s", code, errs)
	}
	counts := func() map[string]round.PolicyReach {
		t.Helper()
		code, out, errs := d.run("policy", "check", "--against", "last", "-o", "json", policies)
		if code != ExitDone {
			t.Fatalf("exit %d: %s", code, errs)
		}
		var doc struct {
			Against struct {
				Cloud    string
				Policies []round.PolicyReach
			}
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Against.Cloud != sim.CloudName {
			t.Fatalf("%v in %s", err, out)
		}
		got := map[string]round.PolicyReach{}
		for _, n := range doc.Against.Policies {
			got[n.Policy] = n
		}
		return got
	}
	// The account itself provides the number that may end, and how many of them are stopped.
	seen, err := sim.New(sim.Options{Seed: clouds.SimSeed, Now: d.now}).List(t.Context(), round.Query{Now: d.now})
	if err != nil {
		t.Fatal(err)
	}
	want := round.PolicyReach{Policy: "idle-ephemeral", Refused: map[string]int{}}
	for _, r := range seen.Resources {
		if r.Kind != inventory.KindInstance || r.Lifetime != inventory.Ephemeral {
			continue
		}
		want.Selected++
		switch {
		case r.State != inventory.StateRunning && r.Detail.(*inventory.Instance).Market != inventory.Spot:
			want.Refused["state"]++
		default:
			want.CouldAct++
		}
	}
	if diff := cmp.Diff(want, counts()["idle-ephemeral"]); diff != "" || want.Selected < 10 {
		t.Errorf("idle-ephemeral differs (-want +got):\n%s", diff)
	}
	if got := counts()["untagged"]; got.CouldAct+got.Refused["kept"] != got.Selected || got.CouldAct == 0 {
		t.Errorf("untagged: %+v", got)
	}
	d.write("curfew.yaml", "")
	if got := counts()["idle-ephemeral"]; got.CouldAct != 0 || got.Refused["ungoverned"] != want.CouldAct {
		t.Errorf("without governance: %+v", got)
	}
}
