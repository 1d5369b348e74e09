package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// openedBooks are the ledger of the state, which is opened when the first charges come: an
// audit is shown also where there is none.
type openedBooks struct {
	open  func(ctx context.Context) (*store.Store, error)
	state *store.Store
}

// Post implements round.Books.
func (b *openedBooks) Post(ctx context.Context, seen ledger.Seen) (err error) {
	if b.state == nil {
		if b.state, err = b.open(ctx); err != nil {
			b.state = nil
			return err
		}
	}
	return ledger.Journal{Store: b.state.Ledger()}.Post(ctx, seen)
}

func (b *openedBooks) close() {
	if b.state != nil {
		b.state.Close()
	}
}

// unposted says which accounts could not be charged, and what holds all the same.
func unposted(r *round.Result, holds string) error {
	var errs []error
	for _, account := range slices.Sorted(maps.Keys(r.Unposted)) {
		errs = append(errs, fmt.Errorf("%s: %w", account, r.Unposted[account]))
	}
	return &failure{exit: ExitPartial, code: "not_recorded", err: fmt.Errorf("record the round in the ledger: %w", errors.Join(errs...)),
		hint: holds + "; the next round charges for the time where the provider tells since when a resource runs"}
}

// driftDays is how far back the bill is held against the ledger to see what is paid.
const driftDays = 14

// paidApart are reasons why a bill differs that say something about the price; where
// any other is among a day's, the day says nothing about it.
var paidApart = map[costs.Reason]bool{costs.Discounted: true, costs.Unexplained: true, costs.RoundingCents: true, costs.CoveredBy: true}

// priceDrift returns how far what was billed for a resource is off what accrued for it
// at list price; nil where no bill of late was imported.
func priceDrift(ctx context.Context, s *store.Store, now time.Time) (func(*inventory.Resource) inventory.Fact[float64], error) {
	until := now.UTC().Truncate(24 * time.Hour)
	parts, _, err := billedParts(ctx, s, until.AddDate(0, 0, -driftDays), until, costs.BilledCost)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	r, _, err := reconciled(ctx, s, parts, costs.BilledCost, false)
	if err != nil {
		return nil, err
	}
	type key struct{ account, resource string }
	accrued, billed := map[key]money.Amount{}, map[key]money.Amount{}
	for _, row := range r.Rows {
		if row.Resource == "" || row.Accrued <= 0 || row.Billed <= 0 || slices.ContainsFunc(row.Causes, func(c costs.Cause) bool { return !paidApart[c.Reason] }) {
			continue
		}
		k := key{row.Account, row.Resource}
		a, errA := accrued[k].Add(money.Amount(row.Accrued))
		b, errB := billed[k].Add(money.Amount(row.Billed))
		if err := errors.Join(errA, errB); err != nil {
			return nil, fmt.Errorf("add up what was paid for %s: %w", row.Resource, err)
		}
		accrued[k], billed[k] = a, b
	}
	return func(r *inventory.Resource) inventory.Fact[float64] {
		k := key{r.Account, costs.BillID(r.ID)}
		if drift, ok := estimate.Drift(accrued[k], billed[k]); ok {
			return inventory.Known(drift)
		}
		return inventory.Fact[float64]{}
	}, nil
}
