package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// Estimate shows an estimate.
func Estimate(verb string, e *estimate.Estimate) layout.Sheet {
	s := layout.Sheet{
		Verb: verb, Title: e.Title, Picture: estimatePicture(e),
		Caption:     "The most expensive lines: each bar is the median (p50), its range ends at the 95th percentile (p95).",
		Assumptions: e.Assumptions, Coverage: slices.Clone(e.CoverageNotes), Changes: e.Changes,
		Figures: []layout.Figure{
			{Label: "p50", Value: e.P50.Dollars(), Note: "half of the runs cost less"},
			{Label: "p95", Value: e.P95.Dollars(), Note: "95% of the runs cost less"},
			{Label: "an hour", Value: e.Hourly.Dollars(), Note: "while it runs"},
		}}
	if e.Unpriced() {
		for i := range s.Figures {
			s.Figures[i].Value, s.Figures[i].Note = "unknown", ""
		}
	}
	if d := e.Duration; d != nil {
		note := "at most " + durationText(d.Cap)
		if d.Cap == "" {
			note = "p95 " + durationText(d.P95) + "; no limit ends it"
		}
		s.Figures = append(s.Figures, layout.Figure{Label: "runs for", Value: durationText(d.P50), Note: note})
	}
	if g := costLinesGrid("cost lines", e.Lines); len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	if len(e.Alternatives) > 0 {
		g := layout.Grid{
			Title: "machines compared", Head: []string{"", "machines", "capacity", "region", "p50", "p95", "an hour"},
			Right: []bool{false, false, false, false, true, true, true},
		}
		if m := e.Machine; m != nil {
			g.Rows = append(g.Rows, []string{
				"chosen", fmt.Sprintf("%d × %s", m.Count, m.Type), string(m.Capacity), e.Region, e.P50.Dollars(),
				e.P95.Dollars(), e.Hourly.Dollars(),
			})
		}
		for _, alt := range e.Alternatives {
			g.Rows = append(g.Rows, []string{
				"", fmt.Sprintf("%d × %s", alt.Count, alt.Type), string(alt.Capacity), alt.Region, alt.P50.Dollars(),
				alt.P95.Dollars(), alt.Hourly.Dollars(),
			})
		}
		s.Tables = append(s.Tables, g)
	}
	if t := e.Terraform; t != nil {
		s.Figures = []layout.Figure{
			{Label: "a month after", Value: t.Monthly.Dollars(), Note: "resources with an hourly price"},
			{Label: "a month before", Value: t.Before.Dollars()},
			{Label: "change", Value: t.Change.Signed(), Note: "a month"},
		}
		if g := costLinesGrid("removed", t.Removed); len(g.Rows) > 0 {
			s.Tables = append(s.Tables, g)
		}
		if len(t.NotPriced) > 0 {
			g := layout.Grid{Title: "unpriced", Head: []string{"type", "count"}, Right: []bool{false, true}}
			for _, n := range t.NotPriced {
				g.Rows = append(g.Rows, []string{n.Type, fmt.Sprint(n.Count)})
			}
			s.Tables = append(s.Tables, g)
		}
	}
	for _, u := range e.Unknown {
		s.Coverage = append(s.Coverage, "unknown, and in no amount: "+u)
	}
	return s
}

// costLinesGrid returns a table of estimate lines, the highest cost first.
func costLinesGrid(title string, all []estimate.Line) layout.Grid {
	g := layout.Grid{
		Title: title, Head: []string{"p50", "p95", "item", "quantity", "unit price", "price source"},
		Right: []bool{true, true, false, true, true, false},
	}
	for _, l := range byCost(all) {
		quantity, unit := amountOf(l.Quantity), l.Unit
		if high := amountOf(l.QuantityP95); high != quantity {
			quantity += " to " + high
		}
		if quantity != "1" {
			unit = plain.Plural(unit)
		}
		g.Rows = append(g.Rows, []string{
			l.P50.Dollars(), l.P95.Dollars(), lineName(l), quantity + " " + unit, l.UnitPrice.Dollars(),
			strings.TrimSpace(l.Source + " " + l.AsOf),
		})
	}
	return g
}

// amountOf shortens a decimal number for people.
func amountOf(decimal string) string {
	v, err := strconv.ParseFloat(decimal, 64)
	if err != nil {
		return decimal
	}
	return plain.Significant(v, 3)
}

// byCost returns the lines by cost, the highest first.
func byCost(all []estimate.Line) []estimate.Line {
	return slices.SortedStableFunc(slices.Values(all), func(a, b estimate.Line) int {
		return cmp.Compare(b.P95, a.P95)
	})
}

// lineName names a line of an estimate, with its resource in a Terraform plan.
func lineName(l estimate.Line) string {
	if l.Resource != "" {
		return l.Resource + ": " + l.What
	}
	return l.What
}

// maxEstimateBars bounds the drawn lines.
const maxEstimateBars = 12

// estimatePicture draws the most expensive lines: filled to the p50, outlined to the p95.
func estimatePicture(e *estimate.Estimate) string {
	lines := byCost(e.Lines)
	if len(lines) == 0 {
		return ""
	}
	picture := chart.Bars{
		Title: "The most expensive lines of the estimate", Axis: chart.Axis{Label: "dollars", Format: chart.USD},
		Range: "p50 to p95", Ordered: true,
	}
	if e.Terraform != nil {
		picture.Axis.Label, picture.Range = "dollars a month", ""
	}
	for _, l := range lines[:min(len(lines), maxEstimateBars)] {
		row := chart.Bar{Label: lineName(l), Value: max(0, inDollars(l.P50)), Note: l.P50.Dollars()}
		if l.P95 > l.P50 {
			row.Low, row.High, row.Note = row.Value, inDollars(l.P95), l.P50.Dollars()+" to "+l.P95.Dollars()
		}
		picture.Rows = append(picture.Rows, row)
	}
	return picture.SVG()
}

// durationText prints the duration of a document for people: "10h1m46s" as "10h 1m".
func durationText(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	return plain.Duration(d)
}
