package commit

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// instance is a small market in plain floats; nothing here knows the program's model.
type instance struct {
	need  [][]float64 // by key and hour
	rate  []float64
	offer []Offer
	held  []Existing
}

func (in instance) usage() []Usage {
	var out []Usage
	for k, need := range in.need {
		for t, q := range need {
			out = append(out, Usage{
				Hour: start.Add(time.Duration(t) * time.Hour), Key: key(k), Quantity: Quantity(math.Round(q * 1e6)),
				OnDemand: dollars(in.rate[k]),
			})
		}
	}
	return out
}

func key(k int) string { return []string{"ax", "ay", "bx"}[k] }

func dollars(v float64) money.Amount { return money.Amount(math.Round(v * float64(money.USD))) }

func covers(o Offer, k int) bool {
	return o.Key == "*" || o.Key == key(k) || o.Key == "a*" && k < 2 || o.Key == "*x" && k != 1
}

// soonHours is how long after the window existing commitments count as expiring in tests.
const soonHours = 3

var soonOptions = Options{Soon: soonHours * time.Hour}

// lasts reports whether an existing commitment is in force for the whole period ahead.
func (in instance) lasts(e Existing) bool {
	return e.Expires.Sub(start).Hours() > float64(len(in.need[0])+soonHours)
}

// cost returns the cost of the use in the period ahead with levels of the offers, by the rules of
// the contract: reserved first, then plans by discount, then on demand. Levels are machines, or
// dollars an hour at plan rates.
func (in instance) cost(levels []float64) float64 {
	hours := len(in.need[0])
	total := 0.0
	for i, o := range in.offer {
		if o.Kind == Reserved {
			each := float64(o.Hourly)/1e9 + float64(o.Upfront)/1e9/float64(o.TermMonths*730)
			total += levels[i] * each * float64(hours)
		} else {
			total += levels[i] * float64(hours)
		}
	}
	for _, e := range in.held {
		switch {
		case !in.lasts(e):
		case e.Kind == Reserved:
			total += float64(e.Machines) * float64(e.Hourly) / 1e9 * float64(hours)
		default:
			total += float64(e.DollarsPerHour) / 1e9 * float64(hours)
		}
	}
	type plan struct {
		o     Offer
		level float64
	}
	for t := range hours {
		left := make([]float64, len(in.need))
		var plans []plan
		for k := range left {
			left[k] = in.need[k][t]
			for i, o := range in.offer {
				if o.Kind == Reserved && covers(o, k) {
					left[k] -= levels[i]
				}
			}
			for _, e := range in.held {
				if e.Kind == Reserved && covers(e.Offer, k) && in.lasts(e) {
					left[k] -= float64(e.Machines)
				}
			}
			left[k] = max(0, left[k]) * in.rate[k]
		}
		for i, o := range in.offer {
			if o.Kind == SavingsPlan {
				plans = append(plans, plan{o, levels[i]})
			}
		}
		for _, e := range in.held {
			if e.Kind == SavingsPlan && in.lasts(e) {
				plans = append(plans, plan{e.Offer, float64(e.DollarsPerHour) / 1e9})
			}
		}
		for len(plans) > 0 {
			first := 0
			for i, p := range plans {
				if p.o.Discount > plans[first].o.Discount {
					first = i
				}
			}
			p := plans[first]
			plans = append(plans[:first:first], plans[first+1:]...)
			for k := range left {
				if covers(p.o, k) {
					use := math.Min(left[k]*(1-p.o.Discount.Share()), p.level)
					p.level -= use
					left[k] -= use / (1 - p.o.Discount.Share())
				}
			}
		}
		for _, a := range left {
			total += a
		}
	}
	return total
}

