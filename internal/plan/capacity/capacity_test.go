package capacity

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// published is the profile of the worked example: 1 ms an item and 10 ms a batch.
var published = Profile{time.Millisecond, 10 * time.Millisecond}

// near reports whether got is within a share of want.
func near(got, want, share float64) bool { return math.Abs(got-want) <= share*math.Abs(want) }

func TestDivide(t *testing.T) {
	for _, tc := range []struct {
		name               string
		qps, each, spare   float64
		want               int
		busy               float64
		hour, million      string
		replicas, overload int
	}{
		{
			name: "published example", qps: 500, each: 200, spare: 0.2, want: 4, busy: 0.625, hour: "12.00",
			million: "6.666666667",
		},
		{name: "no headroom", qps: 500, each: 200, want: 3, busy: 500.0 / 600, hour: "9.00", million: "5.00"},
		{name: "exactly full", qps: 400, each: 200, want: 2, busy: 1, hour: "6.00", million: "4.166666667"},
		{
			name: "binary fractions", qps: 7, each: 10, spare: 0.3, want: 1, busy: 0.7, hour: "3.00",
			million: "119.047619048",
		},
		{
			name: "next to nothing", qps: 0.001, each: 200, want: 1, busy: 5e-6, hour: "3.00",
			million: "833333.333333333",
		},
		{name: "given", qps: 500, each: 200, replicas: 5, want: 5, busy: 0.5, hour: "15.00", million: "8.333333333"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Plan(Params{
				QPS: tc.qps, QPSPerGPU: tc.each, Headroom: tc.spare, Replicas: tc.replicas, HourlyPrice: 3 * money.USD,
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Replicas != tc.want || !near(r.Utilization, tc.busy, 1e-9) ||
				r.CostUSDPerHour.Or(0).String() != tc.hour ||
				r.CostUSDPerMillion.Or(0).String() != tc.million {
				t.Errorf("got %d replicas, %v busy, $%s an hour, $%s a million; want %d, %v, %s, %s",
					r.Replicas, r.Utilization,
					r.CostUSDPerHour.Or(0), r.CostUSDPerMillion.Or(0), tc.want, tc.busy, tc.hour, tc.million)
			}
		})
	}
}

// The worked example has a mean latency of 31.7 ms and a mean batch of 10.
func TestPublishedBatchExample(t *testing.T) {
	r, err := Plan(Params{QPS: 500, Profile: published})
	if err != nil {
		t.Fatal(err)
	}
	if r.Replicas != 1 || r.Method != ByChain || !near(*r.MeanLatencyMS, 31.667, 0.001) ||
		!near(*r.MeanBatch, 10, 0.001) {
		t.Errorf("got %d replicas by %s, %v ms and batches of %v; want 1, 31.667, 10", r.Replicas, r.Method,
			*r.MeanLatencyMS, *r.MeanBatch)
	}
}

// A wait adds to every request: with an objective of 200 ms and 30 ms a batch at most
// 170 ms can be waited.
func TestPublishedWait(t *testing.T) {
	for _, qps := range []float64{0.5, 5, 50} {
		r, err := Plan(Params{QPS: qps, Profile: Profile{Base: 30 * time.Millisecond}, P99: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if *r.MaxWaitMS > 170 || *r.MaxWaitMS < 139 {
			t.Errorf(
				"%v a second: a wait of %v ms, want at most 170 and at least 140, when a batch is always in service",
				qps,
				*r.MaxWaitMS)
		}
		if qps == 0.5 && *r.MaxWaitMS != 170 {
			t.Errorf("lone requests: a wait of %v ms, want 170", *r.MaxWaitMS)
		}
	}
}

func TestFewest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		p      Params
		method Method
	}{
		{"one is enough", Params{QPS: 500, Profile: published, P99: 52 * time.Millisecond}, ByChain},
		{"two", Params{QPS: 500, Profile: published, P99: 50 * time.Millisecond, MaxBatch: 16}, BySimulation},
		{"many", Params{QPS: 5000, Profile: published, P99: 30 * time.Millisecond, MaxBatch: 32}, BySimulation},
		{
			"one at a time",
			Params{QPS: 700, Profile: Profile{Base: 10 * time.Millisecond}, P99: 20 * time.Millisecond, MaxBatch: 1},
			BySimulation,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Plan(tc.p)
			if err != nil {
				t.Fatal(err)
			}
			objective := float64(tc.p.P99) / 1e6
			if !*r.Met || *r.P99LatencyMS > objective || r.Method != tc.method {
				t.Errorf("%d replicas by %s have a p99 of %v ms, want at most %v by %s", r.Replicas,
					r.Method, *r.P99LatencyMS,
					objective, tc.method)
			}
			if r.Replicas > 1 {
				fewer := tc.p
				fewer.Replicas = r.Replicas - 1
				if f, err := Plan(fewer); err == nil && *f.Met {
					t.Errorf("%d replicas are planned, and %d have a p99 of %v ms as well", r.Replicas, fewer.Replicas,
						*f.P99LatencyMS)
				} else if err != nil && !errors.Is(err, ErrOverload) {
					t.Fatal(err)
				}
			}
		})
	}
}

