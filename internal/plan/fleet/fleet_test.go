package fleet

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
)

var start = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// sweep is the server of the published sweep: T(c) = 1.74 s + 0.048 s c, measured up to 48.
func sweep() Server {
	return Server{
		Law: Concurrency, Limit: 48, Objective: 4 * time.Second,
		Profile: capacity.Profile{PerItem: 48 * time.Millisecond, Base: 1740 * time.Millisecond},
	}
}

func config() Config {
	return Config{Bounds: Bounds{Min: 1, Max: 8}, Server: sweep(), AddTime: time.Minute}
}

func inFlight(n, rate float64) Demand {
	return Demand{Known: true, InFlight: inventory.Known(n), Rate: inventory.Known(rate)}
}

func TestServerKeepsItsObjective(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     Server
		slots int
		rate  float64
	}{
		{"concurrency", sweep(), 47, 47 / (1.74 + 0.048*47)},
		{"concurrency is not extrapolated", Server{
			Law: Concurrency, Limit: 10, Objective: time.Minute, Profile: sweep().Profile,
		}, 10, 10 / (1.74 + 0.48)},
		{"a batch waits for the batch before it", Server{
			Law: Batch, Limit: 64, Objective: 50 * time.Millisecond,
			Profile: capacity.Profile{PerItem: time.Millisecond, Base: 10 * time.Millisecond},
		}, 15, 15 / 0.025},
		{"a lone request", Server{
			Law: Batch, Limit: 1, Objective: time.Minute, Profile: capacity.Profile{Base: 30 * time.Second},
		}, 1, 1.0 / 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.s.Check(); err != nil {
				t.Fatal(err)
			}
			if got := c.s.Slots(); got != c.slots {
				t.Errorf("slots: got %d, want %d", got, c.slots)
			}
			if got := c.s.Rate(); math.Abs(got-c.rate) > 1e-9 {
				t.Errorf("rate: got %v, want %v", got, c.rate)
			}
		})
	}
}

// TestSizesByBruteForce compares the size for a steady load with a search over all sizes for the
// fewest replicas at or under the target.
func TestSizesByBruteForce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		c := config()
		c.Max, c.Min = 60, 1
		c.Target = 0.3 + 0.7*random.Float64()
		servedBy := 1 + random.IntN(30)
		each := 1 + 45*random.Float64()
		r := Reading{At: start, Ready: servedBy, Actual: servedBy, Demand: inFlight(each*float64(servedBy), 1)}
		s, d := Decide(c, State{}, r)
		served := float64(servedBy) * each / (1.74 + 0.048*each)
		want := c.Max
		for n := 1; n <= c.Max; n++ {
			if served/(float64(n)*c.Server.Rate()) <= c.Target*(1+1e-9) {
				want = n
				break
			}
		}
		if d.Need != want && !(d.Rule == "headroom" && d.Need > want) {
			t.Fatalf("target %v, %d replicas with %v requests each: got %d (%s), want %d", c.Target, servedBy, each,
				d.Need, d.Rule, want)
		}
		if len(s.Points) != 1 {
			t.Fatalf("%d points remembered", len(s.Points))
		}
	}
}

// TestEqualsCapacityPlan holds the size by rate against plan capacity.
func TestEqualsCapacityPlan(t *testing.T) {
	c := config()
	c.Server = Server{
		Law: Batch, Limit: 1, Objective: time.Second, Profile: capacity.Profile{Base: 5 * time.Millisecond},
	}
	c.Max = 50
	for _, qps := range []float64{1, 139, 140, 141, 400, 500, 999, 5000} {
		plan, err := capacity.Plan(capacity.Params{QPS: qps, QPSPerGPU: 200, Target: 0.7})
		if err != nil {
			t.Fatal(err)
		}
		_, d := Decide(c, State{}, Reading{At: start, Ready: 1, Actual: 1, Demand: Demand{
			Known: true, Rate: inventory.Known(qps)}})
		if d.Need != plan.Replicas {
			t.Errorf("%v requests/s: got %d, plan capacity says %d", qps, d.Need, plan.Replicas)
		}
	}
}

