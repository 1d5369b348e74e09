package spot

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Measures of the pictures, in pixels.
const (
	svgWidth = 720.0
	svgLeft  = 130.0
	svgRight = 60.0
	barStep  = 28.0
	barHigh  = 18.0
)

const (
	spotColor     = "#1f7f57"
	onDemandColor = "#c5432d"
	boundColor    = "#3b6fb6"
	fixedColor    = "#8a5fb5"
)

// SVG draws the saving of every strategy as a bar, with the bound as a dashed line, and
// below it one case of curfew: what it ran on over the time in which spot was up.
func (r Report) SVG() string {
	var b strings.Builder
	top := 24.0
	foot := top + barStep*float64(len(r.Results)) + 16
	open(&b, foot+90, "Saving against on-demand, by strategy")
	high := 0.01
	for _, x := range r.Results {
		high = max(high, x.Saving)
	}
	width := svgWidth - svgLeft - svgRight
	for i, x := range r.Results {
		y := top + barStep*float64(i)
		color := spotColor
		if x.Name == Bound {
			color = boundColor
		}
		w := width * max(x.Saving, 0) / high
		text(&b, svgLeft-8, y+barHigh-4, "end", x.Name)
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%.1f" height="%g" fill="%s"><title>%d of %d cases miss the deadline</title></rect>`, svgLeft, y, w, barHigh, color, x.Misses, x.Cases)
		text(&b, svgLeft+w+6, y+barHigh-4, "start", plain.Share(x.Saving, 1))
	}
	if bound := r.result(Bound).Saving; bound > 0 {
		x := svgLeft + width*bound/high
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="%s" stroke-dasharray="6 4"/>`, x, top-6, x, foot-16, boundColor)
	}
	s := r.shown
	text(&b, svgLeft, foot+14, "start", fmt.Sprintf("One case in %s, from hour %s on, %s h", s.zone, plain.Number(s.start, 0), plain.Number(float64(len(s.on))*s.gap, 1)))
	s.lane(&b, foot+22, "spot is up", func(i int) string {
		if s.up[i] {
			return "#9aa5ae"
		}
		return ""
	})
	s.lane(&b, foot+46, Curfew, func(i int) string {
		switch {
		case s.on[i] == onDemand:
			return onDemandColor
		case s.on[i] >= inZone:
			return spotColor
		}
		return ""
	})
	fmt.Fprintf(&b, `<rect x="%g" y="%g" width="10" height="10" fill="%s"/>`, svgLeft, foot+74, spotColor)
	text(&b, svgLeft+16, foot+84, "start", "spot")
	fmt.Fprintf(&b, `<rect x="%g" y="%g" width="10" height="10" fill="%s"/>`, svgLeft+60, foot+74, onDemandColor)
	text(&b, svgLeft+76, foot+84, "start", "on-demand")
	b.WriteString("</svg>\n")
	return b.String()
}

// lane draws stretches of one color; no color leaves a hole.
func (s timeline) lane(b *strings.Builder, y float64, name string, color func(int) string) {
	text(b, svgLeft-8, y+14, "end", name)
	x := func(i int) float64 {
		return svgLeft + (svgWidth-svgLeft-svgRight)*float64(i)/float64(max(len(s.on), 1))
	}
	for from := 0; from < len(s.on); {
		to, c := from+1, color(from)
		for to < len(s.on) && color(to) == c {
			to++
		}
		if c != "" {
			fmt.Fprintf(b, `<rect x="%.1f" y="%g" width="%.1f" height="%g" fill="%s"/>`, x(from), y, x(to)-x(from), barHigh, c)
		}
		from = to
	}
}

// SVG draws what every fixed interval keeps, with those of the rules marked, and as a
// dashed line what curfew keeps.
func (r CheckpointReport) SVG() string {
	const height, top, bottom = 280.0, 30.0, 46.0
	var b strings.Builder
	open(&b, height, "Share of paid time that ends as saved work, by interval")
	low, high := r.curve[0].interval.Seconds(), r.curve[len(r.curve)-1].interval.Seconds()
	most := 0.01
	for _, k := range r.curve {
		most = max(most, k.share)
	}
	for _, x := range r.Results {
		most = max(most, x.Kept)
	}
	x := func(s float64) float64 {
		return svgLeft + (svgWidth-svgLeft-svgRight)*math.Log(min(max(s, low), high)/low)/math.Log(high/low)
	}
	y := func(share float64) float64 { return height - bottom - (height-top-bottom)*share/most }
	fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="currentColor" stroke-opacity=".6"/>`, svgLeft, y(0), svgWidth-svgRight, y(0))
	var points []string
	for _, k := range r.curve {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(k.interval.Seconds()), y(k.share)))
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), boundColor)
	for i, k := range r.Results {
		label := k.Name + " " + plain.Share(k.Kept, 1)
		if k.Name == Curfew {
			fmt.Fprintf(&b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="%s" stroke-dasharray="6 4"/>`, svgLeft, y(k.Kept), svgWidth-svgRight, y(k.Kept), spotColor)
			text(&b, svgLeft+4, y(k.Kept)-5, "start", label)
			continue
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`, x(k.Interval), y(k.Kept), fixedColor, html.EscapeString(label))
		text(&b, svgLeft+8, y(0)-12-16*float64(i), "start", fmt.Sprintf("%s at %s", label, span(k.Interval)))
	}
	for _, s := range []float64{60, 600, 3600, 6 * 3600, 24 * 3600} {
		if s >= low && s <= high {
			text(&b, x(s), height-bottom+16, "middle", span(s))
		}
	}
	text(&b, (svgLeft+svgWidth-svgRight)/2, height-8, "middle", "work between two checkpoints")
	b.WriteString("</svg>\n")
	return b.String()
}

// span says seconds the way people do.
func span(seconds float64) string {
	return plain.Duration(time.Duration(math.Round(seconds)) * time.Second)
}

func open(b *strings.Builder, height float64, title string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" font-family="system-ui, sans-serif" font-size="12">`, svgWidth, height)
	fmt.Fprintf(b, "\n<title>%s</title>\n", title)
}

func text(b *strings.Builder, x, y float64, anchor, what string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="currentColor">%s</text>`+"\n", x, y, anchor, html.EscapeString(what))
}