// The headroom is capacity: the replicas keep the objective at the higher rate, too.
func TestHeadroom(t *testing.T) {
	p := Params{QPS: 350, Profile: Profile{Base: 10 * time.Millisecond}, P99: 20 * time.Millisecond, MaxBatch: 1}
	without, err := Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	p.Headroom = 0.5
	with, err := Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	p.QPS, p.Headroom = 700, 0
	twice, err := Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	if with.Replicas != twice.Replicas || with.Replicas <= without.Replicas || with.QPS != 350 {
		t.Errorf("half the capacity spare: %d replicas for %v a second; without %d, for twice the rate %d",
			with.Replicas,
			with.QPS, without.Replicas, twice.Replicas)
	}
}

// The longest wait keeps the objective, and one a tenth longer does not.
func TestLongestWaitIsLongest(t *testing.T) {
	p := Params{QPS: 500, Profile: published, P99: 50 * time.Millisecond, MaxBatch: 32, Replicas: 2}
	s, err := newSizing(p)
	if err != nil {
		t.Fatal(err)
	}
	wait := s.longestWait(2)
	if wait <= 0 || wait >= 0.039 {
		t.Fatalf("a wait of %v s, want some below the objective less a batch of one", wait)
	}
	if f := s.figures(2, 500, wait); f.p99 > 0.050 {
		t.Errorf("with a wait of %v s the p99 is %v s", wait, f.p99)
	}
	if f := s.figures(2, 500, 1.1*wait); f.p99 <= 0.050 {
		t.Errorf("with a longer wait of %v s the p99 is %v s", 1.1*wait, f.p99)
	}
}

