package commit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reservedUntil is n reserved machines of a key, which expire some hours after the start.
func reservedUntil(name string, n int64, hours int) Existing {
	return Existing{
		Offer:    Offer{Key: name, Kind: Reserved, Hourly: dollars(0.5)},
		Machines: n,
		Expires:  start.Add(time.Duration(hours) * time.Hour),
	}
}

// TestPurchasesStartWhenTheirPredecessorsEnd checks that two machines of three are reserved until a
// day after the window, so that one more is bought at once and two follow.
func TestPurchasesStartWhenTheirPredecessorsEnd(t *testing.T) {
	offer := Offer{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(0.6)}
	usage := steady("a", 1, repeated(3, 100)...)
	r := best(t, usage, []Offer{offer}, []Existing{reservedUntil("a", 2, 124)}, Options{MinHours: -1})
	var got []string
	for _, c := range r.Commitments {
		got = append(got, fmt.Sprintf("%d from hour %v, $%s a year", c.Quantity,
			c.Starts.Sub(start).Hours(), c.YearlyUSD))
	}
	// A machine saves 40 cents an hour.
	if want := []string{
		"1 from hour 100, $3504.00 a year", "2 from hour 124, $7008.00 a year",
	}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	e := r.Existing[0]
	if e.State != Expiring || e.CostUSD.String() != "100.00" ||
		e.CoveredUSD.String() != "200.00" || e.Utilization != 1 {
		t.Errorf("the existing commitment is %+v", e)
	}
	if want := "expires on 2026-03-06, 1d after the window; the plan has 2 reserved a from 2026-03-06 on"; e.Follows !=
		want {
		t.Errorf("got %q, want %q", e.Follows, want)
	}
}

// TestReportsCostOfExpiringCommitment: where no offer pays, what was covered goes on
// demand: 2 machines at $1 for 8,760 hours.
func TestReportsCostOfExpiringCommitment(t *testing.T) {
	const price = "; nothing replaces it in the plan: its coverage costs $17,520 a year on demand"
	for _, tc := range []struct {
		hours   int
		state   State
		follows string
	}{
		{40, Expired, "expired on 2026-03-02: it covers nothing in the period ahead" + price},
		{100, Expired, "expired on 2026-03-05"},
		{148, Expiring, "expires on 2026-03-07, 2d after the window" + price},
		{100 + 90*24, Expiring, "expires on 2026-06-03, 90d after the window"},
		{101 + 90*24, Active, ""},
	} {
		r := best(t, steady("a", 1, repeated(2, 100)...), nil, []Existing{reservedUntil("a", 2, tc.hours)}, Options{})
		e := r.Existing[0]
		if e.State != tc.state || !strings.HasPrefix(e.Follows, tc.follows) ||
			(e.Follows == "") != (tc.follows == "") {
			t.Errorf("after %d hours: %s, %q, want %s, %q", tc.hours, e.State, e.Follows, tc.state, tc.follows)
		}
		planned := "200.00"
		if tc.state == Active {
			planned = "100.00"
		}
		if r.PlannedUSD.String() != planned {
			t.Errorf("after %d hours: planned %s, want %s", tc.hours, r.PlannedUSD, planned)
		}
	}
}

// TestCountsEndedCommitments: they are no part of the report, but named.
func TestCountsEndedCommitments(t *testing.T) {
	held := []Existing{reservedUntil("a", 2, 0), reservedUntil("a", 2, -5), reservedUntil("a", 2, 1)}
	r := best(t, steady("a", 1, 2, 2), nil, held, Options{})
	notes := strings.Join(r.CoverageNotes, "\n")
	if len(r.Existing) != 1 ||
		!strings.Contains(notes, "2 existing commitments ended before the window: not counted") {
		t.Errorf("%d shown, notes %q", len(r.Existing), notes)
	}
}

