package spot

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// tinyMarket is a market in which a run ends with one probability and an outage with another,
// whatever their age, and a run is followed by one elsewhere in a share of cases.
type tinyMarket struct {
	run, outage, moved float64
	work, restart      int // steps
	price              float64
	policy             *policy // nil is the best one
}

// cost returns the expected cost from here on, by recursion, independent of the program.
func (c tinyMarket) cost(left, work, pending, mode int, up bool) float64 {
	if work <= 0 {
		return 0
	}
	if left <= 0 {
		return math.Inf(1)
	}
	after := func(mode, work, pending int) float64 {
		if !up {
			return c.outage*c.cost(left-1, work, pending, mode, true) + (1-c.outage)*c.cost(left-1,
				work, pending, mode, false)
		}
		lost := 0.0
		on, wait := mode, pending
		if mode == modeSpot { // the machine ends
			on, wait = idle, 0
		}
		if c.run > 0 {
			lost = c.run * ((1-c.moved)*c.cost(left-1, work, wait, on, false) + c.moved*c.cost(
				left-1, work, wait, on, true))
		}
		return lost + (1-c.run)*c.cost(left-1, work, pending, mode, true)
	}
	run := func(to int, price float64) float64 {
		p := pending
		if mode != to {
			p = c.restart
		}
		if p > 0 {
			return price + after(to, work, p-1)
		}
		return price + after(to, work-1, 0)
	}
	if c.policy != nil {
		slack := left - work - pending
		state := 0
		if up {
			state = 1
		}
		switch c.policy.at(float64(left), float64(slack), mode, state) {
		case idle:
			return after(idle, work, 0)
		case modeOnDemand:
			return run(modeOnDemand, 1)
		}
		if !up {
			return math.Inf(1)
		}
		return run(modeSpot, c.price)
	}
	best := run(modeOnDemand, 1)
	if left-1 >= work+c.restart {
		best = min(best, after(idle, work, 0))
	}
	if up {
		best = min(best, run(modeSpot, c.price))
	}
	return best
}

// TestProgramIsOptimal: in small markets the choices cost what the best do, whatever the
// tables were used for before.
func TestProgramIsOptimal(t *testing.T) {
	var p program
	var table []uint8
	rapid.Check(t, func(t *rapid.T) {
		c := tinyMarket{
			run: rapid.Float64Range(0.01, 0.9).Draw(t, "run"), outage: rapid.Float64Range(0.01, 0.9).Draw(t, "outage"),
			moved: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "moved"),
			work:  rapid.IntRange(1, 4).Draw(t, "work"), restart: rapid.IntRange(0, 1).Draw(t, "restart"),
			price: rapid.Float64Range(0.05, 1.2).Draw(t, "price")}
		steps := c.work + c.restart + rapid.IntRange(0, 3).Draw(t, "spare")
		m := &hazardModel{clock: clock{step: 1}, first: []int{0}, moved: c.moved}
		for k, p := range []float64{c.outage, c.run} {
			m.ends[k] = []float64{-math.Log1p(-p)}
		}
		plan := p.solve(m, steps, float64(steps-c.work), float64(c.restart), c.price, table)
		table = plan.best
		for _, up := range []bool{false, true} {
			want := c.cost(steps, c.work, 0, idle, up)
			with := c
			with.policy = plan
			if got := with.cost(steps, c.work, 0, idle, up); got > want+1e-3*want || got < want-1e-6 {
				t.Fatalf("up %t: the choices cost %g, the best %g", up, got, want)
			}
		}
	})
}

// TestReusedTablesDoNotLeak checks that values left in the tables by a plan do not affect the next
// one.
func TestReusedTablesDoNotLeak(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var used program
	var table []uint8
	for i := range 12 {
		m, _ := marketHistory{}.fit(gap, clock{step: 1 + 3*random.Float64(), beat: true})
		steps, slack, restart := 20+random.IntN(60), 20*random.Float64(), 2*random.Float64()
		var fresh program
		fresh.solve(&m, steps, slack, restart, 0.3, nil)
		table = used.solve(&m, steps, slack, restart, 0.3, table).best
		if !slices.Equal(used.value, fresh.value) {
			t.Fatalf("plan %d is worth something else in tables that were used", i)
		}
	}
}

// TestReplansOnlyOnChange checks that a market that goes on as it was soon needs no new plan, and
// one whose outages grow longer does.
func TestReplansOnlyOnChange(t *testing.T) {
	s := newPlanner(gap, 1, small)
	plans := func(samples, outage int) int {
		n := 0
		for t := range samples {
			before := s.plan
			s.observe([]zoneOffer{{t%(12+outage) < 12, money.USD}})
			if s.plan != before {
				n++
			}
		}
		return n
	}
	plans(10_000, 6)
	if n := plans(10_000, 6); n > 25 { // it learns 277 times
		t.Errorf("%d plans in a market that stays as it was", n)
	}
	if n := plans(2_000, 60); n < 2 {
		t.Errorf("%d plans once outages last ten times as long", n)
	}
}

