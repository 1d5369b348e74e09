package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/tco"
)

// tcoPicture draws the balance over two years: what was spent, and how it comes back.
func tcoPicture(r tco.Report) string {
	const width, height, left, bottom = 720.0, 240.0, 80.0, 26.0
	low, high := 0.0, 0.0
	for _, v := range r.Balance {
		low, high = math.Min(low, v), math.Max(high, v)
	}
	if high-low < 1 {
		high = low + 1
	}
	x := func(month int) float64 { return left + (width-left-10)*float64(month)/float64(len(r.Balance)-1) }
	y := func(v float64) float64 { return 10 + (height-bottom-10)*(high-v)/(high-low) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Balance in dollars over 24 months">`, width, height)
	for _, v := range []float64{low, 0, high} {
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" stroke-opacity="%s"/>`, left, y(v), width-10, y(v), map[bool]string{true: ".6", false: ".15"}[v == 0])
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, left-8, y(v)+4, roundDollars(v))
	}
	for _, m := range []int{0, 6, 12, 18, 24} {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle" font-size="12" fill="currentColor">%d</text>`, x(m), height-8, m)
	}
	fmt.Fprintf(&b, `<line x1="%.1f" y1="10" x2="%.1f" y2="%g" stroke="currentColor" stroke-dasharray="3 4" stroke-opacity=".5"/>`, x(12), x(12), height-bottom)
	var points []string
	for m, v := range r.Balance {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(m), y(v)))
	}
	color := "#c5432d"
	if r.Advised {
		color = "#1f7f57"
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="3"/></svg>`, strings.Join(points, " "), color)
	return b.String()
}

func roundDollars(v float64) string {
	if v < 0 {
		return fmt.Sprintf("-$%.0f", -v)
	}
	return fmt.Sprintf("$%.0f", v)
}

// TCO shows whether a saving repays the work that it takes.
func TCO(r tco.Report) Sheet {
	when := "never"
	if r.BreakEvenMonths != nil {
		when = "after " + plain.Number(*r.BreakEvenMonths, 1) + " months"
	}
	return Sheet{Verb: "plan tco", Title: r.Verdict, Picture: tcoPicture(r),
		Caption: "What was spent and how it comes back, in dollars over 24 months; the dashed line is a year.",
		Figures: []Figure{
			{Label: "saves", Value: "$" + r.SavingUSD + " a month", Note: "$" + r.NetUSD + " after upkeep"},
			{Label: "takes", Value: "$" + r.EffortUSD, Note: fmt.Sprintf("%s hours of work", plain.Number(r.EffortHours, 1))},
			{Label: "breaks even", Value: when},
			{Label: "after a year", Value: "$" + r.FirstYearUSD},
		},
		Assumptions: r.Assumptions, Changes: r.Changes}
}