func TestRefused(t *testing.T) {
	given := &Arrivals{Times: []float64{0, 1, 2}}
	for _, tc := range []struct {
		name string
		p    Params
		is   error
		want string
	}{
		{"no rate", Params{QPSPerGPU: 1}, nil, "0 requests/s"},
		{"rate that is no number", Params{QPS: math.NaN(), QPSPerGPU: 1}, nil, "NaN requests/s"},
		{"rate of infinity", Params{QPS: math.Inf(1), QPSPerGPU: 1}, nil, "+Inf requests/s"},
		{"nothing known of a replica", Params{QPS: 1}, nil, "give either the requests/s of one GPU"},
		{"both", Params{QPS: 1, QPSPerGPU: 1, Profile: published}, nil, "not both"},
		{"all headroom", Params{QPS: 1, QPSPerGPU: 1, Headroom: 1}, nil, "headroom 1:"},
		{"headroom that is no number", Params{QPS: 1, QPSPerGPU: 1, Headroom: math.NaN()}, nil, "headroom NaN:"},
		{"objective without a profile", Params{QPS: 1, QPSPerGPU: 1, P99: time.Second}, nil, "need the batch profile"},
		{"negative batch time", Params{QPS: 1, Profile: Profile{Base: -1}}, nil, "expected 0 to 1h"},
		{"negative batch", Params{QPS: 1, Profile: published, MaxBatch: -1}, nil, "maximum batch size -1"},
		{"negative replicas", Params{QPS: 1, Profile: published, Replicas: -1}, nil, "-1 replicas"},
		{"negative objective", Params{QPS: 1, Profile: published, P99: -1}, nil, "must not be negative"},
		{"negative price", Params{QPS: 1, Profile: published, HourlyPrice: -1}, nil, "must not be negative"},
		{"too few", Params{QPS: 500, QPSPerGPU: 200, Replicas: 2}, ErrOverload, "2 replicas can serve 400"},
		{"too few without limit", Params{QPS: 2000, Profile: published, Replicas: 2}, ErrOverload, "use 3 replicas"},
		{
			"too few with a limit", Params{QPS: 450, Profile: published, MaxBatch: 8, Replicas: 1}, ErrOverload,
			"and 1 replica can serve at most 444.4: use 2 replicas",
		},
		{"too many", Params{QPS: 1e7, QPSPerGPU: 1}, nil, "supports up to 10000"},
		{
			"batch over the objective", Params{QPS: 1, Profile: published, P99: 10 * time.Millisecond}, ErrObjective,
			"a batch of one takes 11 ms",
		},
		{"one arrival", Params{Profile: published, Arrivals: &Arrivals{Times: []float64{0}}}, nil, "two arrivals"},
		{
			"arrivals at once", Params{Profile: published, Arrivals: &Arrivals{Times: []float64{1, 1}}}, nil,
			"+Inf requests/s",
		},
		{
			"arrivals in disorder", Params{Profile: published, Arrivals: &Arrivals{Times: []float64{0, 2, 1}}}, nil,
			"sorted by time",
		},
		{
			"sizes of some", Params{Profile: published, Arrivals: &Arrivals{Times: given.Times, Sizes: []int{1}}}, nil,
			"sorted by time",
		},
		{
			"request over the largest batch",
			Params{
				Profile: published, MaxBatch: 2, Arrivals: &Arrivals{Times: given.Times, Sizes: []int{1, 3, 1}},
			}, nil,
			"request 2 has 3 items",
		},
		{
			"recorded burst over the objective",
			Params{
				Profile: published, P99: 12 * time.Millisecond, Arrivals: &Arrivals{
					Times: given.Times, Sizes: []int{9, 9, 9},
				},
			},
			ErrObjective, "10000 replicas do not keep",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Plan(tc.p)
			if err == nil || !strings.HasPrefix(err.Error(), "plan the capacity: ") ||
				!strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// An unknown figure is null, never zero.
func TestUnknownIsNull(t *testing.T) {
	r, err := Plan(Params{QPS: 500, QPSPerGPU: 200})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got["schema"] != "curfew.plan.capacity/v1" {
		t.Errorf("schema %v", got["schema"])
	}
	for _, k := range []string{
		"mean_batch", "mean_latency_ms", "p99_latency_ms", "max_wait_ms", "cost_usd_per_hour", "cost_usd_per_million",
		"scale_to_zero",
	} {
		if v, there := got[k]; !there || v != nil {
			t.Errorf("%s is %v, want null", k, v)
		}
	}
	for _, k := range []string{"replicas", "utilization", "assumptions", "coverage_notes", "changes"} {
		if got[k] == nil {
			t.Errorf("%s is missing", k)
		}
	}
}

func TestScaling(t *testing.T) {
	r, err := Plan(Params{
		QPS: 500, Profile: published, P99: 50 * time.Millisecond, Replicas: 2, ColdStart: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := r.Scaling
	if want := 500 * *r.MeanLatencyMS / 1000 / 2; !near(*s.Concurrency, want, 1e-6) ||
		!near(*s.KnativeTarget*0.7, want, 1e-6) {
		t.Errorf("concurrency %v, target %v; want %v by Little's law, and 70%% of the target", *s.Concurrency,
			*s.KnativeTarget, want)
	}
	if want := 50 - (*r.MeanBatch + 10); !near(*s.QueueWaitMS, want, 1e-6) || *s.ReactSeconds != 90 ||
		s.QPSPerReplica != 250 {
		t.Errorf("queue wait %v ms, reaction %v s, %v a second; want %v, 90, 250", *s.QueueWaitMS, *s.ReactSeconds,
			s.QPSPerReplica, want)
	}
}

// Without a profile the rate is the only signal: what a replica serves, less the headroom.
func TestScalingByRate(t *testing.T) {
	r, err := Plan(Params{QPS: 500, QPSPerGPU: 200, Headroom: 0.2, ColdStart: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Scaling; s.QPSPerReplica != 160 || s.Concurrency != nil ||
		s.KnativeTarget != nil || *s.ReactSeconds != 90 {
		t.Errorf("got %+v, want 160 a second for each replica and no concurrency", *s)
	}
}

func TestScaleToZero(t *testing.T) {
	for _, tc := range []struct {
		name         string
		qps          float64
		times        []float64
		pays, breaks bool
		cold, paid   float64
	}{
		{
			name: "one a day", qps: 1.0 / 86400, pays: true, breaks: true, cold: math.Exp(-60.0 / 86400),
			paid: 1 - math.Exp(-60.0/86400)*(1-60.0/86400),
		},
		{name: "at the break-even", qps: 1.0 / 60, breaks: true, cold: math.Exp(-1), paid: 1},
		{name: "busy", qps: 10, paid: 1},
		{
			name: "recorded pause", times: []float64{0, 1, 2, 1002}, pays: true, breaks: true, cold: 1.0 / 3,
			paid: 1 - 880.0/1002,
		},
		{name: "recorded pauses too short", times: []float64{0, 70, 140}, breaks: true, cold: 1, paid: 240.0 / 140},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Params{QPS: tc.qps, Profile: published, P99: time.Second, ColdStart: time.Minute}
			if tc.times != nil {
				p.Arrivals = &Arrivals{Times: tc.times}
			}
			r, err := Plan(p)
			if err != nil {
				t.Fatal(err)
			}
			z := r.ScaleToZero
			if z.Pays != tc.pays || z.BreaksObjective != tc.breaks || !near(z.PaidShare, tc.paid, 1e-9) ||
				math.Abs(z.ColdShare-tc.cold) > 1e-9 || z.BreakEvenQPS != 1.0/60 {
				t.Errorf("got %+v, want pays %v, breaks %v, cold %v, paid %v", *z, tc.pays,
					tc.breaks, tc.cold, tc.paid)
			}
		})
	}
}

// Any parameters give a report of finite figures or an error, and more demand never
// needs fewer replicas.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			QPS:         rapid.Float64Range(minQPS, 1e5).Draw(t, "qps"),
			QPSPerGPU:   rapid.Float64Range(0.1, 1000).Draw(t, "each"),
			Headroom:    rapid.Float64Range(0, 0.9).Draw(t, "headroom"),
			HourlyPrice: money.Amount(rapid.Int64Range(1, 100*int64(money.USD)).Draw(t, "price")),
		}
		r, err := Plan(p)
		if err != nil {
			return
		}
		served := float64(r.Replicas) * p.QPSPerGPU * (1 - p.Headroom)
		if served < p.QPS*(1-1e-9) || r.Replicas > 1 && served-p.QPSPerGPU*(1-p.Headroom) > p.QPS*(1+1e-9) {
			t.Fatalf("%d replicas serve %v of %v", r.Replicas, served, p.QPS)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	for name, p := range map[string]Params{
		"one replica":        {QPS: 500, Profile: published, P99: 60 * time.Millisecond},
		"400 replicas":       {QPS: 50_000, Profile: published, P99: 30 * time.Millisecond, MaxBatch: 32},
		"4,000 by a formula": {QPS: 500_000, QPSPerGPU: 125},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Plan(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestTarget checks that the result is the smallest number of replicas within the target
// utilization.
func TestTarget(t *testing.T) {
	for _, p := range []Params{
		{QPS: 500, QPSPerGPU: 200},
		{QPS: 140, QPSPerGPU: 200},
		{QPS: 141, QPSPerGPU: 200},
		{QPS: 500, Profile: Profile{PerItem: time.Millisecond, Base: 10 * time.Millisecond}},
		{QPS: 50, Profile: Profile{PerItem: 2 * time.Millisecond, Base: 5 * time.Millisecond}, MaxBatch: 4},
	} {
		p.Target = DefaultTarget
		r, err := Plan(p)
		if err != nil {
			t.Fatal(err)
		}
		if r.Utilization > DefaultTarget+1e-9 {
			t.Errorf("%+v: %d replicas are %v busy", p, r.Replicas, r.Utilization)
		}
		if r.Replicas == 1 {
			continue
		}
		p.Target, p.Replicas = 0, r.Replicas-1
		if fewer, err := Plan(p); err == nil && fewer.Utilization <= DefaultTarget {
			t.Errorf("%+v: %d replicas are %v busy, so that %d are not the fewest", p,
				fewer.Replicas, fewer.Utilization,
				r.Replicas)
		}
	}
	if _, err := Plan(Params{QPS: 5, QPSPerGPU: 2, Target: 0.7, Headroom: 0.1}); err == nil {
		t.Error("a target together with a headroom is planned")
	}
}

// TestBandMatchesFullSearch tries every number of replicas: of those in the band the one closest
// to its middle, or where none is in it the fewest at or under 80%.
func TestBandMatchesFullSearch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := Params{QPS: rapid.Float64Range(1, 4000).Draw(rt, "qps"), Band: true}
		if rapid.IntRange(0, 9).Draw(rt, "profile") == 9 { // simulated, which takes long
			p.QPS /= 10
			p.Profile = Profile{
				PerItem: time.Duration(rapid.IntRange(1, 20).Draw(rt, "item")) * time.Millisecond,
				Base:    time.Duration(rapid.IntRange(0, 20).Draw(rt, "base")) * time.Millisecond,
			}
			p.MaxBatch = 1 // each request takes as long as any other
		} else {
			p.QPSPerGPU = rapid.Float64Range(10, 400).Draw(rt, "each")
		}
		r, err := Plan(p)
		if err != nil {
			rt.Fatal(err)
		}
		busy := func(n int) float64 {
			each := p.QPSPerGPU
			if each == 0 {
				each = 1 / p.Profile.Batch(1)
			}
			return p.QPS / each / float64(n)
		}
		want := 1
		for busy(want) > 0.8+1e-9 {
			want++
		}
		for n := want; busy(n) >= 0.6-1e-9; n++ {
			if math.Abs(busy(n)-0.7) < math.Abs(busy(want)-0.7)-1e-9 {
				want = n
			}
		}
		// A simulation is off by what its arrivals are.
		if r.Replicas != want && (r.Method == ByFormula || math.Abs(busy(r.Replicas)-busy(want)) > 0.05) {
			rt.Fatalf("%+v: %d replicas at %v, want %d at %v", p, r.Replicas, r.Utilization, want, busy(want))
		}
		if r.Crowded != nil {
			rt.Fatalf("%+v: the default has %v of capacity", p, r.Load)
		}
	})
}

// TestNamesPlanOverCapacityLimit checks that every plan over 85% of capacity says so and names
// replicas with room, whichever option led to it.
func TestNamesPlanOverCapacityLimit(t *testing.T) {
	named := 0
	rapid.Check(t, func(rt *rapid.T) {
		p := Params{QPS: rapid.Float64Range(1, 900).Draw(rt, "qps"), QPSPerGPU: 100}
		switch kind := rapid.IntRange(0, 9).Draw(rt, "kind"); {
		case kind < 4:
			p.Headroom = rapid.Float64Range(0, 0.5).Draw(rt, "headroom")
		case kind < 8:
			p.Replicas = int(math.Ceil(p.QPS/100)) + rapid.IntRange(0, 2).Draw(rt, "more")
		default:
			p.QPSPerGPU, p.MaxBatch, p.P99 = 0, 4, 500*time.Millisecond
			p.Profile = Profile{PerItem: 10 * time.Millisecond, Base: time.Millisecond}
		}
		r, err := Plan(p)
		if err != nil {
			rt.Fatal(err)
		}
		over := r.Load > 0.85+1e-9
		if over != (r.Crowded != nil) || over != strings.Contains(r.Title, "of capacity is over 85%") {
			rt.Fatalf("load %v: %+v, %q", r.Load, r.Crowded, r.Title)
		}
		if !over {
			return
		}
		named++
		c := r.Crowded
		load := r.Load * float64(r.Replicas)
		if c.Load > 0.8+1e-9 || math.Abs(c.Load-load/float64(c.Replicas)) > 1e-9 ||
			c.Replicas > 1 && load/float64(c.Replicas-1) <= 0.8-1e-9 {
			rt.Fatalf("load %v of %d replicas: %+v", r.Load, r.Replicas, c)
		}
	})
	if named == 0 {
		t.Error("no plan is over the limit")
	}
}
