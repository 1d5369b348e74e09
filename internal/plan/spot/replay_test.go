package spot

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// zone reads "##..": # is up.
func zone(name, s string) Zone {
	z := Zone{Name: name}
	for _, c := range s {
		z.Up = append(z.Up, c == '#')
	}
	return z
}

// small is an hour of work in gaps of ten minutes; one case.
var small = Params{Work: time.Hour, Deadline: 3 * time.Hour, Restart: 10 * time.Minute, Every: 24 * time.Hour,
	SpotPrice: 6 * money.USD, OnDemandPrice: 18 * money.USD}

// TestStrategiesByHand compares the strategies with cases worked out by hand: a gap costs 1 on spot
// and 3 on-demand, and the restart takes one.
func TestStrategiesByHand(t *testing.T) {
	for _, tc := range []struct {
		name, up string
		want     map[string]string
	}{
		// Six gaps of work and one restart on a machine that stays.
		// Uniform progress is behind in gap 1, and goes on-demand until 3 · done is
		// elapsed + 2; in gaps 1 to 3, 7 to 9, and from 12 on as greedy does.
		{"never up, in line", "..................", map[string]string{UniformProgress: "27.00 3"}},
		// It is on-demand in gaps 1 and 2, and on spot from when that is up.
		{"up late", "...##########.....", map[string]string{UniformProgress: "12.00 2", Bound: "6.00 0"}},
		{
			"always up", "##################",
			map[string]string{Greedy: "7.00 1", UniformProgress: "7.00 1", Bound: "6.00 0"},
		},
		// Greedy waits until 10 gaps are left, work 6 + two restarts + two gaps.
		{"never up", "..................", map[string]string{Greedy: "21.00 1", Bound: "18.00 0"}},
		// Three gaps of spot are two of work; on-demand with 8 left for 4: 4 more and a restart.
		{"up at first", "###...............", map[string]string{Greedy: "18.00 2", Bound: "12.00 0"}},
		// A run that is under way when the time is up is kept.
		{"up at last", "..........########", map[string]string{Greedy: "21.00 1", Bound: "6.00 0"}},
		{"up before the last", ".......###########", map[string]string{Greedy: "7.00 1", Bound: "6.00 0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Replay(Trace{Gap: gap, Zones: []Zone{zone("z", tc.up)}}, small)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range tc.want {
				x := r.result(name)
				if got := fmt.Sprintf("%s %d", x.MeanCostUSD, x.Starts); got != want || x.Misses != 0 || x.Cases != 1 {
					t.Errorf("%s: got %s in %d cases, %d misses, want %s", name, got, x.Cases, x.Misses, want)
				}
			}
		})
	}
}

// recordingStrategy writes down every choice of a strategy.
type recordingStrategy struct {
	strategy
	t    int
	made [][]machine
}

func (c *recordingStrategy) observe(now []zoneOffer) {
	c.t++
	c.made = append(c.made, nil)
	c.strategy.observe(now)
}

func (c *recordingStrategy) decide(a *caseState) machine {
	m := c.strategy.decide(a)
	c.made[c.t-1] = append(c.made[c.t-1], m)
	return m
}

// drawTrace draws zones whose runs are long and short, with and without prices.
func drawTrace(t *rapid.T, samples int) Trace {
	tr := Trace{Gap: time.Duration(rapid.IntRange(1, 40).Draw(t, "gap")) * time.Minute}
	priced := rapid.Bool().Draw(t, "priced")
	for z := range rapid.IntRange(1, 3).Draw(t, "zones") {
		zone := Zone{Name: fmt.Sprint("z", z)}
		up := rapid.Bool().Draw(t, "up")
		for len(zone.Up) < samples {
			price := money.Amount(rapid.Int64Range(1, 4_000_000_000).Draw(t, "price"))
			for range rapid.SampledFrom([]int{1, 1, 2, 3, 8, 30, 100}).Draw(t, "run") {
				zone.Up = append(zone.Up, up)
				if priced {
					zone.Prices = append(zone.Prices, price)
				}
			}
			up = !up
		}
		zone.Up = zone.Up[:samples]
		if priced {
			zone.Prices = zone.Prices[:samples]
		}
		tr.Zones = append(tr.Zones, zone)
	}
	return tr
}

// drawParams draws work for a trace, down to deadlines that leave one restart and nothing
// else.
func drawParams(t *rapid.T, tr Trace) Params {
	work := time.Duration(rapid.IntRange(1, 100*60).Draw(t, "work")) * tr.Gap / 60
	restart := time.Duration(rapid.IntRange(0, 90).Draw(t, "restart")) * time.Minute
	spare := time.Duration(rapid.IntRange(0, 40).Draw(t, "spare")) * tr.Gap / 4
	deadline := (work + restart + tr.Gap - 1 + spare) / tr.Gap * tr.Gap
	return Params{
		Work: max(work, time.Minute), Deadline: deadline + tr.Gap, Restart: restart,
		Every:     time.Duration(rapid.IntRange(1, 9).Draw(t, "every")) * tr.Gap,
		SpotPrice: money.USD, OnDemandPrice: 306 * money.Cent, AcrossZones: rapid.Bool().Draw(t, "across")}
}

