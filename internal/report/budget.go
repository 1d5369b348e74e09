package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Budgets shows the status of each budget.
func Budgets(doc view.Budgets) layout.Sheet {
	s := layout.Sheet{
		Verb: "budget", Title: budgetTitle(doc), Picture: budgetPicture(doc),
		Caption: "Each budget as a share of its " +
			"limit: spent, reserved for approved work, and the forecast range at the end of the period.",
		Assumptions: doc.Assumptions, Coverage: doc.CoverageNotes, Changes: doc.Changes}
	g := layout.Grid{
		Head:  []string{"budget", "state", "limit", "spent", "reserved", "remaining", "forecast", "90% range", "ends"},
		Right: []bool{false, false, true, true, true, true, true, true, false}, States: []bool{false, true},
	}
	for _, b := range doc.Budgets {
		forecast, span := "none", ""
		if f := b.Forecast; f != nil {
			forecast, span = f.Median.Dollars(), f.Low.Dollars()+" to "+f.High.Dollars()
		}
		g.Rows = append(g.Rows, []string{
			b.ID, budgetState(&b), b.Amount.Exact(), b.Used.Exact(), b.Held.Exact(), b.Left.Exact(), forecast, span,
			plain.Date(b.Until),
		})
	}
	s.Tables = []layout.Grid{g}
	return s
}

// budgetStates are the labels of budget states.
var budgetStates = map[budget.State]string{
	budget.OK: "ok", budget.Warn: "near limit", budget.Gate: "needs approval", budget.Over: "exceeded",
}

// budgetState returns the label of a budget's state. Without any charges it is unknown whether a
// budget is within its limit.
func budgetState(b *view.Budget) string {
	if b.NothingPosted && b.State == budget.OK {
		return "nothing posted"
	}
	return budgetStates[b.State]
}

// budgetTitle names the exceeded budgets, else those near their limits.
func budgetTitle(doc view.Budgets) string {
	if len(doc.Budgets) == 0 {
		return "No budget has a current period"
	}
	by := map[budget.State][]view.Budget{}
	blank := 0
	for _, b := range doc.Budgets {
		if b.NothingPosted && b.State == budget.OK {
			blank++
			continue
		}
		by[b.State] = append(by[b.State], b)
	}
	var parts []string
	switch over := by[budget.Over]; {
	case len(over) == 1 && over[0].Left < 0:
		parts = append(parts, fmt.Sprintf("Budget %s exceeded by %s", over[0].ID, (-over[0].Left).Dollars()))
	case len(over) == 1:
		parts = append(parts, fmt.Sprintf("Budget %s is used up", over[0].ID))
	case len(over) > 1:
		parts = append(parts, plain.Count(len(over), "budget")+" exceeded")
	}
	if n := len(by[budget.Gate]); n > 0 {
		parts = append(parts, fmt.Sprintf("%d near the limit: new work needs approval", n))
	}
	if n := len(by[budget.Warn]); n > 0 {
		parts = append(parts, fmt.Sprintf("%d near the limit", n))
	}
	if blank > 0 {
		parts = append(parts, "Nothing posted of "+plain.Count(blank, "budget"))
	}
	if n := len(by[budget.OK]); n > 0 || len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("%d of %s within the limit", n, plain.Count(len(doc.Budgets), "budget")))
		if n == len(doc.Budgets) {
			least := slices.MinFunc(doc.Budgets, func(a, b view.Budget) int {
				return cmp.Compare(money.Ratio(a.Left, max(a.Amount, 1)), money.Ratio(b.Left, max(b.Amount, 1)))
			})
			parts = append(parts, fmt.Sprintf("%s has the least left: %s of %s", least.ID, least.Left.Dollars(),
				least.Amount.Dollars()))
		}
	}
	return strings.Join(parts, "; ")
}

// budgetPicture draws a bar for each budget: spent, reserved, forecast range, and limit.
func budgetPicture(doc view.Budgets) string {
	picture := chart.Bars{
		Title: "Budgets as shares of their limits: spent, reserved, forecast",
		Axis:  chart.Axis{Label: "share of the limit", Format: chart.Percent},
		Parts: []string{"spent", "reserved"}, Colors: []chart.Color{chart.Blue, chart.SoftBlue},
		Range: "forecast (90% range)", Limit: "limit", Ordered: true}
	for _, b := range doc.Budgets {
		of := func(a money.Amount) float64 { return money.Ratio(max(0, a), max(b.Amount, 1)) }
		row := chart.Bar{
			Label: b.ID, Parts: []float64{of(b.Used), of(b.Held)}, Limit: 1,
			Note: plain.Share(of(b.Used+b.Held), 0) + " of " + b.Amount.Dollars(),
		}
		if f := b.Forecast; f != nil && f.High > f.Low {
			row.Low, row.High = of(f.Low), of(f.High)
		}
		picture.Rows = append(picture.Rows, row)
	}
	if len(picture.Rows) == 0 {
		return ""
	}
	return picture.SVG()
}

// Holds shows budget reservations as of a time.
func Holds(doc view.Holds, now time.Time) layout.Sheet {
	var sum money.Amount
	live := 0
	s := layout.Sheet{Verb: "budget holds", Title: "No reservations in this period"}
	g := layout.Grid{
		Head:  []string{"id", "state", "work", "reserved", "spent", "for", "asked by", "ends"},
		Right: []bool{false, false, false, true, true, false, false, false}, States: []bool{1: true},
	}
	for _, h := range doc.Holds {
		spent, until := "", plain.When(h.ExpiresAt, now)
		if h.ActualUSD.Known() {
			spent = h.ActualUSD.String()
		}
		if h.Uncharged {
			until = "when settled or charged"
			if h.ActualUSD.Known() {
				until = "when charged"
			}
		}
		if h.State == string(budget.Live) || h.State == string(budget.Unobserved) {
			sum, live = sum+h.AmountUSD, live+1
		}
		g.Rows = append(g.Rows, []string{
			h.ID, h.State, h.Kind + " " + h.Name, h.AmountUSD.Dollars(), spent, h.For(), h.AskedBy, until,
		})
	}
	if len(g.Rows) == 0 {
		s.Commands = []string{"curfew gate FILE   # reserves budget for a run"}
		return s
	}
	s.Title = fmt.Sprintf("%s reserved by %s", sum.Dollars(), plain.Count(live, "run"))
	s.Tables = []layout.Grid{g}
	return s
}
