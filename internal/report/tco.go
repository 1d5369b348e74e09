package report

import (
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/tco"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// TCO shows whether a saving repays the work it requires.
func TCO(r tco.Report) layout.Sheet {
	when := "never"
	if r.BreakEvenMonths != nil {
		when = plain.Number(*r.BreakEvenMonths, 1) + " months"
	}
	return layout.Sheet{Verb: "plan tco", Title: r.Verdict, Picture: tcoPicture(r),
		Caption: "The balance starts at the cost of the work and grows by the saving after upkeep. The work is repaid " +
			"where the line crosses $0.",
		Figures: []layout.Figure{
			{Label: "Saving", Value: r.SavingUSD.Dollars(), Note: "a month; " + r.NetUSD.Dollars() + " after upkeep"},
			{Label: "Cost of the work", Value: r.EffortUSD.Dollars(), Note: plain.Number(r.EffortHours, 1) + " hours"},
			{Label: "Pays back after", Value: when},
			{Label: "Balance after a year", Value: r.FirstYearUSD.Dollars()},
		},
		Assumptions: r.Assumptions, Changes: r.Changes}
}

// tcoPicture draws the balance over two years.
func tcoPicture(r tco.Report) string {
	s := chart.Series{Name: "balance", Color: chart.Orange}
	if r.Advised {
		s.Color = chart.Blue
	}
	for month, v := range r.Balance {
		s.Points = append(s.Points, chart.Point{X: float64(month), Y: v})
	}
	c := chart.Lines{
		Title: "Balance of the change over 24 months", Series: []chart.Series{s},
		Limits: []chart.Mark{{Label: "paid back"}},
		X: chart.Axis{
			Label: "months after the change", Least: -0.5, Most: 24.5, Ticks: []float64{
				0, 3, 6, 9, 12, 15, 18, 21, 24,
			},
			Format: func(v float64) string { return plain.Number(v, 1) },
		},
		Y:       chart.Axis{Label: "balance in dollars", Format: chart.USD},
		Moments: []chart.Mark{{At: 12, Label: "one year: month"}}}
	if m := r.BreakEvenMonths; m != nil && *m > 0 && *m <= 24 {
		c.Moments = append(c.Moments, chart.Mark{At: *m, Label: "pays back: month"})
	}
	return c.SVG()
}
