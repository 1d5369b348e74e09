package market

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
)

// SVG draws what a dollar an hour buys of each accelerator, oldest first, with a bar
// for its best offer of each purchase option.
func (r Report) SVG() string {
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
				html.EscapeString(fmt.Sprintf("%s in %s, %s, %s an hour of %s", o.Machine, o.Region, o.Option, money.ForPeople(o.HourlyUSD), o.AsOf)))
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" font-size="11" fill="currentColor">%s</text>`, label+long+6, y+bar-0.5, plain.Number(o.PerDollar, 1))
			y += bar + 2
		}
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, label-8, (first+y)/2+3, html.EscapeString(name))
		y += group
	}
	b.WriteString("</svg>")
	return b.String()
}
