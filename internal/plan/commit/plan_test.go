package commit

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// steady is a machine type used by a number of machines in each hour.
func steady(name string, rate float64, need ...float64) []Usage {
	var out []Usage
	for t, q := range need {
		out = append(out, Usage{
			Hour: start.Add(time.Duration(t) * time.Hour), Key: name, Quantity: Quantity(math.Round(q * 1e6)),
			OnDemand: dollars(rate),
		})
	}
	return out
}

func repeated(q float64, hours int) []float64 { return slices.Repeat([]float64{q}, hours) }

func best(t testing.TB, usage []Usage, offers []Offer, held []Existing, o Options) Report {
	t.Helper()
	r, err := Plan(usage, offers, held, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPublishedExample is 3.06 an hour on demand, 1.82 for a year and 1.31 for three:
// 40.5% and 57.2% at full use.
func TestPublishedExample(t *testing.T) {
	year := Offer{Key: "p3.2xlarge", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(1.82)}
	three := Offer{
		Key: "p3.2xlarge", Kind: Reserved, TermMonths: 36, Payment: AllUpfront, Upfront: dollars(1.31 * 36 * 730),
	}
	usage := steady("p3.2xlarge", 3.06, repeated(2, 8760)...)
	for _, tc := range []struct {
		name   string
		offers []Offer
		rate   float64
		months int64
		days   float64
	}{
		{"one year", []Offer{year}, 40.5, 12, 0},
		{"three years", []Offer{three}, 57.2, 36, 1.31 * 36 * 730 / (3.06 * 24)},
		{"both", []Offer{year, three}, 57.2, 36, 1.31 * 36 * 730 / (3.06 * 24)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := best(t, usage, tc.offers, nil, Options{})
			if len(r.Commitments) != 1 {
				t.Fatalf("got %+v", r.Commitments)
			}
			c := r.Commitments[0]
			if math.Abs(100*r.EffectiveSavingsRate-tc.rate) > 0.05 || c.Quantity != 2 || c.TermMonths != tc.months ||
				c.Utilization != 1 || !c.Advised || r.Coverage != 1 {
				t.Errorf("saves %.4f with %+v", r.EffectiveSavingsRate, c)
			}
			if c.BreakEvenDays == nil || math.Abs(*c.BreakEvenDays-tc.days) > 0.01 {
				t.Errorf("breaks even after %v days, want %v", c.BreakEvenDays, tc.days)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	reserved := Offer{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.6)}
	savings := Offer{Key: "*", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront, Discount: 300_000_000}
	demand := slices.Concat(repeated(3, 70), repeated(1, 30))
	for _, tc := range []struct {
		name                                   string
		usage                                  []Usage
		offers                                 []Offer
		held                                   []Existing
		onDemand, planned, quantity, committed string
	}{
		{
			"one more pays in more than p of the hours", steady("a", 1, demand...), []Offer{reserved}, nil, "240.00",
			"180.00", "3", "",
		},
		{
			"and not in fewer", steady("a", 1, slices.Concat(repeated(3, 59), repeated(1, 41))...), []Offer{
				reserved,
			}, nil,
			"218.00", "178.00", "1", "",
		},
		{"too expensive", steady("a", 0.6, demand...), []Offer{reserved}, nil, "144.00", "144.00", "", ""},
		{
			"savings plan at the d-quantile", steady("a", 1, slices.Concat(repeated(3, 71), repeated(1, 29))...),
			[]Offer{savings}, nil, "242.00", "210.00", "", "2.10",
		},
		{
			"and not above", steady("a", 1, slices.Concat(repeated(3, 69), repeated(1, 31))...), []Offer{savings}, nil,
			"238.00", "208.00", "", "0.70",
		},
		{
			"both", slices.Concat(steady("a", 1, repeated(2, 100)...), steady("b", 2, repeated(1.5, 100)...)),
			[]Offer{reserved, savings}, nil, "500.00", "330.00", "2", "2.10",
		},
		{"what exists comes first", steady("a", 1, repeated(3, 100)...), []Offer{reserved},
			[]Existing{
				{
					Offer: Offer{Key: "a", Kind: Reserved, Hourly: dollars(0.5)}, Machines: 2,
					Expires: start.AddDate(1, 0, 0),
				},
			}, "300.00", "160.00", "1", ""},
		{"what expired blocks nothing", steady("a", 1, repeated(3, 100)...), []Offer{reserved},
			[]Existing{
				{
					Offer: Offer{Key: "a", Kind: Reserved, Hourly: dollars(0.5)}, Machines: 2,
					Expires: start.Add(100 * time.Hour),
				},
			}, "300.00", "180.00", "3", ""},
		{"what expires soon is replaced", steady("a", 1, repeated(3, 100)...), []Offer{reserved},
			[]Existing{
				{
					Offer: Offer{Key: "a", Kind: Reserved, Hourly: dollars(0.5)}, Machines: 2,
					Expires: start.Add(101 * time.Hour),
				},
			}, "300.00", "180.00", "3", ""},
		{"an existing plan that lasts leaves nothing to buy", steady("a", 1, repeated(1, 100)...), []Offer{reserved},
			[]Existing{
				{
					Offer: Offer{Key: "*", Kind: SavingsPlan, Discount: 500_000_000}, DollarsPerHour: dollars(0.5),
					Expires: start.AddDate(1, 0, 0),
				},
			}, "100.00", "50.00", "", ""},
		{"an unused existing commitment is charged", steady("a", 1, repeated(1, 10)...), []Offer{savings},
			[]Existing{
				{
					Offer: Offer{Key: "gone", Kind: Reserved, Hourly: dollars(2)}, Machines: 1,
					Expires: start.AddDate(1, 0, 0),
				},
			}, "10.00", "27.00", "", "0.70"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := best(t, tc.usage, tc.offers, tc.held, Options{})
			quantity, committed, machines := "", "", int64(0)
			for _, c := range r.Commitments {
				if c.Kind == Reserved {
					machines += c.Quantity
					quantity = money.Thousands(machines)
				} else {
					committed = c.DollarsPerHour
				}
			}
			if r.OnDemandUSD.String() != tc.onDemand || r.PlannedUSD.String() != tc.planned ||
				quantity != tc.quantity ||
				committed != tc.committed || !r.Optimal || r.LowerBoundUSD != r.PlannedUSD {
				t.Errorf("got %s on demand, %s planned (bound %s), %q machines, %q an hour\nwant %s, %s, %q, %q",
					r.OnDemandUSD,
					r.PlannedUSD, r.LowerBoundUSD, quantity, committed,
					tc.onDemand, tc.planned, tc.quantity, tc.committed)
			}
		})
	}
}

// TestSubtractsIdleFirst: machines that do nothing are not committed to.
func TestSubtractsIdleFirst(t *testing.T) {
	offer := []Offer{{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.6)}}
	usage := steady("a", 1, repeated(5, 100)...)
	for i := range usage {
		usage[i].Idle = 2 * Machine
	}
	r := best(t, usage, offer, nil, Options{})
	if r.Commitments[0].Quantity != 3 || r.OnDemandUSD.String() != "300.00" || r.IdleUSD.String() != "200.00" {
		t.Errorf("got %+v", r)
	}
}

// TestAdvisesOnlyUsedCommitments checks that a commitment pays from its price share on, and is
// advised only where its use stays above 60%, in every month.
func TestAdvisesOnlyUsedCommitments(t *testing.T) {
	cheap := []Offer{{Key: "a", Kind: Reserved, TermMonths: 36, Payment: NoUpfront, Hourly: dollars(0.3)}}
	month := func(share float64) []float64 {
		used := int(math.Round(share * 730))
		return slices.Concat(repeated(1, used), repeated(0, 730-used))
	}
	for _, tc := range []struct {
		name    string
		need    []float64
		advised bool
		why     string
	}{
		{"used", month(0.8), true, ""},
		{"at the threshold", month(0.6), false, "utilization 60%"},
		{"half", month(0.5), false, "utilization 50%"},
		{"falls", slices.Concat(month(1), month(0.5)), false, "in its lowest month"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := best(t, steady("a", 1, tc.need...), cheap, nil, Options{MinHours: -1})
			c := r.Commitments[0]
			if c.Advised != tc.advised || !strings.Contains(c.Why, tc.why) {
				t.Errorf("utilization %v, lowest %v: advised %v, %q", c.Utilization, c.LowestMonth, c.Advised, c.Why)
			}
			if only := r.AdvisedUSD == r.PlannedUSD; only != tc.advised {
				t.Errorf("what is advised costs %s, the plan %s", r.AdvisedUSD, r.PlannedUSD)
			}
		})
	}
}

// TestFallOfDemand checks that the plan at 0.6 of on demand loses from a fall of 40% on.
func TestFallOfDemand(t *testing.T) {
	offer := []Offer{{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.6)}}
	r := best(t, steady("a", 1, repeated(10, 100)...), offer, nil, Options{Drop: 0.4})
	if r.LossDrop == nil || math.Abs(*r.LossDrop-0.401) > 1e-9 {
		t.Errorf("loses from %v on, want 0.401", r.LossDrop)
	}
	i := slices.IndexFunc(r.WhatIf, func(w WhatIf) bool { return w.Drop == 0.4 })
	if i < 0 || r.WhatIf[i].OnDemandUSD.String() != "600.00" || r.WhatIf[i].PlannedUSD.String() != "600.00" ||
		r.WhatIf[i].Utilization != 0.6 {
		t.Errorf("got %+v", r.WhatIf)
	}
	for _, drop := range []float64{-0.1, 1.1, math.NaN()} {
		if _, err := Plan(steady("a", 1, 1), offer, nil, Options{Drop: drop}); err == nil {
			t.Errorf("a fall by %v passes", drop)
		}
	}
}

