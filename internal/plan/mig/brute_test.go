package mig

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The brute-force searches share nothing with the program: they try every profile and start for
// every workload.

// ask is a need; own is the profile it has today, which it may have again.
type ask struct {
	need
	own string
}

// fitsOn reports by brute force whether needs fit on a GPU next to its present instances.
func fitsOn(m Model, double bool, needs []ask, used uint) bool {
	if len(needs) == 0 {
		return true
	}
	for _, p := range m.Profiles {
		if p.MediaEngines || (p.DoubleMemory && !double && p.Name != needs[0].own) || p.UsableGiB < needs[0].gib ||
			p.ComputeSlices < needs[0].slices {
			continue
		}
		for _, start := range p.Starts {
			if at := uint(1<<p.MemorySlices-1) << start; used&at == 0 && fitsOn(m, double, needs[1:], used|at) {
				return true
			}
		}
	}
	return false
}

// minUnplacedAndGPUs returns by brute force the fewest workloads left out and the fewest GPUs for
// the others.
func minUnplacedAndGPUs(fleet Fleet, needs []ask, double bool) (left, gpus int) {
	n := len(needs)
	fits := make([][]bool, len(fleet)) // by model and set of workloads
	for f, g := range fleet {
		fits[f] = make([]bool, 1<<n)
		for set := range fits[f] {
			var some []ask
			for i := range needs {
				if set&(1<<i) != 0 {
					some = append(some, needs[i])
				}
			}
			fits[f][set] = fitsOn(g.Model, double, some, 0)
		}
	}
	type state struct {
		rest  int
		stock string
	}
	seen := map[state][2]int{}
	var solve func(rest int, stock []int) [2]int
	solve = func(rest int, stock []int) [2]int {
		if rest == 0 {
			return [2]int{}
		}
		key := state{rest, fmt.Sprint(stock)}
		if v, ok := seen[key]; ok {
			return v
		}
		first := rest & -rest
		best := solve(rest&^first, stock)
		best[0]++
		for f := range fleet {
			if stock[f] == 0 {
				continue
			}
			stock[f]--
			for set := rest; set > 0; set = (set - 1) & rest {
				if set&first == 0 || !fits[f][set] {
					continue
				}
				if v := solve(rest&^set, stock); v[0] < best[0] || (v[0] == best[0] && v[1]+1 < best[1]) {
					best = [2]int{v[0], v[1] + 1}
				}
			}
			stock[f]++
		}
		seen[key] = best
		return best
	}
	stock := make([]int, len(fleet))
	for f, g := range fleet {
		if stock[f] = g.Count; g.Count == 0 {
			stock[f] = n
		}
	}
	v := solve(1<<n-1, stock)
	return v[0], v[1]
}

// randomWorkloads draws workloads around the sizes of some models' profiles.
func randomWorkloads(rng *rand.Rand, n int, fleet Fleet, largest int) []Workload {
	var out []Workload
	for i := range n {
		m := fleet[rng.IntN(len(fleet))].Model
		p := m.Profiles[rng.IntN(min(largest, len(m.Profiles)))]
		gib := max(p.UsableGiB, 1) * []float64{0.3, 1, 1, 1.01}[rng.IntN(4)]
		out = append(out, Workload{fmt.Sprintf("w%d", i), gib, 1 + rng.IntN(p.ComputeSlices), 1})
	}
	return out
}

func needsOf(workloads []Workload) []ask {
	var out []ask
	for _, w := range workloads {
		for range w.Count {
			out = append(out, ask{need{w.MemoryGiB, w.ComputeSlices}, ""})
		}
	}
	return out
}

