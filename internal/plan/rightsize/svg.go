package rightsize

import (
	"fmt"
	"html"
	"strings"
)

// maxRows is how many resources the picture shows.
const maxRows = 40

// SVG draws the utilization of each resource from median to 95th percentile, with the
// mean as a dot, over the lines between the verdicts. At most 40 resources are drawn.
func (r Report) SVG() string {
	const width, label, row, top = 720.0, 190.0, 22.0, 24.0
	shown := r.Resources[:min(len(r.Resources), maxRows)]
	height := top + row*float64(len(shown)) + 10
	if len(shown) < len(r.Resources) {
		height += row
	}
	x := func(percent float64) float64 { return label + (width-label-20)*percent/100 }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="GPU utilization of each resource, median to 95th percentile, in percent">`, width, height)
	for _, v := range []float64{0, overprovisionedBelow, underutilizedBelow, scaleOutAbove, 100} {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="currentColor" stroke-opacity=".2"/>`, x(v), top-4, x(v), height-6)
		fmt.Fprintf(&b, `<text x="%.1f" y="14" text-anchor="middle" font-size="12" fill="currentColor">%g</text>`, x(v), v)
	}
	for i, it := range shown {
		y := top + row*float64(i) + row/2
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, label-8, y+4, html.EscapeString(short(it.Name)))
		if it.UtilP50 == nil || it.UtilP95 == nil || it.UtilMean == nil {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" font-size="12" fill="currentColor" fill-opacity=".6">not measured</text>`, x(0)+6, y+4)
			continue
		}
		color := map[string]string{string(Overprovisioned): "#c5432d", string(Underutilized): "#b98512", string(WellUsed): "#1f7f57", string(ScaleOut): "#3565b0"}[it.Verdict]
		if color == "" {
			color = "#888888"
		}
		low, high := min(*it.UtilP50, *it.UtilP95), max(*it.UtilP50, *it.UtilP95)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="8" rx="3" fill="%s" fill-opacity=".45"/>`, x(low), y-4, max(x(high)-x(low), 2), color)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`, x(*it.UtilMean), y, color)
	}
	if hidden := len(r.Resources) - len(shown); hidden > 0 {
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" font-size="12" fill="currentColor">and %d more</text>`, label, height-8, hidden)
	}
	b.WriteString("</svg>")
	return b.String()
}

// short cuts a name to what fits beside its bar.
func short(name string) string {
	letters := []rune(name)
	if len(letters) <= 26 {
		return name
	}
	return string(letters[:25]) + "…"
}