// TestMeetsEveryDeadline checks that whatever happens, curfew meets every deadline that on-demand
// meets, and nothing is cheaper than the bound.
func TestMeetsEveryDeadline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t, 200)
		p := drawParams(t, tr)
		if p.window(tr.Gap) > 200 {
			t.Skip("the window is longer than the trace")
		}
		r, err := Replay(tr, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Results {
			if x.Name == Curfew && x.Misses > 0 {
				t.Fatalf("%d of %d cases miss the deadline", x.Misses, x.Cases)
			}
			if x.Misses == 0 && x.Saving > r.result(Bound).Saving+1e-9 {
				t.Fatalf("%s saves %g, the bound is %g", x.Name, x.Saving, r.result(Bound).Saving)
			}
		}
	})
}

// fixedPlanStrategy has a plan that always waits, or wants spot whenever it is up.
type fixedPlanStrategy struct {
	*planner
	mode uint8
	plan *policy
}

func (s *fixedPlanStrategy) observe(now []zoneOffer) {
	s.planner.observe(now)
	if s.plan == s.planner.plan {
		return
	}
	s.plan = s.planner.plan
	for i := range s.plan.best {
		s.plan.best[i] = s.mode
		if s.mode == modeSpot && i%s.plan.states < s.plan.states/2 { // no zone is up
			s.plan.best[i] = idle
		}
	}
}

// TestMeetsDeadlineWithWorstPlan: with the worst of plans no deadline is missed.
func TestMeetsDeadlineWithWorstPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t, 150)
		p := drawParams(t, tr)
		if p.window(tr.Gap) > 150 {
			t.Skip("the window is longer than the trace")
		}
		markets, err := tr.markets(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []uint8{idle, modeSpot} {
			y, err := markets[0].replay(p, &fixedPlanStrategy{
				planner: newPlanner(tr.Gap, len(markets[0].zones), p), mode: mode,
			}, nil)
			if err != nil || y.misses > 0 {
				t.Fatalf("mode %d: %d of %d cases miss the deadline, %v", mode, y.misses, y.cases, err)
			}
		}
	})
}

// TestChoicesIgnoreFuture checks that later samples do not change earlier choices.
func TestChoicesIgnoreFuture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const samples = 200
		tr := drawTrace(t, samples)
		p := drawParams(t, tr)
		if p.window(tr.Gap) > samples {
			t.Skip("the window is longer than the trace")
		}
		cut := rapid.IntRange(1, samples).Draw(t, "cut")
		other := Trace{Gap: tr.Gap}
		for _, z := range tr.Zones {
			z.Up = slices.Clone(z.Up)
			for i := cut; i < samples; i++ {
				z.Up[i] = !z.Up[i]
			}
			other.Zones = append(other.Zones, z)
		}
		for _, s := range strategies {
			var made [2][][]machine
			for i, tr := range []Trace{tr, other} {
				markets, err := tr.markets(p)
				if err != nil {
					t.Fatal(err)
				}
				c := &recordingStrategy{strategy: s.make(markets[0], p)}
				if _, err := markets[0].replay(p, c, nil); err != nil {
					t.Fatal(err)
				}
				made[i] = c.made[:min(cut, len(c.made))]
			}
			if got, want := fmt.Sprint(made[1]), fmt.Sprint(made[0]); got != want {
				t.Fatalf("%s chooses differently before sample %d", s.name, cut)
			}
		}
	})
}

// TestPaysPricePerGap checks that every gap is paid at its own price, and spot that costs more than
// on-demand is left.
func TestPaysPricePerGap(t *testing.T) {
	z := zone("z", strings.Repeat("#", 18))
	for i := range z.Up {
		z.Prices = append(z.Prices, money.Amount(i+1)*6*money.USD)
	}
	p := small
	p.SpotPrice = 0
	p.OnDemandPrice = 600 * money.USD
	r, err := Replay(Trace{Gap: gap, Zones: []Zone{z}}, p)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.result(Greedy).MeanCostUSD.String(); got != "28.00" { // 1 + 2 + … + 7
		t.Errorf("greedy costs $%s, want $28.00", got)
	}
	if got := r.result(Bound).MeanCostUSD.String(); got != "21.00" { // 1 + 2 + … + 6
		t.Errorf("the bound is $%s, want $21.00", got)
	}
	p.OnDemandPrice = 5 * money.USD
	if r, err = Replay(Trace{Gap: gap, Zones: []Zone{z}}, p); err != nil {
		t.Fatal(err)
	}
	if got := r.result(Curfew); got.Starts != 1 || got.MeanCostUSD.String() != "5.833333333" { // 7 gaps on-demand
		t.Errorf("curfew costs $%s in %d starts, want $5.833333333 in 1, on-demand only", got.MeanCostUSD, got.Starts)
	}
	if got := r.result(Bound).MeanCostUSD.String(); got != "5.00" {
		t.Errorf("the bound is $%s, want $5.00", got)
	}
}

