// Package chart draws the pictures of reports as inline SVG: [Bars] (plain, stacked,
// with bands, intervals and limits), [Columns] (stacked, over time), [Lines] (lines,
// steps, bands, limits) and [Lanes] (blocks on lanes, as in a Gantt chart).
//
// Each type is filled by the caller and drawn by its SVG method, which returns HTML for a
// page of this program:
//
//	picture := chart.Bars{
//		Title: "Cost by team", Axis: chart.Axis{Label: "dollars a month", Format: chart.USD},
//		Rows: []chart.Bar{{Label: "vision", Value: 39020}, {Label: "language", Value: 12311}},
//	}.SVG()
//
// The rules that all of them keep, and that the tests of the package check:
//
//   - Every axis has ticks and a label with its unit; every color has a legend where
//     there are two.
//   - No two texts overlap and none leaves the picture. Labels of ticks are thinned out,
//     labels of marks move apart, long labels are cut with "…" (the full one is a tooltip).
//   - Each picture is drawn for wide and for narrow pages: under [MinWidth] pixels labels stand
//     above what they name, so that nothing is cut off on a phone of 390 pixels. Text is never
//     under 11 pixels; below [MinNarrow] the picture scrolls, and takes the focus of the keyboard.
//   - The figures are in the alternative text (title and desc).
//   - Colors come from one palette that people with deuteranopia can tell apart. They are
//     CSS variables ([CSS]), with values for light and dark pages, and fall back to the
//     light ones.
//   - Rows of bars are sorted, the largest first, unless their order means something.
package chart

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"html"
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Dimensions in units of the picture, which are pixels at its full width.
const (
	fullWidth   = 720.0
	narrowWidth = 320.0
	fontSize    = 13.0
	lineStep    = 18.0
	margin      = 6.0
	// MinWidth is the width in pixels under which a page shows the narrow form of a picture: the
	// text of the wide form is 11.5 pixels high there. MinNarrow is the minimum width of the narrow
	// form, at which its text is 11 pixels high.
	MinWidth  = 640
	MinNarrow = 272
)

// Color is a color of the palette.
type Color int

// Colors. Blue means used, planned or within limits, Orange wasted or in need of attention, Green
// saved, and Gray anything else. Soft colors accompany their strong color: reserved next to spent,
// expected next to measured; SoftBlue is also storage. Hatched means unmeasured: gray with stripes,
// unlike any solid color.
const (
	Blue Color = iota
	Orange
	Gray
	SoftBlue
	SoftOrange
	Ink
	Green
	SoftGreen
	Hatched Color = -1
)

// palette holds the values for light and dark pages.
var palette = [...]struct{ name, light, dark string }{
	Blue:       {"chart-blue", "#1d5fa8", "#5b9bea"},
	Orange:     {"chart-orange", "#c75b12", "#f2953d"},
	Gray:       {"chart-gray", "#80868f", "#8b93a1"},
	SoftBlue:   {"chart-soft-blue", "#9cc3ec", "#2d4f78"},
	SoftOrange: {"chart-soft-orange", "#f5c78e", "#7a4a1c"},
	Ink:        {"chart-ink", "#1c2230", "#e7e9ee"},
	Green:      {"chart-green", "#1b6b3a", "#24cc78"},
	SoftGreen:  {"chart-soft-green", "#8fe8c4", "#1f5a3c"},
}

// CSS defines the colors of charts for light and dark pages. Pages with charts include it.
var CSS = css()

func css() string {
	var light, dark strings.Builder
	for _, c := range palette {
		fmt.Fprintf(&light, " --%s: %s;", c.name, c.light)
		fmt.Fprintf(&dark, " --%s: %s;", c.name, c.dark)
	}
	return ":root {" + light.String() + " }\n@media (prefers-color-scheme: dark) { :root {" +
		dark.String() + " } }\n" +
		"@media print { :root {" + light.String() +
		" } }\n.chart { overflow-x: auto; container-type: inline-size; }\n" +
		".chart svg { display: block; width: 100%; max-width: 1000px; height: auto; }\n" +
		fmt.Sprintf(".chart .least-%d { min-width: %dpx; } .chart .least-%d { min-width: %dpx; }\n",
			MinWidth, MinWidth, MinNarrow, MinNarrow) +
		".chart svg.chart-narrow { display: none; }\n" +
		fmt.Sprintf("@container (max-width: %d.98px) { .chart svg.chart-wide { display: none; } "+
			".chart svg.chart-narrow { display: block; } }\n", MinWidth-1) +
		"@media print { .chart { overflow: visible; } .chart svg { min-width: 0 !important; } }\n"
}

