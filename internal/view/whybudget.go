package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// BudgetFigure begins the ids of the figures of budgets.
const BudgetFigure = "budget."

// BudgetFigures lists the figures of budgets that can be explained.
func BudgetFigures(all []budget.Status) (out []WhyRow) {
	for i := range all {
		for _, f := range budgetFigures(&all[i]) {
			out = append(out, WhyRow{Figure: f.id, Label: f.label, AmountUSD: f.value})
		}
	}
	return out
}

// NewBudgetWhy explains a figure of a budget at a time.
func NewBudgetWhy(all []budget.Status, figure string, at time.Time) (Why, error) {
	w := Why{
		Schema: WhySchema, At: at.UTC(), Rows: []WhyRow{}, Prices: []PriceSource{}, Excluded: []string{},
	}
	var ids []string
	for i := range all {
		for _, f := range budgetFigures(&all[i]) {
			if f.id != figure {
				ids = append(ids, f.id)
				continue
			}
			w.Figure, w.Label, w.ValueUSD, w.Basis, w.Command = f.id, f.label, f.value, f.basis, f.command
			w.Rows, w.Excluded = append(w.Rows, f.rows()...), append(w.Excluded, f.excluded...)
			return w, nil
		}
	}
	return w, &ErrNoFigure{figure, document.DidYouMean(figure, ids)}
}

// budgetFigures returns the figures of a budget. Those of its remaining amount add up from the others.
func budgetFigures(s *budget.Status) []figure {
	id := BudgetFigure + s.Budget.ID
	window := "from " + plain.Time(s.Window.From) + " until " + plain.Time(s.Window.To)
	charged := window + ", as the ledger charged it until " + plain.Time(s.Through) + ", at list price"
	if s.Through.IsZero() {
		charged = window + "; the ledger is empty"
	}
	var unpriced []string
	if s.Unknown > 0 || s.Unbounded > 0 {
		unpriced = []string{"charges without a price: at most " + s.Unknown.Dollars() + ", and " +
			plain.Duration(s.Unbounded) + " of resources for which not even that is known"}
	}
	out := []figure{
		{
			id: id + ".spent", label: "spent of budget " + s.Budget.ID, value: money.Known(s.Used), basis: charged,
			rows: func() []WhyRow { return spentDays(s) }, excluded: unpriced, command: budgetCosts(s),
		},
		{
			id: id + ".reserved", label: "reserved in budget " + s.Budget.ID, value: money.Known(s.Held),
			basis: window + ": the most that approved work can still spend beyond what it was charged",
			rows:  func() []WhyRow { return reservations(s) }, command: "curfew budget holds",
		},
		{
			id: id + ".remaining", label: "left of budget " + s.Budget.ID, value: money.Known(s.Left), basis: window,
			rows: func() []WhyRow { return remainder(s) }, command: "curfew budget",
		},
	}
	if f, known := s.Forecast.Get(); known {
		out = append(out, figure{
			id: id + ".forecast", label: "expected spend of budget " + s.Budget.ID, value: money.Known(f.Median),
			basis: window + ": the median of a thousand futures drawn from past days; nine of ten lie from " +
				f.Low.Dollars() + " to " + f.High.Dollars(),
			rows: func() []WhyRow {
				return []WhyRow{
					{Figure: id + ".spent", Label: "spent so far", AmountUSD: money.Known(s.Used)},
					{Label: "expected from then on", AmountUSD: money.Known(f.Median - s.Used)},
				}
			}, command: "curfew budget",
		})
	}
	return out
}

// spentDays returns the spend of each day with charges.
func spentDays(s *budget.Status) (out []WhyRow) {
	for i, spent := range s.Daily {
		if spent != 0 {
			out = append(out, WhyRow{
				Label: plain.Date(s.Window.From.AddDate(0, 0, i)), AmountUSD: money.Known(spent),
			})
		}
	}
	return out
}

// reservations returns what each hold reserves, the most first.
func reservations(s *budget.Status) []WhyRow {
	out := make([]WhyRow, 0, len(s.Reserved))
	for _, r := range s.Reserved {
		row := WhyRow{Label: strings.TrimSpace(r.Hold.Kind + " " + r.Hold.Name), AmountUSD: money.Known(r.Amount)}
		row.Label = cmp.Or(row.Label, r.Hold.ID)
		row.Note = "reservation " + r.Hold.ID + ", until " + plain.Time(r.Hold.Until)
		if r.Unobserved {
			row.Note += "; its run is over, and the ledger has not seen it"
		}
		out = append(out, row)
	}
	slices.SortStableFunc(out, func(x, y WhyRow) int { return cmp.Compare(y.AmountUSD.Or(0), x.AmountUSD.Or(0)) })
	return out
}

// remainder returns the terms of the remaining amount.
func remainder(s *budget.Status) []WhyRow {
	id := BudgetFigure + s.Budget.ID
	limit, err := money.Sum(s.Left, s.Used, s.Held)
	unknown := money.Amount(0)
	if s.Budget.CountUnknown {
		unknown = s.Unknown
		limit, err = money.Sum(limit, unknown)
	}
	if err != nil {
		return nil
	}
	rows := []WhyRow{
		{Label: "limit", AmountUSD: money.Known(limit)},
		{Figure: id + ".spent", Label: "spent", AmountUSD: money.Known(-s.Used)},
		{Figure: id + ".reserved", Label: "reserved", AmountUSD: money.Known(-s.Held)},
	}
	if unknown != 0 {
		rows = append(rows, WhyRow{Label: "charges without a price, at most", AmountUSD: money.Known(-unknown)})
	}
	return rows
}

// budgetCosts is the command that shows the charges of a budget by resource.
func budgetCosts(s *budget.Status) string {
	command := "curfew costs --by resource"
	m := s.Budget.Match
	for _, x := range [][2]string{
		{"team", m.Team}, {"project", m.Project}, {"user", m.User}, {"environment", m.Environment},
	} {
		if x[1] != "" {
			command += " --where " + plain.Shell(x[0]+"="+x[1])
		}
	}
	if len(m.Purposes) > 0 {
		names := make([]string, len(m.Purposes))
		for i, p := range m.Purposes {
			names[i] = string(p)
		}
		command += " --where " + plain.Shell("purpose="+strings.Join(names, ","))
	}
	until := s.Window.To
	if !s.Through.IsZero() && s.Through.Before(until) {
		until = s.Through
	}
	return command + " --since " + s.Window.From.UTC().Format(time.RFC3339) + " --until " +
		until.UTC().Format(time.RFC3339)
}