// TestBeat checks that a period is found where lengths are whole numbers of it, and none where they
// are drawn without one.
func TestBeat(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, period := range []float64{2.5, 3.235, 7.7} {
		var b beatDetector
		if _, ok := b.period(); ok {
			t.Error("a beat is found before anything was seen")
		}
		at, last := 0.0, 0
		for range 200 {
			at += period * math.Ceil(random.ExpFloat64()*4)
			b.observe(int(math.Ceil(at)) - last)
			last = int(math.Ceil(at))
		}
		if got, ok := b.period(); !ok || math.Abs(got-period) > 0.01*period {
			t.Errorf("the beat is %g, %t, want %g", got, ok, period)
		}
	}
	found := 0
	for range 50 {
		var b beatDetector
		for range 24 + random.IntN(200) {
			b.observe(1 + int(random.ExpFloat64()*20))
		}
		if _, ok := b.period(); ok {
			found++
		}
	}
	if found > 2 {
		t.Errorf("a beat is found in %d of 50 histories without one", found)
	}
}

// TestMetronome: beats are counted from the last change, and the next is foretold.
func TestMetronome(t *testing.T) {
	m := beatClock{period: 4, next: 1}
	var beats, waits []int
	for i := range 14 {
		m.tick(i == 6)
		beats, waits = append(beats, m.beats), append(waits, m.wait)
	}
	// Beats fall due with samples 1, 5, 9, …; the change with sample 6 came half a gap late.
	if got := beats; got[5] != 2 || got[6] != 0 || got[13] < 1 {
		t.Errorf("beats %v", got)
	}
	for i, w := range waits {
		if w < 1 || w > 5 || i > 7 && w != waits[i-1]-1 && waits[i-1] != 1 {
			t.Errorf("waits %v", waits)
		}
	}
}

// drawHistory draws runs and outages by a hazard alpha / (age + beta).
func drawHistory(random *rand.Rand, samples int, gap time.Duration, run, outage prior) marketHistory {
	var h marketHistory
	for up := false; len(h) < samples; up = !up {
		p := outage
		if up {
			p = run
		}
		length := p.beta.Seconds() * (math.Pow(random.Float64(), -1/p.alpha) - 1)
		for i := range 1 + int(min(length/gap.Seconds(), float64(samples))) {
			h = append(h, historySample{up: up, changed: i == 0 && len(h) > 0, age: int32(i)})
		}
	}
	return h
}

// TestLearnsHazard: without a past the prior is what is expected; with one, what was drawn.
func TestLearnsHazard(t *testing.T) {
	c := clock{step: 1}
	m, _ := marketHistory{}.fit(gap, c)
	for b, first := range m.first[:8] {
		from := time.Duration(float64(first)+(m.width(b)-1)/2) * gap
		if want := runPrior.expected(from, from+gap); math.Abs(m.ends[1][b]-want) > 0.2*want {
			t.Errorf("age %d: %g ends are expected, by the prior %g", first, m.ends[1][b], want)
		}
	}
	drawn := prior{2, 4 * time.Hour}
	h := drawHistory(rand.New(rand.NewPCG(3, 4)), 100_000, gap, drawn, outagePrior)
	m, _ = h.fit(gap, c)
	for b, first := range m.first[:10] {
		mid := time.Duration((float64(first) + m.width(b)/2) * float64(gap))
		if want := drawn.expected(mid, mid+gap); math.Abs(m.ends[1][b]-want) > 0.35*want {
			t.Errorf("age %d: %g ends are expected, drawn with %g", first, m.ends[1][b], want)
		}
	}
	if m.moved != 0 {
		t.Errorf("in one zone %g of the runs go on elsewhere", m.moved)
	}
}

// TestHazardDependsOnAge checks that of two histories with the same mean run, the one with a heavy
// tail trusts an old run more than a young one.
func TestHazardDependsOnAge(t *testing.T) {
	h := drawHistory(rand.New(rand.NewPCG(5, 6)), 50_000, gap, prior{0.6, 10 * time.Minute}, outagePrior)
	m, _ := h.fit(gap, clock{step: 1})
	if young, old := m.ends[1][m.bucket(1)], m.ends[1][m.bucket(60)]; old > young/5 {
		t.Errorf("%g ends are expected of a young run, %g of an old one", young, old)
	}
	var regular strings.Builder
	for range 500 {
		regular.WriteString(strings.Repeat("#", 12) + "......")
	}
	r, err := Replay(Trace{Gap: gap, Zones: []Zone{zone("z", regular.String())}},
		Params{Work: 20 * time.Hour, Deadline: 28 * time.Hour, Restart: 12 * time.Minute,
			Every: 7 * time.Hour, SpotPrice: 918_000_000, OnDemandPrice: 3_060_000_000})
	if err != nil {
		t.Fatal(err)
	}
	if got, base := r.result(Curfew), r.result(Greedy); got.Saving < base.Saving+0.03 {
		t.Errorf("on runs of two hours and outages of one curfew saves %g, greedy %g", got.Saving, base.Saving)
	}
}

// BenchmarkSolve plans a case of 55 hours on a beat of 10.5 minutes.
func BenchmarkSolve(b *testing.B) {
	m, _ := marketHistory{}.fit(195*time.Second, clock{step: 3.235, beat: true})
	var p program
	var table []uint8
	b.ReportAllocs()
	for b.Loop() {
		table = p.solve(&m, 315, 41, 1.15, 0.3, table).best
	}
}
