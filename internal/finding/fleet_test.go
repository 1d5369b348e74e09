package finding

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// serving adds n machines of one owner and type that serve at a load.
func serving(f *fixture, n int, machine string, gpus int, util, memory float64,
	change ...func(*inventory.Resource, *inventory.Instance)) {
	f.judge = true
	for i := range n {
		w := f.window(f.running(fmt.Sprintf("i-%s-%d", machine[:3], i), machine,
			append(change, func(r *inventory.Resource, _ *inventory.Instance) {
				r.Purpose = inventory.Inference
			})...), 14*day)
		for g := range gpus {
			series(w, fmt.Sprint(g), usage.GPUUtil, always(util))
			series(w, fmt.Sprint(g), usage.MemUsed, always(memory*(1<<30)))
			series(w, fmt.Sprint(g), usage.MemTotal, always(40<<30))
		}
		series(w, "", usage.CPUUtil, always(30))
		series(w, "", usage.NetBytes, always(0))
	}
}

// TestServingFleets checks that fleets are judged as a whole, by load and memory.
func TestServingFleets(t *testing.T) {
	owned := func(team, environment string) func(*inventory.Resource, *inventory.Instance) {
		return func(r *inventory.Resource, _ *inventory.Instance) {
			r.Owner = inventory.Owner{Team: team, Environment: environment}
		}
	}
	for _, tc := range []struct {
		name  string
		build func(f *fixture)
		// the required machines, the number of machines whose monthly cost is saved, and the
		// layout; "" for no finding about a fleet
		needed string
		gone   int64
		layout string
	}{
		{"five machines of 8 A100 at 20% and 13 of 40 GiB", func(f *fixture) {
			serving(f, 5, "p4d.24xlarge", 8, 20, 13)
		}, "2", 3, "3g.20gb at 0 and 4"},
		{"memory holds more than the load does", func(f *fixture) {
			serving(f, 5, "p4d.24xlarge", 8, 20, 25)
		}, "4", 1, ""},
		{"in production two stay", func(f *fixture) {
			serving(f, 4, "p4d.24xlarge", 8, 5, 2, owned("search", "production"))
		}, "2", 2, "1g.5gb at 0, 1, 2, 3, 4, 5 and 6"},
		{"at the target", func(f *fixture) { serving(f, 5, "p4d.24xlarge", 8, 65, 13) }, "", 0, ""},
		{"of two owners", func(f *fixture) {
			serving(f, 1, "p4d.24xlarge", 8, 60, 30, owned("search", ""))
			serving(f, 1, "p4de.24xlarge", 8, 60, 60, owned("vision", ""))
		}, "", 0, ""},
		{"one of them was not measured", func(f *fixture) {
			serving(f, 4, "p4d.24xlarge", 8, 20, 13)
			f.running("i-dark", "p4d.24xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
				r.Purpose = inventory.Inference
			})
		}, "", 0, ""},
		{"idle machines have findings of their own", func(f *fixture) {
			serving(f, 4, "p4d.24xlarge", 8, 60, 13)
			f.measured(f.running("i-idle", "p4d.24xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
				r.Purpose = inventory.Inference
			}), 14*day, 8, always(0), always(0))
		}, "", 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			tc.build(f)
			found := f.evaluate()
			at := slices.IndexFunc(found, func(x Finding) bool {
				return x.Rule == "inference-overprovisioned" &&
					!strings.HasPrefix(evidence(x, "machines_at_target"), "no machines_at_target")
			})
			if tc.needed == "" {
				if at >= 0 {
					t.Errorf("found %s", found[at].Because)
				}
				return
			}
			if at < 0 {
				t.Fatalf("found %v", show(found))
			}
			got := found[at]
			price, err := f.Prices.OnDemand("p4d.24xlarge", "us-east-1")
			if err != nil {
				t.Fatal(err)
			}
			month, err := price.Cost(730*tc.gone, 1)
			if err != nil {
				t.Fatal(err)
			}
			if evidence(got, "machines_at_target") != tc.needed || got.Savings.Amount != month || got.Waste != 0 {
				t.Errorf("%s: %s machines would do, saving %s; want %s and %s", got.Because,
					evidence(got, "machines_at_target"),
					got.Savings.Amount, tc.needed, month)
			}
			if layout := evidence(got, "mig_layout"); layout != tc.layout &&
				(tc.layout != "" || !strings.HasPrefix(layout, "no mig_layout")) ||
				strings.Contains(got.Fix.Note, "MIG") != (tc.layout != "") {
				t.Errorf("layout %q, want %q: %s", evidence(got, "mig_layout"), tc.layout, got.Fix.Note)
			}
			if n := len(slices.DeleteFunc(slices.Clone(found), func(x Finding) bool {
				return x.Rule != "inference-overprovisioned"
			})); n != 1 {
				t.Errorf("%d findings of one fleet: %v", n, show(found))
			}
		})
	}
}