// TestReportsGapsInUsage: hours without a row are charged for, and named.
func TestReportsGapsInUsage(t *testing.T) {
	offer := []Offer{{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.6)}}
	usage := steady("a", 1, repeated(1, 100)...)
	usage = append(usage[:10], usage[50:]...) // 60 of 100 hours: no more than the price
	r := best(t, usage, offer, nil, Options{})
	if len(r.Commitments) != 0 || r.Hours != 100 ||
		!strings.Contains(strings.Join(r.CoverageNotes, "\n"), "40 hours have no row") {
		t.Errorf("got %+v", r)
	}
}

func TestPlanRejectsInvalidInput(t *testing.T) {
	good := steady("a", 1, 1, 1)
	offer := Offer{Key: "a", Kind: Reserved, TermMonths: 12, Hourly: dollars(0.5)}
	for _, tc := range []struct {
		name   string
		usage  []Usage
		offers []Offer
		held   []Existing
	}{
		{"no usage", nil, []Offer{offer}, nil},
		{"no price", []Usage{{Hour: start, Key: "a", Quantity: Machine}}, nil, nil},
		{"twice", append(good, good[0]), nil, nil},
		{"no full hour", []Usage{{Hour: start.Add(time.Second), Key: "a", OnDemand: 1}}, nil, nil},
		{"more idle than there is", []Usage{{Hour: start, Key: "a", Quantity: 1, Idle: 2, OnDemand: 1}}, nil, nil},
		{
			"a thousand years",
			append(good, Usage{Hour: start.AddDate(100, 0, 0), Key: "b", OnDemand: 1},
				Usage{Hour: start.AddDate(-190, 0, 0), Key: "b", OnDemand: 1}),
			nil, nil,
		},
		{
			"more than an amount holds",
			[]Usage{{Hour: start, Key: "a", Quantity: maxMachines * Machine, OnDemand: math.MaxInt64}}, nil, nil,
		},
		{"no term", good, []Offer{{Key: "a", Kind: Reserved, Hourly: 1}}, nil},
		{"no kind", good, []Offer{{Key: "a", TermMonths: 1}}, nil},
		{"all off", good, []Offer{{Key: "a", Kind: SavingsPlan, TermMonths: 1, Discount: fullDiscount}}, nil},
		{"nothing exists", good, nil, []Existing{{Offer: offer, Expires: start.Add(time.Hour)}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Plan(tc.usage, tc.offers, tc.held, Options{}); err == nil {
				t.Error("passes")
			}
			if _, err := Online(tc.usage, tc.offers, tc.held); err == nil {
				t.Error("passes online")
			}
		})
	}
	_, err := Plan([]Usage{
		{Hour: start, Key: "a", Quantity: maxMachines * Machine, OnDemand: math.MaxInt64},
	}, nil, nil,
		Options{})
	if !errors.Is(err, money.ErrOverflow) {
		t.Errorf("got %v, want ErrOverflow", err)
	}
}

