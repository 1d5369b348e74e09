package commit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// ErrNoOffers means that the price book has no commitment for any machine type in use.
var ErrNoOffers = errors.New("the price book has no commitment")

// PriceKey returns the key of machines with the same price: a machine type in a region.
func PriceKey(machineType, region string) string { return machineType + "/" + region }

// BookOffers returns the price book's commitments for the types in use, with notes on their
// sources, or [ErrNoOffers]. Types of one family in a region also get an EC2 Instance Savings Plan,
// which AWS prices like standard reserved instances of the same term and payment.
func BookOffers(book *price.Book, use []Usage) (offers []Offer, notes []string, err error) {
	rates := map[string]money.Amount{}
	for _, u := range use {
		rates[u.Key] = u.OnDemand // the newest
	}
	type plan struct {
		pattern string
		term    int64
		payment Payment
	}
	least, types, sources := map[plan]float64{}, map[plan]int{}, map[string]bool{}
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(rates)) {
		machineType, region, _ := strings.Cut(key, "/")
		all := book.Commitments(price.AWS, machineType, region)
		if len(all) == 0 {
			missing = append(missing, key)
		}
		for _, c := range all {
			o := Offer{Key: key, Kind: Reserved, TermMonths: c.TermMonths, Payment: Payment(c.Payment)}
			hourly, err := c.Hourly.Times(1)
			if err != nil {
				return nil, nil, fmt.Errorf("price a commitment to %s: %w", key, err)
			}
			switch o.Payment {
			case NoUpfront:
				o.Hourly = hourly
			case AllUpfront:
				o.Upfront, err = c.Hourly.Times(c.TermMonths * money.HoursPerMonth)
			default:
				o.Hourly = hourly / 2
				o.Upfront, err = (hourly - o.Hourly).Mul(c.TermMonths*money.HoursPerMonth, 1)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("price a commitment to %s: %w", key, err)
			}
			offers = append(offers, o)
			sources[fmt.Sprintf("%s, %s", c.Source, c.AsOf.Format(time.DateOnly))] = true
			family, _, _ := strings.Cut(machineType, ".")
			p := plan{PriceKey(family+".*", region), c.TermMonths, o.Payment}
			discount := 1 - money.Ratio(hourly, rates[key])
			if n := types[p]; n == 0 || discount < least[p] {
				least[p] = discount
			}
			types[p]++
		}
	}
	for p, discount := range least {
		if types[p] > 1 && discount > 0 && discount < 1 {
			offers = append(offers, Offer{
				Key: p.pattern, Kind: SavingsPlan, TermMonths: p.term, Payment: p.payment,
				Discount: Discount(discount * 1e9),
			})
		}
	}
	slices.SortFunc(offers, func(x, y Offer) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Key, y.Key), cmp.Compare(x.TermMonths, y.TermMonths))
	})
	for _, s := range slices.Sorted(maps.Keys(sources)) {
		notes = append(notes, "prices of commitments: "+s)
	}
	if len(missing) > 0 {
		notes = append(notes, "the price book has no commitment for "+strings.Join(missing, ", ")+
			": give prices with --offers FILE")
	}
	if len(offers) == 0 {
		return nil, nil, fmt.Errorf("plan commitments: %w for %s", ErrNoOffers, strings.Join(missing, ", "))
	}
	return offers, notes, nil
}

// Assumed yearly rates at which work leaves a machine type, by years since its release. They are
// shown with each commitment; --leave-rate overrides them.
const (
	leaveRateNew    = 0.1  // up to 2 years
	leaveRateMiddle = 0.35 // up to 6 years
	leavesOld       = 1.0
	leavesUnknown   = 0.25
)

// LeavingByAge estimates the leave rate of a key's machine type from the years since its release.
func LeavingByAge(book *price.Book, now time.Time) func(key string) Leaving {
	return func(key string) Leaving {
		machineType, _, _ := strings.Cut(key, "/")
		m, ok := book.Machine(machineType)
		if !ok || m.ReleaseYear == 0 {
			return Leaving{PerYear: leavesUnknown, Why: "assumed: release year unknown"}
		}
		age, rate := now.Year()-m.ReleaseYear, leavesOld
		switch {
		case age <= 2:
			rate = leaveRateNew
		case age <= 6:
			rate = leaveRateMiddle
		}
		return Leaving{PerYear: rate, Why: fmt.Sprintf("assumed: type released in %d", m.ReleaseYear)}
	}
}
