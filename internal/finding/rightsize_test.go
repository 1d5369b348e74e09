package finding

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// eight gives a machine of eight GPUs a window in which the first GPUs are busy.
func (f *fixture) eight(r *inventory.Resource, busy int, util, memory float64) {
	w := f.window(r, 14*day)
	for i := range 8 {
		name := string(rune('0' + i))
		u, m := 0.0, 0.0
		if i < busy {
			u, m = util, memory
		}
		series(w, name, usage.GPUUtil, always(u))
		series(w, name, usage.SMActive, always(u/100))
		series(w, name, usage.DRAMActive, always(u/200))
		series(w, name, usage.MemUsed, always(m))
		series(w, name, usage.MemTotal, always(40<<30))
	}
	series(w, "", usage.CPUUtil, always(20))
	series(w, "", usage.NetBytes, always(1e9))
}

func TestRightsizing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(f *fixture)
		rule  string // "" for none of the step
	}{
		{
			name: "one GPU of eight used",
			build: func(f *fixture) {
				f.eight(f.running("i-1", "p4d.24xlarge"), 1, 70, 10<<30)
			},
			rule: "gpu-count-over",
		},
		{
			name: "a V100 at 10%",
			build: func(f *fixture) {
				f.measured(f.running("i-1", "p3.2xlarge"), 14*day, 1, always(10), always(10))
			},
			rule: "gpu-underutilized",
		},
		{
			name: "all eight well used",
			build: func(f *fixture) {
				f.eight(f.running("i-1", "p4d.24xlarge"), 8, 90, 38<<30)
			},
		},
		{
			name: "inference far under its target",
			build: func(f *fixture) {
				f.measured(f.running("i-1", "p3.2xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
					r.Purpose = inventory.Inference
				}),
					14*day, 1, always(10), always(10))
			},
			rule: "inference-overprovisioned",
		},
		{
			name: "seven GPUs measured of eight",
			build: func(f *fixture) {
				r := f.running("i-1", "p4d.24xlarge")
				w := f.window(r, 14*day)
				for i := range 7 {
					series(w, string(rune('0'+i)), usage.GPUUtil, always(10))
				}
				f.is(r, duty.Busy)
			},
		},
		{
			name: "a window with holes",
			build: func(f *fixture) {
				r := f.is(f.running("i-1", "g6.2xlarge"), duty.Busy)
				series(f.window(r, 14*day), "0", usage.GPUUtil, func(at time.Time) float64 {
					if at.Hour() < 6 {
						return -1
					}
					return 5
				})
			},
		},
		{
			name: "idle machines are ended, not resized",
			build: func(f *fixture) {
				f.eight(f.is(f.running("i-1", "p4d.24xlarge"), duty.Idle), 0, 0, 0)
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.judge = true
			tc.build(f)
			found := f.evaluate()
			var got []string
			for _, x := range found {
				if x.Step == StepRightsize {
					got = append(got, x.Rule)
				}
			}
			if strings.Join(got, " ") != tc.rule {
				t.Fatalf("right-sizing found %v, want %q; all: %v", got, tc.rule, show(found))
			}
			if tc.rule == "" {
				return
			}
			x := only(t, found, tc.rule)
			if !x.Savings.Known || x.Savings.Amount <= 0 || x.Waste != 0 || !strings.Contains(x.Because, "would do") {
				t.Errorf("%+v; want a known saving that is no waste", x)
			}
			t.Log(x.Because, x.Savings.Amount, x.Fix.Note)
		})
	}
}

// TestOneChangeOfType checks that right-sizing and a newer generation, as alternatives, never save
// more together than the larger of the two.
func TestOneChangeOfType(t *testing.T) {
	f := newFixture(t)
	f.judge = true
	r := f.running("i-1", "p3.2xlarge")
	f.measured(r, 14*day, 1, always(20), always(10))
	found := f.evaluate()
	size, generation := only(t, found, "gpu-underutilized"), only(t, found, "generation-old")
	total := (size.Savings.Amount + generation.Savings.Amount).Cents()
	alone := newFixture(t)
	alone.is(alone.running("i-1", "p3.2xlarge"), duty.Busy)
	largest := max(size.Savings.Amount, only(t, alone.evaluate(), "generation-old").Savings.Amount).Cents()
	if total != largest {
		t.Errorf("together they save %s, the larger one alone %s", total, largest)
	}
	if generation.Overlaps != size.ID {
		t.Errorf("the newer generation overlaps %q, want %q", generation.Overlaps, size.ID)
	}
}

func TestInferenceEndpoints(t *testing.T) {
	endpoint := func(n int64, environment string, load float64, gpu bool) func(f *fixture) {
		return func(f *fixture) {
			machine := "m5.xlarge"
			if gpu {
				machine = "g5.xlarge"
			}
			r := f.add(inventory.Resource{
				ID: "ep", Kind: inventory.KindEndpoint, State: inventory.StateRunning, CreatedAt: ago(60 * day),
				Purpose: inventory.Inference, Owner: inventory.Owner{Environment: environment},
				Detail: &inventory.Endpoint{Variants: []inventory.Variant{{Name: "a", Type: machine, Count: n}}}})
			w := f.window(r, 14*day)
			series(w, "", usage.Requests, always(100))
			series(w, "", usage.CPUUtil, always(load))
			if gpu {
				series(w, "", usage.GPUUtil, always(load))
			}
		}
	}
	for _, tc := range []struct {
		name  string
		build func(f *fixture)
		want  string // replicas that would do; "" for no finding
	}{
		{"four at 20%: two would do", endpoint(4, "", 20, true), "2"},
		{"four at 60%", endpoint(4, "", 60, true), ""},
		{"CPU machines, three at 10%", endpoint(3, "", 10, false), "1"},
		{"in production two stay", endpoint(3, "production", 10, false), "2"},
		{"one at 50% of its CPU", endpoint(1, "", 50, false), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			tc.build(f)
			found := f.evaluate()
			if tc.want == "" {
				for _, x := range found {
					if x.Step == StepRightsize {
						t.Errorf("found %v, want nothing to right-size", show(found))
					}
				}
				return
			}
			got := only(t, found, "inference-overprovisioned")
			if evidence(got, "replicas_at_target") != tc.want || got.Fix.Risk != High {
				t.Errorf("%s replicas would do, risk %s; want %s and high",
					evidence(got, "replicas_at_target"), got.Fix.Risk,
					tc.want)
			}
		})
	}
}

func TestEndpointWithTooManyGPUs(t *testing.T) {
	f := newFixture(t)
	r := f.add(inventory.Resource{
		ID: "ep", Kind: inventory.KindEndpoint, State: inventory.StateRunning, CreatedAt: ago(60 * day),
		Purpose: inventory.Inference,
		Detail:  &inventory.Endpoint{Variants: []inventory.Variant{{Name: "a", Type: "g4dn.12xlarge", Count: 1}}}})
	w := f.window(r, 14*day)
	w.Aggregated = true
	series(w, "", usage.Requests, always(100))
	series(w, "", usage.GPUUtil, always(6))
	// 4.89 an hour on four GPUs against 0.7364 on one.
	got := only(t, f.evaluate(), "inference-overprovisioned")
	if got.Savings.Known || got.Savings.UpperBound.Cents() != "3032.13" ||
		!strings.Contains(got.Savings.Why, "not measured") {
		t.Errorf("saves %+v; want at most 3032.13, because memory was not measured", got.Savings)
	}
}