// TestStaysWithinBounds drives fleets through random demand, silence, clocks and bounds.
func TestStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := config()
		c.Zero = rapid.Bool().Draw(t, "zero")
		if c.Min = rapid.IntRange(1, 5).Draw(t, "min"); c.Zero {
			c.Min = 0
		}
		c.Max = rapid.IntRange(max(1, c.Min), 12).Draw(t, "max")
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		var s State
		actual, now, low := rapid.IntRange(0, 15).Draw(t, "actual"), start, 0
		for range rapid.IntRange(1, 60).Draw(t, "readings") {
			now = now.Add(time.Duration(rapid.IntRange(-30, 200).Draw(t, "seconds")) * time.Second)
			if rapid.IntRange(0, 30).Draw(t, "owner") == 0 && !c.Zero {
				c.Max = rapid.IntRange(c.Min, 12).Draw(t, "new max")
			}
			r := Reading{At: now, Actual: actual, Ready: rapid.IntRange(0, actual).Draw(t, "ready")}
			if rapid.IntRange(0, 4).Draw(t, "known") > 0 {
				r.Demand = inFlight(rapid.Float64Range(0, 500).Draw(t, "in flight"),
					rapid.Float64Range(0, 200).Draw(t, "rate"))
			}
			var d Decision
			s, d = Decide(c, s, r)
			switch {
			case d.Wanted < c.Min:
				t.Fatalf("wants %d, under the minimum %d", d.Wanted, c.Min)
			case d.Wanted > c.Max && d.Wanted > actual:
				t.Fatalf("grows to %d, over the maximum %d", d.Wanted, c.Max)
			case d.Wanted < actual && !d.Known:
				t.Fatalf("shrinks from %d to %d on unknown demand", actual, d.Wanted)
			case d.Wanted < actual && low == 0:
				t.Fatalf("shrinks from %d to %d at the first reading", actual, d.Wanted)
			case d.Rule == "" || d.Why == "":
				t.Fatalf("no reason: %+v", d)
			}
			if low = 0; d.Known && d.Need < actual {
				low = 1
			}
			actual = d.Wanted
		}
	})
}

// steps feeds a fleet the same demand every 15 s and returns its sizes.
func steps(c Config, s State, from time.Time, actual, n int, d Demand) (State, []int, []Decision) {
	var sizes []int
	var all []Decision
	for i := range n {
		var out Decision
		at := from.Add(time.Duration(i) * 15 * time.Second)
		s, out = Decide(c, s, Reading{At: at, Ready: actual, Actual: actual, Demand: d})
		actual = out.Wanted
		sizes, all = append(sizes, actual), append(all, out)
	}
	return s, sizes, all
}

func TestShrinksAfterStabilization(t *testing.T) {
	s, sizes, _ := steps(config(), State{}, start, 6, 21, inFlight(1, 0.5))
	for i, n := range sizes[:20] {
		if n != 6 {
			t.Fatalf("size %d at reading %d, before 5m passed", n, i+1)
		}
	}
	if sizes[20] != 1 {
		t.Errorf("size %d after 5m, want 1", sizes[20])
	}
	if s.Low == 0 {
		t.Error("no low reading counted")
	}
}

func TestSilenceStartsStabilizationAgain(t *testing.T) {
	s, _, _ := steps(config(), State{}, start, 6, 20, inFlight(1, 0.5))
	at := start.Add(5 * time.Minute)
	s, d := Decide(config(), s, Reading{At: at, Ready: 6, Actual: 6, Demand: Demand{Why: "prometheus is silent"}})
	if d.Wanted != 6 || d.Rule != "unknown" {
		t.Fatalf("unknown demand: %+v", d)
	}
	_, d = Decide(config(), s, Reading{At: at.Add(15 * time.Second), Ready: 6, Actual: 6, Demand: inFlight(1, 0.5)})
	if d.Wanted != 6 || d.Rule != "second-reading" {
		t.Errorf("one reading after silence: %+v", d)
	}
}

func TestClockJumpHolds(t *testing.T) {
	s, _, _ := steps(config(), State{}, start, 6, 20, inFlight(1, 0.5))
	for _, at := range []time.Time{start.Add(-time.Hour), start.Add(24 * time.Hour)} {
		_, d := Decide(config(), s, Reading{At: at, Ready: 6, Actual: 6, Demand: inFlight(1, 0.5)})
		if d.Wanted != 6 {
			t.Errorf("clock at %s: %+v", at, d)
		}
	}
}

func TestZeroNeedsARateAndItsOwner(t *testing.T) {
	c := config()
	c.Min, c.Zero = 0, true
	_, sizes, _ := steps(c, State{}, start, 1, 22, inFlight(0, 0))
	if sizes[21] != 0 {
		t.Errorf("no requests for 5m: size %d, want 0", sizes[21])
	}
	_, sizes, _ = steps(c, State{}, start, 1, 40, Demand{Known: true, InFlight: inventory.Known(0.0)})
	if sizes[39] != 1 {
		t.Errorf("requests between readings are not known: size %d, want 1", sizes[39])
	}
	_, d := Decide(c, State{}, Reading{At: start, Demand: inFlight(1, 0.1)})
	if d.Wanted != 1 {
		t.Errorf("a request wakes the fleet: %+v", d)
	}
	_, sizes, _ = steps(config(), State{}, start, 1, 40, inFlight(0, 0))
	if sizes[39] != 1 {
		t.Errorf("without zero: size %d, want 1", sizes[39])
	}
}

func TestOwnerLowersTheMaximum(t *testing.T) {
	c := config()
	s, _, _ := steps(c, State{}, start, 8, 30, inFlight(8*40, 60))
	c.Max = 3
	at := start.Add(30 * 15 * time.Second)
	s, sizes, _ := steps(c, s, at, 8, 2, inFlight(8*40, 60))
	if sizes[0] != 8 || sizes[1] != 3 {
		t.Errorf("sizes %v, want 8 and, confirmed, 3", sizes)
	}
	r := Reading{At: at.Add(time.Minute), Ready: 3, Actual: 3, Demand: inFlight(1000, 60)}
	if _, d := Decide(c, s, r); d.Wanted != 3 {
		t.Errorf("grows over the new maximum: %+v", d)
	}
}

