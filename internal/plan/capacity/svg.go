package capacity

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Measures of the picture, in pixels.
const (
	svgWidth  = 720.0
	svgHeight = 260.0
	svgLeft   = 70.0
	svgRight  = 50.0
	svgTop    = 44.0
	svgBottom = 46.0
)

// mark is a point of the picture.
type mark struct {
	x, y  float64
	label string
}

// SVG draws the p99 latency against the number of replicas, with the objective as a
// dashed line; without a profile the mean wait of as many servers against their load,
// with the target. What is higher than three times the objective, or the plan's own
// latency where that is more, is drawn at the upper edge with its value.
func (r Report) SVG() string {
	var marks []mark
	var line, here float64
	title, below := "p99 latency in ms by number of replicas", "replicas (share of time busy)"
	if r.P99LatencyMS == nil {
		title, below = fmt.Sprintf("Mean wait in service times by load of %s (Erlang C)", plain.Count(r.Replicas, "replica")), "load"
		line, here = waitTarget, r.Load
		for percent := 10; percent <= 95; percent += 5 {
			label := ""
			if percent%10 == 0 {
				label = strconv.Itoa(percent) + "%"
			}
			marks = append(marks, mark{float64(percent) / 100, ErlangWait(r.Replicas, float64(percent)/100), label})
		}
	} else {
		here = float64(r.Replicas)
		if r.ObjectiveMS != nil {
			line = *r.ObjectiveMS
		}
		for _, c := range r.Curve {
			marks = append(marks, mark{float64(c.Replicas), c.P99LatencyMS, fmt.Sprintf("%d (%.0f%%)", c.Replicas, 100*c.Utilization)})
		}
	}
	return plot(title, below, marks, line, here)
}

// plot draws marks joined by a line, a dashed line across, and a line up where the plan
// is.
func plot(title, below string, marks []mark, across, here float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" font-family="system-ui, sans-serif" font-size="12">`, svgWidth, svgHeight)
	fmt.Fprintf(&b, "\n<title>%s</title>\n", title)
	if len(marks) == 0 {
		fmt.Fprintf(&b, `<text x="%g" y="%g" fill="currentColor">these replicas cannot serve the rate: the latency grows without end</text></svg>`+"\n", svgLeft, svgHeight/2)
		return b.String()
	}
	low, high, bound, top := marks[0].x, marks[len(marks)-1].x, 3*across, across
	for _, m := range marks {
		if m.x == here {
			bound = max(bound, m.y)
		}
	}
	for _, m := range marks {
		if bound == 0 || m.y <= bound {
			top = max(top, m.y)
		} else {
			top = bound
			break
		}
	}
	low, high = min(low, here), max(high, here)
	if high == low {
		low, high = low-1, high+1
	}
	x := func(v float64) float64 { return svgLeft + (svgWidth-svgLeft-svgRight)*(v-low)/(high-low) }
	y := func(v float64) float64 { return svgHeight - svgBottom - (svgHeight-svgTop-svgBottom)*min(v/top, 1) }
	rule := func(v float64, style, label string) {
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" %s/>`, svgLeft, y(v), svgWidth-svgRight, y(v), style)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" fill="currentColor">%s</text>`+"\n", svgLeft-8, y(v)+4, label)
	}
	fmt.Fprintf(&b, `<text x="%g" y="16" fill="currentColor">%s</text>`+"\n", svgLeft, title)
	rule(0, `stroke-opacity=".6"`, "0")
	if across > 0 {
		rule(across, `stroke-dasharray="6 4"`, short(across))
	}
	fmt.Fprintf(&b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="currentColor" stroke-dasharray="2 4" stroke-opacity=".6"/>`+"\n", x(here), svgTop, x(here), svgHeight-svgBottom)
	var points []string
	for _, m := range marks {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(m.x), y(m.y)))
		color := "#1f7f57"
		if across > 0 && m.y > across {
			color = "#c5432d"
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`, x(m.x), y(m.y), color, short(m.y))
		if m.label != "" {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="currentColor">%s</text>`, x(m.x), y(m.y)-8, short(m.y))
			fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle" fill="currentColor">%s</text>`+"\n", x(m.x), svgHeight-svgBottom+18, m.label)
		}
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#3b6fb6" stroke-width="2"/>`+"\n", strings.Join(points, " "))
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle" fill="currentColor">%s</text></svg>`+"\n", (svgLeft+svgWidth-svgRight)/2, svgHeight-8, below)
	return b.String()
}

// short prints a value of the picture.
func short(v float64) string {
	if v >= 100 {
		return money.Thousands(int64(math.Round(v)))
	}
	return plain.Number(v, 2)
}