// paint returns the value of a color for an attribute.
func (c Color) paint() string {
	if c == Hatched {
		return "url(#" + hatchID + ")"
	}
	p := palette[int(c)%len(palette)]
	return "var(--" + p.name + ", " + p.light + ")"
}

// hatchID is replaced by a unique ID in each picture that uses [Hatched].
const hatchID = "chart-hatched"

// hatch defines the stripe pattern.
var hatch = `<defs><pattern id="` + hatchID + `" width="6" height="6" patternUnits="userSpaceOnUse" ` +
	`patternTransform="rotate(45)"><rect width="6" height="6" fill="` + Gray.paint() + `" fill-opacity=".3"/>` +
	`<rect width="2" height="6" fill="` + Gray.paint() + `"/></pattern></defs>`

// Axis is one axis of a chart.
type Axis struct {
	// Label is the quantity with its unit: "dollars a month".
	Label string
	// Format formats a value; nil uses up to two decimals.
	Format func(float64) string
	// Log uses a logarithmic scale. Values of 0 or less are drawn at its lower end.
	Log bool
	// Ticks are the labeled values; nil chooses round ones.
	Ticks []float64
	// Least and Most extend the axis beyond the data; equal for no extension.
	Least, Most float64
}

func (a *Axis) print(v float64) string {
	if a.Format != nil {
		return a.Format(v)
	}
	return plain.Number(v, 2)
}

// USD formats dollars for axes and bars: "$0", "$0.25", "-$1,200".
func USD(v float64) string {
	digits := 0
	if size := math.Abs(v); size < 100 && math.Abs(size-math.Round(size)) > 1e-9 {
		digits = 2
	}
	s := plain.Number(math.Abs(v), digits)
	if _, cents, ok := strings.Cut(s, "."); ok && len(cents) == 1 {
		s += "0"
	}
	if v < 0 && s != "0" {
		return "-$" + s
	}
	return "$" + s
}

// Percent formats a share of 0 to 1 for axes and bars: "42%".
func Percent(share float64) string { return plain.Percent(100*share, 1) }

// finite reports whether a value can be drawn. NaN and infinities represent unknown values.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// textWidth returns an upper bound of the width of a text in common sans-serif fonts.
func textWidth(s string) float64 {
	w := 0.0
	for _, r := range s {
		switch {
		case r >= '0' && r <= '9':
			w += 0.64
		case strings.ContainsRune(" .,:;'|!iljft()[]-/", r):
			w += 0.42
		case strings.ContainsRune("mwMW@%—", r):
			w += 0.98
		case r < 0x250 && r >= 'a':
			w += 0.64
		case r < 0x250:
			w += 0.79
		default:
			w += 0.79 * float64(max(1, ansi.StringWidth(string(r))))
		}
	}
	return w * fontSize
}

// cut truncates s to a width with "…".
func cut(s string, most float64) string {
	if textWidth(s) <= most {
		return s
	}
	runes := []rune(s)
	for len(runes) > 0 && textWidth(string(runes)+"…") > most {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimRight(string(runes), " ") + "…"
}

// Text anchors.
const (
	start  = "start"
	middle = "middle"
	end    = "end"
)

// box is the bounding box of a text.
type box struct{ left, top, right, bottom float64 }

func (b box) overlaps(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// place returns the box of a text with its baseline at y.
func place(x, y float64, anchor, s string) box {
	w := textWidth(s)
	switch anchor {
	case middle:
		x -= w / 2
	case end:
		x -= w
	}
	return box{x, y - fontSize*0.8, x + w, y + fontSize*0.25}
}

// canvas is a picture under construction.
type canvas struct {
	width float64
	b     strings.Builder
	texts []box
	facts []string
}

// fact adds a sentence to the alternative text.
func (c *canvas) fact(format string, args ...any) {
	c.facts = append(c.facts, plain.Line(fmt.Sprintf(format, args...)))
}

// text draws a text with the baseline at y.
func (c *canvas) text(x, y float64, anchor, s string) {
	s = plain.Line(s)
	if s == "" {
		return
	}
	c.texts = append(c.texts, place(x, y, anchor, s))
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(s))
}

// free reports whether a text would not overlap another one.
func (c *canvas) free(x, y float64, anchor, s string) bool {
	at := place(x, y, anchor, plain.Line(s))
	at.left, at.right = at.left-4, at.right+4
	for _, t := range c.texts {
		if at.overlaps(t) {
			return false
		}
	}
	return at.left >= 0 && at.right <= c.width
}

// label draws a text truncated to a width, with the full text as tooltip.
func (c *canvas) label(x, y float64, anchor, s string, most float64) {
	s = plain.Line(s)
	short := cut(s, most)
	if short == s {
		c.text(x, y, anchor, s)
		return
	}
	c.texts = append(c.texts, place(x, y, anchor, short))
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s<title>%s</title></text>`, x, y, anchor,
		html.EscapeString(short), html.EscapeString(s))
}

// rect draws a filled rectangle with a tooltip.
func (c *canvas) rect(x, y, w, h float64, color Color, tip string) {
	fmt.Fprintf(&c.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s</title></rect>`, x, y,
		max(w, 0), max(h, 0), color.paint(), html.EscapeString(plain.Line(tip)))
}

