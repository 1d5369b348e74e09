package report

import (
	"fmt"
	"html"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/commit"
)

// Measures of the picture, in pixels.
const (
	commitWidth, commitHeight  = 720.0, 260.0
	commitLeft, commitTop      = 70.0, 10.0
	commitBottom, commitLegend = 24.0, 20.0
	uncoveredColor             = "#c5432d"
	maxLegend                  = 8
)

// layerColors are those of commitments, from the baseline up.
var layerColors = []string{"#1f7f57", "#2f6db3", "#8a5fb5", "#b8862b", "#4a9aa5", "#7a8b3c"}

// commitPicture draws demand over the window in dollars an hour at on-demand prices: what each
// commitment covers, the baseline lowest, and what is left on demand. A long window is
// drawn in 240 stretches, each by its mean.
func commitPicture(r commit.Report) string {
	n := 0
	for _, l := range r.Layers {
		n = max(n, len(l.Mean))
	}
	legend := min(len(r.Layers), maxLegend+1)
	height := commitHeight + commitLegend*float64(legend)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Demand in dollars an hour, by what covers it">`, commitWidth, height)
	top := make([]float64, n)
	for _, l := range r.Layers {
		for i, v := range l.Mean {
			top[i] += v
		}
	}
	high := 0.0
	for _, v := range top {
		high = max(high, v)
	}
	if high == 0 {
		high = 1
	}
	x := func(i int) float64 { return commitLeft + (commitWidth-commitLeft-10)*float64(i)/float64(max(n, 1)) }
	y := func(v float64) float64 { return commitTop + (commitHeight-commitBottom-commitTop)*(1-v/high) }
	for _, share := range []float64{0, .5, 1} {
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" stroke-opacity=".15"/>`, commitLeft, y(share*high), commitWidth-10, y(share*high))
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">$%s/h</text>`, commitLeft-8, y(share*high)+4, plain.Number(share*high, 2))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" font-size="12" fill="currentColor">%s</text>`, commitLeft, commitHeight-6, r.Start.Format("2006-01-02"))
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, commitWidth-10, commitHeight-6, r.End.Format("2006-01-02"))
	below := make([]float64, n)
	for i, l := range r.Layers {
		color, opacity := layerColors[i%len(layerColors)], .85
		if l.OnDemand {
			color, opacity = uncoveredColor, .35
		}
		var upper, lower []string
		for j, v := range l.Mean {
			upper = append(upper, fmt.Sprintf("%.1f,%.1f %.1f,%.1f", x(j), y(below[j]+v), x(j+1), y(below[j]+v)))
			lower = append(lower, fmt.Sprintf("%.1f,%.1f %.1f,%.1f", x(j+1), y(below[j]), x(j), y(below[j])))
			below[j] += v
		}
		for j := len(lower) - 1; j >= 0; j-- {
			upper = append(upper, lower[j])
		}
		fmt.Fprintf(&b, `<polygon points="%s" fill="%s" fill-opacity="%g"><title>%s</title></polygon>`, strings.Join(upper, " "), color, opacity, html.EscapeString(l.Name))
		// The legend names the first layers; the last line is always on demand.
		row := i
		if l.OnDemand {
			row = legend - 1
		}
		if row >= legend-1 && !l.OnDemand {
			continue
		}
		at := commitHeight + commitLegend*float64(row)
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="12" height="12" fill="%s" fill-opacity="%g"/><text x="%g" y="%g" font-size="12" fill="currentColor">%s</text>`,
			commitLeft, at, color, opacity, commitLeft+18, at+11, html.EscapeString(l.Name))
	}
	b.WriteString("</svg>")
	return b.String()
}

// Commit shows what to commit to.
func Commit(r commit.Report) Sheet {
	proof := "no choice from these offers costs less"
	if !r.Optimal {
		proof = "no choice costs less than $" + r.LowerBoundUSD
	}
	s := Sheet{Verb: "plan commit", Picture: commitPicture(r), Caption: "Use by the hour, with what commitments cover in layers and the rest on demand.",
		Title: fmt.Sprintf("%s of $%s on demand would be saved by %s", shareText(r.EffectiveSavingsRate), r.OnDemandUSD,
			plain.Count(len(r.Commitments), "commitment")),
		Figures: []Figure{
			{Label: "on demand", Value: "$" + r.OnDemandUSD, Note: plain.Count(r.Hours, "hour")},
			{Label: "planned", Value: "$" + r.PlannedUSD, Note: proof},
			{Label: "effective savings rate", Value: shareText(r.EffectiveSavingsRate)},
			{Label: "coverage", Value: shareText(r.Coverage), Note: "of use, at on-demand prices"},
			{Label: "utilization", Value: shareText(r.Utilization), Note: "of what commitments charge"},
		},
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	if len(r.Commitments) == 0 {
		s.Title = "nothing is worth committing to: $" + r.OnDemandUSD + " on demand is the least"
	}
	s.Tables = append(s.Tables, commitments("to buy", r.Commitments))
	if len(r.Existing) > 0 {
		s.Tables = append(s.Tables, commitments("there already", r.Existing))
	}
	if len(r.WhatIf) > 0 {
		g := Grid{Title: "if demand fell", Head: []string{"by", "on demand", "planned", "saved", "utilization"}, Right: []bool{true, true, true, true, true}}
		for _, w := range r.WhatIf {
			g.Rows = append(g.Rows, []string{shareText(w.Drop), "$" + w.OnDemandUSD, "$" + w.PlannedUSD, shareText(w.EffectiveSavingsRate), shareText(w.Utilization)})
		}
		s.Tables = append(s.Tables, g)
	}
	if o := r.Online; o != nil {
		s.Figures = append(s.Figures, Figure{Label: "without foresight", Value: "$" + o.CostUSD,
			Note: fmt.Sprintf("%s times the least that these offers could have cost; never over %s", plain.Number(o.Ratio, 3), plain.Number(o.Bound, 3))})
	}
	return s
}

func commitments(title string, all []commit.Commitment) Grid {
	g := Grid{Title: title, Head: []string{"what", "kind", "term", "payment", "used", "least month", "breaks even", "if the type is left", "advised"},
		Right: []bool{false, false, true, false, true, true, true, false, false}}
	for _, c := range all {
		what := fmt.Sprintf("%d × %s", c.Quantity, c.Key)
		if c.Kind == commit.SavingsPlan {
			what = "$" + c.DollarsPerHour + "/h on " + c.Key
		}
		breakEven := "never"
		if c.BreakEvenDays != nil {
			breakEven = plain.Number(*c.BreakEvenDays, 0) + " d"
		}
		risk := ""
		if k := c.Risk; k != nil {
			risk = "$" + k.SavingUSD + " expected at " + shareText(k.LeavePerYear) + " a year"
			if k.PaysFromMonths != nil {
				risk += ", pays from month " + plain.Number(*k.PaysFromMonths, 0)
			}
		}
		advised := "yes"
		if !c.Advised {
			advised = strings.TrimSpace("no: " + c.Why)
		}
		g.Rows = append(g.Rows, []string{what, string(c.Kind), fmt.Sprintf("%d months", c.TermMonths), string(c.Payment), shareText(c.Utilization),
			shareText(c.LowestMonth), breakEven, risk, advised})
	}
	return g
}
