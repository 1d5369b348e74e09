package mig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/test/cputime"
)

func TestEnumerate(t *testing.T) {
	seven, double := [4]int{298, 38, 19, 14}, [4]int{723, 78, 78, 38}
	for _, m := range Models() {
		want := map[bool][4]int{false: seven, true: double}
		if m.Name == "A30-24GB" {
			want = map[bool][4]int{false: {26, 10, 5, 4}, true: {26, 10, 5, 4}}
		}
		for d, w := range want {
			c, err := Enumerate(m, d)
			if got := [4]int{c.PlacementSets, c.Multisets, c.MaximalSets, c.MaximalMultisets}; err != nil || got != w {
				t.Errorf("%s, double memory %v: %v, %v; want %v", m.Name, d, got, err, w)
			}
		}
	}
}

// TestMaximalMultisetsOfSevenSlices names the 14 of a seven-slice GPU (NVIDIA MIG user guide).
func TestMaximalMultisetsOfSevenSlices(t *testing.T) {
	m, err := ModelNamed("A100-80")
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGeometry(m)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	g.divisions(false, func(multiset []byte, maximal bool) {
		var names []string
		for i, n := range multiset {
			for range n {
				names = append(names, fmt.Sprint(m.Profiles[i].ComputeSlices))
			}
		}
		if maximal {
			found[strings.Join(names, "")] = true
		}
	})
	var got []string
	for name := range found {
		got = append(got, name)
	}
	slices.Sort(got)
	want := []string{
		"1111111", "111112", "11113", "11122", "1113", "1114", "1123", "1222", "123", "124", "223", "33", "34", "7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("maximal multisets (-want +got):\n%s", diff)
	}
}

// TestModelTableIsConsistent checks the table to itself: the most of a profile that fits is Max,
// sizes do not sink, and every larger instance can be replaced by a smaller one in place.
func TestModelTableIsConsistent(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range Models() {
		g, err := newGeometry(m)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range m.Profiles {
			if got := int(g.room[g.full][i]); got != p.Max {
				t.Errorf("%s: %d of %s fit, the table has %d", m.Name, got, p.Name, p.Max)
			}
			if i > 0 && p.MemorySlices < m.Profiles[i-1].MemorySlices {
				t.Errorf("%s: %s is out of order", m.Name, p.Name)
			}
			if g.slim(1<<len(m.Profiles)-1<<i)&(1<<i) == 0 && !p.MediaEngines {
				t.Errorf("%s: something larger fits inside %s", m.Name, p.Name)
			}
			if p.UsableGiB > 0 && p.UsableGiB != g.atLeastGiB(i) {
				t.Errorf("%s: %s is sure to have %v GiB", m.Name, p.Name, g.atLeastGiB(i))
			}
		}
		acc, ok := book.Accelerator(m.Name)
		if !ok || !acc.MIG || acc.Name != m.Name {
			t.Errorf("the price book has %s as %+v, %v", m.Name, acc, ok)
		}
		for _, alias := range append([]string{"NVIDIA " + m.Name, strings.ToLower(m.Name)}, m.Aliases...) {
			if got, err := ModelNamed(alias); err != nil || got.Name != m.Name {
				t.Errorf("%q is %s, %v; want %s", alias, got.Name, err, m.Name)
			}
			if acc, ok := book.Accelerator(strings.TrimPrefix(alias, "NVIDIA ")); ok && acc.Name != m.Name {
				t.Errorf("%q is %s here and %s in the price book", alias, m.Name, acc.Name)
			}
		}
	}
	for _, name := range []string{"T4", "GH200", "", "A100-20GB"} {
		if _, err := ModelNamed(name); !errors.Is(err, ErrNoGeometry) {
			t.Errorf("%q: %v, want ErrNoGeometry", name, err)
		}
	}
}

