package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// whyRows bounds the rows printed for a figure; JSON has all.
const whyRows = 20

// Why explains a figure of an audit, or lists the figures.
func Why(d view.Why) layout.Sheet {
	s := layout.Sheet{Verb: "why", Scope: []string{plain.Time(d.At)}}
	if d.Cloud != "" {
		s.Scope = slices.Insert(s.Scope, 0, d.Cloud)
	}
	if d.Figure == "" {
		s.Title = plain.Count(len(d.Rows), "figure") + " of the last audit, budgets and bills, and each finding and resource"
		g := layout.Grid{
			Title: "figures", Head: []string{"amount", "figure", "what"}, Right: []bool{true},
			Code: []bool{false, true},
		}
		for _, r := range d.Rows {
			g.Rows = append(g.Rows, []string{r.AmountUSD.String(), r.Figure, r.Label})
		}
		s.Tables = []layout.Grid{g}
		return s
	}
	s.Title = d.ValueUSD.String() + ": " + d.Label
	s.Because = []string{d.Basis}
	if len(d.Rows) > 0 {
		s.Tables = []layout.Grid{whyTable(d)}
	}
	for _, p := range d.Prices {
		s.Coverage = append(s.Coverage, "prices: "+plain.Count(p.Charges, "meter")+" from "+p.Source+dated(p))
	}
	for _, e := range d.Excluded {
		s.Gaps = append(s.Gaps, layout.Gap{Name: "left out", Text: e})
	}
	if d.Command != "" {
		s.Next = append(s.Next, d.Command)
	}
	return s
}

// dated formats the price dates of a source, from the oldest to the newest.
func dated(p view.PriceSource) string {
	switch {
	case p.From == "":
		return ", undated"
	case p.From == p.To:
		return ", " + p.From
	}
	return ", " + p.From + " to " + p.To
}

// whyTable lists the terms of a figure, merging those beyond [whyRows]. Only meters have quantities
// and prices.
func whyTable(d view.Why) layout.Grid {
	g := layout.Grid{Title: "adds up from", Head: []string{"amount", "what"}, Right: []bool{true}}
	metered := slices.ContainsFunc(d.Rows, func(r view.WhyRow) bool { return r.UnitPrice != "" })
	divided := slices.ContainsFunc(d.Rows, func(r view.WhyRow) bool { return r.Figure != "" })
	row := func(usd money.Dollars, r view.WhyRow) {
		cells := []string{usd.String(), r.Label}
		if metered {
			quantity := strings.TrimSpace(r.Quantity + " " + r.Unit)
			cells = append(cells, cmp.Or(quantity, layout.None), cmp.Or(r.UnitPrice, layout.None))
		}
		if divided {
			cells = append(cells, cmp.Or(r.Figure, layout.None))
		}
		g.Rows = append(g.Rows, cells)
		g.Notes = append(g.Notes, r.Note)
	}
	if metered {
		g.Head = append(g.Head, "quantity", "price")
	}
	if divided {
		g.Head = append(g.Head, "why")
		g.Code = append(make([]bool, len(g.Head)-1), true)
	}
	shown := len(d.Rows)
	if shown > whyRows+1 {
		shown = whyRows
	}
	for _, r := range d.Rows[:shown] {
		row(r.AmountUSD, r)
	}
	if others := d.Rows[shown:]; len(others) > 0 {
		rest := money.Known(0)
		for _, r := range others {
			rest = rest.Plus(r.AmountUSD.Or(0))
		}
		row(rest, view.WhyRow{Label: plain.Count(len(others), "other row")})
	}
	return g
}
