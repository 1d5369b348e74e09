package chart

import (
	"fmt"
	"html"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Lanes is a chart of blocks on lanes, such as slices of GPUs or states of machines over time.
type Lanes struct {
	// Title describes the chart for the alternative text.
	Title string
	Axis  Axis
	// Kinds are the meanings of colors for the legend.
	Kinds []Kind
	Rows  []Lane
	// Marks are lines across all lanes.
	Marks []Mark
}

// Kind is the meaning of a color.
type Kind struct {
	Name  string
	Color Color
}

// Lane is a row of [Lanes].
type Lane struct {
	Label  string
	Blocks []Block
}

// Block is a part of a lane. Its label is drawn if it fits, and is its tooltip. An Empty block is
// an outline for free space.
type Block struct {
	From, To float64
	Label    string
	Color    Color
	Empty    bool
}

const laneRow = 34.0

// SVG draws the chart.
func (l Lanes) SVG() string {
	if len(l.Rows) == 0 {
		return nothing(l.Title)
	}
	label := 0.0
	var values []float64
	for _, r := range l.Rows {
		label = max(label, textWidth(plain.Line(r.Label)))
		for _, b := range r.Blocks {
			values = append(values, b.From, b.To)
		}
	}
	for _, m := range l.Marks {
		values = append(values, m.At)
	}
	label = min(label, 220)
	return picture(l.Title, func(c *canvas) float64 { return l.render(c, label, values) })
}

// render draws the chart and returns its height.
func (l *Lanes) render(c *canvas, label float64, values []float64) float64 {
	y := margin
	if len(l.Kinds) > 0 {
		var names []string
		for _, k := range l.Kinds {
			names = append(names, k.Name)
		}
		y += c.legend(names, func(i int, x, y float64) { c.block(x, y, 14, 10, l.Kinds[i].Color, false, names[i]) })
	}
	from, above := margin+label+10, 0.0
	if c.narrow() {
		from, above = margin, lineStep
	}
	s := newScale(&l.Axis, values, false, from, c.width-18)
	y += c.marks(s, l.Marks, y)
	row := laneRow + above
	bottom := y + row*float64(len(l.Rows))
	below := c.below(s, y, bottom)
	for i, r := range l.Rows {
		top := y + row*float64(i) + 4 + above
		if c.narrow() {
			c.label(margin, top-6, start, r.Label, c.width-2*margin)
		} else {
			c.label(margin+label, top+17, end, r.Label, label)
		}
		var said []string
		for _, b := range r.Blocks {
			if !finite(b.From) || !finite(b.To) || b.To <= b.From {
				continue
			}
			x, w := s.at(b.From), s.at(b.To)-s.at(b.From)
			tip := fmt.Sprintf("%s: %s, %s to %s", r.Label, b.Label, l.Axis.print(b.From), l.Axis.print(b.To))
			c.block(x+1, top, w-2, laneRow-8, b.Color, b.Empty, tip)
			said = append(said,
				strings.TrimSpace(fmt.Sprintf("%s %s to %s", b.Label, l.Axis.print(b.From), l.Axis.print(b.To))))
			if name := cut(plain.Line(b.Label), w-10); textWidth(name) <= w-10 && len([]rune(name)) > 2 &&
				c.free(x+w/2, top+17, middle, name) {
				c.text(x+w/2, top+17, middle, name)
			}
		}
		c.fact("%s: %s", r.Label, strings.Join(said, ", "))
	}
	for _, m := range l.Marks {
		c.line(s.at(m.At), y, s.at(m.At), bottom, Ink, 1.5, "5 3")
	}
	return bottom + below
}

// block draws a block in a color light enough for text.
func (c *canvas) block(x, y, w, h float64, color Color, empty bool, tip string) {
	fill := `fill="` + color.paint() + `" fill-opacity=".3" stroke="` + color.paint() + `" stroke-width="1.5"`
	if empty {
		fill = `fill="none" stroke="currentColor" stroke-opacity=".5" stroke-dasharray="4 3"`
	}
	fmt.Fprintf(&c.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" %s><title>%s</title></rect>`, x, y,
		max(w, 1), h, fill, html.EscapeString(plain.Line(tip)))
}
