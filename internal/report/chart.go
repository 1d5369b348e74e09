package report

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Measures of charts, in pixels.
const (
	chartWidth  = 720.0
	chartHeight = 240.0
	chartLeft   = 90.0
	labelWidth  = 150.0
	valueWidth  = 260.0
	rowHeight   = 30.0
)

// Measure is one bar of a chart.
type Measure struct {
	Label string
	// Share is its length, 0 to 1 of the longest; less draws nothing.
	Share float64
	// From and To are a band to compare it with, on the same scale; equal is none.
	From, To float64
	Value    string
}

// Bars draws one horizontal bar a measure, each with its band outlined.
func Bars(title string, all []Measure) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s" font-size="13">`, chartWidth, rowHeight*float64(max(1, len(all)))+10, html.EscapeString(plain.Line(title)))
	most := 0.0
	for _, m := range all {
		most = max(most, m.Share, m.To)
	}
	scale := (chartWidth - labelWidth - valueWidth) / max(most, 1e-9)
	for i, m := range all {
		y := rowHeight*float64(i) + 6
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end" fill="currentColor">%s</text>`, labelWidth-10, y+15, html.EscapeString(fit(plain.Line(m.Label), 22)))
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%.1f" height="18" fill="#3565b0"/>`, labelWidth, y, max(0, m.Share*scale))
		if m.To > m.From {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%g" width="%.1f" height="24" fill="none" stroke="currentColor" stroke-dasharray="3 2"/>`, labelWidth+m.From*scale, y-3, (m.To-m.From)*scale)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" fill="currentColor">%s</text>`, labelWidth+max(m.Share, m.To, 0)*scale+8, y+15, html.EscapeString(plain.Line(m.Value)))
	}
	b.WriteString("</svg>")
	return b.String()
}

// Series is one line of a chart over time. NaN is a moment of which nothing is known.
type Series struct {
	Name   string
	Values []float64
}

// seriesColors are told apart by those who see no colors by their brightness too.
var seriesColors = []string{"#1f7f57", "#c5432d", "#8b8b8b"}

// Lines draws series over common moments, named by labels, the first of which is the
// left end. The axis begins at zero; value writes what is at its top.
func Lines(title string, labels []string, all []Series, value func(float64) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s" font-size="12">`, chartWidth, chartHeight, html.EscapeString(plain.Line(title)))
	most := 0.0
	for _, s := range all {
		for _, v := range s.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				most = max(most, v)
			}
		}
	}
	const top, bottom = 30.0, 30.0
	high, wide := chartHeight-top-bottom, chartWidth-chartLeft-20
	if most == 0 || len(labels) == 0 {
		fmt.Fprintf(&b, `<text x="%g" y="%g" fill="currentColor">there is nothing to draw</text></svg>`, chartLeft, chartHeight/2)
		return b.String()
	}
	for _, share := range []float64{0, 0.5, 1} {
		y := top + high*(1-share)
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" stroke-opacity=".2"/>`, chartLeft, y, chartLeft+wide, y)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" fill="currentColor">%s</text>`, chartLeft-8, y+4, html.EscapeString(plain.Line(value(most*share))))
	}
	at := func(i int) float64 {
		if len(labels) == 1 {
			return chartLeft + wide/2
		}
		return chartLeft + wide*float64(i)/float64(len(labels)-1)
	}
	for k, s := range all {
		color := seriesColors[k%len(seriesColors)]
		fmt.Fprintf(&b, `<rect x="%g" y="6" width="10" height="10" fill="%s"/><text x="%g" y="15" fill="currentColor">%s</text>`,
			chartLeft+150*float64(k), color, chartLeft+150*float64(k)+14, html.EscapeString(plain.Line(s.Name)))
		var path strings.Builder
		pen := "M"
		for i, v := range s.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				pen = "M"
				continue
			}
			y := top + high*(1-max(0, v)/most)
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, at(i), y)
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"><title>%s</title></circle>`, at(i), y, color,
				html.EscapeString(plain.Line(labels[min(i, len(labels)-1)]+" "+s.Name+" "+value(v))))
			pen = "L"
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`, path.String(), color)
	}
	for _, i := range []int{0, len(labels) - 1} {
		anchor := "start"
		if i > 0 {
			anchor = "end"
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="%s" fill="currentColor">%s</text>`, at(i), chartHeight-10, anchor, html.EscapeString(plain.Line(labels[i])))
		if len(labels) == 1 {
			break
		}
	}
	b.WriteString("</svg>")
	return b.String()
}