// TestSharingDoesNotOverlapScaling: 40 replicas of 13 GiB at 20% fit two to a GPU of 40 GiB, on
// three machines of eight GPUs. At its target the fleet needs two machines, so MIG saves nothing
// more.
func TestSharingDoesNotOverlapScaling(t *testing.T) {
	f := newFixture(t)
	serving(f, 5, "p4d.24xlarge", 8, 20, 13)
	got := only(t, f.evaluate(), "inference-overprovisioned")
	if n := len(got.Fix.Change.Arguments.Members); n != 3 { // 20 % of five is carried by two at 50 %
		t.Errorf("%d machines are named to be taken out: %+v", n, got.Fix.Change)
	}
	for signal, want := range map[string]string{
		"mig_gpus": "20", "mig_machines": "3", "mig_saves_more_monthly_usd": "no mig_saves_more_monthly_usd",
		"load_at_target_pct":  "50",
		"gpu_memory_peak_gib": "13",
	} {
		if v := evidence(got, signal); !strings.HasPrefix(v, want) {
			t.Errorf("%s is %s, want %s", signal, v, want)
		}
	}
}

// TestSaturatedServing checks that over 85% load machines are added and nothing is saved.
func TestSaturatedServing(t *testing.T) {
	for _, tc := range []struct {
		util float64
		want string
	}{{92, "6"}, {84, ""}} {
		f := newFixture(t)
		serving(f, 4, "p4d.24xlarge", 8, tc.util, 30)
		found := f.evaluate()
		if tc.want == "" {
			if slices.ContainsFunc(found, func(x Finding) bool { return x.Rule == "inference-saturated" }) {
				t.Errorf("at %v %%: %v", tc.util, show(found))
			}
			continue
		}
		got := only(t, found, "inference-saturated")
		if v := evidence(got, "machines_at_target"); v != tc.want || got.Savings.Known || got.Waste != 0 ||
			!strings.Contains(got.Because, "scale out to 6") {
			t.Errorf("at %v %%: %s, %+v", tc.util, got.Because, got.Savings)
		}
	}
	f := newFixture(t)
	r := f.add(inventory.Resource{
		ID: "ep", Kind: inventory.KindEndpoint, State: inventory.StateRunning, CreatedAt: ago(60 * day),
		Purpose: inventory.Inference,
		Detail:  &inventory.Endpoint{Variants: []inventory.Variant{{Name: "a", Type: "g5.xlarge", Count: 2}}}})
	w := f.window(r, 14*day)
	series(w, "", usage.Requests, always(100))
	series(w, "", usage.GPUUtil, always(95))
	if got := only(t, f.evaluate(), "inference-saturated"); evidence(got, "replicas_at_target") != "3" {
		t.Errorf("%s: want 3 replicas", got.Because)
	}
}

// TestFleetsAgreeWithFindings checks that the planner of serving fleets and the finding agree on
// the size at the usual target, and that an unchanged fleet has no finding.
func TestFleetsAgreeWithFindings(t *testing.T) {
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t)
		n := rapid.IntRange(2, 9).Draw(rt, "machines")
		owner := inventory.Owner{Team: "search"}
		if rapid.Bool().Draw(rt, "production") {
			owner.Environment = "production"
		}
		serving(f, n, "p4d.24xlarge", 8, float64(rapid.IntRange(1, 95).Draw(rt, "load")),
			float64(rapid.IntRange(1, 38).Draw(rt, "memory")), func(r *inventory.Resource, _ *inventory.Instance) {
				r.Owner = owner
			})
		got := ""
		for _, x := range f.evaluate() {
			if x.Rule == "inference-overprovisioned" && strings.Contains(x.Because, "serve at") {
				got = evidence(x, "machines_at_target")
			}
		}
		fleets, err := Fleets(&f.Account, Thresholds{})
		if err != nil || len(fleets) != 1 {
			rt.Fatalf("%d fleets, %v", len(fleets), err)
		}
		want := ""
		if needed := fleets[0].Needed(0.7); needed < n {
			want, found = fmt.Sprint(needed), found+1
		}
		if got != want {
			rt.Fatalf("the finding says %q of %d machines at %v, the planner %q", got, n,
				fleets[0].Load/float64(n), want)
		}
	})
	if found == 0 {
		t.Error("no fleet is too large")
	}
}
