package costs

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// ComputeSplit says what the machines of a bill did, by the ledger, and whether the bill has
// any row.
func ComputeSplit(ctx context.Context, s ledger.Store, rows iter.Seq[bill.Row], since, until time.Time) (bill.Split, bool, error) {
	type machine struct {
		account, id string
		day         time.Time
	}
	type sums struct{ idle, active, unmeasured money.Amount }
	accounts, found := map[ledger.Account]bool{}, false
	for r := range rows {
		d := billedDay(r)
		accounts[ledger.Account{Cloud: d.Cloud, ID: d.Account}], found = true, true
	}
	did := map[machine]sums{}
	for a := range accounts {
		days, err := s.ResourceDays(ctx, a, since, until)
		if err != nil {
			return nil, found, fmt.Errorf("read what accrued in %s: %w", a, err)
		}
		for _, d := range days {
			if d.Category != ledger.Compute || d.Accrued <= 0 {
				continue
			}
			k := machine{a.String(), BillID(d.Ref.ID), d.Day.UTC()}
			m := did[k]
			sum := &m.idle
			switch state := duty.State(d.Duty); {
			case state.Used():
				sum = &m.active
			case state == duty.Unknown || state == "":
				sum = &m.unmeasured
			}
			if *sum, err = sum.Add(d.Accrued); err != nil {
				return nil, found, fmt.Errorf("add up what accrued for %s: %w", d.Ref.ID, err)
			}
			did[k] = m
		}
	}
	return func(r *bill.Row) (idle, active, unmeasured money.Amount) {
		d := billedDay(*r)
		m := did[machine{ledger.Account{Cloud: d.Cloud, ID: d.Account}.String(), BillID(d.Resource), d.Day.UTC()}]
		return m.idle, m.active, m.unmeasured
	}, found, nil
}
