package costs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/ledger"
)

// SpentOrBilled answers a query like [Spent], but uses imported bills for billing periods without a
// recorded day. A period is never taken from both: a posted bill is in the ledger, and a bill may
// charge a month on its first day. Charges are the effective cost if every bill has it, else the
// billed cost. A note names the months.
func SpentOrBilled(ctx context.Context, s ledger.Store, bills bill.Store, q Query) (*Costs, error) {
	q.Since, q.Until = q.Since.UTC(), q.Until.UTC()
	q.Days = true
	recorded, err := Spent(ctx, s, q)
	if err != nil {
		return nil, err
	}
	periods, err := bills.Periods(ctx, time.Time{}, q.Until)
	if err != nil {
		return nil, fmt.Errorf("read what was imported: %w", err)
	}
	b := billed{basis: bill.OnEffective, days: map[time.Time]bool{}}
	for _, p := range periods {
		days, err := b.missing(ctx, bills, q, p, recorded.Days)
		if err != nil {
			return nil, err
		}
		if len(days) > 0 {
			b.starts = append(b.starts, p.Start)
			for _, d := range days {
				b.days[d] = true
			}
			if p.NoEffective > 0 {
				b.basis = bill.OnBilled
			}
		}
	}
	if len(b.starts) == 0 {
		return recorded, nil
	}
	return b.costs(ctx, s, bills, q, recorded)
}

// billed holds the charges of imported bills in a period.
type billed struct {
	basis  bill.Basis
	starts []time.Time        // of billing periods
	days   map[time.Time]bool // of billing periods, within the query
}

// missing returns the days of a billing period within a query, from its first charge on; none if
// the ledger has recorded any of them. Days after the import are not billed.
func (b *billed) missing(ctx context.Context, bills bill.Store, q Query, p bill.Period,
	recorded map[time.Time]bool) ([]time.Time, error) {
	first := p.Until()
	for r, err := range bills.Rows(ctx, bill.Query{Starts: []time.Time{p.Start}, Accounts: []string{p.Account}}) {
		if err != nil {
			return nil, fmt.Errorf("read the bill: %w", err)
		}
		first = r.Day // rows are sorted by day
		break
	}
	var days []time.Time
	until := earliest(earliest(p.Until(), q.Until), p.ImportedAt)
	for d := latest(first, q.Since).UTC().Truncate(day); d.Before(until); d = d.Add(day) {
		if recorded[d] {
			return nil, nil
		}
		days = append(days, d)
	}
	return days, nil
}

// costs merges the bills' charges on their days with the ledger's on the others.
func (b *billed) costs(ctx context.Context, s ledger.Store, bills bill.Store, q Query, recorded *Costs) (*Costs,
	error) {
	by := withFolded(q.By)
	sums, err := b.charges(ctx, s, bills, q, by)
	if err != nil {
		return nil, err
	}
	if len(sums) == 0 {
		return recorded, nil
	}
	billsAlone := true
	for from := q.Since; from.Before(q.Until); {
		to := from // the start of the days that are not billed
		for to.Before(q.Until) && !b.days[to.Truncate(day)] {
			to = earliest(to.Truncate(day).Add(day), q.Until)
		}
		if to.After(from) {
			some, err := s.Sums(ctx, ledger.SumQuery{
				By: by, Since: from, Until: to, Granularity: q.Granularity, Filter: q.Filter,
			})
			if err != nil {
				return nil, fmt.Errorf("read what was spent: %w", err)
			}
			billsAlone = billsAlone && len(some) == 0
			for _, sum := range some {
				sum.Period = q.Granularity.Start(sum.Period, q.Since)
				sums = append(sums, sum)
			}
		}
		for from = to; from.Before(q.Until) && b.days[from.Truncate(day)]; {
			from = earliest(from.Truncate(day).Add(day), q.Until)
		}
	}
	c, err := fold(q, by, sums)
	if err != nil {
		return nil, err
	}
	c.Recorded, c.Days = true, maps.Clone(recorded.Days)
	maps.Copy(c.Days, b.days)
	if billsAlone {
		c.Assumptions = nil // the ledger's assumptions do not apply
	}
	var months []string
	for _, start := range b.starts {
		months = append(months, start.UTC().Format("2006-01"))
	}
	slices.Sort(months)
	c.Assumptions = append(c.Assumptions,
		fmt.Sprintf("dollars of %s are the %s cost of imported bills: the ledger does "+
			"not record every day of them", strings.Join(slices.Compact(months), ", "), b.basis))
	return c, nil
}

// charges returns the rows of the bills as sums.
func (b *billed) charges(ctx context.Context, s ledger.Store, bills bill.Store, q Query, by []ledger.Dimension) (
	[]ledger.Sum, error) {
	var broken error
	rows := bill.RowsOf(ctx, bills, bill.Query{From: q.Since.Truncate(day), To: q.Until, Starts: b.starts}, &broken)
	attribution, _, err := NewAttribution(ctx, s, rows, q.Since, q.Until)
	if err = errors.Join(err, broken); err != nil {
		return nil, fmt.Errorf("read the bill: %w", err)
	}
	type group struct {
		period time.Time
		key    string
	}
	sums := map[group]*ledger.Sum{}
	for line, r := range attribution.Rows(rows, &broken) {
		if !q.Filter.Matches(&line) {
			continue
		}
		key := make([]string, len(by))
		for i, d := range by {
			key[i] = line.Value(d)
		}
		g := group{q.Granularity.Start(r.Day, q.Since), strings.Join(key, "\x00")}
		if sums[g] == nil {
			sums[g] = &ledger.Sum{Period: g.period, Key: key}
		}
		amount := r.Cost.Effective
		if b.basis == bill.OnBilled {
			amount = r.Cost.Billed
		}
		if sums[g].Sums.Amount, err = sums[g].Sums.Amount.Add(amount); err != nil {
			return nil, fmt.Errorf("add up the bill: %w", err)
		}
	}
	if broken != nil {
		return nil, fmt.Errorf("read the bill: %w", broken)
	}
	out := make([]ledger.Sum, 0, len(sums))
	for _, sum := range sums {
		out = append(out, *sum)
	}
	return out, nil
}
