package costs

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"

	"github.com/curfew-dev/curfew/internal/money"
)

// Measures of the picture, in pixels.
const (
	svgWidth, svgHeight = 720.0, 260.0
	svgLeft, svgTop     = 80.0, 30.0
	svgBottom, svgRight = 30.0, 10.0
	maxBars             = 400
	// Those of bars that lie, one for each of a few rows.
	svgKeys, svgLine, maxLying = 205.0, 24.0, 12
	maxKeyLetters              = 26
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

// add adds a row.
func (b *bar) add(c *Cost) {
	for j, l := range layers {
		b.parts[j] += float64(l.value(c)) / float64(money.USD)
	}
}

// height is what is drawn of a bar: what corrections took below zero is not.
func (b *bar) height() float64 {
	sum := 0.0
	for _, v := range b.parts {
		sum += max(v, 0)
	}
	return sum
}

// next returns the start of the period after the one that starts at a time.
func next(g ledger.Granularity, t time.Time) time.Time {
	switch g {
	case ledger.Hourly:
		return t.Truncate(time.Hour).Add(time.Hour)
	case ledger.Daily:
		return t.Truncate(24*time.Hour).AddDate(0, 0, 1)
	case ledger.Monthly:
		return time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
}

// bars adds up the rows of each period from the first to the last, several periods to
// one where there are many. A period without a row is an empty one.
func (c *Costs) bars() []bar {
	var out []bar
	for i := range c.Rows {
		r := &c.Rows[i]
		for n := len(out); n == 0 || out[n-1].at.Before(r.Period); n = len(out) {
			at := r.Period
			if n > 0 {
				at = earliest(at, next(ledger.Granularity(c.Granularity), out[n-1].at))
			}
			out = append(out, bar{at: at})
		}
		out[len(out)-1].add(r)
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

// SVG draws what was spent, in parts: used, other, not judged and wasted. Over time it is
// a bar for each period; where there is one period for all, one for each row.
func (c *Costs) SVG() string {
	bars := c.bars()
	if len(bars) == 1 && len(c.By) > 0 {
		return c.lying()
	}
	top := 0.0
	for i := range bars {
		top = max(top, bars[i].height())
	}
	var b strings.Builder
	legend(&b, svgHeight, "Cost over time, used and wasted")
	if top == 0 {
		fmt.Fprintf(&b, `<text x="%g" y="%g" fill="currentColor">nothing was charged in this time</text></svg>`, svgLeft, svgHeight/2)
		return b.String()
	}
	step := tick(top)
	top = step * math.Ceil(top/step)
	for v := 0.0; v < top+step/2; v += step {
		y := svgHeight - svgBottom - v/top*(svgHeight-svgTop-svgBottom)
		fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" stroke-opacity=".2"/>`, svgLeft, y, svgWidth-svgRight, y)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, svgLeft-8, y+4, usd(v))
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
				html.EscapeString(fmt.Sprintf("%s %s %s", c.moment(s.at), l.name, usd(s.parts[j]))))
		}
	}
	for _, i := range slices.Compact([]int{0, len(bars) / 2, len(bars) - 1}) {
		anchor, x := "middle", svgLeft+slot*(float64(i)+0.5)
		switch {
		case len(bars) > 1 && i == 0:
			anchor, x = "start", svgLeft
		case len(bars) > 1 && i == len(bars)-1:
			anchor, x = "end", svgWidth-svgRight
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="%s" font-size="12" fill="currentColor">%s</text>`, x, svgHeight-8, anchor, c.moment(bars[i].at))
	}
	b.WriteString("</svg>")
	return b.String()
}

// lying draws a bar for each of the largest rows, and one for the others together.
func (c *Costs) lying() string {
	var bars []bar
	var names []string
	for i := range c.Rows {
		if i < maxLying-1 || len(c.Rows) == maxLying {
			bars, names = append(bars, bar{}), append(names, c.Rows[i].label(c.By))
		} else if i == maxLying-1 {
			bars, names = append(bars, bar{}), append(names, fmt.Sprintf("%d others", len(c.Rows)-i))
		}
		bars[len(bars)-1].add(&c.Rows[i])
	}
	top := 0.0
	for i := range bars {
		top = max(top, bars[i].height())
	}
	var b strings.Builder
	legend(&b, svgTop+svgLine*float64(len(bars)), "Cost by "+string(c.By[0])+", used and wasted")
	for i := range bars {
		y := svgTop + svgLine*float64(i)
		text := func(x float64, anchor, s string) {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="12" fill="currentColor">%s</text>`, x, y+svgLine*0.65, anchor, html.EscapeString(s))
		}
		text(svgKeys-8, "end", names[i])
		x, sum := svgKeys, 0.0
		for j, l := range layers {
			v := bars[i].parts[j]
			sum += v
			if v <= 0 {
				continue
			}
			wide := v / top * (svgWidth - svgKeys - svgLeft)
			fmt.Fprintf(&b, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"><title>%s</title></rect>`, x, y+3, wide, svgLine-6, l.color,
				html.EscapeString(fmt.Sprintf("%s %s %s", names[i], l.name, usd(v))))
			x += wide
		}
		text(x+6, "start", usd(sum))
	}
	b.WriteString("</svg>")
	return b.String()
}

// label names a row, from its end where it is long: what tells references apart is there.
func (c *Cost) label(by []ledger.Dimension) string {
	words := make([]string, len(c.Key))
	for i, k := range c.Key {
		words[i] = by[i].Label(k)
	}
	text := []rune(strings.Join(words, " "))
	if len(text) > maxKeyLetters {
		return "…" + string(text[len(text)-maxKeyLetters+1:])
	}
	return string(text)
}

// legend begins a picture of some height and says what its colors are.
func legend(b *strings.Builder, high float64, about string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, svgWidth, high, html.EscapeString(about))
	x := svgLeft
	for _, l := range layers {
		fmt.Fprintf(b, `<rect x="%g" y="5" width="10" height="10" fill="%s"/><text x="%g" y="14" font-size="12" fill="currentColor">%s</text>`, x, l.color, x+14, l.name)
		x += 120
	}
}

// tick is the distance of three to six lines up to an amount: 1, 2 or 5 times a power of
// ten, and no part of a cent.
func tick(top float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(top/3)))
	for _, n := range []float64{5, 2} {
		if n*power <= top/3 {
			return max(n*power, 0.01)
		}
	}
	return max(power, 0.01)
}

func usd(v float64) string { return money.Amount(math.Round(v * float64(money.USD))).Dollars() }

// moment prints the start of a period as short as the granularity allows.
func (c *Costs) moment(t time.Time) string {
	switch ledger.Granularity(c.Granularity) {
	case ledger.Hourly:
		return t.Format("Jan 2 15:04")
	case ledger.Monthly:
		return t.Format("Jan 2006")
	}
	return t.Format("Jan 2 2006")
}
