package report

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Units shows unit costs.
func Units(doc view.Units) layout.Sheet {
	s := layout.Sheet{Verb: "costs units"}
	var titles []string
	for _, d := range doc.Units {
		name := unitName(d)
		g := layout.Grid{
			Title: name, Head: []string{"period", "of", "basis", "cost", "units", "unit cost", "target", "change"},
			Right: []bool{false, false, false, true, true, true, true, true},
		}
		for _, c := range d.Rows[:min(len(d.Rows), maxRows)] {
			g.Rows = append(g.Rows, unitRow(d, c.Period.Format(unitPeriods(d)), c))
		}
		for _, c := range d.Total {
			g.Rows = append(g.Rows, unitRow(d, "total", c))
			if c.Basis != costs.AllocatedBasis {
				continue
			}
			if c.Cost == nil {
				titles = append(titles, name+": unknown ("+c.Reason+")")
				continue
			}
			title := c.Cost.Dollars() + " per " + name
			if c.OverTarget {
				title += ", over the target of " + d.Target.Dollars()
			} else if d.Target != nil {
				title += ", within the target of " + d.Target.Dollars()
			}
			titles = append(titles, title)
			s.Figures = append(s.Figures, layout.Figure{Label: name, Value: c.Cost.Dollars(), Note: unitNote(d, c)})
		}
		s.Tables = append(s.Tables, g)
		s.Assumptions, s.Coverage, s.Changes = append(s.Assumptions, d.Assumptions...), append(s.Coverage,
			d.CoverageNotes...), append(s.Changes, d.Changes...)
		s.Picture = cmp.Or(s.Picture, unitsPicture(d))
	}
	s.Title = strings.Join(titles[:min(len(titles), 2)], "; ")
	if more := len(titles) - 2; more > 0 {
		s.Title += fmt.Sprintf("; %d more", more)
	}
	s.Caption = "Unit cost by period: all allocated cost, its used and its idle part, and the target."
	return s
}

// unitName formats the name of a unit: "prediction", "1,000,000 tokens".
func unitName(d view.UnitCosts) string {
	if d.Per > 1 {
		return plain.Count(d.Per, d.Unit)
	}
	return d.Unit
}

// unitRow returns a row of the table.
func unitRow(d view.UnitCosts, period string, c costs.UnitCost) []string {
	cost, each, target, change := "unknown", c.Reason, "", ""
	if c.Amount != nil {
		cost = usd(*c.Amount)
	}
	if c.Cost != nil {
		each = c.Cost.Dollars()
	}
	if c.AtLeast {
		cost = "at least " + cost
		if c.Cost != nil {
			each = "at least " + each
		}
	}
	if c.Change != nil {
		change = plain.Change(*c.Change)
	}
	if d.Target != nil && c.Basis == costs.AllocatedBasis {
		target = d.Target.Dollars()
		if c.OverTarget {
			target += " (over)"
		}
	}
	return []string{
		period, strings.Join(c.Key, " "), string(c.Basis), cost, plain.Number(float64(c.Count)/1000, 3), each, target,
		change,
	}
}

// unitPeriods returns the layout of periods: hours if the rows of a unit are hourly.
func unitPeriods(d view.UnitCosts) string {
	for _, c := range d.Rows {
		if !c.Period.Equal(c.Period.Truncate(24 * time.Hour)) {
			return "2006-01-02 15:04"
		}
	}
	return time.DateOnly
}

// unitsPicture draws the unit cost in each period, by basis, over all keys, and the target.
func unitsPicture(d view.UnitCosts) string {
	var times []time.Time
	order := []costs.CountBasis{costs.AllocatedBasis, costs.UsedBasis, costs.IdleBasis}
	type sum struct{ dollars, made float64 }
	byBasis := map[costs.CountBasis][]sum{}
	for i, c := range d.Rows {
		if i == 0 || !c.Period.Equal(d.Rows[i-1].Period) { // rows are in time order
			times = append(times, c.Period)
			for _, b := range order {
				byBasis[b] = append(byBasis[b], sum{})
			}
		}
		s := &byBasis[c.Basis][len(times)-1]
		if c.Cost == nil {
			continue
		}
		s.dollars += float64(*c.Amount) / float64(money.USD)
		s.made += float64(c.Count) / 1000
	}
	if len(times) == 0 {
		return ""
	}
	picture := chart.Lines{
		Title: "Unit cost per " + unitName(d) + " by period", X: chart.Dates(times[0], times[len(times)-1]),
		Y: chart.Axis{Label: "dollars per " + unitName(d), Format: unitDollars}}
	for i, b := range order {
		s := chart.Series{Name: string(b), Color: []chart.Color{chart.Ink, chart.Blue, chart.Orange}[i]}
		for j, x := range byBasis[b] {
			each := math.NaN() // nothing was counted
			if x.made > 0 {
				each = x.dollars / x.made * float64(d.Per)
			}
			s.Points = append(s.Points, chart.Point{X: chart.Second(times[j]), Y: each})
		}
		picture.Series = append(picture.Series, s)
	}
	if d.Target != nil {
		picture.Limits = []chart.Mark{{At: float64(*d.Target) / float64(money.USDPerUnit), Label: "target"}}
	}
	return picture.SVG()
}

// unitDollars formats dollars per unit.
func unitDollars(v float64) string {
	if v == 0 {
		return "$0"
	}
	return money.Rate(math.Round(v * float64(money.USDPerUnit))).Dollars()
}

// unitNote compares a unit cost with its target and with the first period.
func unitNote(d view.UnitCosts, c costs.UnitCost) string {
	var notes []string
	if d.Target != nil {
		note := "target " + d.Target.Dollars()
		if c.OverTarget {
			note += ", exceeded"
		}
		notes = append(notes, note)
	}
	if d.Trend != nil {
		notes = append(notes, plain.Change(*d.Trend)+" since the first period")
	}
	return strings.Join(notes, "; ")
}
