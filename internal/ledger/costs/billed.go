package costs

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
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// ErrNoEffectiveCost is returned if a bill lacks the effective cost of a charge.
var ErrNoEffectiveCost = errors.New("no effective cost")

// Comparison compares the ledger with the imported bills.
type Comparison struct {
	Bills  bill.Store
	Ledger ledger.Store
}

// Reconcile compares the whole days of [since, until), and with post adds the differences to the
// ledger as corrections. It returns the differences before, with coverage notes, and the number of
// corrections. It returns [ErrNoEffectiveCost] if the basis is the effective cost and a bill lacks
// it.
func (c Comparison) Reconcile(ctx context.Context, since, until time.Time, basis Basis, post bool) (*Reconciliation,
	int, error) {
	parts, late, err := c.parts(ctx, since, until, basis)
	if err != nil {
		return nil, 0, err
	}
	accounts, err := c.withdrawn(ctx, parts, since, until)
	if err != nil {
		return nil, 0, err
	}
	r, posted, err := c.reconcile(ctx, parts, accounts, basis, post)
	if err != nil {
		return nil, 0, err
	}
	if len(parts) == 0 {
		r.CoverageNotes = append(r.CoverageNotes, "nothing was imported for this time: curfew bill import PATH")
	}
	if late > 0 {
		r.CoverageNotes = append(r.CoverageNotes,
			plain.Count(late, "row")+" billed late for days of a billing period that is not imported: not compared")
	}
	notes, err := c.LateUsage(ctx, since, until)
	r.CoverageNotes = append(r.CoverageNotes, notes...)
	return r, posted, err
}

// LateUsage returns notes on bills of other months with charges for days of [since, until), and on
// bills within it with charges for days outside their period.
func (c Comparison) LateUsage(ctx context.Context, since, until time.Time) ([]string, error) {
	periods, err := c.Bills.Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("read the imported periods: %w", err)
	}
	ends := map[bill.PeriodKey]time.Time{}
	for _, p := range periods {
		ends[bill.PeriodKey{Account: p.Account, Start: p.Start.UTC()}] = p.Until()
	}
	type sum struct {
		billed money.Amount
		rows   int64
		days   [2]time.Time
	}
	within, outside := map[time.Time]*sum{}, map[time.Time]*sum{}
	add := func(to map[time.Time]*sum, r *bill.Row) error {
		s := to[r.Start.UTC()]
		if s == nil {
			s = &sum{days: [2]time.Time{r.Day, r.Day}}
			to[r.Start.UTC()] = s
		}
		s.rows, s.days = s.rows+1, [2]time.Time{earliest(s.days[0], r.Day), latest(s.days[1], r.Day)}
		var err error
		s.billed, err = s.billed.Add(r.Cost.Billed)
		return err
	}
	foreign := func(r *bill.Row) bool {
		start := r.Start.UTC().Truncate(day)
		return r.Day.Before(start) || !r.Day.Before(ends[bill.PeriodKey{Account: r.Account, Start: r.Start.UTC()}])
	}
	var starts []time.Time
	for _, p := range periods {
		if !p.Start.Before(since) && p.Start.Before(until) && !slices.ContainsFunc(starts, p.Start.Equal) {
			starts = append(starts, p.Start)
		}
	}
	queries := []struct {
		query bill.Query
		into  map[time.Time]*sum
	}{{bill.Query{From: since, To: until}, within}}
	if len(starts) > 0 {
		queries = append(queries, struct {
			query bill.Query
			into  map[time.Time]*sum
		}{bill.Query{Starts: starts}, outside})
	}
	for _, q := range queries {
		for r, err := range c.Bills.Rows(ctx, q.query) {
			if err != nil {
				return nil, fmt.Errorf("read the bill: %w", err)
			}
			inside := !r.Day.Before(since) && r.Day.Before(until)
			if foreign(&r) && inside == (len(q.query.Starts) == 0) {
				if err := add(q.into, &r); err != nil {
					return nil, fmt.Errorf("add up late usage: %w", err)
				}
			}
		}
	}
	notes := []string{}
	for _, of := range []struct {
		sums map[time.Time]*sum
		text string
	}{
		{within, "%s in %s for days of this time is on the bill of %s: usage of %s, billed late"},
		{outside, "%s in %s is not among the days shown, though on the bill of %s: usage of %s, billed late"},
	} {
		for _, start := range slices.SortedFunc(maps.Keys(of.sums), time.Time.Compare) {
			s := of.sums[start]
			days := s.days[0].Format(time.DateOnly)
			if !s.days[1].Equal(s.days[0]) {
				days += " to " + s.days[1].Format(time.DateOnly)
			}
			notes = append(notes, fmt.Sprintf(of.text,
				s.billed.Dollars(), plain.Count(s.rows, "row"), start.Format("2006-01"), days))
		}
	}
	return notes, nil
}

// billedPart is one account on the bill of one period, the unit of comparison. Charges without a
// bill have no variance.
type billedPart struct {
	account  ledger.Account
	from, to time.Time
	days     []BilledDay
}