// TestMovesAcrossZones checks that two zones of which always one is up, and one that is cheaper.
func TestMovesAcrossZones(t *testing.T) {
	a, b := strings.Repeat(strings.Repeat("#", 60)+strings.Repeat(".", 60), 20), strings.Repeat(
		strings.Repeat(".", 60)+strings.Repeat("#", 60), 20)
	p := Params{
		Work: 40 * time.Hour, Deadline: 46 * time.Hour, Restart: 12 * time.Minute, Every: 6 * time.Hour,
		SpotPrice: money.USD, OnDemandPrice: 3 * money.USD,
	}
	tr := Trace{Gap: gap, Zones: []Zone{zone("a", a), zone("b", b)}}
	alone, err := Replay(tr, p)
	if err != nil {
		t.Fatal(err)
	}
	p.AcrossZones = true
	both, err := Replay(tr, p)
	if err != nil {
		t.Fatal(err)
	}
	if got := both.result(Curfew); got.Saving < 0.62 || got.Misses > 0 || len(both.Zones) != 1 {
		t.Errorf("across zones %g are saved with %d misses in %d zones, alone %g", got.Saving,
			got.Misses, len(both.Zones),
			alone.result(Curfew).Saving)
	}
	steady := strings.Repeat("#", 2400)
	costly, cheap := zone("costly", steady), zone("cheap", strings.Repeat(".", 100)+steady[100:])
	for range steady {
		costly.Prices, cheap.Prices = append(costly.Prices, 2*money.USD), append(cheap.Prices, money.USD)
	}
	r, err := Replay(Trace{Gap: gap, Zones: []Zone{costly, cheap}}, p)
	if err != nil {
		t.Fatal(err)
	}
	// The first case starts before the cheap zone is up, 100 gaps of 276, and moves.
	if got, least := r.result(Curfew), r.result(Bound); got.Saving < least.Saving-0.02 || got.Starts > got.Cases+3 {
		t.Errorf("%g is saved in %d starts of %d cases, the bound is %g", got.Saving, got.Starts,
			got.Cases, least.Saving)
	}
}

func TestReplayRejectsInvalidInput(t *testing.T) {
	z := zone("z", strings.Repeat("#", 30))
	for _, tc := range []struct {
		name   string
		change func(*Trace, *Params)
		want   string
	}{
		{"no work", func(_ *Trace, p *Params) {
			p.Work = 0
		}, "plan spot: the work takes no time: give its duration on one machine"},
		{"no on-demand price", func(_ *Trace, p *Params) {
			p.OnDemandPrice = 0
		}, "plan spot: the on-demand price is $0.00 an hour: expected more than 0"},
		{"no spot price", func(_ *Trace, p *Params) {
			p.SpotPrice = 0
		}, `plan spot: no spot price for "z": give --spot-price, or a trace with a price column`},
		{"no time", func(_ *Trace, p *Params) {
			p.Deadline = 69 * time.Minute
		}, "plan spot: a deadline of 1h9m0s is 1h0m0s in whole sampling steps of 10m0s, less than the work and one " +
			"restart (1h10m0s): on-demand misses it too"},
		{"too often", func(_ *Trace, p *Params) {
			p.Every = time.Minute
		}, "plan spot: a case every 1m0s is more often than the sampling step of 10m0s"},
		{"too short", func(tr *Trace, _ *Params) {
			tr.Zones[0].Up = tr.Zones[0].Up[:17]
		}, "plan spot: z has 17 samples, and a case needs 18: use a longer trace or a shorter deadline"},
		{"no zone", func(tr *Trace, _ *Params) { tr.Zones = nil }, "plan spot: the trace has no zone"},
		{"never together", func(tr *Trace, p *Params) {
			p.AcrossZones = true
			tr.Zones = append(tr.Zones, Zone{Name: "y", First: 30, Up: []bool{true}})
		}, "plan spot: no time at which all 2 zones were recorded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr, p := Trace{Gap: gap, Zones: []Zone{z}}, small
			tc.change(&tr, &p)
			if _, err := Replay(tr, p); err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}
