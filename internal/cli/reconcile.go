package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/store"
)

func (a *app) newBillReconcile() *cobra.Command {
	var f billFlags
	var post bool
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Hold what accrued against what was billed, resource by resource and day by day",
		Long: `Compares the ledger with imported bills and names the reasons of every difference. With
--post the difference is entered into the ledger as visible corrections that refer to
the billing period; nothing that was entered before is edited.`,
		Example: `  curfew bill reconcile --since 2026-10-01 --until 2026-11-01
  curfew bill reconcile --since 2026-10-01 --until 2026-11-01 --post`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", f.output, planOutputs...); err != nil {
				return err
			}
			if err := oneOf("basis", f.basis, string(bill.OnBilled), string(bill.OnEffective)); err != nil {
				return err
			}
			return a.reconcile(c.Context(), f, post)
		},
	}
	f.add(c, "month")
	c.Flags().StringVar(&f.basis, "basis", string(bill.OnBilled), "billed or effective")
	c.Flags().BoolVar(&post, "post", false, "enter the differences into the ledger")
	c.Flags().StringVarP(&f.output, "output", "o", "table", "table, json, html or md")
	return c
}

func (a *app) reconcile(ctx context.Context, f billFlags, post bool) error {
	since, until, err := f.bounds(a.Now())
	if err != nil {
		return err
	}
	day := 24 * time.Hour
	since = since.Truncate(day)
	if end := until.Truncate(day); end.Before(until) {
		until = end.Add(day)
	}
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	basis := costs.BilledCost
	if f.basis == string(bill.OnEffective) {
		basis = costs.EffectiveCost
	}
	parts, late, err := billedParts(ctx, s, since, until, basis)
	if err != nil {
		return err
	}
	r, posted, err := reconciled(ctx, s, parts, basis, post)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		r.CoverageNotes = append(r.CoverageNotes, "nothing was imported for this time: curfew bill import PATH")
	}
	if late > 0 {
		r.CoverageNotes = append(r.CoverageNotes, plain.Count(late, "row was", "rows were")+" billed late for days whose own billing period is not imported: they are not compared")
	}
	return a.show(f.output, r, func() report.Sheet {
		sheet := reconcileSheet(r)
		if post {
			sheet.Coverage = append(sheet.Coverage, plain.Count(posted, "correction was", "corrections were")+" entered into the ledger")
		}
		return sheet
	})
}

// billedPart is what one account has on the bill of one period: only that can be held
// against the ledger. What no bill is about has no drift.
type billedPart struct {
	account  ledger.Account
	from, to time.Time
	days     []costs.BilledDay
}

