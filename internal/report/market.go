package report

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/market"
	"github.com/curfew-dev/curfew/internal/price"
)

// marketPicture draws what a dollar an hour buys of each accelerator, oldest first, with a bar
// for its best offer of each purchase option.
func marketPicture(r market.Report) string {
	const width, label, bar, group, top = 720.0, 150.0, 9.0, 8.0, 26.0
	var names []string
	most := 0.0
	for _, o := range r.Accelerators {
		if !slices.Contains(names, o.Accelerator) {
			names = append(names, o.Accelerator)
		}
		most = max(most, o.PerDollar)
	}
	height := top + group*float64(len(names)) + (bar+2)*float64(len(r.Accelerators)) + 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s of each accelerator, oldest first">`, width, height, html.EscapeString(r.Unit))
	colors := map[price.Term]string{price.OnDemand: "#3565b0", price.Spot: "#1f7f57", price.Reserved: "#b98512"}
	x := label
	for _, t := range []price.Term{price.OnDemand, price.Spot, price.Reserved} {
		fmt.Fprintf(&b, `<rect x="%g" y="5" width="10" height="10" fill="%s"/><text x="%g" y="14" font-size="12" fill="currentColor">%s</text>`, x, colors[t], x+14, t)
		x += 100
	}
	y := top
	for _, name := range names {
		first := y
		for _, o := range r.Accelerators {
			if o.Accelerator != name {
				continue
			}
			long := max((width-label-90)*o.PerDollar/most, 1)
			fmt.Fprintf(&b, `<rect x="%g" y="%.1f" width="%.1f" height="%g" rx="2" fill="%s"><title>%s</title></rect>`, label, y, long, bar, colors[o.Option],
				html.EscapeString(fmt.Sprintf("%s in %s, %s, $%s an hour of %s", o.Machine, o.Region, o.Option, o.HourlyUSD, o.AsOf)))
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" font-size="11" fill="currentColor">%s</text>`, label+long+6, y+bar-0.5, plain.Number(o.PerDollar, 1))
			y += bar + 2
		}
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, label-8, (first+y)/2+3, html.EscapeString(name))
		y += group
	}
	b.WriteString("</svg>")
	return b.String()
}

// shownOffers is how many offers the table shows; JSON has all.
const shownOffers = 25

// Market ranks machines by work per dollar.
func Market(r market.Report) Sheet {
	s := Sheet{Verb: "plan market", Picture: marketPicture(r), Caption: "The best offer of each accelerator and purchase option, by year of release.",
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes, Title: "no machine has a price to be ranked by"}
	if len(r.Offers) > 0 {
		best := r.Offers[0]
		s.Title = fmt.Sprintf("%s in %s, %s, gives the most: %s %s", best.Machine, best.Region, best.Option, plain.Number(best.PerDollar, 2), r.Unit)
	}
	g := Grid{Title: "work per dollar", Head: []string{"#", "machine", "accelerator", "year", "region", "option", r.Unit, "$/h", "price of"},
		Right: []bool{true, false, false, true, false, false, true, true, false}}
	for _, o := range r.Offers[:min(len(r.Offers), shownOffers)] {
		g.Rows = append(g.Rows, []string{fmt.Sprint(o.Rank), o.Machine, plain.Number(o.Devices, 2) + " × " + o.Accelerator, fmt.Sprint(o.Released), o.Region,
			string(o.Option), plain.Number(o.PerDollar, 2), o.HourlyUSD, o.AsOf})
	}
	s.Tables = append(s.Tables, g)
	if len(r.Blocks) > 0 {
		g := Grid{Title: "capacity blocks, paid up front", Head: []string{"machine", "region", r.Unit, "whole", "price of"}, Right: []bool{false, false, true, true, false}}
		for _, b := range r.Blocks[:min(len(r.Blocks), shownOffers)] {
			g.Rows = append(g.Rows, []string{b.Machine, b.Region, plain.Number(b.PerDollar, 2), "$" + b.UpfrontUSD, b.AsOf})
		}
		s.Tables = append(s.Tables, g)
	}
	if n := len(r.Offers) - shownOffers; n > 0 {
		s.Coverage = append(s.Coverage, plain.Count(n, "more offer is", "more offers are")+" in -o json")
	}
	if len(r.Unranked) > 0 {
		s.Coverage = append(s.Coverage, plain.Count(len(r.Unranked), "machine is", "machines are")+" not ranked for want of a price or a figure; -o json names them")
	}
	return s
}
