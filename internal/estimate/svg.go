package estimate

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
)

// Measures of the picture, in pixels.
const (
	svgWidth = 720.0
	svgLeft  = 300.0
	svgRight = 90.0
	svgTop   = 30.0
	svgRow   = 24.0
)

// maxBars is how many lines are drawn; the dearest ones.
const maxBars = 12

// SVG draws the dearest lines as bars: filled to the p50, outlined to the p95. Texts are
// escaped, because names come from files.
func (e *Estimate) SVG() string {
	lines := slices.SortedStableFunc(slices.Values(e.Lines), func(a, b Line) int { return cmp.Compare(b.P95, a.P95) })
	lines = lines[:min(len(lines), maxBars)]
	top := money.Amount(1)
	for _, l := range lines {
		top = max(top, l.P95, l.P50)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" font-family="system-ui, sans-serif" font-size="12">`,
		svgWidth, svgTop+svgRow*float64(max(len(lines), 1))+10)
	fmt.Fprintf(&b, "\n<title>What it costs: filled in one case of two, outlined in nineteen of twenty</title>\n")
	if len(lines) == 0 {
		fmt.Fprintf(&b, `<text x="10" y="%g" fill="currentColor">nothing of it has a price</text>`+"\n", svgTop)
	}
	for i, l := range lines {
		y := svgTop + svgRow*float64(i)
		width := func(a money.Amount) float64 { return (svgWidth - svgLeft - svgRight) * money.Ratio(a, top) }
		name := l.What
		if l.Resource != "" {
			name = l.Resource + ": " + name
		}
		if short := []rune(name); len(short) > 46 {
			name = string(short[:45]) + "…"
		}
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end" fill="currentColor">%s</text>`, svgLeft-8, y+13, html.EscapeString(name))
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%.1f" height="16" fill="none" stroke="currentColor"/>`, svgLeft, y, width(l.P95))
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%.1f" height="16" fill="currentColor" fill-opacity="0.5"/>`, svgLeft, y, width(l.P50))
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" fill="currentColor">%s</text>`+"\n", svgLeft+width(l.P95)+6, y+13, l.P95.Dollars())
	}
	b.WriteString("</svg>\n")
	return b.String()
}
