package commit

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// advice returns the options of a plan whose history suffices, with a rate of leaving a key.
func advice(perYear float64) Options {
	o := soonOptions
	o.MinHours = -1
	o.Leave = func(string) Leaving { return Leaving{PerYear: perYear, Why: "test"} }
	return o
}

// TestRefusedOfferLeavesProblem checks that a three-year offer is the cheapest, but its type is
// left before it pays. The one-year offer, which the three-year one hid, is advised instead.
func TestRefusedOfferLeavesProblem(t *testing.T) {
	long := Offer{Key: "ax", Kind: Reserved, TermMonths: 36, Payment: NoUpfront, Hourly: 50 * money.Cent}
	short := Offer{Key: "ax", Kind: Reserved, TermMonths: 12, Payment: NoUpfront, Hourly: 60 * money.Cent}
	var usage []Usage
	for h := range 48 {
		usage = append(usage, Usage{
			Hour: start.Add(time.Duration(h) * time.Hour), Key: "ax", Quantity: 3 * Machine, OnDemand: money.USD,
		})
	}
	o := advice(0.7) // used for 88% of a year in expectation, and for 42% of three
	for _, tc := range []struct {
		name    string
		offers  []Offer
		advised int64 // months
		cost    string
	}{
		{"short alone", []Offer{short}, 12, "86.40"},
		{"long alone", []Offer{long}, 0, "144.00"},
		{"both", []Offer{long, short}, 12, "86.40"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Plan(usage, tc.offers, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			if r.AdvisedUSD.String() != tc.cost {
				t.Errorf("advised cost %s, want %s", r.AdvisedUSD, tc.cost)
			}
			for _, c := range r.Commitments {
				if c.Advised != (c.TermMonths == tc.advised) || c.Advised == (c.Why != "") {
					t.Errorf("%d months: advised %v, %q", c.TermMonths, c.Advised, c.Why)
				}
			}
			if want := len(tc.offers); len(r.Commitments) != want {
				t.Errorf("%d commitments, want %d", len(r.Commitments), want)
			}
			if slices.Contains(tc.offers, long) && (r.PlannedUSD.String() != "72.00" || !r.Optimal) {
				t.Errorf("all offers cost %s, optimal %v", r.PlannedUSD, r.Optimal)
			}
		})
	}
}

// TestAdviceIsBestAllowedSubset compares the advised plan with every subset of the offers: it costs
// what the cheapest of those costs whose best plan has no refused commitment.
func TestAdviceIsBestAllowedSubset(t *testing.T) {
	advised, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt, 5)
		if len(in.offer) > 6 {
			in.offer = in.offer[:6]
		}
		o := advice(float64(rapid.IntRange(0, 100).Draw(rt, "leave")) / 100)
		r, err := Plan(in.usage(), in.offer, in.held, o)
		if err != nil {
			rt.Fatal(err)
		}
		want := money.Amount(1<<63 - 1)
		for set := range 1 << len(in.offer) {
			var offers []Offer
			for i, of := range in.offer {
				if set&(1<<i) != 0 {
					offers = append(offers, of)
				}
			}
			p, err := Plan(in.usage(), offers, in.held, o)
			if err != nil {
				rt.Fatal(err)
			}
			if !slices.ContainsFunc(p.Commitments, func(c Commitment) bool { return !c.Advised }) {
				want = min(want, p.PlannedUSD)
			}
		}
		if diff := r.AdvisedUSD - want; max(diff, -diff) > money.Amount(len(in.need[0]))*10 {
			rt.Fatalf("advised plan costs %s, the best allowed subset %s\n%+v\n%+v", r.AdvisedUSD, want,
				r.Commitments, in)
		}
		for _, c := range r.Commitments {
			if c.Advised {
				advised++
			} else {
				refused++
			}
		}
	})
	if advised == 0 || refused == 0 {
		t.Errorf("%d commitments advised and %d refused: the draws do not test both", advised, refused)
	}
}

// TestMoreOffersNeverWorsenAdvice adds an offer to a plan.
func TestMoreOffersNeverWorsenAdvice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt, 8)
		if len(in.offer) == 0 {
			return
		}
		o := advice(float64(rapid.IntRange(0, 100).Draw(rt, "leave")) / 100)
		all, err := Plan(in.usage(), in.offer, in.held, o)
		if err != nil {
			rt.Fatal(err)
		}
		without := slices.Clone(in.offer)
		i := rapid.IntRange(0, len(without)-1).Draw(rt, "added")
		fewer, err := Plan(in.usage(), slices.Delete(without, i, i+1), in.held, o)
		if err != nil {
			rt.Fatal(err)
		}
		if all.AdvisedUSD > fewer.AdvisedUSD+money.Amount(len(in.need[0]))*10 {
			rt.Fatalf("with %+v the advice costs %s, without it %s\n%+v", in.offer[i],
				all.AdvisedUSD, fewer.AdvisedUSD,
				in)
		}
	})
}

// TestSpentEffortStillAdvises: with more offers than subsets can be solved, what is refused is left
// out until the rest passes.
func TestSpentEffortStillAdvises(t *testing.T) {
	var usage []Usage
	var offers []Offer
	for k := range 12 {
		name := "m" + strings.Repeat("x", k+1)
		for h := range 10 {
			usage = append(usage, Usage{
				Hour: start.Add(time.Duration(h) * time.Hour), Key: name, OnDemand: money.USD,
				Quantity: Quantity(1-h%2*k%2) * Machine, // every second key runs in half of the hours
			})
		}
		offers = append(offers, Offer{
			Key: name, Kind: Reserved, TermMonths: 12, Payment: NoUpfront,
			Hourly: money.Amount(40+k) * money.Cent,
		})
	}
	offers = append(offers, Offer{
		Key: "*", Kind: SavingsPlan, TermMonths: 12, Payment: NoUpfront, Discount: fullDiscount / 10,
	})
	r, err := Plan(usage, offers, nil, advice(0.1))
	if err != nil {
		t.Fatal(err)
	}
	advised := 0
	for _, c := range r.Commitments {
		if c.Advised {
			advised++
			if c.Utilization <= minUtilization {
				t.Errorf("%s is used %v", c.Key, c.Utilization)
			}
		}
	}
	if advised < 6 || r.AdvisedUSD >= r.OnDemandUSD {
		t.Errorf("%d commitments advised: %s of %s on demand", advised, r.AdvisedUSD, r.OnDemandUSD)
	}
}
