package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Bill shows a bill and the effect of importing it; dry reports that it was not imported.
func Bill(d view.Bill, dry bool) layout.Sheet {
	what := "imported"
	if dry {
		what = "read, not imported (dry run)"
	}
	s := layout.Sheet{
		Verb: "bill import", Title: fmt.Sprintf("%s billed: %s of %s %s", money.ForPeople(d.BilledCost),
			plain.Count(d.Rows, "row"), d.Source, what),
		Coverage: slices.Clone(d.Notes), Figures: []layout.Figure{{Label: "format", Value: d.Written}}}
	for _, f := range []struct {
		label string
		value *string
	}{{"effective cost", d.EffectiveCost}, {"list cost", d.ListCost}, {"contracted cost", d.ContractedCost}} {
		value := "not in the bill"
		if f.value != nil {
			value = money.ForPeople(*f.value)
		}
		s.Figures = append(s.Figures, layout.Figure{Label: f.label, Value: value})
	}
	g := layout.Grid{
		Head:  []string{"period", "account", "rows", "billed", "change"},
		Right: []bool{false, false, true, true, false},
	}
	for _, p := range d.Periods {
		for _, account := range p.Accounts {
			g.Rows = append(g.Rows, []string{
				plain.Month(p.Start), account.Account, money.Thousands(account.Rows),
				money.ForPeople(account.BilledCost),
				string(account.Change),
			})
		}
	}
	for _, r := range d.Removed {
		g.Rows = append(g.Rows, []string{r, "", "", "", string(bill.Removed)})
	}
	s.Tables = []layout.Grid{g}
	if len(d.MissingColumns) > 0 {
		s.Coverage = append(s.Coverage, fmt.Sprintf("columns missing from the bill: %v", d.MissingColumns))
	}
	if !dry && len(d.Periods) > 0 {
		s.Commands = []string{
			"curfew bill show --since " + plain.Date(d.Periods[0].Start),
			"curfew bill reconcile --since " + plain.Date(d.Periods[0].Start),
		}
	}
	return s
}

// maxFlows bounds the rows of transfers or differences in tables.
const maxFlows = 15

// gigabytes formats an amount of data of a bill; empty if unknown.
func gigabytes(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	if n := float64(bytes) / 1e9; n >= 0.05 {
		return plain.Number(n, 1)
	}
	return "<0.1"
}

// basisNames are the titles of the bases.
var basisNames = map[string]string{string(bill.OnBilled): "billed", string(bill.OnEffective): "effective cost"}

// onBasis returns the cost and share of a category on a basis; nil if unknown.
func onBasis(p *bill.Slice, basis string) (amount *money.Amount, share *float64) {
	if basis == string(bill.OnEffective) {
		return p.Effective, p.EffectiveShare
	}
	return p.Billed, p.Share
}

// categoriesPicture draws each category's share with the usual share.
func categoriesPicture(parts []bill.Slice, basis string) string {
	b := chart.Bars{
		Title: "The " + basis + " cost by category, as a share of the bill",
		Axis:  chart.Axis{Label: "share of the bill", Format: chart.Percent}, Band: "usual share",
	}
	for _, p := range parts {
		amount, share := onBasis(&p, basis)
		if amount == nil || *amount == 0 && p.UsualHigh == 0 {
			continue
		}
		b.Rows = append(b.Rows, chart.Bar{
			Label: string(p.Category), Value: *share, BandFrom: float64(p.UsualLow) / 100,
			BandTo: float64(p.UsualHigh) / 100,
			Note:   plain.Share(*share, 0) + ", " + amount.Dollars()})
	}
	return b.SVG()
}