// cheapest tries every number of machines, and of dollars every corner: where a plan
// alone, what it leaves of a wider one, or both together are just used up in an hour.
func (in instance) cheapest() float64 {
	best := math.Inf(1)
	levels := make([]float64, len(in.offer))
	var plans []int
	var machines func(i int)
	machines = func(i int) {
		if i < len(in.offer) {
			if in.offer[i].Kind != Reserved {
				machines(i + 1)
				return
			}
			for n := 0.0; n <= 4; n++ {
				levels[i] = n
				machines(i + 1)
			}
			return
		}
		best = min(best, in.corners(levels, plans))
	}
	for i, o := range in.offer {
		if o.Kind == SavingsPlan {
			plans = append(plans, i)
		}
	}
	machines(0)
	return best
}

// corners is the best of at most two plans; of two the first is the narrower one.
func (in instance) corners(levels []float64, plans []int) float64 {
	if len(plans) == 0 {
		return in.cost(levels)
	}
	hours := len(in.need[0])
	left := func(o Offer, t int) float64 { // on-demand dollars that a plan could cover
		sum := 0.0
		for k := range in.need {
			if !covers(o, k) {
				continue
			}
			q := in.need[k][t]
			for i, r := range in.offer {
				if r.Kind == Reserved && covers(r, k) {
					q -= levels[i]
				}
			}
			for _, e := range in.held {
				if e.Kind == Reserved && covers(e.Offer, k) && in.lasts(e) {
					q -= float64(e.Machines)
				}
			}
			sum += max(0, q) * in.rate[k]
		}
		return sum
	}
	last := plans[len(plans)-1]
	wide := in.offer[last]
	best := math.Inf(1)
	if len(plans) == 1 {
		for t := -1; t < hours; t++ {
			levels[last] = 0
			if t >= 0 {
				levels[last] = left(wide, t) * (1 - wide.Discount.Share())
			}
			best = min(best, in.cost(levels))
		}
		return best
	}
	narrow := in.offer[plans[0]]
	firsts := []float64{0}
	for t := range hours {
		firsts = append(firsts, left(narrow, t))
		for s := range hours {
			firsts = append(firsts, max(0, left(wide, s)-(left(wide, t)-left(narrow, t))))
		}
	}
	for _, c := range firsts {
		levels[plans[0]] = c * (1 - narrow.Discount.Share())
		for t := -1; t < hours; t++ {
			levels[last] = 0
			if t >= 0 {
				levels[last] = (max(0, left(narrow, t)-c) + left(wide, t) - left(narrow, t)) *
					(1 - wide.Discount.Share())
			}
			best = min(best, in.cost(levels))
		}
	}
	return best
}

func draw(t *rapid.T, most int) instance {
	keys, hours := rapid.IntRange(1, 3).Draw(t, "keys"), rapid.IntRange(1, most).Draw(t, "hours")
	var in instance
	for k := range keys {
		in.rate = append(in.rate, float64(rapid.IntRange(1, 400).Draw(t, "cents"))/100)
		in.need = append(in.need, nil)
		for range hours {
			in.need[k] = append(in.need[k], float64(rapid.IntRange(0, 8).Draw(t, "halves"))/2)
		}
	}
	for k := range keys {
		for range rapid.IntRange(0, 2-k/2).Draw(t, "reserved") {
			share := float64(rapid.IntRange(20, 100).Draw(t, "share")) / 100
			o := Offer{
				Key: key(k), Kind: Reserved, TermMonths: rapid.SampledFrom([]int64{12, 36}).Draw(t,
					"term"), Payment: NoUpfront,
				Hourly: dollars(in.rate[k] * share),
			}
			if rapid.Bool().Draw(t, "upfront") {
				o.Payment, o.Upfront, o.Hourly = AllUpfront, o.Hourly*money.Amount(o.TermMonths*730), 0
			}
			in.offer = append(in.offer, o)
		}
	}
	wide := rapid.IntRange(10, 70).Draw(t, "wide")
	if rapid.Bool().Draw(t, "narrow plan") {
		in.offer = append(in.offer, Offer{
			Key: "ax", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront,
			Discount: Discount(wide+rapid.IntRange(0, 20).Draw(t, "more")) * 1e7,
		})
	}
	if rapid.Bool().Draw(t, "wide plan") {
		in.offer = append(in.offer, Offer{
			Key: "*", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront, Discount: Discount(wide) * 1e7,
		})
	}
	if rapid.Bool().Draw(t, "held") {
		in.held = append(in.held, Existing{
			Offer:    Offer{Key: "ax", Kind: Reserved, Hourly: money.Cent},
			Machines: rapid.Int64Range(1, 3).Draw(t, "machines"),
			Expires:  start.Add(time.Duration(rapid.IntRange(0, hours+2*soonHours).Draw(t, "expires")) * time.Hour)})
	}
	return in
}

