// Package costs reads the ledger for people: costs by team and category, unit costs, shares
// of machines, and bills compared with what was accrued.
package costs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
)

// ErrNoEffectiveCost is returned where a bill lacks the effective cost of a charge.
var ErrNoEffectiveCost = errors.New("no effective cost")

// Comparison compares the ledger with the imported bills.
type Comparison struct {
	Bills  bill.Store
	Ledger ledger.Store
}

// Reconcile compares the whole days of [since, until), and with post adds the differences to
// the ledger as corrections. It returns what it found before them, with coverage notes, and
// how many corrections it added. It returns [ErrNoEffectiveCost] where the basis is the
// effective cost and a bill lacks it.
func (c Comparison) Reconcile(ctx context.Context, since, until time.Time, basis Basis, post bool) (*Reconciliation, int, error) {
	parts, late, err := c.parts(ctx, since, until, basis)
	if err != nil {
		return nil, 0, err
	}
	r, posted, err := c.reconcile(ctx, parts, basis, post)
	if err != nil {
		return nil, 0, err
	}
	if len(parts) == 0 {
		r.CoverageNotes = append(r.CoverageNotes, "nothing was imported for this time: curfew bill import PATH")
	}
	if late > 0 {
		r.CoverageNotes = append(r.CoverageNotes, plain.Count(late, "row")+" billed late for days of a billing period that is not imported: not compared")
	}
	return r, posted, nil
}

// billedPart is what one account has on the bill of one period: only that can be held
// against the ledger. What no bill is about has no drift.
type billedPart struct {
	account  ledger.Account
	from, to time.Time
	days     []BilledDay
}

// parts reads the imported periods that overlap some days. A charge that another
// period bills, because it came late, belongs to the period that holds its day. Late counts
// the charges for days that are of no imported period.
func (c Comparison) parts(ctx context.Context, since, until time.Time, basis Basis) (all []billedPart, late int, err error) {
	periods, err := c.Bills.Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, 0, fmt.Errorf("read the imported periods: %w", err)
	}
	// An account may be on the bills of several payers: they are one part.
	type stretch struct {
		account  ledger.Account
		from, to time.Time
	}
	parts := map[stretch]*billedPart{}
	for r, err := range c.Bills.Rows(ctx, bill.Query{From: since, To: until}) {
		if err != nil {
			return nil, 0, fmt.Errorf("read the bill: %w", err)
		}
		from, to, ok := dayOf(periods, r)
		if !ok {
			late++
			continue
		}
		from, to = latest(since, from), earliest(until, to)
		if basis == EffectiveCost && r.Unknown.Has(bill.EffectiveCost) {
			return nil, 0, fmt.Errorf("the bill of %s has %w for %s on %s", r.Start.Format("2006-01"), ErrNoEffectiveCost, cmp.Or(r.Resource, r.Service), r.Day.Format(time.DateOnly))
		}
		d := billedDay(r)
		k := stretch{ledger.Account{Cloud: d.Cloud, ID: d.Account}, from.UTC(), to.UTC()}
		if parts[k] == nil {
			parts[k] = &billedPart{account: k.account, from: from, to: to}
		}
		parts[k].days = append(parts[k].days, d)
	}
	out := make([]billedPart, 0, len(parts))
	for _, p := range parts {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(x, y billedPart) int {
		return cmp.Or(x.from.Compare(y.from), cmp.Compare(x.account.String(), y.account.String()))
	})
	return out, late, nil
}

// dayOf returns the time of the period that holds a row's day: its own, or where that does
// not another one of the same billing account.
func dayOf(periods []bill.Period, r bill.Row) (from, to time.Time, ok bool) {
	for _, p := range periods {
		if p.Account != r.Account {
			continue
		}
		end := p.End
		if end.IsZero() {
			end = p.Start.AddDate(0, 1, 0)
		}
		if r.Day.Before(p.Start) || !r.Day.Before(end) {
			continue
		}
		if from, to, ok = p.Start, end, true; p.Start.Equal(r.Start) {
			break
		}
	}
	return from, to, ok
}

// reconcile compares the ledger with parts of bills, and with post adds the differences to
// the ledger as corrections. It returns what differed before, and how many it added.
func (c Comparison) reconcile(ctx context.Context, parts []billedPart, basis Basis, post bool) (*Reconciliation, int, error) {
	var accrued []ledger.ResourceDay
	var days []BilledDay
	var through time.Time
	for _, p := range parts {
		for _, d := range p.days {
			through = latest(through, d.Day.AddDate(0, 0, 1))
		}
	}
	for _, p := range parts {
		found, err := c.Ledger.ResourceDays(ctx, p.account, p.from, p.to)
		if err != nil {
			return nil, 0, fmt.Errorf("read what accrued in %s: %w", p.account, err)
		}
		accrued, days = append(accrued, found...), append(days, p.days...)
	}
	r, err := Reconcile(accrued, days, through, basis)
	if err != nil || !post {
		return r, 0, err
	}
	posted := 0
	for _, p := range parts {
		_, n, err := ReconcileAccount(ctx, c.Ledger, p.account, p.days, p.from, p.to, through, basis, true)
		if err != nil {
			return nil, posted, err
		}
		posted += n
	}
	return r, posted, nil
}

// categoriesOf are the ledger's categories of a bill's.
var categoriesOf = map[bill.Category]ledger.Category{
	bill.Storage: ledger.Storage, bill.Compute: ledger.Compute, bill.Egress: ledger.Network, bill.Overhead: ledger.Overhead,
}

// cloudsOf are the clouds of FOCUS's service providers.
var cloudsOf = map[string]string{"AWS": "aws", "Amazon Web Services": "aws", "Microsoft": "azure", "Microsoft Azure": "azure", "Google Cloud": "gcp", "Oracle": "oracle"}

// billedDay is a row of a bill as the ledger is held against it. Without a list cost
// nothing is known of a discount.
func billedDay(r bill.Row) BilledDay {
	if r.Unknown.Has(bill.ListCost) {
		r.Cost.List = r.Cost.Billed
	}
	return BilledDay{
		Cloud: cmp.Or(cloudsOf[r.Provider], r.Provider), Account: cmp.Or(r.SubAccount, r.Account), Region: r.Region, Resource: r.Resource, Day: r.Day, Period: r.Start,
		Service: r.Service, ChargeCategory: ledger.ChargeCategory(r.ChargeCategory), Category: categoriesOf[r.Category],
		Attributes: ledger.Attributes{Owner: r.Owner, Purpose: r.Purpose},
		Billed:     r.Cost.Billed, Effective: r.Cost.Effective, List: r.Cost.List, CommitmentStatus: r.Status, Currency: "USD",
	}
}
