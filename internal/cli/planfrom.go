package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/store"
)

// commitKey is what is priced alike: a machine type in a region.
func commitKey(machineType, region string) string { return machineType + "/" + region }

// ledgerHours are the hours of machines on demand that the ledger recorded, the idle ones
// among them apart, at the price that it charged.
func ledgerHours(ctx context.Context, s *store.Store, since, until time.Time) ([]commit.Usage, error) {
	sums, err := s.Ledger().Sums(ctx, ledger.SumQuery{By: []ledger.Dimension{ledger.ByType, ledger.ByRegion, ledger.ByDuty}, Since: since, Until: until, Granularity: ledger.Hourly,
		Filter: ledger.Filter{{By: ledger.ByCategory, Values: []string{string(ledger.Compute)}}, {By: ledger.ByPricing, Values: []string{string(ledger.Standard)}},
			{By: ledger.ByKind, Values: []string{string(inventory.KindInstance)}}}})
	if err != nil {
		return nil, fmt.Errorf("read the hours of machines: %w", err)
	}
	type hour struct {
		at  time.Time
		key string
	}
	type use struct {
		seconds, idle int64
		amount        money.Amount
	}
	hours := map[hour]*use{}
	for _, sum := range sums {
		if sum.Key[0] == "" || sum.Sums.Seconds <= 0 || sum.Sums.Amount <= 0 {
			continue // what is billed by the day, and what has no price
		}
		k := hour{sum.Period.UTC(), commitKey(sum.Key[0], sum.Key[1])}
		u := hours[k]
		if u == nil {
			u = &use{}
			hours[k] = u
		}
		u.seconds += sum.Sums.Seconds
		if state := duty.State(sum.Key[2]); state == duty.Idle || state == duty.Held || state == duty.Stalled {
			u.idle += sum.Sums.Seconds
		}
		if u.amount, err = u.amount.Add(sum.Sums.Amount); err != nil {
			return nil, fmt.Errorf("add up the hours of %s: %w", k.key, err)
		}
	}
	out := make([]commit.Usage, 0, len(hours))
	for k, u := range hours {
		rate, err := u.amount.Mul(3600, u.seconds)
		if err != nil {
			return nil, fmt.Errorf("price the hours of %s: %w", k.key, err)
		}
		out = append(out, commit.Usage{Hour: k.at, Key: k.key, Quantity: commit.Quantity(u.seconds * int64(commit.Machine) / 3600),
			Idle: commit.Quantity(u.idle * int64(commit.Machine) / 3600), OnDemand: rate})
	}
	slices.SortFunc(out, func(x, y commit.Usage) int { return cmp.Or(x.Hour.Compare(y.Hour), cmp.Compare(x.Key, y.Key)) })
	return out, nil
}

// billHours are the dollars of compute on demand of imported bills, by region. A bill here
// is by day: each hour of a day has a twenty-fourth of it, and a machine is a dollar an hour.
func billHours(ctx context.Context, s *store.Store, since, until time.Time) ([]commit.Usage, error) {
	var broken error
	days := map[time.Time]map[string]money.Amount{}
	for r := range rowsOf(ctx, s.Bills(), bill.Query{From: since, To: until, Categories: []bill.Category{bill.Compute}}, &broken) {
		if r.ChargeCategory != bill.Usage || r.Commitment != "" || r.PricingCategory != bill.Standard && r.PricingCategory != "" {
			continue
		}
		day := days[r.Day]
		if day == nil {
			day = map[string]money.Amount{}
			days[r.Day] = day
		}
		key := commitKey("compute", r.Region)
		sum, err := day[key].Add(r.Cost.Billed)
		if err != nil {
			return nil, fmt.Errorf("add up the bill of %s: %w", r.Day.Format(time.DateOnly), err)
		}
		day[key] = sum
	}
	if broken != nil {
		return nil, fmt.Errorf("read the bill: %w", broken)
	}
	var out []commit.Usage
	for _, day := range slices.SortedFunc(maps.Keys(days), time.Time.Compare) {
		for _, key := range slices.Sorted(maps.Keys(days[day])) {
			billed := days[day][key]
			if billed < 0 {
				continue // credits
			}
			for h := range 24 {
				out = append(out, commit.Usage{Hour: day.Add(time.Duration(h) * time.Hour), Key: key, OnDemand: money.USD,
					Quantity: commit.Quantity(int64(billed) / 24 / (int64(money.USD) / int64(commit.Machine)))})
			}
		}
	}
	return out, nil
}