func usd(a money.Amount) float64 { return float64(a) / float64(money.USD) }

// TestPlanMatchesBruteForce compares plans with several offers, terms, payments, discounts and
// expiries with every other choice.
func TestPlanMatchesBruteForce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt, 6)
		d, held, err := open(in.usage(), in.offer, in.held)
		if err != nil {
			rt.Fatal(err)
		}
		r, bought := planned(rt, in, soonOptions)
		out, err := d.replay(d.lines(bought, d.inState(held, soonOptions.Soon, Active)), nil)
		if err != nil {
			rt.Fatal(err)
		}
		got, want := float64(out.cost)/1e9, in.cheapest()
		if math.Abs(got-want) > 1e-6*max(1, want) {
			rt.Fatalf("planned %.9f, brute force %.9f: %+v\n%+v", got, want, bought, in)
		}
		if !r.Optimal {
			rt.Fatalf("cost %.9f, bound %s: not known to be optimal", got, r.LowerBoundUSD)
		}
	})
}

// planned returns what a plan buys as it was found, to all digits.
func planned(t *rapid.T, in instance, o Options) (Report, []purchase) {
	r, err := Plan(in.usage(), in.offer, in.held, o)
	if err != nil {
		t.Fatal(err)
	}
	var bought []purchase
	for _, c := range r.Commitments {
		p := purchase{level: c.Quantity}
		if c.Kind == SavingsPlan {
			a, err := money.ParseAmount(c.DollarsPerHour)
			if err != nil {
				t.Fatal(err)
			}
			p.level = int64(a)
		}
		for _, of := range in.offer {
			if of.Key == c.Key && of.Kind == c.Kind && of.TermMonths == c.TermMonths && of.Payment == c.Payment &&
				(of.Kind == SavingsPlan || math.Abs(of.price()-c.BreakEvenUtilization*meanRate(in, of.Key)) < 1e-6) {
				p.offer = of
			}
		}
		if p.offer.Key == "" {
			t.Fatalf("%+v was not offered", c)
		}
		bought = append(bought, p)
	}
	return r, bought
}

func (o Offer) price() float64 {
	return float64(o.Hourly)/1e9 + float64(o.Upfront)/1e9/float64(o.TermMonths*730)
}

func meanRate(in instance, name string) float64 {
	for k, r := range in.rate {
		if key(k) == name {
			return r
		}
	}
	return math.NaN()
}