// BillShow shows the bill by category and by owner, data transfer and commitments.
func BillShow(b view.BillShow, by, basis string) layout.Sheet {
	s := layout.Sheet{Verb: "bill show", Coverage: slices.Clone(b.CoverageNotes),
		Title: fmt.Sprintf("%s %s from %s to %s", b.Allocation.Total.Dollars(), basisNames[basis], plain.Date(b.Since),
			plain.Date(b.Until)),
		Picture: categoriesPicture(b.ByDuty, basis),
		Caption: "The " + basis + " cost by category; the outlined band is the usual share."}
	g := layout.Grid{
		Title: "by category, " + basis + " cost", Head: []string{"category", basis, "share", "usual"},
		Right: []bool{false, true, true, true},
	}
	var idle *money.Amount
	for _, p := range b.ByDuty {
		usual, cost, share := "", "unknown", ""
		amount, part := onBasis(&p, basis)
		if p.Category == bill.Idle {
			idle = amount
		}
		if amount != nil {
			cost, share = amount.Dollars(), plain.Share(*part, 0)
		}
		if p.UsualHigh > 0 {
			usual = fmt.Sprintf("%d–%d%%", p.UsualLow, p.UsualHigh)
		}
		if amount == nil || *amount != 0 || p.UsualHigh > 0 {
			g.Rows = append(g.Rows, []string{string(p.Category), cost, share, usual})
		}
		switch {
		case p.Reason != "" && p.Category == bill.Idle:
			s.Coverage = append(s.Coverage,
				"idle and active compute are unknown: "+p.Reason+"; `curfew scan` measures it")
		case p.Reason != "" && idle != nil && p.Category == bill.Active:
			s.Coverage = append(s.Coverage, "idle is what the bill itself says was unused: "+p.Reason+
				"; `curfew scan` measures it")
		}
	}
	if i := slices.IndexFunc(b.ByDuty, func(p bill.Slice) bool { return p.ByBill != nil }); i >= 0 {
		amount := b.ByDuty[i].ByBill
		if basis == string(bill.OnEffective) {
			amount = b.ByDuty[i].ByBillEffective
		}
		s.Figures = append(s.Figures, layout.Figure{
			Label: "reserved and not used", Value: amount.Dollars(),
			Note: "by the bill itself: idle, whatever was measured",
		})
	}
	s.Tables = append(s.Tables, g, allocationGrid(b.Allocation, by, basis))
	if len(b.Egress) > 0 {
		s.Tables = append(s.Tables, egressGrid(b.Egress))
	}
	if len(b.Commitments.Commitments) > 0 {
		g = layout.Grid{
			Title: "commitments: billed when bought, effective cost of use",
			Head:  []string{"commitment", "bought", "used", "unused"}, Right: []bool{false, true, true, true},
		}
		for _, c := range b.Commitments.Commitments {
			g.Rows = append(g.Rows, []string{c.ID, c.Purchased.Dollars(), c.Used.Dollars(), c.Unused.Dollars()})
		}
		s.Tables = append(s.Tables, g)
	}
	if len(b.Commitments.OnDemand) > 0 {
		var sum money.Amount
		for _, o := range b.Commitments.OnDemand {
			sum += o.Billed // of one bill, so it cannot overflow
		}
		note := "billed cost"
		if b.Commitments.Missed > 0 {
			note += "; unused commitments could have covered at most " + b.Commitments.Missed.Dollars() + " of it"
		}
		s.Figures = append(s.Figures, layout.Figure{Label: "on-demand compute", Value: sum.Dollars(), Note: note})
	}
	for _, r := range b.Allocation.Shared {
		note := fmt.Sprintf("rule %s shares %s", r.Rule, r.Amount.Dollars())
		if r.Reason != "" {
			note = fmt.Sprintf("rule %s leaves %s unallocated: %s", r.Rule, r.Amount.Dollars(), r.Reason)
		}
		s.Coverage = append(s.Coverage, note)
	}
	if n := b.Allocation.Unknown; n > 0 {
		s.Coverage = append(s.Coverage, plain.Count(n, "row")+" without "+basis+" cost, not in the allocation")
	}
	return s
}

// allocationGrid shows the bill divided among owners.
func allocationGrid(a *bill.Allocation, by, basis string) layout.Grid {
	g := layout.Grid{
		Title: "by " + by + ", " + basis + " cost", Head: []string{by, "total", "direct", "shared"},
		Right: []bool{false, true, true, true},
	}
	for _, p := range a.Parties {
		g.Rows = append(g.Rows, []string{p.Name, p.Total.Dollars(), p.Direct.Dollars(), p.Shared.Dollars()})
	}
	g.Rows = append(g.Rows, []string{
		ledger.Dimension(strings.ReplaceAll(by, "_", "-")).Label(""), a.Unattributed.Dollars(),
		a.Unattributed.Dollars(),
		"",
	})
	return g
}

// BillCSV writes a bill's division: a header and a row for each party, with an empty name for
// unallocated cost. The rows sum to the total to the nano-dollar.
func BillCSV(w io.Writer, b view.BillShow) error {
	a := b.Allocation
	return layout.WriteCSV(w, "the bill", func(yield func([]string) bool) {
		if !yield([]string{string(a.By), "basis", "total_usd", "direct_usd", "shared_usd"}) {
			return
		}
		for _, p := range a.Parties {
			if !yield([]string{p.Name, string(a.Basis), p.Total.String(), p.Direct.String(), p.Shared.String()}) {
				return
			}
		}
		if a.Unattributed != 0 {
			yield([]string{
				"", string(a.Basis), a.Unattributed.String(), a.Unattributed.String(), money.Amount(0).String(),
			})
		}
	})
}

// egressGrid lists the cost of data transfer, the largest first.
func egressGrid(flows []bill.Flow) layout.Grid {
	g := layout.Grid{
		Title: "data transfer, billed cost", Head: []string{"billed", "GB", "kind", "from", "to", "resource"},
		Right: []bool{true, true},
	}
	n := min(len(flows), maxFlows)
	for _, t := range flows[:n] {
		g.Rows = append(g.Rows, []string{
			t.Billed.Dollars(), gigabytes(t.Bytes), string(t.Transfer), t.Region, t.ToRegion,
			cmp.Or(t.Resource, t.Service),
		})
	}
	if rest := flows[n:]; len(rest) > 0 {
		var more money.Amount
		for _, t := range rest {
			more += t.Billed // of one bill, so it cannot overflow
		}
		g.Rows = append(g.Rows, []string{more.Dollars(), "", plain.Count(len(rest), "other transfer"), "", "", ""})
	}
	return g
}