// recordedHours reads what --from names.
func (a *app) recordedHours(ctx context.Context, cfg config.Config, f commitFlags) ([]commit.Usage, []string, error) {
	since, until, err := f.bounds(a.Now())
	if err != nil {
		return nil, nil, err
	}
	if until.After(a.Now()) {
		until = until.Add(-time.Hour) // the hour that runs is not over
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	read, notes, empty := ledgerHours, []string{"the hours are those of curfew's ledger: machines on demand, at the list price of the hour; hours that no pass saw count as no use"},
		"the ledger has no hour of a machine on demand from %s to %s; passes of curfew scan fill it"
	if f.from == "bill" {
		read, notes, empty = billHours, []string{"imported bills are kept by day: each hour has a twenty-fourth of its day, and one machine stands for one dollar an hour on demand"},
			"no imported bill has compute on demand from %s to %s; import one: curfew bill import PATH"
	}
	use, err := read(ctx, s, since, until)
	if err == nil && len(use) == 0 {
		err = &failure{exit: ExitError, code: "no_usage", err: fmt.Errorf("plan commitments: "+empty, since.Format(time.DateOnly), until.Format(time.DateOnly))}
	}
	return use, notes, err
}

// bookOffers are the commitments that the price book knows for what is used. Types of one
// family in a region have an EC2 Instance Savings Plan too, which AWS prices as standard
// reserved instances of the same term and payment.
func bookOffers(book *price.Book, use []commit.Usage) (offers []commit.Offer, notes []string, err error) {
	rates := map[string]money.Amount{}
	for _, u := range use {
		rates[u.Key] = u.OnDemand // the newest
	}
	type plan struct {
		pattern string
		term    int64
		payment commit.Payment
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
			o := commit.Offer{Key: key, Kind: commit.Reserved, TermMonths: c.TermMonths, Payment: commit.Payment(c.Payment)}
			hourly, err := c.Hourly.Times(1)
			if err != nil {
				return nil, nil, fmt.Errorf("price a commitment to %s: %w", key, err)
			}
			switch o.Payment {
			case commit.NoUpfront:
				o.Hourly = hourly
			case commit.AllUpfront:
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
			p := plan{commitKey(family+".*", region), c.TermMonths, o.Payment}
			discount := 1 - money.Ratio(hourly, rates[key])
			if n := types[p]; n == 0 || discount < least[p] {
				least[p] = discount
			}
			types[p]++
		}
	}
	for p, discount := range least {
		if types[p] > 1 && discount > 0 && discount < 1 {
			offers = append(offers, commit.Offer{Key: p.pattern, Kind: commit.SavingsPlan, TermMonths: p.term, Payment: p.payment, Discount: commit.Discount(discount * 1e9)})
		}
	}
	slices.SortFunc(offers, func(x, y commit.Offer) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Key, y.Key), cmp.Compare(x.TermMonths, y.TermMonths))
	})
	for _, s := range slices.Sorted(maps.Keys(sources)) {
		notes = append(notes, "prices of commitments: "+s)
	}
	if len(missing) > 0 {
		notes = append(notes, "the price book has no commitment for "+strings.Join(missing, ", ")+": --offers FILE gives prices")
	}
	if len(offers) == 0 {
		return nil, nil, &failure{exit: ExitError, code: "no_offers", err: errors.New("plan commitments: the price book has no commitment for " + strings.Join(missing, ", ")), hint: "give --offers FILE"}
	}
	return offers, notes, nil
}

// Rates a year at which work leaves a machine type, by the years since its release. They
// are assumptions, shown with each commitment; --leave-rate takes their place.
const (
	leavesNew     = 0.1  // up to 2 years
	leavesMiddle  = 0.35 // up to 6 years
	leavesOld     = 1.0
	leavesUnknown = 0.25
)

// leaving says how likely work is to leave the types of keys.
func leaving(book *price.Book, now time.Time, given *float64) func(key string) commit.Leaving {
	return func(key string) commit.Leaving {
		if given != nil {
			return commit.Leaving{PerYear: *given, Why: "--leave-rate"}
		}
		machineType, _, _ := strings.Cut(key, "/")
		m, ok := book.Machine(machineType)
		if !ok || m.ReleaseYear == 0 {
			return commit.Leaving{PerYear: leavesUnknown, Why: "assumed: its release is unknown"}
		}
		age, rate := now.Year()-m.ReleaseYear, leavesOld
		switch {
		case age <= 2:
			rate = leavesNew
		case age <= 6:
			rate = leavesMiddle
		}
		return commit.Leaving{PerYear: rate, Why: fmt.Sprintf("assumed: released %d", m.ReleaseYear)}
	}
}