func TestLearnsTheTimeToAddAReplica(t *testing.T) {
	c := config()
	busy := inFlight(80, 14)
	s, d := Decide(c, State{}, Reading{At: start, Ready: 2, Actual: 2, Demand: busy})
	if d.Wanted <= 2 {
		t.Fatalf("does not grow: %+v", d)
	}
	for i := 1; i <= 8; i++ {
		r := Reading{At: start.Add(time.Duration(i) * 15 * time.Second), Ready: 2, Actual: d.Wanted, Demand: busy}
		if i == 8 {
			r.Ready = d.Wanted
		}
		s, _ = Decide(c, s, r)
	}
	if took, ok := s.AddTime(); !ok || took != 2*time.Minute {
		t.Errorf("got %s, %v; want 2m", took, ok)
	}
}

func TestRefusedGrowthIsNotMeasured(t *testing.T) {
	c := config()
	busy := inFlight(80, 14)
	var s State
	for i := range 20 { // the provider has no capacity
		at := start.Add(time.Duration(i) * 15 * time.Second)
		s, _ = Decide(c, s, Reading{At: at, Ready: 2, Actual: 2, Demand: busy})
	}
	for i := 20; i < 25; i++ {
		r := Reading{At: start.Add(time.Duration(i) * 15 * time.Second), Ready: 2, Actual: 3, Demand: busy}
		if i == 24 {
			r.Ready = 3
		}
		s, _ = Decide(c, s, r)
	}
	if took, ok := s.AddTime(); !ok || took > 90*time.Second {
		t.Errorf("got %s, %v; want no more than the time after it was started", took, ok)
	}
}

func TestStuckReplicasAreReplacedWithinTheMaximum(t *testing.T) {
	c := config()
	_, d := Decide(c, State{}, Reading{At: start, Ready: 2, Actual: 4, Stuck: 2, Demand: inFlight(80, 14)})
	if d.Wanted <= 4 || d.Wanted > c.Max {
		t.Errorf("got %+v", d)
	}
	c.Max = 4
	r := Reading{At: start, Ready: 2, Actual: 4, Stuck: 2, Demand: inFlight(80, 14)}
	if _, d = Decide(c, State{}, r); d.Wanted != 4 {
		t.Errorf("over the maximum: %+v", d)
	}
}

func TestFullCacheGrows(t *testing.T) {
	d := inFlight(4, 1)
	d.CacheUse = inventory.Known(0.95)
	_, got := Decide(config(), State{}, Reading{At: start, Ready: 2, Actual: 2, Demand: d})
	if got.Wanted != 3 || got.Rule != "cache" {
		t.Errorf("got %+v", got)
	}
}

func TestSumsSources(t *testing.T) {
	sample := func(name string, n float64) Sample {
		return Sample{
			Source: name, At: start, Step: 15 * time.Second,
			InFlight: inventory.Known(n), Rate: inventory.Known(n / 2),
		}
	}
	d := Sum(start, []Sample{sample("gateway", 3), sample("prometheus", 4)})
	if got := d.InFlight.Or(-1); !d.Known || got != 7 {
		t.Errorf("got %+v", d)
	}
	for name, bad := range map[string]func(*Sample){
		"silent":          func(s *Sample) { s.At = time.Time{} },
		"failed":          func(s *Sample) { s.Problem = "connection refused" },
		"stale":           func(s *Sample) { s.At = start.Add(-46 * time.Second) },
		"from the future": func(s *Sample) { s.At = start.Add(time.Hour) },
		"negative":        func(s *Sample) { s.InFlight = inventory.Known(-1.0) },
		"not a number":    func(s *Sample) { s.Rate = inventory.Known(math.NaN()) },
		"infinite":        func(s *Sample) { s.InFlight = inventory.Known(math.Inf(1)) },
		"empty":           func(s *Sample) { s.InFlight = inventory.Fact[float64]{}; s.Rate = s.InFlight },
		"without step":    func(s *Sample) { s.Step = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			other := sample("prometheus", 4)
			bad(&other)
			if d := Sum(start, []Sample{sample("gateway", 3), other}); d.Known || d.Why == "" {
				t.Errorf("got %+v", d)
			}
		})
	}
	if d := Sum(start, nil); d.Known {
		t.Errorf("no source: %+v", d)
	}
	partial := sample("prometheus", 4)
	partial.Rate = inventory.Fact[float64]{}
	if d := Sum(start, []Sample{sample("gateway", 3), partial}); !d.Known || d.Rate.Known() {
		t.Errorf("one source without a rate: %+v", d)
	}
}

func TestRejectsBounds(t *testing.T) {
	for name, b := range map[string]Bounds{
		"no maximum": {Min: 1}, "minimum over maximum": {Min: 3, Max: 2}, "zero without consent": {Max: 3},
		"zero with a minimum": {Min: 1, Max: 3, Zero: true}, "negative": {Min: -1, Max: 3, Zero: true},
		"too many": {Min: 1, Max: 10_001},
	} {
		if b.Check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