// billedParts reads the imported periods that overlap some days. A charge that another
// period bills, because it came late, belongs to the period that holds its day. Late counts
// the charges for days that are of no imported period.
func billedParts(ctx context.Context, s *store.Store, since, until time.Time, basis costs.Basis) (all []billedPart, late int, err error) {
	periods, err := s.Bills().Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, 0, fmt.Errorf("read the imported periods: %w", err)
	}
	// An account may be on the bills of several payers: they are one part.
	type stretch struct {
		account  ledger.Account
		from, to time.Time
	}
	parts := map[stretch]*billedPart{}
	for r, err := range s.Bills().Rows(ctx, bill.Query{From: since, To: until}) {
		if err != nil {
			return nil, 0, fmt.Errorf("read the bill: %w", err)
		}
		from, to, ok := dayOf(periods, r)
		if !ok {
			late++
			continue
		}
		from, to = latest(since, from), earliest(until, to)
		if basis == costs.EffectiveCost && r.Unknown.Has(bill.EffectiveCost) {
			return nil, 0, &failure{exit: ExitError, code: "no_effective_cost", err: fmt.Errorf("the bill of %s has no effective cost for %s on %s", r.Start.Format("2006-01"), first(r.Resource, r.Service), r.Day.Format(time.DateOnly)),
				hint: "hold it against what was billed: --basis billed"}
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

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// reconciled holds the ledger against parts of bills, and enters the differences if it
// is told to. It returns what differed before.
func reconciled(ctx context.Context, s *store.Store, parts []billedPart, basis costs.Basis, post bool) (*costs.Reconciliation, int, error) {
	var accrued []ledger.ResourceDay
	var days []costs.BilledDay
	var through time.Time
	for _, p := range parts {
		for _, d := range p.days {
			through = latest(through, d.Day.AddDate(0, 0, 1))
		}
	}
	for _, p := range parts {
		found, err := s.Ledger().ResourceDays(ctx, p.account, p.from, p.to)
		if err != nil {
			return nil, 0, fmt.Errorf("read what accrued in %s: %w", p.account, err)
		}
		accrued, days = append(accrued, found...), append(days, p.days...)
	}
	r, err := costs.Reconcile(accrued, days, through, basis)
	if err != nil || !post {
		return r, 0, err
	}
	posted := 0
	for _, p := range parts {
		_, n, err := costs.ReconcileAccount(ctx, s.Ledger(), p.account, p.days, p.from, p.to, through, basis, true)
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
func billedDay(r bill.Row) costs.BilledDay {
	if r.Unknown.Has(bill.ListCost) {
		r.Cost.List = r.Cost.Billed
	}
	return costs.BilledDay{
		Cloud: first(cloudsOf[r.Provider], r.Provider), Account: first(r.SubAccount, r.Account), Region: r.Region, Resource: r.Resource, Day: r.Day, Period: r.Start,
		Service: r.Service, ChargeCategory: ledger.ChargeCategory(r.ChargeCategory), Category: categoriesOf[r.Category],
		Attributes: ledger.Attributes{Owner: r.Owner, Purpose: r.Purpose},
		Billed:     r.Cost.Billed, Effective: r.Cost.Effective, List: r.Cost.List, CommitmentStatus: r.Status, Currency: "USD",
	}
}

// reconcilePicture draws what accrued and what was billed on each day.
func reconcilePicture(r *costs.Reconciliation) string {
	var labels []string
	accrued, billed := report.Series{Name: "accrued"}, report.Series{Name: "billed"}
	for _, d := range r.Rows { // in order of their days
		day := d.Day.Format(time.DateOnly)
		if n := len(labels); n == 0 || labels[n-1] != day {
			labels, accrued.Values, billed.Values = append(labels, day), append(accrued.Values, 0), append(billed.Values, 0)
		}
		last := len(labels) - 1
		accrued.Values[last] += float64(d.Accrued+d.Reconciled) / float64(money.USD)
		billed.Values[last] += float64(d.Billed) / float64(money.USD)
	}
	return report.Lines("Accrued and billed by day", labels, []report.Series{accrued, billed}, func(v float64) string { return "$" + plain.Number(v, 2) })
}

func reconcileSheet(r *costs.Reconciliation) report.Sheet {
	s := report.Sheet{Verb: "bill reconcile", Title: fmt.Sprintf("%s accrued, %s billed: a drift of %s", dollars(r.Accrued), dollars(r.Billed), dollars(r.Drift)),
		Picture: reconcilePicture(r), Caption: "What accrued and what was billed, day by day.",
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes,
		Figures: []report.Figure{{Label: "accrued", Value: dollars(r.Accrued), Note: "at list price"},
			{Label: "corrected before", Value: dollars(r.Reconciled)}, {Label: "billed", Value: dollars(r.Billed), Note: r.Basis}, {Label: "drift", Value: dollars(r.Drift)}}}
	g := report.Grid{Title: "why", Head: []string{"reason", "amount"}, Right: []bool{false, true}}
	for _, c := range r.Causes {
		g.Rows = append(g.Rows, []string{string(c.Reason), dollars(c.Amount)})
	}
	s.Tables = append(s.Tables, g)
	rows := slices.Clone(r.Rows)
	size := func(d costs.Drift) costs.Dollars { return max(d.Drift, -d.Drift) }
	slices.SortStableFunc(rows, func(x, y costs.Drift) int { return int(min(1, max(-1, size(y)-size(x)))) })
	g = report.Grid{Title: "the largest", Head: []string{"day", "account", "resource", "accrued", "billed", "drift", "mostly"}, Right: []bool{false, false, false, true, true, true, false}}
	for _, d := range rows[:min(len(rows), maxFlows)] {
		why := ""
		if len(d.Causes) > 0 {
			why = string(d.Causes[0].Reason)
		}
		g.Rows = append(g.Rows, []string{d.Day.Format(time.DateOnly), d.Account, first(d.Resource, d.Service), dollars(d.Accrued), dollars(d.Billed), dollars(d.Drift), why})
	}
	s.Tables = append(s.Tables, g)
	return s
}