// TestOnlineBuysAtBreakEven: at half the price, a machine is bought in the hour that would
// take it past half of the window on demand.
func TestOnlineBuysAtBreakEven(t *testing.T) {
	for _, tc := range []struct {
		name  string
		offer Offer
	}{
		{"machines", Offer{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.5)}},
		{
			"dollars",
			Offer{Key: "*", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront, Discount: fullDiscount / 2},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Online(steady("a", 1, repeated(2, 100)...), []Offer{tc.offer}, nil)
			if err != nil {
				t.Fatal(err)
			}
			// 50 hours of two machines on demand, 50 of them committed.
			if r.CostUSD.String() != "150.00" || r.OfflineUSD.String() != "100.00" ||
				r.Ratio != 1.5 || r.Bound != 1.5 ||
				len(r.Bought) != 1 || !r.Bought[0].First.Equal(start.Add(50*time.Hour)) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// TestOnlinePolicyIgnoresFuture: what was bought by an hour is the same whatever comes later.
func TestOnlinePolicyIgnoresFuture(t *testing.T) {
	offer := []Offer{{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.5)}}
	for _, later := range []float64{0, 1, 7} {
		r, err := Online(steady("a", 1, slices.Concat(repeated(1, 60), repeated(later, 40))...), offer, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Bought) != 1 || !r.Bought[0].First.Equal(start.Add(50*time.Hour)) {
			t.Errorf("then %v machines: bought %+v", later, r.Bought)
		}
	}
}

func TestOnlineAfterExisting(t *testing.T) {
	offer := []Offer{{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.5)}}
	held := []Existing{
		{
			Offer: Offer{Key: "*", Kind: SavingsPlan, Discount: fullDiscount / 2}, DollarsPerHour: dollars(0.5),
			Expires: start.Add(time.Hour * 1000),
		},
	}
	r, err := Online(steady("a", 1, repeated(3, 100)...), offer, held)
	if err != nil || r.OnDemandUSD.String() != "200.00" || r.OfflineUSD.String() != "100.00" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestJSONFieldNames(t *testing.T) {
	offers := []Offer{
		{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.6)},
		{Key: "b*", Kind: SavingsPlan, TermMonths: 12, Payment: PartialUpfront, Discount: 300_000_000},
	}
	r := best(t, slices.Concat(steady("a", 1, repeated(2, 50)...), steady("b<1>", 1, repeated(2, 50)...)), offers, nil,
		Options{})
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"on_demand_cost_usd", "planned_cost_usd", "effective_savings_rate", "coverage", "commitments", "assumptions",
		"coverage_notes", "changes",
	} {
		if _, ok := doc[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
	for i, want := range [][]string{
		{"key", "kind", "term_months", "payment", "quantity", "utilization", "break_even_days"},
		{"key", "kind", "term_months", "payment", "dollars_per_hour", "utilization", "break_even_days"},
	} {
		for _, name := range want {
			if _, ok := doc["commitments"].([]any)[i].(map[string]any)[name]; !ok {
				t.Errorf("commitment %d has no %s", i, name)
			}
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, key string
		want         bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "x/y", true}, {"p4*", "p4d.24xlarge", true},
		{"p4*", "g5", false},
		{"*us*", "p4 us-east", true}, {"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "axxbyyc", true},
		{"a*b*c", "axxcyyb", false},
	} {
		if got := matches(tc.pattern, tc.key); got != tc.want {
			t.Errorf("%q matches %q: got %v", tc.pattern, tc.key, got)
		}
	}
}

// TestLargePlanIsNearBound is 20 machine types with 45 offers in one search, with
// little effort: the plan is close to what is proven, and never above on demand.
func TestLargePlanIsNearBound(t *testing.T) {
	usage, offers := market(20, 500)
	for _, tc := range []struct {
		effort int
		gap    float64
	}{{10, 1}, {300, 0.01}, {1500, 0.001}} {
		r := best(t, usage, offers, nil, Options{Effort: tc.effort})
		planned, bound := usd(r.PlannedUSD), usd(r.LowerBoundUSD)
		if gap := 1 - bound/planned; gap < 0 || gap > tc.gap || planned > usd(r.OnDemandUSD) ||
			r.Optimal != (r.LowerBoundUSD == r.PlannedUSD) {
			t.Errorf("effort %d: planned %s, bound %s, %.5f apart", tc.effort, r.PlannedUSD, r.LowerBoundUSD, gap)
		}
	}
}

// TestCrossingPlans checks that of plans that cross, the model lets either cover what both do,
// which only bounds the cost. A search among replays finds what each is good for.
func TestCrossingPlans(t *testing.T) {
	usage := slices.Concat(steady("ax", 1, 2, 1), steady("ay", 1, 2, 0), steady("bx", 1, 3, 1))
	var offers []Offer
	for _, key := range []string{"a*", "*x"} {
		offers = append(offers, Offer{
			Key: key, Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront, Discount: 400_000_000,
		})
	}
	if r := best(t, usage, offers, nil, Options{}); r.PlannedUSD.Cents() != "7.40" ||
		r.LowerBoundUSD.Cents() != "7.40" {
		t.Errorf("planned %s, bound %s: %+v", r.PlannedUSD, r.LowerBoundUSD, r.Commitments)
	}
}
