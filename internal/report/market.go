package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/market"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// shownOffers bounds the rows of a planner's table; JSON has all.
const shownOffers = 25

// shownAccelerators bounds the bars in the picture of the market.
const shownAccelerators = 20

// Market ranks machines by work per dollar.
func Market(r market.Report) layout.Sheet {
	s := layout.Sheet{
		Verb: "plan market", Picture: marketPicture(r),
		Caption:     "The best offer of each accelerator and purchase option.",
		Assumptions: r.Assumptions, Coverage: slices.Clip(r.CoverageNotes), Changes: r.Changes,
		Title: "No machine to rank: no price matches. Run curfew price update for current prices."}
	if len(r.Offers) > 0 {
		best := r.Offers[0]
		s.Title = fmt.Sprintf("Use %s in %s (%s, %s): %s %s", best.Machine, best.Region, optionName(best.Option),
			perHour(best.HourlyUSD), plain.Number(best.PerDollar, 1), r.Unit)
		s.Figures = append(s.Figures, layout.Figure{
			Label: "Best", Value: best.Machine, Note: optionName(best.Option) + " in " + best.Region,
		})
		for _, o := range r.Offers {
			if o.Option == price.OnDemand && best.Option != price.OnDemand {
				s.Figures = append(s.Figures, layout.Figure{
					Label: "Best on demand", Value: o.Machine, Note: plain.Number(o.PerDollar, 1) + " " + r.Unit,
				})
				break
			}
		}
		if best.Note != "" {
			s.Because = append(s.Because, best.Machine+" "+best.Note)
		}
		if i := slices.IndexFunc(r.Offers, func(o market.Offer) bool {
			return !strings.Contains(o.Note, market.NoCUDA)
		}); i > 0 {
			o := r.Offers[i]
			s.Figures = append(s.Figures, layout.Figure{
				Label: "Best for CUDA programs", Value: o.Machine,
				Note: fmt.Sprintf("%s %s, %s in %s", plain.Number(o.PerDollar, 1), r.Unit,
					optionName(o.Option), o.Region),
			})
		}
	}
	g := layout.Grid{
		Title: "Work per dollar (" + r.Unit + "), best first", Head: []string{
			"#", "machine", "accelerator", "region", "option", "work/$", "price", "date",
		},
		Right: []bool{true, false, false, false, false, true, true, false}, Least: []int{0, 12, 8, 9, 9},
		Priority: []int{0, 3, 1, 2, 2, 3, 3, 0}}
	for _, o := range r.Offers[:min(len(r.Offers), shownOffers)] {
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(o.Rank), o.Machine, plain.Number(o.Devices, 2) + " × " + o.Accelerator, o.Region,
			optionName(o.Option), plain.Number(o.PerDollar, 1), perHour(o.HourlyUSD), o.AsOf})
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	if len(r.Blocks) > 0 {
		g := layout.Grid{
			Title: "Capacity blocks, paid upfront",
			Head:  []string{"machine", "region", "work/$", "price of the block", "date"},
			Right: []bool{false, false, true, true, false},
		}
		for _, b := range r.Blocks[:min(len(r.Blocks), shownOffers)] {
			g.Rows = append(g.Rows, []string{
				b.Machine, b.Region, plain.Number(b.PerDollar, 1), b.UpfrontUSD.Dollars(), b.AsOf,
			})
		}
		s.Tables = append(s.Tables, g)
	}
	if n := len(r.Offers) - shownOffers; n > 0 {
		s.Coverage = append(s.Coverage, plain.Count(n, "more offer")+" in -o json")
	}
	if n := len(r.Unranked); n > 0 {
		s.Coverage = append(s.Coverage,
			plain.Count(n, "machine")+" not ranked, for lack of a price or a figure; -o json names them")
	}
	return s
}

// optionName formats a purchase option.
func optionName(t price.Term) string {
	if t == price.OnDemand {
		return "on demand"
	}
	return string(t)
}

// perHour formats an hourly price: "$21.96/h", "$0.0231/h".
func perHour(a money.Amount) string {
	r, err := a.Rate()
	if err != nil {
		return a.Dollars() + "/h"
	}
	return r.Dollars() + "/h"
}

// marketPicture draws the work per dollar of each accelerator, the most first, with a bar for its
// best offer of each purchase option.
func marketPicture(r market.Report) string {
	c := chart.Bars{
		Title: "Work per dollar of each accelerator: " + r.Unit,
		Axis:  chart.Axis{Label: r.Unit, Format: func(v float64) string { return plain.Number(v, 0) }},
	}
	var terms []price.Term // in use
	for _, t := range []struct {
		term  price.Term
		name  string
		color chart.Color
	}{
		{price.OnDemand, "on demand", chart.Blue}, {price.Spot, "spot (can be interrupted)", chart.Orange},
		{price.Reserved, "reserved", chart.Gray},
	} {
		if slices.ContainsFunc(r.Accelerators, func(o market.Offer) bool { return o.Option == t.term }) {
			terms, c.Parts, c.Colors = append(terms, t.term), append(c.Parts, t.name), append(c.Colors, t.color)
		}
	}
	for _, o := range slices.SortedStableFunc(slices.Values(r.Accelerators), func(a, b market.Offer) int {
		return cmp.Compare(b.PerDollar, a.PerDollar)
	}) {
		i := slices.Index(terms, o.Option)
		if i < 0 || len(c.Rows) == shownAccelerators {
			continue
		}
		parts := make([]float64, len(terms))
		parts[i] = o.PerDollar
		c.Rows = append(c.Rows, chart.Bar{
			Label: o.Accelerator, Parts: parts, Note: plain.Number(o.PerDollar, 1) + ", " + o.Machine,
		})
	}
	return c.SVG()
}