// parts reads the imported periods that overlap some days. A late charge on the bill of another
// period belongs to the period of its day. late counts the charges for days of no imported period.
func (c Comparison) parts(ctx context.Context, since, until time.Time, basis Basis) (all []billedPart, late int,
	err error) {
	periods, err := c.Bills.Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, 0, fmt.Errorf("read the imported periods: %w", err)
	}
	// An account may be on the bills of several payers; they form one part.
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
			return nil, 0, fmt.Errorf("the bill of %s has %w for %s on %s",
				r.Start.Format("2006-01"), ErrNoEffectiveCost,
				cmp.Or(r.Resource, r.Service), r.Day.Format(time.DateOnly))
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

// dayOf returns the days of the period that contains a row's day: the row's own period, or else
// another one of the same billing account. A period that begins within a day, as for Google Cloud,
// contains that day, and the previous period does not.
func dayOf(periods []bill.Period, r bill.Row) (from, to time.Time, ok bool) {
	for _, p := range periods {
		start, end := p.Start.UTC().Truncate(day), p.Until().UTC().Truncate(day)
		if p.Account != r.Account || r.Day.Before(start) || !r.Day.Before(end) {
			continue
		}
		if from, to, ok = start, end, true; p.Start.Equal(r.Start) {
			break
		}
	}
	return from, to, ok
}

// withdrawal is an account with reconciled days that no imported bill covers any more.
type withdrawal struct {
	account ledger.Account
	read    func(context.Context) ([]ledger.ResourceDay, error)
	days    []ledger.ResourceDay
}

// withdrawn finds the days of [since, until) that were reconciled with a bill that was removed
// since. Their corrections are void, and the accrued cost counts again.
func (c Comparison) withdrawn(ctx context.Context, parts []billedPart, since, until time.Time) ([]withdrawal, error) {
	accounts, err := c.Ledger.Accounts(ctx)
	if err != nil {
		return nil, fmt.Errorf("read what is recorded: %w", err)
	}
	var out []withdrawal
	for _, a := range accounts {
		read := func(ctx context.Context) ([]ledger.ResourceDay, error) {
			all, err := c.Ledger.ResourceDays(ctx, a, since, until)
			if err != nil {
				return nil, fmt.Errorf("read what accrued in %s: %w", a, err)
			}
			var days []ledger.ResourceDay
			for _, d := range all {
				held := slices.ContainsFunc(parts, func(p billedPart) bool {
					return p.account == a && !d.Day.Before(p.from.UTC().Truncate(day)) && d.Day.Before(p.to)
				})
				if d.Reconciled != 0 && !held {
					d.Accrued, d.Unknown, d.UnpricedSeconds = 0, ledger.Sums{}, 0
					days = append(days, d)
				}
			}
			return days, nil
		}
		days, err := read(ctx)
		if err != nil {
			return nil, err
		}
		if len(days) > 0 {
			out = append(out, withdrawal{a, read, days})
		}
	}
	return out, nil
}

// reconcile compares the ledger with parts of bills, and with post adds the differences to the
// ledger as corrections. It returns the differences before, and the number of corrections.
func (c Comparison) reconcile(ctx context.Context, parts []billedPart, gone []withdrawal, basis Basis, post bool,
) (*Reconciliation, int, error) {
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
	for _, w := range gone {
		accrued = append(accrued, w.days...)
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
	for _, w := range gone {
		_, n, err := reconcileDays(ctx, c.Ledger, w.account, w.read, nil, time.Time{}, basis, true)
		if err != nil {
			return nil, posted, err
		}
		posted += n
	}
	return r, posted, nil
}

// cloudsOf maps FOCUS's service providers, in lower case, to clouds.
var cloudsOf = map[string]string{
	"aws": "aws", "amazon web services": "aws", "microsoft": "azure",
	"microsoft azure": "azure", "google cloud": "gcp",
	"oracle": "oracle",
}

// billedDay converts a row of a bill for comparison. Without a list cost its discount is unknown.
func billedDay(r bill.Row) BilledDay {
	if r.Unknown.Has(bill.ListCost) {
		r.Cost.List = r.Cost.Billed
	}
	return BilledDay{
		Cloud: cmp.Or(cloudsOf[strings.ToLower(r.Provider)], r.Provider), Account: cmp.Or(r.SubAccount, r.Account),
		Region:   r.Region,
		Resource: r.Resource, Day: r.Day, Period: r.Start,
		Service: r.Service, ChargeCategory: ledger.ChargeCategory(r.ChargeCategory),
		Pricing: ledger.Pricing(r.PricingCategory), Category: ledger.Category(r.Category),
		Attributes: ledger.Attributes{Type: r.Type, Owner: r.Owner, Purpose: r.Purpose},
		Billed:     r.Cost.Billed, Effective: r.Cost.Effective, List: r.Cost.List,
		CommitmentStatus: r.Status, Unused: r.Unused(), Currency: "USD",
	}
}
