package commit

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestOrderOfApplication is one hour of a and b at 1 and 2 dollars: what each commitment
// covers tells what went before it.
func TestOrderOfApplication(t *testing.T) {
	machine := Existing{
		Offer: Offer{Key: "b", Kind: Reserved, Hourly: dollars(1)}, Machines: 1, Expires: start.Add(time.Hour),
	}
	plan := func(key string, discount Discount, onDemand float64) Existing {
		return Existing{
			Offer:          Offer{Key: key, Kind: SavingsPlan, Discount: discount * 10_000_000},
			DollarsPerHour: dollars(onDemand * (1 - float64(discount)/100)), Expires: start.Add(time.Hour),
		}
	}
	usage := slices.Concat(steady("a", 1, 1), steady("b", 2, 1))
	for _, tc := range []struct {
		name    string
		held    []Existing
		covered []string // by key and kind as listed
		rest    string
	}{
		{"reserved before plans", []Existing{plan("*", 50, 2), machine}, []string{"b 2.00", "* 1.00"}, "0.00"},
		{
			"the highest discount first", []Existing{plan("*", 20, 3), plan("b", 50, 2)}, []string{"b 2.00", "* 1.00"},
			"0.00",
		},
		{
			"of equal ones the narrower first", []Existing{plan("*", 50, 2), plan("a", 50, 1)},
			[]string{"a 1.00", "* 2.00"},
			"0.00",
		},
		{
			"within a plan the cheapest first", []Existing{plan("*", 50, 1), plan("b", 20, 2)},
			[]string{"* 1.00", "b 2.00"},
			"0.00",
		},
		{"a plan in part", []Existing{plan("*", 50, 1.5)}, []string{"* 1.50"}, "1.50"},
		{"what has expired is no more", []Existing{{Offer: machine.Offer, Machines: 1, Expires: start}}, nil, "3.00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, held, err := open(usage, nil, tc.held)
			if err != nil {
				t.Fatal(err)
			}
			out, err := d.replay(held, nil)
			if err != nil {
				t.Fatal(err)
			}
			var covered []string
			for i, y := range out.lines {
				covered = append(covered, held[i].offer.Key+" "+y.covered.Cents())
			}
			if !slices.Equal(covered, tc.covered) || out.rest.Cents() != tc.rest {
				t.Errorf("covered %v and left %s, want %v and %s", covered, out.rest.Cents(), tc.covered, tc.rest)
			}
		})
	}
}

// TestAmountsAddUp: what commitments cover and what is left on demand add up to the
// cost without them, to the last nano-dollar, and nothing is used beyond what is held.
func TestAmountsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt, 6)
		d, held, err := open(in.usage(), in.offer, in.held)
		if err != nil {
			rt.Fatal(err)
		}
		var bought []purchase
		for _, o := range in.offer {
			level := rapid.Int64Range(1, 5).Draw(rt, "level")
			if o.Kind == SavingsPlan {
				level = rapid.Int64Range(1, 5_000_000_000).Draw(rt, "dollars")
			}
			bought = append(bought, purchase{offer: o, level: level})
		}
		out, err := d.replay(d.lines(bought, held), nil)
		if err != nil {
			rt.Fatal(err)
		}
		if out.covered+out.rest != d.onDemand {
			rt.Fatalf("%s covered and %s left of %s", out.covered, out.rest, d.onDemand)
		}
		for _, y := range out.lines {
			if mean, lowest := y.utilization(d.hours); mean > 1 || lowest > mean+1e-12 &&
				d.hours <= money.HoursPerMonth {
				rt.Fatalf("utilization %v, lowest %v", mean, lowest)
			}
		}
	})
}

func TestPriceRoundsLikeMoney(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := money.Amount(rapid.Int64Range(0, 1<<62).Draw(t, "rate"))
		q := Quantity(rapid.Int64Range(0, int64(maxMachines*Machine)).Draw(t, "quantity"))
		got, err := cost(rate, q)
		want, wantErr := rate.Mul(int64(q), int64(Machine))
		if got != want || (err == nil) != (wantErr == nil) {
			t.Fatalf("got %d, %v, want %d, %v", got, err, want, wantErr)
		}
	})
}