func TestModelCheck(t *testing.T) {
	good := Profile{Name: "1g", ComputeSlices: 1, MemorySlices: 1, Starts: []int{0}}
	for name, m := range map[string]Model{
		"no name":     {MemorySlices: 1, Profiles: []Profile{good}},
		"nine slices": {Name: "x", MemorySlices: 9, Profiles: []Profile{good}},
		"no profile":  {Name: "x", MemorySlices: 8},
		"twice":       {Name: "x", MemorySlices: 8, Profiles: []Profile{good, good}},
		"start outside": {
			Name: "x", MemorySlices: 2,
			Profiles: []Profile{{Name: "2g", ComputeSlices: 1, MemorySlices: 2, Starts: []int{1}}},
		},
		"start before": {
			Name: "x", MemorySlices: 2,
			Profiles: []Profile{{Name: "2g", ComputeSlices: 1, MemorySlices: 2, Starts: []int{-1}}},
		},
		"no compute slice": {
			Name: "x", MemorySlices: 2, Profiles: []Profile{{Name: "2g", MemorySlices: 2, Starts: []int{0}}},
		},
	} {
		if _, err := Enumerate(m, false); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := Pack(context.Background(), Fleet{{Model: m}}, nil, Options{}); err == nil {
			t.Errorf("%s: packed without error", name)
		}
	}
}

// firstFitDecreasing is a plain scheduler: the largest first, each on the first GPU and the first
// free start.
func firstFitDecreasing(m Model, needs []need) int {
	var used []uint
	for _, n := range needs {
		at := slices.IndexFunc(m.Profiles, func(p Profile) bool {
			return !p.MediaEngines && !p.DoubleMemory && p.UsableGiB >= n.gib && p.ComputeSlices >= n.slices
		})
		p := m.Profiles[at]
	search:
		for g := 0; ; g++ {
			if g == len(used) {
				used = append(used, 0)
			}
			for _, s := range p.Starts {
				if slots := uint(1<<p.MemorySlices-1) << s; used[g]&slots == 0 {
					used[g] |= slots
					break search
				}
			}
		}
	}
	return len(used)
}

// TestBeatsFirstFitDecreasing compares plans with first fit decreasing where that wastes GPUs: it
// puts the 3g at 0, where it stands in the way of a 2g.
func TestBeatsFirstFitDecreasing(t *testing.T) {
	for _, tc := range []struct {
		name      string
		workloads []Workload
		first     int
		want      int
	}{
		{"3g and two 2g", []Workload{{"a", 30, 3, 1}, {"b", 15, 2, 2}}, 2, 1},
		{"3g and four 1g", []Workload{{"a", 30, 3, 1}, {"b", 5, 1, 4}}, 2, 1},
		{"4g stands where it has to", []Workload{{"a", 30, 4, 1}, {"b", 30, 3, 1}}, 1, 1},
		{"ten 3g and twenty 2g", []Workload{{"a", 30, 3, 10}, {"b", 15, 2, 20}}, 12, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := packed(t, "A100-80GB", tc.workloads, Options{})
			var needs []need
			for _, a := range needsOf(tc.workloads) {
				needs = append(needs, a.need)
			}
			if first := firstFitDecreasing(fleetOf(t, "A100-80GB")[0].Model, needs); first != tc.first {
				t.Errorf("first fit decreasing takes %d GPUs, the test says %d", first, tc.first)
			}
			if r.GPUsUsed != tc.want || !r.Optimal || r.LowerBound != tc.want {
				t.Errorf("%d GPUs (bound %d, %s), want %d", r.GPUsUsed, r.LowerBound, r.Proof, tc.want)
			}
		})
	}
}

