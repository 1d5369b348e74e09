package commit

import (
	"fmt"
	"html"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Measures of the picture, in pixels; buckets is how many stretches the window is drawn
// in at most.
const (
	svgWidth, svgHeight  = 720.0, 260.0
	svgLeft, svgTop      = 70.0, 10.0
	svgBottom, svgLegend = 24.0, 20.0
	buckets              = 240
	onDemandName         = "on demand"
	onDemandColor        = "#c5432d"
	maxLegend            = 8
)

// layerColors are those of commitments, from the baseline up.
var layerColors = []string{"#1f7f57", "#2f6db3", "#8a5fb5", "#b8862b", "#4a9aa5", "#7a8b3c"}

// layer is what one commitment covers, or what is left on demand, by stretch of the
// window, in dollars an hour at on-demand prices.
type layer struct {
	name  string
	mean  []float64
	rests bool
}

// layers replays lines and keeps the picture.
func (d *demand) layers(lines []line) (outcome, []layer, error) {
	per := (d.hours + buckets - 1) / buckets
	out := make([]layer, len(lines)+1)
	for i := range out {
		out[i].mean = make([]float64, (d.hours+per-1)/per)
		if i == len(lines) {
			out[i].name, out[i].rests = onDemandName, true
			break
		}
		l := lines[i]
		size := fmt.Sprint(l.level)
		if l.offer.Kind == SavingsPlan {
			size = money.Amount(l.level).Dollars() + "/h"
		}
		out[i].name = strings.Join([]string{size, l.offer.Key, string(l.offer.Kind)}, " ")
		if l.existing != nil {
			out[i].name += ", existing"
		}
	}
	o, err := d.replay(lines, func(t int, took, left []money.Amount) {
		share := 1 / float64(min(per, d.hours-t/per*per)) / float64(money.USD)
		for i, a := range took {
			out[i].mean[t/per] += float64(a) * share
		}
		for _, a := range left {
			out[len(lines)].mean[t/per] += float64(a) * share
		}
	})
	return o, out, err
}

// SVG draws demand over the window in dollars an hour at on-demand prices: what each
// commitment covers, the baseline lowest, and what is left on demand. A long window is
// drawn in 240 stretches, each by its mean.
func (r Report) SVG() string {
	n := 0
	for _, l := range r.layers {
		n = max(n, len(l.mean))
	}
	legend := min(len(r.layers), maxLegend+1)
	height := svgHeight + svgLegend*float64(legend)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Demand in dollars an hour, by what covers it">`, svgWidth, height)
	top := make([]float64, n)
	for _, l := range r.layers {
		for i, v := range l.mean {
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
	x := func(i int) float64 { return svgLeft + (svgWidth-svgLeft-10)*float64(i)/float64(max(n, 1)) }
	y := func(v float64) float64 { return svgTop + (svgHeight-svgBottom-svgTop)*(1-v/high) }
	for _, share := range []float64{0, .5, 1} {
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" stroke-opacity=".15"/>`, svgLeft, y(share*high), svgWidth-10, y(share*high))
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">$%s/h</text>`, svgLeft-8, y(share*high)+4, plain.Number(share*high, 2))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" font-size="12" fill="currentColor">%s</text>`, svgLeft, svgHeight-6, r.Start.Format("2006-01-02"))
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, svgWidth-10, svgHeight-6, r.End.Format("2006-01-02"))
	below := make([]float64, n)
	for i, l := range r.layers {
		color, opacity := layerColors[i%len(layerColors)], .85
		if l.rests {
			color, opacity = onDemandColor, .35
		}
		var upper, lower []string
		for j, v := range l.mean {
			upper = append(upper, fmt.Sprintf("%.1f,%.1f %.1f,%.1f", x(j), y(below[j]+v), x(j+1), y(below[j]+v)))
			lower = append(lower, fmt.Sprintf("%.1f,%.1f %.1f,%.1f", x(j+1), y(below[j]), x(j), y(below[j])))
			below[j] += v
		}
		for j := len(lower) - 1; j >= 0; j-- {
			upper = append(upper, lower[j])
		}
		fmt.Fprintf(&b, `<polygon points="%s" fill="%s" fill-opacity="%g"><title>%s</title></polygon>`, strings.Join(upper, " "), color, opacity, html.EscapeString(l.name))
		// The legend names the first layers; the last line is always on demand.
		row := i
		if l.rests {
			row = legend - 1
		}
		if row >= legend-1 && !l.rests {
			continue
		}
		at := svgHeight + svgLegend*float64(row)
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="12" height="12" fill="%s" fill-opacity="%g"/><text x="%g" y="%g" font-size="12" fill="currentColor">%s</text>`,
			svgLeft, at, color, opacity, svgLeft+18, at+11, html.EscapeString(l.name))
	}
	b.WriteString("</svg>")
	return b.String()
}