// TestCrossingPlansKeepBound checks what the bound says where plans cross, or one that exists comes
// first: nothing that is tried costs less.
func TestCrossingPlansKeepBound(t *testing.T) {
	optimal, all := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt, 6)
		if rapid.Bool().Draw(rt, "existing plan") {
			in.held = append(in.held, Existing{
				Offer: Offer{
					Key: rapid.SampledFrom([]string{"*", "a*", "ax"}).Draw(rt, "pattern"), Kind: SavingsPlan,
					Discount: Discount(rapid.IntRange(5, 90).Draw(rt, "discount")) * 1e7,
				},
				DollarsPerHour: money.Amount(rapid.IntRange(1, 800).Draw(rt, "committed")) * money.Cent,
				Expires:        start.Add(time.Duration(rapid.IntRange(1, 16).Draw(rt, "until")) * time.Hour)})
		}
		for _, pattern := range []string{"a*", "*x"} {
			in.offer = append(in.offer, Offer{
				Key: pattern, Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront,
				Discount: Discount(rapid.IntRange(10, 80).Draw(rt, "of "+pattern)) * 1e7,
			})
		}
		r, err := Plan(in.usage(), in.offer, in.held, soonOptions)
		if err != nil {
			rt.Fatal(err)
		}
		cost, bound := usd(r.PlannedUSD), usd(r.LowerBoundUSD)
		best := in.cost(make([]float64, len(in.offer)))
		levels := make([]float64, len(in.offer))
		for range 300 {
			for i, o := range in.offer {
				if levels[i] = 0; rapid.Bool().Draw(rt, "some") {
					levels[i] = float64(rapid.IntRange(0, 4).Draw(rt, "level"))
					if o.Kind == SavingsPlan {
						levels[i] *= rapid.Float64Range(0, 3).Draw(rt, "dollars")
					}
				}
			}
			best = min(best, in.cost(levels))
		}
		if best < bound-0.006 || cost < bound-0.006 || r.Optimal && cost > best+0.006 {
			rt.Fatalf("planned %v, tried %v, bound %v, optimal %v\n%+v", cost, best, bound, r.Optimal, in)
		}
		if all++; r.Optimal {
			optimal++
		}
	})
	if optimal*2 < all {
		t.Errorf("only %d of %d plans are known to be the best", optimal, all)
	}
}

// TestLimitedEffortKeepsBound cuts the search short.
func TestLimitedEffortKeepsBound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt, 3)
		best := in.cheapest()
		o := soonOptions
		o.Effort = rapid.IntRange(1, 30).Draw(rt, "effort")
		r, err := Plan(in.usage(), in.offer, in.held, o)
		if err != nil {
			rt.Fatal(err)
		}
		if bound := usd(r.LowerBoundUSD); bound > best+0.006 || usd(r.PlannedUSD) < best-0.006 {
			rt.Fatalf("planned %s, brute force %v, bound %v", r.PlannedUSD, best, bound)
		}
	})
}

// TestOnlinePolicyKeepsBound compares the online policy with the best plan of the
// same offer, on every instance.
func TestOnlinePolicyKeepsBound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		hours := rapid.IntRange(1, 60).Draw(rt, "hours")
		in := instance{
			rate: []float64{float64(rapid.IntRange(1, 400).Draw(rt, "cents")) / 100}, need: [][]float64{nil},
		}
		for range hours {
			in.need[0] = append(in.need[0], float64(rapid.IntRange(0, 12).Draw(rt, "quarters"))/4)
		}
		alpha := float64(rapid.IntRange(5, 120).Draw(rt, "alpha")) / 100
		o := Offer{Key: "ax", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(in.rate[0] * alpha)}
		if alpha < 1 && rapid.Bool().Draw(rt, "plan") {
			o = Offer{
				Key: "*", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront,
				Discount: Discount(math.Round((1 - alpha) * 1e9)),
			}
		}
		in.offer = []Offer{o}
		r, err := Online(in.usage(), in.offer, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if want := max(1, 2-alpha); math.Abs(r.Bound-want) > 1e-6 {
			rt.Fatalf("bound %v, want %v", r.Bound, want)
		}
		if want := in.cheapest(); math.Abs(float64(r.OfflineUSD)/1e9-want) > 1e-6*max(1, want) {
			rt.Fatalf("offline %v, brute force %v", r.OfflineUSD, want)
		}
		// It may cost less: the plan starts in the first hour.
		if float64(r.CostUSD) > r.Bound*float64(r.OfflineUSD)+1000 {
			rt.Fatalf("cost %v, offline %v: %v times, bound %v\n%v", r.CostUSD, r.OfflineUSD, r.Ratio, r.Bound,
				fmt.Sprint(in.need))
		}
	})
}
