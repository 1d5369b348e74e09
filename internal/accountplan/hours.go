// Package accountplan turns what curfew knows of an account into answers of planners: the
// hours of its ledger into the use that commitments cover, a scan into the machines to
// right-size and the serving fleets to plan. It imports planners, the ledger and findings,
// so that planners stay usable alone.
package accountplan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/commit"
)

// sums are the sums of a ledger's entries.
type sums interface {
	Sums(ctx context.Context, q ledger.SumQuery) ([]ledger.Sum, error)
}

// Hours returns the hours of on-demand machines in the ledger, at the price that the ledger
// charged. Idle, held and stalled time counts as idle.
func Hours(ctx context.Context, s sums, since, until time.Time) ([]commit.Usage, error) {
	all, err := s.Sums(ctx, ledger.SumQuery{By: []ledger.Dimension{ledger.ByType, ledger.ByRegion, ledger.ByDuty}, Since: since, Until: until, Granularity: ledger.Hourly,
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
	for _, sum := range all {
		if sum.Key[0] == "" || sum.Sums.Seconds <= 0 || sum.Sums.Amount <= 0 {
			continue // what is billed by the day, and what has no price
		}
		k := hour{sum.Period.UTC(), commit.PriceKey(sum.Key[0], sum.Key[1])}
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