func TestReportsUnplacedWorkloads(t *testing.T) {
	for _, tc := range []struct {
		name, fleet string
		double      bool
		w           Workload
		profile     string
		why         string
	}{
		{"exactly the usable memory", "A100-80GB", false, Workload{"w", 9.62, 1, 1}, "1g.10gb", ""},
		{"a little more", "A100-80GB", false, Workload{"w", 9.63, 1, 1}, "2g.20gb", ""},
		{"double memory where asked for", "A100-80GB", true, Workload{"w", 9.63, 1, 1}, "1g.20gb", ""},
		{
			"more than the GPU", "A100-80GB", false, Workload{"w", 78.6, 1, 1}, "",
			"7g.80gb of A100-80GB has 78.5 GiB and 7 compute slices",
		},
		{"more compute than the GPU", "A30", false, Workload{"w", 1, 5, 1}, "", "4 compute slices"},
		{"memory that is not known", "B200", false, Workload{"w", 60, 1, 1}, "", "unknown usable memory"},
		{"as much as a smaller one is known to have", "B200", false, Workload{"w", 44.25, 3, 1}, "3g.90gb", ""},
		{"the lower of two dumps", "B200", false, Workload{"w", 21, 1, 1}, "2g.45gb", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := packed(t, tc.fleet, []Workload{tc.w}, Options{DoubleMemory: tc.double})
			if tc.profile == "" {
				if r.GPUsUsed != 0 || len(r.Unplaced) != 1 || !strings.Contains(r.Unplaced[0].Why, tc.why) {
					t.Errorf("%+v, want it unplaced because %q", r.Unplaced, tc.why)
				}
				return
			}
			if len(r.GPUs) != 1 || r.GPUs[0].Placements[0].Profile != tc.profile {
				t.Errorf("%+v, want %s", r.GPUs, tc.profile)
			}
		})
	}
}

func TestLimitedFleet(t *testing.T) {
	workloads := []Workload{{"big", 30, 4, 2}, {"small", 4, 1, 9}}
	r := packed(t, "A30:1,A100-40GB:1", workloads, Options{})
	checkLegal(t, fleetOf(t, "A30:1,A100-40GB:1"), workloads, false, r)
	// Nine small ones take both GPUs; a big one in the place of seven would leave out
	// more.
	want := []Unplaced{{"big", 2, "no room left on the available GPUs (A30-24GB:1,A100-40GB:1)"}}
	if diff := cmp.Diff(want, r.Unplaced); diff != "" || r.GPUsUsed != 2 || !r.Optimal {
		t.Errorf("%d GPUs, %s (-want +got):\n%s", r.GPUsUsed, r.Proof, diff)
	}
}