func fleetOf(tb testing.TB, text string) Fleet {
	tb.Helper()
	f, err := ParseFleet(text)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func packed(tb testing.TB, fleet string, workloads []Workload, o Options) Report {
	tb.Helper()
	r, err := Pack(context.Background(), fleetOf(tb, fleet), workloads, o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestPackMatchesBruteForce compares thousands of small plans with the optimum: each is reached and
// proven.
func TestPackMatchesBruteForce(t *testing.T) {
	for _, tc := range []struct {
		fleet     string
		double    bool
		n, trials int
		largest   int
	}{
		{"A100-80GB", false, 7, 1500, 6},
		{"A100-80GB", false, 9, 150, 5},
		{"A100-40GB", true, 7, 1000, 5},
		{"A30", false, 8, 1000, 5},
		{"H200", true, 9, 100, 4},
		{"A100-80GB,A30", false, 6, 400, 6},
		{"A30:2,A100-40GB:1", false, 7, 400, 6},
		{"A100-40GB:1,H100-80GB:1,A30:1", true, 7, 400, 5},
		{"H100-80GB:2", true, 8, 200, 5},
	} {
		t.Run(fmt.Sprintf("%s double=%v n=%d", tc.fleet, tc.double, tc.n), func(t *testing.T) {
			fleet := fleetOf(t, tc.fleet)
			rng := rand.New(rand.NewPCG(7, uint64(tc.n)))
			for range tc.trials {
				workloads := randomWorkloads(rng, 1+rng.IntN(tc.n), fleet, tc.largest)
				r := packed(t, tc.fleet, workloads, Options{DoubleMemory: tc.double})
				left := 0
				for _, u := range r.Unplaced {
					left += u.Count
				}
				wantLeft, want := minUnplacedAndGPUs(fleet, needsOf(workloads), tc.double)
				if left != wantLeft || r.GPUsUsed != want {
					t.Fatalf("%v: %d GPUs and %d left out, want %d and %d", workloads,
						r.GPUsUsed, left, want, wantLeft)
				}
				if !r.Optimal || r.LowerBound != want {
					t.Fatalf("%v: %d GPUs are not proven: bound %d, %s", workloads, want, r.LowerBound, r.Proof)
				}
				checkLegal(t, fleet, workloads, tc.double, r)
				// A limited search may use more, but must not claim optimality.
				short := packed(t, tc.fleet, workloads, Options{DoubleMemory: tc.double, Effort: 1 << rng.IntN(22)})
				checkLegal(t, fleet, workloads, tc.double, short)
				out := 0
				for _, u := range short.Unplaced {
					out += u.Count
				}
				if out < wantLeft || (out == wantLeft && short.LowerBound > want) ||
					(short.Optimal && (out != wantLeft || short.GPUsUsed != want)) {
					t.Fatalf("%v: cut short, %d GPUs (bound %d, %s), %d left out; want %d and %d",
						workloads, short.GPUsUsed,
						short.LowerBound, short.Proof, out, want, wantLeft)
				}
			}
		})
	}
}

// testFailer is a test or a property.
type testFailer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// checkLegal checks a plan against the table: legal starts, no overlaps, no profile beyond its
// maximum, enough memory and compute, and every workload placed or reported.
func checkLegal(tb testFailer, fleet Fleet, workloads []Workload, double bool, r Report) {
	tb.Helper()
	wanted, stock := map[string]Workload{}, map[string]int{}
	missing := map[string]int{}
	for _, w := range workloads {
		wanted[w.Name] = w
		missing[w.Name] = w.Count
	}
	for _, g := range r.GPUs {
		m, err := fleet.model(g.Model)
		if err != nil {
			tb.Fatal(err)
		}
		stock[m.Name]++
		used, counts, media := uint(0), map[string]int{}, 0
		if len(g.Placements) == 0 {
			tb.Fatalf("GPU %s is used for nothing", g.GPU)
		}
		for _, p := range g.Placements {
			q, ok := m.Profile(p.Profile)
			at := uint(1<<p.Size-1) << p.Start
			if starts := fmt.Sprint(q.Starts); !ok || p.Size != q.MemorySlices || !slices.Contains(q.Starts, p.Start) {
				tb.Fatalf("%+v on %s: starts are %s, size %d", p, m.Name, starts, q.MemorySlices)
			}
			if used&at != 0 {
				tb.Fatalf("GPU %s: %+v overlaps", g.GPU, p)
			}
			used |= at
			if counts[p.Profile]++; counts[p.Profile] > q.Max {
				tb.Fatalf("GPU %s has %d of %s", g.GPU, counts[p.Profile], p.Profile)
			}
			if q.MediaEngines {
				media++
			}
			w, named := wanted[p.Workload]
			if missing[p.Workload]--; !named {
				continue
			}
			if q.UsableGiB < w.MemoryGiB || q.ComputeSlices < w.ComputeSlices ||
				(q.DoubleMemory && !double && r.Moves == nil) {
				tb.Fatalf("%+v is too small or not asked for: %+v", p, w)
			}
		}
		if media > 1 {
			tb.Fatalf("GPU %s has %d +me instances", g.GPU, media)
		}
	}
	for _, u := range r.Unplaced {
		if missing[u.Workload] -= u.Count; u.Why == "" || u.Count < 1 {
			tb.Fatalf("%+v says nothing", u)
		}
	}
	for name, n := range missing {
		if _, named := wanted[name]; named && n != 0 {
			tb.Fatalf("%d of %s are neither placed nor reported", n, name)
		}
	}
	for _, g := range fleet {
		if g.Count > 0 && stock[g.Model.Name] > g.Count {
			tb.Fatalf("%d %s are used, there are %d", stock[g.Model.Name], g.Model.Name, g.Count)
		}
	}
	if r.LowerBound > r.GPUsUsed || (r.Optimal && r.Proof == Gap) {
		tb.Fatalf("bound %d, used %d, %s", r.LowerBound, r.GPUsUsed, r.Proof)
	}
}

// randomLayout returns a random legal layout with workloads named a0, a1, ….
func randomLayout(rng *rand.Rand, fleet Fleet, gpus, most int) []Placed {
	var out []Placed
	for g := range gpus {
		m := fleet[rng.IntN(len(fleet))].Model
		used := uint(0)
		for range 1 + rng.IntN(most) {
			p := m.Profiles[rng.IntN(len(m.Profiles))]
			start := p.Starts[rng.IntN(len(p.Starts))]
			if at := uint(1<<p.MemorySlices-1) << start; used&at == 0 && !p.MediaEngines {
				used |= at
				out = append(out, Placed{
					GPU: fmt.Sprint(g), Model: m.Name, Profile: p.Name, Start: start,
					Workload: fmt.Sprintf("a%d", len(out)),
				})
			}
		}
	}
	return out
}

// minGPUsAndMoves returns by brute force the fewest GPUs, and the fewest moves with as many, trying
// every GPU for every instance and new workload.
func minGPUsAndMoves(m Model, current []Placed, needs, coming []ask, double, keep bool) (gpus, moves int) {
	ids := map[string]int{}
	for _, p := range current {
		if _, ok := ids[p.GPU]; !ok {
			ids[p.GPU] = len(ids)
		}
	}
	all := append(append([]ask{}, needs...), coming...)
	gpu := make([]int, len(all))
	stays := make([]bool, len(all))
	gpus, moves = math.MaxInt, math.MaxInt
	known := map[string]bool{}
	fits := func(g int) bool {
		used := uint(0)
		var rest []ask
		for i := range all {
			if gpu[i] != g {
				continue
			}
			if stays[i] {
				p, _ := m.Profile(current[i].Profile)
				used |= uint(1<<p.MemorySlices-1) << current[i].Start
			} else {
				rest = append(rest, all[i])
			}
		}
		key := fmt.Sprint(used, rest)
		if _, ok := known[key]; !ok {
			known[key] = fitsOn(m, double, rest, used)
		}
		return known[key]
	}
	var assign func(i, opened, moved int)
	assign = func(i, opened, moved int) {
		if i < len(all) {
			for g := range min(opened+1, len(ids)+len(all)) {
				gpu[i], stays[i] = g, false
				step := 0
				if i < len(current) {
					step = 1
					if g == ids[current[i].GPU] {
						stays[i] = true
						assign(i+1, max(opened, g+1), moved)
						stays[i] = false
					}
				}
				assign(i+1, max(opened, g+1), moved+step)
			}
			return
		}
		count := 0
		for g := range opened {
			used := false
			for i := range all {
				used = used || gpu[i] == g
			}
			if used && !(keep && g < len(ids)) {
				count++
			}
		}
		if count > gpus || (count == gpus && moved >= moves) {
			return
		}
		for g := range opened {
			if !fits(g) {
				return
			}
		}
		gpus, moves = count, moved
	}
	assign(0, len(ids), 0)
	return gpus, moves
}

// TestRearrangeMatchesBruteForce compares GPUs and moves with the optimum.
func TestRearrangeMatchesBruteForce(t *testing.T) {
	for _, tc := range []struct {
		fleet        string
		gpus, coming int
		double, keep bool
		trials       int
	}{
		{"A100-80GB", 1, 2, false, false, 1500},
		{"A100-80GB", 2, 1, false, false, 1000},
		{"A100-80GB", 2, 1, true, true, 1000},
		{"A30", 2, 2, false, false, 1000},
		{"H100-80GB", 2, 2, true, false, 500},
		{"A30", 2, 2, false, true, 1000},
		{"A100-40GB", 3, 1, true, false, 300},
	} {
		t.Run(fmt.Sprintf("%s gpus=%d coming=%d double=%v keep=%v", tc.fleet, tc.gpus, tc.coming, tc.double, tc.keep),
			func(t *testing.T) {
				fleet := fleetOf(t, tc.fleet)
				rng := rand.New(rand.NewPCG(11, uint64(tc.gpus)))
				for range tc.trials {
					current := randomLayout(rng, fleet, tc.gpus, 3)
					if len(current) > 5 {
						continue
					}
					wanted := randomWorkloads(rng, tc.coming, fleet, 5)
					var needs []ask
					for _, p := range current {
						q, _ := fleet[0].Model.Profile(p.Profile)
						needs = append(needs, ask{need{q.UsableGiB, q.ComputeSlices}, q.Name})
					}
					r, err := Rearrange(context.Background(), fleet, current, wanted, Options{
						DoubleMemory: tc.double, KeepGPUs: tc.keep,
					})
					if err != nil {
						t.Fatal(err)
					}
					var coming []ask
					unfit := 0
					for _, n := range needsOf(wanted) {
						if fitsOn(fleet[0].Model, tc.double, []ask{n}, 0) {
							coming = append(coming, n)
						} else {
							unfit++
						}
					}
					gpus, moves := minGPUsAndMoves(fleet[0].Model, current, needs, coming, tc.double, tc.keep)
					got := 0
					listed := map[string]bool{}
					for _, p := range current {
						listed[p.GPU] = true
					}
					for _, g := range r.GPUs {
						if !tc.keep || !listed[g.GPU] {
							got++
						}
					}
					if got != gpus || len(r.Moves) != moves || *r.MovesLowerBound != moves || !r.Optimal ||
						len(r.Unplaced) != unfit {
						t.Fatalf("%v and %v: %d GPUs, %d moves (bound %d, %s), want %d and %d", current,
							wanted, got, len(r.Moves),
							*r.MovesLowerBound, r.Proof, gpus, moves)
					}
					checkLegal(t, fleet, wanted, tc.double, r)
					checkSteps(t, fleet, current, r)
				}
			})
	}
}

// checkSteps executes the steps: nothing overlaps, nothing ends undrained, nothing starts in a
// missing instance, and the result is the plan.
func checkSteps(tb testFailer, fleet Fleet, current []Placed, r Report) {
	tb.Helper()
	type instance struct {
		site Site
		who  string
		runs bool
	}
	models := map[string]string{}
	var now []instance
	for _, p := range current {
		now = append(now, instance{Site{p.GPU, p.Profile, p.Start}, p.Workload, true})
		models[p.GPU] = p.Model
	}
	enabled := map[string]bool{}
	for id := range models {
		enabled[id] = true
	}
	for _, g := range r.GPUs {
		models[g.GPU] = g.Model
	}
	slicesOf := func(s Site) uint {
		m, err := fleet.model(models[s.GPU])
		if err != nil {
			tb.Fatal(err)
		}
		p, ok := m.Profile(s.Profile)
		if !ok || !slices.Contains(p.Starts, s.Start) {
			tb.Fatalf("%+v is no placement of %s", s, m.Name)
		}
		return uint(1<<p.MemorySlices-1) << s.Start
	}
	find := func(s Step) int {
		for i, in := range now {
			if in.site == s.Site && in.who == s.Workload {
				return i
			}
		}
		tb.Fatalf("%+v: there is no such instance in %+v", s, now)
		return -1
	}
	drainedGPU := map[string]bool{}
	running := map[string]int{}
	for _, s := range r.Steps {
		switch s.Do {
		case DrainGPU:
			drainedGPU[s.GPU] = true
		case Enable:
			if !drainedGPU[s.GPU] || enabled[s.GPU] {
				tb.Fatalf("MIG is enabled on GPU %s without draining it, or again", s.GPU)
			}
			enabled[s.GPU] = true
		case Create:
			for _, in := range now {
				if in.site.GPU == s.GPU && slicesOf(in.site)&slicesOf(s.Site) != 0 {
					tb.Fatalf("%+v overlaps %+v", s, in)
				}
			}
			if !enabled[s.GPU] {
				tb.Fatalf("%+v comes before MIG is enabled", s)
			}
			now = append(now, instance{s.Site, s.Workload, false})
		case Drain:
			i := find(s)
			if !now[i].runs {
				tb.Fatalf("%+v: it does not run", s)
			}
			now[i].runs = false
			running[s.Workload]--
		case Start:
			i := find(s)
			if now[i].runs {
				tb.Fatalf("%+v: it runs", s)
			}
			now[i].runs = true
		case Destroy:
			i := find(s)
			if now[i].runs {
				tb.Fatalf("%+v is destroyed while it runs", s)
			}
			now = append(now[:i:i], now[i+1:]...)
		}
	}
	want := map[instance]int{}
	for _, g := range r.GPUs {
		for _, p := range g.Placements {
			want[instance{Site{g.GPU, p.Profile, p.Start}, p.Workload, true}]++
		}
	}
	for _, in := range now {
		if want[in]--; want[in] < 0 {
			tb.Fatalf("%+v is left and not in the plan", in)
		}
	}
	for in, n := range want {
		if n != 0 {
			tb.Fatalf("%+v is in the plan and was never made", in)
		}
	}
}

// TestRearrangementsAreLegal checks larger rearrangements with mixed fleets, reduced workloads and
// media engines.
func TestRearrangementsAreLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"A100-80GB", "A30", "A100-40GB,A30", "H100-80GB:6,A30:4"}).Draw(t, "fleet")
		fleet, err := ParseFleet(text)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		current := randomLayout(rng, fleet, rapid.IntRange(0, 4).Draw(t, "gpus"), 7)
		wanted := randomWorkloads(rng, rapid.IntRange(0, 8).Draw(t, "coming"), fleet, 6)
		for i := range current {
			switch rng.IntN(6) {
			case 0: // no longer wanted
				wanted = append(wanted, Workload{current[i].Workload, 1, 1, 0})
			case 1: // outgrown, or more than it needs
				wanted = append(wanted, Workload{
					current[i].Workload, 1 + rng.Float64()*20, 1 + rng.IntN(3), 1 + rng.IntN(2),
				})
			case 2:
				current[i].Workload = ""
			}
		}
		o := Options{KeepGPUs: rng.IntN(2) == 0, DoubleMemory: rng.IntN(2) == 0, Effort: 3e7}
		r, err := Rearrange(context.Background(), fleet, current, wanted, o)
		if err != nil {
			t.Fatal(err)
		}
		checkSteps(t, fleet, current, r)
		if *r.MovesLowerBound > len(r.Moves) {
			t.Fatalf("%d moves, bound %d", len(r.Moves), *r.MovesLowerBound)
		}
		// Nothing that runs ends unless fewer of it are wanted.
		count := map[string]int{}
		for _, p := range current {
			count[p.Workload]++
		}
		for _, w := range wanted {
			if n, runs := count[w.Name]; runs {
				count[w.Name] = min(n, w.Count)
			}
		}
		for _, g := range r.GPUs {
			for _, p := range g.Placements {
				count[p.Workload]--
			}
		}
		for name, n := range count {
			if n > 0 {
				t.Fatalf("%d of %q are ended", n, name)
			}
		}
	})
}
