package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/view"
)

// maxColumns bounds the periods drawn as separate columns, maxCostBars the rows drawn as bars.
const maxColumns, maxCostBars = 62, 12

// costParts are the parts of a cost, from the left and the bottom.
var costParts = []struct {
	name  string
	color chart.Color
	value func(c *costs.Cost) money.Amount
}{
	{"used", chart.Blue, func(c *costs.Cost) money.Amount { return c.Used }},
	{"storage, network, other", chart.SoftBlue, func(c *costs.Cost) money.Amount { return c.Other }},
	{"unmeasured", chart.Hatched, func(c *costs.Cost) money.Amount { return c.CannotJudge }},
	{"wasted", chart.Orange, func(c *costs.Cost) money.Amount { return c.Wasted }},
}

// inDollars converts an amount for an axis.
func inDollars(a money.Amount) float64 { return float64(a) / float64(money.USD) }

// costsPicture draws costs in parts: over time a column per period, for a single period a bar per
// row. It is empty without charges.
func costsPicture(c view.Costs) string {
	if c.Total.Amount == 0 {
		return ""
	}
	if c.Granularity == "total" {
		if len(c.By) == 0 {
			return ""
		}
		return costBars(c)
	}
	return costColumns(c)
}

// costColumns draws a column for each period from first to last, including those without charges,
// merging periods if there are many.
func costColumns(c view.Costs) string {
	var at []time.Time
	parts := make([]chart.Part, len(costParts))
	add := func(t time.Time) {
		at = append(at, t)
		for j := range parts {
			parts[j].Values = append(parts[j].Values, 0)
		}
	}
	g := ledger.Granularity(c.Granularity)
	for i := range c.Rows {
		r := &c.Rows[i]
		if len(at) == 0 {
			add(r.Period)
		}
		for at[len(at)-1].Before(r.Period) {
			next := nextPeriod(g, at[len(at)-1])
			if next.After(r.Period) {
				next = r.Period
			}
			add(next)
		}
		for j, p := range costParts {
			parts[j].Values[len(at)-1] += inDollars(p.value(r))
		}
	}
	each, unit := (len(at)+maxColumns-1)/maxColumns, c.Granularity
	if each > 1 {
		unit = plain.Count(each, unit)
	}
	chunks := 0
	for chunk := range slices.Chunk(at, max(each, 1)) {
		at[chunks] = chunk[0]
		chunks++
	}
	labels := make([]string, chunks)
	for i := range labels {
		labels[i] = at[i].Format(periodLayouts[c.Granularity])
	}
	for j, p := range costParts {
		sums := make([]float64, chunks)
		for i, v := range parts[j].Values {
			sums[i/max(each, 1)] += v
		}
		parts[j] = chart.Part{Name: p.name, Color: p.color, Values: sums}
	}
	return chart.Columns{Title: "Cost by " + c.Granularity + ", used and wasted", Labels: labels, X: c.Granularity,
		Y: chart.Axis{Label: "dollars a " + unit, Format: chart.USD}, Parts: parts}.SVG()
}

// nextPeriod returns the start of the next period.
func nextPeriod(g ledger.Granularity, t time.Time) time.Time {
	switch g {
	case ledger.Hourly:
		return t.Truncate(time.Hour).Add(time.Hour)
	case ledger.Daily:
		return t.Truncate(24*time.Hour).AddDate(0, 0, 1)
	}
	return time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

// periodLayouts print the start of a period as short as its length allows.
var periodLayouts = map[string]string{"hour": "2006-01-02 15:04", "day": time.DateOnly, "month": "2006-01"}

// costBars draws a bar for each of the largest rows, and one for the others together.
func costBars(c view.Costs) string {
	b := chart.Bars{
		Title: "Cost by " + string(c.By[0]) + ", used and wasted", Axis: chart.Axis{
			Label: "dollars", Format: chart.USD,
		},
		Ordered: true,
	}
	for _, p := range costParts {
		b.Parts, b.Colors = append(b.Parts, p.name), append(b.Colors, p.color)
	}
	for i := range c.Rows {
		switch {
		case i < maxCostBars-1 || len(c.Rows) == maxCostBars:
			b.Rows = append(b.Rows, chart.Bar{
				Label: costLabel(&c.Rows[i], c.By), Parts: make([]float64, len(costParts)),
			})
		case i == maxCostBars-1:
			b.Rows = append(b.Rows, chart.Bar{
				Label: fmt.Sprintf("%d others", len(c.Rows)-i), Parts: make([]float64, len(costParts)),
			})
		}
		for j, p := range costParts {
			b.Rows[len(b.Rows)-1].Parts[j] += inDollars(p.value(&c.Rows[i]))
		}
	}
	for i := range b.Rows {
		sum := 0.0
		for _, v := range b.Rows[i].Parts {
			sum += v
		}
		b.Rows[i].Note = dollarsText(sum)
	}
	return b.SVG()
}

// maxKeyLetters is the maximum length of a row's label.
const maxKeyLetters = 26

// costLabel returns the label of a row, truncated at the start if long, because references differ
// at their end.
func costLabel(c *costs.Cost, by []ledger.Dimension) string {
	words := make([]string, len(c.Key))
	for i, k := range c.Key {
		words[i] = by[i].Label(k)
	}
	text := []rune(strings.Join(words, " "))
	if len(text) > maxKeyLetters {
		return "…" + string(text[len(text)-maxKeyLetters+1:])
	}
	return string(text)
}