func TestEmptyPlan(t *testing.T) {
	r := packed(t, "A100-80GB", nil, Options{})
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"schema":"curfew.plan.mig/v1"`, `"gpus_used":0`, `"lower_bound":0`, `"gpus":[]`,
		`"unplaced":[]`, `"moves":null`,
		`"commands":[]`, `"steps":[]`, `"advice":[]`, `"optimal":true`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s lacks %s", out, want)
		}
	}
}

// TestPackThousands packs 2,000 workloads in a few seconds and prints the gap to
// the lower bound.
func TestPackThousands(t *testing.T) {
	for _, tc := range []struct {
		fleet  string
		double bool
		gap    int
	}{
		{"A100-80GB", false, 0}, {"A100-80GB", true, 0}, {"A30", false, 0}, {"A100-80GB,H100-80GB,A30", false, 0},
		{"A100-80GB:700,A30:50,H200:20", true, 0},
	} {
		fleet := fleetOf(t, tc.fleet)
		workloads := randomWorkloads(rand.New(rand.NewPCG(3, 3)), 2000, fleet, 6)
		before := cputime.Now(t)
		r := packed(t, tc.fleet, workloads, Options{DoubleMemory: tc.double})
		took := cputime.Now(t) - before
		t.Logf("%s, double memory %v: %d GPUs, lower bound %d, gap %d, %s, %s", tc.fleet, tc.double, r.GPUsUsed,
			r.LowerBound, r.GPUsUsed-r.LowerBound, r.Proof, took)
		if took > 5*time.Second {
			t.Errorf("%s took %s", tc.fleet, took)
		}
		if r.GPUsUsed-r.LowerBound > tc.gap {
			t.Errorf("%s: %d GPUs, bound %d", tc.fleet, r.GPUsUsed, r.LowerBound)
		}
		checkLegal(t, fleet, workloads, tc.double, r)
	}
}

// TestLimitedEffortStaysLegal checks that a search that is cut short says so and is still legal,
// and that its bound is still one.
func TestLimitedEffortStaysLegal(t *testing.T) {
	fleet := fleetOf(t, "A30:20,A100-40GB:20,H100-NVL:20")
	workloads := randomWorkloads(rand.New(rand.NewPCG(5, 5)), 120, fleet, 6)
	long := packed(t, fleet.String(), workloads, Options{})
	for _, effort := range []int64{1, 1e5, 1e6, 1e7} {
		short := packed(t, fleet.String(), workloads, Options{Effort: effort})
		checkLegal(t, fleet, workloads, false, short)
		if short.LowerBound > long.GPUsUsed || (short.Optimal && short.GPUsUsed != long.GPUsUsed) {
			t.Errorf("effort %d: bound %d, %s with %d GPUs; %d do", effort, short.LowerBound,
				short.Proof, short.GPUsUsed,
				long.GPUsUsed)
		}
		if effort == 1 && (short.Optimal || short.Proof != Gap) {
			t.Errorf("no effort proves %s", short.Proof)
		}
	}
	if !long.Optimal {
		t.Errorf("the plan is not proven: %d GPUs, bound %d", long.GPUsUsed, long.LowerBound)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	workloads := []Workload{{"w", 5, 1, 5}}
	if _, err := Pack(ctx, fleetOf(t, "A30"), workloads, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	current := []Placed{{GPU: "0", Profile: "1g.6gb", Start: 0}}
	if _, err := Rearrange(ctx, fleetOf(t, "A30"), current, workloads, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPackErrors(t *testing.T) {
	a30 := fleetOf(t, "A30")
	for _, tc := range []struct {
		name      string
		fleet     Fleet
		workloads []Workload
		want      string
	}{
		{"no GPU", nil, nil, "no GPU to place workloads on"},
		{"twice", a30, []Workload{{"w", 1, 1, 1}, {"w", 1, 1, 1}}, `"w" appears twice`},
		{"no memory", a30, []Workload{{"w", 0, 1, 1}}, "memory_gib 0"},
		{"no compute", a30, []Workload{{"w", 1, 0, 1}}, "compute_slices 0"},
		{"no name", a30, []Workload{{"", 1, 1, 1}}, "name is empty"},
		{"too many", a30, []Workload{{"a", 1, 1, maxUnits}, {"b", 1, 1, 1}}, "more than 100000 workloads"},
		{"negative fleet", Fleet{{Model: a30[0].Model, Count: -1}}, nil, "the fleet has -1"},
	} {
		if _, err := Pack(context.Background(), tc.fleet, tc.workloads, Options{}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestCommands pins the commands of a plan: each GPU is drained before MIG is
// enabled on it, and each process gets its own instance.
func TestCommands(t *testing.T) {
	r := packed(t, "A100-80GB", []Workload{{"train", 30, 3, 1}, {"serve", 15, 2, 2}}, Options{})
	want := []string{
		"# drain GPU 0: end every process on it, because MIG resets it; the next command must print no process",
		"nvidia-smi -i 0 --query-compute-apps=pid,name --format=csv,noheader",
		"nvidia-smi -i 0 -mig 1",
		"nvidia-smi mig -i 0 -cgi 3g.40gb:4,2g.20gb:0,2g.20gb:2 -C",
		"nvidia-smi -L",
		"CUDA_VISIBLE_DEVICES=MIG-<uuid:0/3g.40gb@4> # start train with this in its environment, in a process of its own",
		"CUDA_VISIBLE_DEVICES=MIG-<uuid:0/2g.20gb@0> # start serve with this in its environment, in a process of its own",
		"CUDA_VISIBLE_DEVICES=MIG-<uuid:0/2g.20gb@2> # start serve with this in its environment, in a process of its own",
	}
	if diff := cmp.Diff(want, r.Commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

// TestLeavesRoomForLargestProfile checks that placements leave room for the largest profile that
// could still come: three 1g go to the upper half.
func TestLeavesRoomForLargestProfile(t *testing.T) {
	r := packed(t, "A100-80GB", []Workload{{"w", 5, 1, 3}}, Options{})
	if got := r.GPUs[0].Room; len(got) == 0 || got[0] != "4g.40gb" {
		t.Errorf("next to %+v there is room for %v, want 4g.40gb", r.GPUs[0].Placements, got)
	}
}

func TestAdvice(t *testing.T) {
	advice := func(fleet string, workloads ...Workload) map[string]Advice {
		out := map[string]Advice{}
		for _, a := range packed(t, fleet, workloads, Options{}).Advice {
			out[a.Mode] = a
		}
		return out
	}
	// Seven of 11 GiB and one slice: MIG takes 2g each, three on a GPU.
	a := advice("A100-80GB", Workload{"w", 11, 1, 7})
	if m := a["mps"]; !m.Serves || *m.GPUs != 1 || !strings.Contains(m.When, "trusted processes of one owner") ||
		!strings.Contains(strings.Join(m.Lacks, " "), "memory is not isolated") {
		t.Errorf("mps: %+v", m)
	}
	if m := a["double-memory"]; !m.Serves || *m.GPUs != 2 {
		t.Errorf("double-memory: %+v", m)
	}
	// Two that each want all the compute: side by side they do not fit, in turns they do.
	a = advice("A100-80GB", Workload{"w", 20, 7, 2})
	if m := a["mps"]; m.Serves || *m.GPUs != 2 {
		t.Errorf("mps: %+v", m)
	}
	if m := a["time-slicing"]; !m.Serves || *m.GPUs != 1 || len(m.Lacks) == 0 {
		t.Errorf("time-slicing: %+v", m)
	}
	if m := a["whole-gpu"]; *m.GPUs != 2 {
		t.Errorf("whole-gpu: %+v", m)
	}
	// 100 of 0.1 GiB fit one GPU by memory; MPS takes 48 clients, and seven slices.
	if m := advice("A100-80GB", Workload{"w", 0.1, 1, 100})["time-slicing"]; *m.GPUs != 1 {
		t.Errorf("time-slicing: %+v", m)
	}
	if n := firstFit([]Workload{{"w", 0.1, 1, 100}}, 80, 1000, mpsClients); n != 3 {
		t.Errorf("100 clients take %d GPUs, want 3", n)
	}
}

func BenchmarkEnumerate(b *testing.B) {
	m, _ := ModelNamed("A100-80GB")
	for b.Loop() {
		if _, err := Enumerate(m, true); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPack packs a large fleet's workloads, and ten times as many.
func BenchmarkPack(b *testing.B) {
	for _, n := range []int{2000, 20000} {
		for _, text := range []string{"A100-80GB", "A100-80GB,H100-80GB,A30"} {
			b.Run(fmt.Sprintf("%s/%d", text, n), func(b *testing.B) {
				fleet := fleetOf(b, text)
				workloads := randomWorkloads(rand.New(rand.NewPCG(3, 3)), n, fleet, 6)
				for b.Loop() {
					r := packed(b, text, workloads, Options{})
					b.ReportMetric(float64(r.GPUsUsed-r.LowerBound), "gap")
				}
			})
		}
	}
}

func BenchmarkRearrange(b *testing.B) {
	for _, gpus := range []int{8, 64} {
		b.Run(fmt.Sprint(gpus), func(b *testing.B) {
			fleet := fleetOf(b, "A100-80GB")
			rng := rand.New(rand.NewPCG(9, 9))
			current, coming := randomLayout(rng, fleet, gpus, 6), randomWorkloads(rng, gpus, fleet, 5)
			for b.Loop() {
				r, err := Rearrange(context.Background(), fleet, current, coming, Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(r.Moves)-*r.MovesLowerBound), "gap")
			}
		})
	}
}