// line draws a straight line. dash is a stroke-dasharray or "".
func (c *canvas) line(x1, y1, x2, y2 float64, color Color, thick float64, dash string) {
	if dash != "" {
		dash = ` stroke-dasharray="` + dash + `"`
	}
	fmt.Fprintf(&c.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g"%s/>`, x1, y1, x2,
		y2,
		color.paint(), thick, dash)
}

// grid draws a grid line behind the data.
func (c *canvas) grid(x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="currentColor" stroke-opacity=".16"/>`, x1,
		y1, x2, y2)
}

// legend draws the meaning of the colors at the top, from the left, on as many lines as needed, and
// returns its height. sample draws a symbol of 14 by 10.
func (c *canvas) legend(names []string, sample func(i int, x, y float64)) float64 {
	x, line := margin, 0.0
	for i, name := range names {
		name = cut(plain.Line(name), max(c.width/2, narrowWidth-2*margin-20))
		if w := 20 + textWidth(name); x > margin && x+w > c.width-margin {
			x, line = margin, line+1
		}
		at := margin + lineStep*line
		sample(i, x, at+3)
		c.text(x+20, at+12, start, name)
		x += 20 + textWidth(name) + 18
	}
	return lineStep*(line+1) + 6
}

// narrow reports whether labels are drawn above the data, because there is no room next to it.
func (c *canvas) narrow() bool { return c.width == narrowWidth }

// picture draws a chart in its wide and narrow form. render draws one form and returns its height.
func picture(title string, render func(c *canvas) float64) string {
	title = plain.Line(title)
	var b strings.Builder
	fmt.Fprintf(&b, `<div class="chart" role="region" tabindex="0" aria-label="%s">`,
		html.EscapeString("Picture: "+title))
	for _, form := range []struct {
		class        string
		width, least float64
	}{{"chart-wide", fullWidth, MinWidth}, {"chart-narrow", narrowWidth, MinNarrow}} {
		c := canvas{width: form.width}
		height := render(&c)
		c.finish(&b, title, form.class, form.least, height)
	}
	b.WriteString("</div>\n")
	return b.String()
}

// finish writes the picture as SVG.
func (c *canvas) finish(b *strings.Builder, title, class string, least, height float64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(title + c.b.String()))
	id := fmt.Sprintf("chart-%x", h.Sum64())
	fmt.Fprintf(b,
		`<svg class="%s least-%g" viewBox="0 0 %g %.0f" role="img" aria-labelledby="%s-title %s-desc" `+
			`font-family="system-ui, sans-serif" font-size="%g" fill="currentColor">`,
		class, least, c.width, math.Ceil(height), id, id, fontSize)
	fmt.Fprintf(b, `<title id="%s-title">%s</title><desc id="%s-desc">%s</desc>`, id, html.EscapeString(title), id,
		html.EscapeString(strings.Join(c.facts, "; ")))
	drawn := c.b.String()
	if strings.Contains(drawn, Hatched.paint()) {
		// IDs must be unique on a page with several pictures.
		drawn = strings.ReplaceAll(hatch+drawn, hatchID, id+"-hatched")
	}
	b.WriteString(drawn + "</svg>")
}

// nothing returns the picture for no data, which says so.
func nothing(title string) string {
	return picture(title, func(c *canvas) float64 {
		c.fact("there is nothing to draw")
		c.text(margin, 24, start, cmp.Or(plain.Line(cut(title, c.width-200)), "chart")+": nothing to draw")
		return 40
	})
}
