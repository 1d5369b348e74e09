package ledger

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Measures of the picture, in pixels.
const (
	svgWidth, svgHeight = 720.0, 260.0
	svgLeft, svgTop     = 80.0, 30.0
	svgBottom, svgRight = 30.0, 10.0
	maxBars             = 400
)

// layers of the picture, from the bottom up.
var layers = []struct {
	name, color string
	value       func(c *Cost) Dollars
}{
	{"used", "#1f7f57", func(c *Cost) Dollars { return c.Used }},
	{"other", "#3565b0", func(c *Cost) Dollars { return c.Other }},
	{"cannot judge", "#8b8b8b", func(c *Cost) Dollars { return c.CannotJudge }},
	{"wasted", "#c5432d", func(c *Cost) Dollars { return c.Wasted }},
}

// bar is what a stretch of time costs, in dollars by layer.
type bar struct {
	at    time.Time
	parts [4]float64
}

// bars adds up the rows of each period, several periods to one where there are many.
func (c *Costs) bars() []bar {
	var out []bar
	for i := range c.Rows {
		r := &c.Rows[i]
		if n := len(out); n == 0 || !out[n-1].at.Equal(r.Period) {
			out = append(out, bar{at: r.Period})
		}
		for j, l := range layers {
			out[len(out)-1].parts[j] += float64(l.value(r)) / float64(money.USD)
		}
	}
	each := (len(out) + maxBars - 1) / maxBars
	if each <= 1 {
		return out
	}
	var merged []bar
	for chunk := range slices.Chunk(out, each) {
		sum := bar{at: chunk[0].at}
		for _, b := range chunk {
			for j := range sum.parts {
				sum.parts[j] += b.parts[j]
			}
		}
		merged = append(merged, sum)
	}
	return merged
}

// SVG draws what was spent over time, stacked by used, other, not judged and wasted.
// What corrections took below zero is not drawn.
func (c *Costs) SVG() string {
	bars := c.bars()
	top := 0.0
	for _, b := range bars {
		sum := 0.0
		for _, v := range b.parts {
			sum += max(v, 0)
		}
		top = max(top, sum)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Cost over time, used and wasted">`, svgWidth, svgHeight)
	x := svgLeft
	for _, l := range layers {
		fmt.Fprintf(&b, `<rect x="%g" y="5" width="10" height="10" fill="%s"/><text x="%g" y="14" font-size="12" fill="currentColor">%s</text>`, x, l.color, x+14, l.name)
		x += 120
	}
	if top == 0 {
		fmt.Fprintf(&b, `<text x="%g" y="%g" fill="currentColor">nothing was charged in this time</text></svg>`, svgLeft, svgHeight/2)
		return b.String()
	}
	for _, share := range []float64{0, 0.5, 1} {
		y := svgHeight - svgBottom - share*(svgHeight-svgTop-svgBottom)
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" stroke-opacity=".2"/>`, svgLeft, y, svgWidth-svgRight, y)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, svgLeft-8, y+4, money.Amount(share*top*float64(money.USD)).Dollars())
	}
	slot := (svgWidth - svgLeft - svgRight) / float64(len(bars))
	for i, s := range bars {
		y := svgHeight - svgBottom
		for j, l := range layers {
			high := max(s.parts[j], 0) / top * (svgHeight - svgTop - svgBottom)
			if high <= 0 {
				continue
			}
			y -= high
			fmt.Fprintf(&b, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"><title>%s</title></rect>`, svgLeft+slot*float64(i), y, max(slot*0.9, 0.5), high, l.color,
				html.EscapeString(fmt.Sprintf("%s %s %s", c.moment(s.at), l.name, money.Amount(s.parts[j]*float64(money.USD)).Dollars())))
		}
	}
	for _, i := range slices.Compact([]int{0, len(bars) / 2, len(bars) - 1}) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle" font-size="12" fill="currentColor">%s</text>`, svgLeft+slot*(float64(i)+0.5), svgHeight-8, c.moment(bars[i].at))
	}
	b.WriteString("</svg>")
	return b.String()
}

// moment prints the start of a period as short as the granularity allows.
func (c *Costs) moment(t time.Time) string {
	switch Granularity(c.Granularity) {
	case Hourly:
		return t.Format("Jan 2 15:04")
	case Monthly:
		return t.Format("Jan 2006")
	}
	return t.Format("Jan 2 2006")
}