// reconcilePicture draws billed and accrued costs by day.
func reconcilePicture(r view.Reconciliation) string {
	picture := chart.Lines{
		Title: "Billed and accrued cost by day", Y: chart.Axis{Label: "dollars a day", Format: chart.USD},
	}
	accrued, billed := chart.Series{
		Name: "accrued", Color: chart.Blue, Dashed: true,
	}, chart.Series{Name: "billed", Color: chart.Orange}
	for _, d := range r.Rows { // in order of days
		x := chart.Second(d.Day)
		if n := len(billed.Points); n == 0 || billed.Points[n-1].X != x {
			known := 0.0
			if !r.BilledThrough.IsZero() && !d.Day.Before(r.BilledThrough) {
				known = math.NaN() // the bill does not cover the day yet
			}
			accrued.Points, billed.Points = append(accrued.Points, chart.Point{X: x}), append(billed.Points,
				chart.Point{X: x, Y: known})
		}
		last := len(billed.Points) - 1
		accrued.Points[last].Y += inDollars(d.Accrued + d.Reconciled)
		billed.Points[last].Y += inDollars(d.Billed)
	}
	if len(billed.Points) < 2 {
		return ""
	}
	picture.X, picture.Series = chart.Dates(r.Rows[0].Day, r.Rows[len(r.Rows)-1].Day), []chart.Series{billed, accrued}
	return picture.SVG()
}

// dollarsText formats dollars in a picture.
func dollarsText(v float64) string { return money.Amount(math.Round(v * float64(money.USD))).Dollars() }

// Reconciliation shows billed and accrued costs, the variance, and its reasons.
func Reconciliation(r view.Reconciliation) layout.Sheet {
	s := layout.Sheet{Verb: "bill reconcile", Picture: reconcilePicture(r), Caption: "Accrued and billed cost by day.",
		Assumptions: r.Assumptions, Coverage: slices.Clone(r.CoverageNotes), Changes: r.Changes,
		Figures: []layout.Figure{
			{Label: "billed", Value: usd(r.Billed), Note: r.Basis + " cost"},
			{Label: "accrued", Value: usd(r.Accrued), Note: "at list price"}, {Label: "variance", Value: usd(r.Drift)},
		}}
	switch {
	case len(r.Rows) == 0:
		s.Title, s.Picture, s.Caption, s.Figures = "Nothing to compare: no imported bill covers this period", "", "",
			nil
		s.Commands = []string{"curfew bill import PATH"}
		return s
	case r.Drift == 0:
		s.Title = fmt.Sprintf("No variance: %s %s and accrued", usd(r.Billed), basisNames[r.Basis])
	default:
		s.Title = fmt.Sprintf("Variance of %s: %s %s, %s accrued", usd(r.Drift), usd(r.Billed), basisNames[r.Basis],
			usd(r.Accrued))
	}
	if r.Reconciled != 0 {
		s.Figures = append(s.Figures, layout.Figure{Label: "corrected before", Value: usd(r.Reconciled)})
	}
	g := layout.Grid{Title: "variance by reason", Head: []string{"reason", "amount"}, Right: []bool{false, true}}
	for _, c := range r.Causes {
		g.Rows = append(g.Rows, []string{string(c.Reason), usd(c.Amount)})
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	rows := slices.Clone(r.Rows)
	size := func(d costs.Drift) money.Amount { return max(d.Drift, -d.Drift) }
	slices.SortStableFunc(rows, func(x, y costs.Drift) int { return cmp.Compare(size(y), size(x)) })
	g = layout.Grid{
		Title: "largest variances", Head: []string{"day", "resource", "billed", "accrued", "variance", "main reason"},
		Right: []bool{false, false, true, true, true, false},
	}
	if accounts(r.Rows) > 1 {
		g.Head, g.Right = slices.Insert(g.Head, 1, "account"), slices.Insert(g.Right, 1, false)
	}
	for _, d := range rows[:min(len(rows), maxFlows)] {
		why := ""
		if len(d.Causes) > 0 {
			why = string(d.Causes[0].Reason)
		}
		row := []string{
			plain.Date(d.Day), cmp.Or(d.Resource, d.Service), usd(d.Billed), usd(d.Accrued), usd(d.Drift), why,
		}
		if len(g.Head) > len(row) {
			row = slices.Insert(row, 1, d.Account)
		}
		g.Rows = append(g.Rows, row)
	}
	s.Tables = append(s.Tables, g)
	if r.Posted > 0 {
		s.Coverage = append(s.Coverage, plain.Count(r.Posted, "correction")+" added to the ledger")
	}
	return s
}

// accounts returns the number of accounts in a reconciliation.
func accounts(rows []costs.Drift) int {
	seen := map[string]bool{}
	for _, d := range rows {
		seen[d.Account] = true
	}
	return len(seen)
}