// TestScheduleMatchesBruteForce plays the calendar after the window hour by hour: no other
// days of purchase of the same machines, among the end of the window and the days on which
// existing commitments end, cost less than those of the plan.
func TestScheduleMatchesBruteForce(t *testing.T) {
	const windows = 6 // of calendar after the window; the last existing commitment ends in the fourth
	rapid.Check(t, func(rt *rapid.T) {
		hours := rapid.IntRange(1, 5).Draw(rt, "hours")
		var need []float64
		for range hours {
			need = append(need, float64(rapid.IntRange(0, 3).Draw(rt, "need")))
		}
		share := float64(rapid.IntRange(5, 99).Draw(rt, "share")) / 100
		offer := Offer{Key: "a", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: dollars(share)}
		var held []Existing
		for range rapid.IntRange(0, 2).Draw(rt, "held") {
			until := hours + hours*rapid.IntRange(0, 4).Draw(rt, "windows")
			held = append(held, reservedUntil("a", rapid.Int64Range(1, 2).Draw(rt, "machines"), until))
		}
		r := best(t, steady("a", 1, need...), []Offer{
			offer,
		}, held, Options{Soon: time.Duration(windows*hours) * time.Hour})
		calendar := func(starts []int) float64 { // hours after the window at which each machine starts
			total := 0.0
			for h := range windows * hours {
				left := need[h%hours]
				for _, e := range held {
					if start.Add(time.Duration(hours+h) * time.Hour).Before(e.Expires) {
						left -= float64(e.Machines)
					}
				}
				for _, s := range starts {
					if h >= s {
						left--
						total += share
					}
				}
				total += max(0, left)
			}
			return total
		}
		var planned, days []int
		for _, c := range r.Commitments {
			for range c.Quantity {
				planned = append(planned, int(c.Starts.Sub(start).Hours())-hours)
			}
		}
		days = append(days, 0)
		for _, e := range held {
			if after := int(e.Expires.Sub(start).Hours()) - hours; after > 0 {
				days = append(days, after)
			}
		}
		cheapest := math.Inf(1)
		var try func(starts []int)
		try = func(starts []int) {
			if len(starts) == len(planned) {
				cheapest = min(cheapest, calendar(starts))
				return
			}
			for _, day := range days {
				try(append(slices.Clip(starts), day))
			}
		}
		try(nil)
		if got := calendar(planned); got > cheapest+1e-9 {
			rt.Fatalf("starting at %v costs %v, the cheapest days %v: need %v at %v, held %+v",
				planned, got, cheapest, need,
				share, held)
		}
	})
}

// TestHeadlineWeighsLeaveRate checks that of ten machines at a third of the price, work leaves the
// type at 50% a year: over three years (1 - e^-1.5) / 1.5 = 51.8% of the term is used.
func TestHeadlineWeighsLeaveRate(t *testing.T) {
	offer := Offer{Key: "a", Kind: Reserved, TermMonths: 36, Payment: NoUpfront, Hourly: dollars(1)}
	leave := func(string) Leaving { return Leaving{PerYear: 0.5, Why: "test"} }
	r := best(t, steady("a", 3, repeated(10, 1500)...), []Offer{offer}, nil, Options{Leave: leave})
	expected, known := r.ExpectedYearlyUSD.Get()
	want := 10 * (3*(1-math.Exp(-1.5))/1.5 - 1) * 8760
	if !known || math.Abs(usd(expected)-want) > 1 || r.YearlyUSD.String() != "175200.00" {
		t.Errorf("expected %s of %s a year, want %.0f", r.ExpectedYearlyUSD, r.YearlyUSD, want)
	}
	if r.AdvisedLossDrop == nil || *r.AdvisedLossDrop != 0.667 {
		t.Errorf("loses from %v on", r.AdvisedLossDrop)
	}
	r = best(t, steady("a", 3, repeated(10, 1500)...), []Offer{offer}, nil, Options{})
	if r.ExpectedYearlyUSD.Known() {
		t.Errorf("without a rate, %s is expected", r.ExpectedYearlyUSD)
	}
}

// TestDoesNotCountCoveredUseAsSaved checks that a savings plan with the higher discount takes the
// use of one that exists, which goes on costing.
func TestDoesNotCountCoveredUseAsSaved(t *testing.T) {
	held := []Existing{{
		Offer: Offer{Key: "*", Kind: SavingsPlan, Discount: 100_000_000}, DollarsPerHour: dollars(0.9),
		Expires: start.AddDate(2, 0, 0),
	}}
	offer := Offer{Key: "a", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront, Discount: 500_000_000}
	usage := slices.Concat(steady("a", 2, repeated(1, 1500)...), steady("b", 1, repeated(1, 1500)...))
	r := best(t, usage, []Offer{offer}, held, Options{Leave: func(string) Leaving { return Leaving{Why: "test"} }})
	// $3 an hour, of which $1 is covered for 90 cents: $1 an hour of plan covers the other $2.
	expected, _ := r.ExpectedYearlyUSD.Get()
	if r.YearlyUSD.String() != "8760.00" || expected != r.YearlyUSD || len(r.Commitments) != 1 ||
		r.Commitments[0].DollarsPerHour != "1.00" {
		t.Errorf("saves %s a year, expected %s: %+v", r.YearlyUSD, r.ExpectedYearlyUSD, r.Commitments)
	}
}
