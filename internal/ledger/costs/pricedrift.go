package costs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// driftDays is the number of days over which bills are compared with the ledger to find the paid
// prices.
const driftDays = 14

// priceReasons are the reasons for a variance that concern the price. A day with any other reason is
// no evidence of the price.
var priceReasons = map[Reason]bool{Discounted: true, Unexplained: true, RoundingCents: true, CoveredBy: true}

// PriceDrift returns the variance between the billed and the accrued price of a resource as a share
// of the accrued one: 0.1 is 10% above list price. It is nil if no bill of the last 14 days is
// imported.
func (c Comparison) PriceDrift(ctx context.Context, now time.Time) (func(*inventory.Resource) inventory.Fact[float64],
	error) {
	until := now.UTC().Truncate(24 * time.Hour)
	parts, _, err := c.parts(ctx, until.AddDate(0, 0, -driftDays), until, BilledCost)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	r, _, err := c.reconcile(ctx, parts, nil, BilledCost, false)
	if err != nil {
		return nil, err
	}
	type key struct{ account, resource string }
	accrued, billed := map[key]money.Amount{}, map[key]money.Amount{}
	for _, row := range r.Rows {
		if row.Resource == "" || row.Accrued <= 0 || row.Billed <= 0 ||
			slices.ContainsFunc(row.Causes, func(cause Cause) bool { return !priceReasons[cause.Reason] }) {
			continue
		}
		k := key{row.Account, row.Resource}
		a, errA := accrued[k].Add(row.Accrued)
		b, errB := billed[k].Add(row.Billed)
		if err := errors.Join(errA, errB); err != nil {
			return nil, fmt.Errorf("add up what was paid for %s: %w", row.Resource, err)
		}
		accrued[k], billed[k] = a, b
	}
	return func(r *inventory.Resource) inventory.Fact[float64] {
		k := key{r.Account, BillID(r.ID)}
		if share, ok := drift(accrued[k], billed[k]); ok {
			return inventory.Known(share)
		}
		return inventory.Fact[float64]{}
	}, nil
}

// drift returns the ratio of the paid to the catalog rate, less 1, and whether both are known; an
// amount that is not positive is unknown.
func drift(catalog, paid money.Amount) (float64, bool) {
	if catalog <= 0 || paid <= 0 {
		return 0, false
	}
	return money.Ratio(paid, catalog) - 1, true
}
