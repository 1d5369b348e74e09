package chart

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Bars is a chart of horizontal bars.
type Bars struct {
	// Title describes the chart for the alternative text.
	Title string
	Axis  Axis
	// Parts names the parts of stacked bars in order; nil for simple bars.
	Parts []string
	// Colors are the colors of the parts; by default those of the palette in order.
	Colors []Color
	// Band, Range and Limit are legend names of the rows' bands, intervals and limits: "usual
	// share", "forecast p10 to p90", "limit".
	Band, Range, Limit string
	// Ordered keeps the order of rows; otherwise the largest comes first.
	Ordered bool
	Rows    []Bar
	// Marks are lines across all rows: "target $0.0002".
	Marks []Mark
}

// Bar is a row of [Bars].
type Bar struct {
	Label string
	// Value is the length of the bar, or the sum of its Parts if there are any.
	Value float64
	Parts []float64
	// Note replaces the value at the end of the bar.
	Note string
	// Color is the color of a simple bar.
	Color Color
	// BandFrom and BandTo are a band for comparison, Low and High an interval around an estimate,
	// both on the axis; none if equal.
	BandFrom, BandTo, Low, High float64
	// Limit is a limit on the axis; 0 for none.
	Limit float64
}

// Mark is a named reference value on an axis.
type Mark struct {
	At    float64
	Label string
}

func (b *Bar) sum() float64 {
	if len(b.Parts) == 0 {
		return b.Value
	}
	sum := 0.0
	for _, p := range b.Parts {
		if finite(p) {
			sum += p
		}
	}
	return sum
}

// end returns the right end of a row's drawing.
func (b *Bar) end() float64 {
	end := 0.0
	for _, v := range []float64{b.sum(), b.BandTo, b.High, b.Limit} {
		if finite(v) {
			end = max(end, v)
		}
	}
	return end
}

func (b *Bar) text(a *Axis) string {
	return cmp.Or(b.Note, func() string {
		if v := b.sum(); finite(v) {
			return a.print(v)
		}
		return "not known"
	}())
}

// color returns the color of a part.
func (b *Bars) color(part int) Color {
	if part < len(b.Colors) {
		return b.Colors[part]
	}
	return []Color{Blue, Orange, Gray, SoftBlue, SoftOrange, Ink}[part%len(palette)]
}

const (
	barRow    = 30.0
	barHeight = 18.0
)

// SVG draws the chart.
func (b Bars) SVG() string {
	if len(b.Rows) == 0 {
		return nothing(b.Title)
	}
	rows := slices.Clone(b.Rows)
	if !b.Ordered {
		slices.SortStableFunc(rows, func(x, y Bar) int { return cmp.Compare(y.sum(), x.sum()) })
	}
	label, note := 0.0, 0.0
	var values []float64
	for _, r := range rows {
		label, note = max(label, textWidth(r.Label)), max(note, textWidth(r.text(&b.Axis)))
		values = append(values, r.sum(), r.BandFrom, r.BandTo, r.Low, r.High, r.Limit)
	}
	for _, m := range b.Marks {
		values = append(values, m.At)
	}
	return picture(b.Title, func(c *canvas) float64 {
		return b.render(c, rows, values, min(label, 220), min(note, 240))
	})
}

// render draws the rows with the given widths of labels and notes, and returns the height.
func (b *Bars) render(c *canvas, rows []Bar, values []float64, label, note float64) float64 {
	from, to, height := margin+label+10, c.width-margin-note-10, barRow
	if c.narrow() {
		from, to, height = margin, c.width-margin-4, barRow+lineStep
		note = min(note, 0.6*c.width)
		label = c.width - 2*margin - note - 12
	}
	y := b.key(c)
	s := newScale(&b.Axis, values, true, from, to).rounded()
	y += c.marks(s, b.Marks, y)
	bottom := y + height*float64(len(rows))
	axis := c.below(s, y, bottom)
	for i, r := range rows {
		b.row(c, &r, s, y+height*float64(i+1)-(barRow+barHeight)/2, label, note)
	}
	for _, m := range b.Marks {
		c.line(s.at(m.At), y, s.at(m.At), bottom, Ink, 1.5, "5 3")
	}
	return bottom + axis
}

// key draws the legend and returns its end.
func (b *Bars) key(c *canvas) float64 {
	names := slices.Clone(b.Parts)
	extra := map[int]string{}
	for _, x := range []struct{ name, kind string }{{b.Band, "band"}, {b.Range, "range"}, {b.Limit, "limit"}} {
		if x.name != "" {
			extra[len(names)] = x.kind
			names = append(names, x.name)
		}
	}
	if len(names) == 0 {
		return margin
	}
	return margin + c.legend(names, func(i int, x, y float64) {
		switch extra[i] {
		case "band":
			c.band(x, y, 14, 10)
		case "range":
			c.interval(x, x+14, y+5)
		case "limit":
			c.line(x+7, y-1, x+7, y+11, Ink, 3, "")
		default:
			c.rect(x, y, 14, 10, b.color(i), names[i])
		}
	})
}

// row draws one bar. In a narrow picture its label and note are above it.
func (b *Bars) row(c *canvas, r *Bar, s scale, y, label, note float64) {
	text := r.text(&b.Axis)
	if c.narrow() {
		c.label(margin, y-6, start, r.Label, label)
		c.label(c.width-margin, y-6, end, text, note)
	} else {
		c.label(margin+label, y+barHeight-4, end, r.Label, label)
		c.label(s.at(r.end())+8, y+barHeight-4, start, text, note)
	}
	said := r.Label + ": " + text
	if len(r.Parts) == 0 {
		if from, to := s.at(0), s.at(r.Value); finite(r.Value) {
			c.rect(min(from, to), y, max(from, to)-min(from, to), barHeight, r.Color, said)
		}
	}
	at := 0.0
	var parts []string
	for i, p := range r.Parts {
		if !finite(p) || p <= 0 {
			continue
		}
		name := fmt.Sprintf("part %d", i+1)
		if i < len(b.Parts) {
			name = b.Parts[i]
		}
		c.rect(s.at(at), y, s.at(at+p)-s.at(at), barHeight, b.color(i), r.Label+", "+name+": "+b.Axis.print(p))
		parts = append(parts, name+" "+b.Axis.print(p))
		at += p
	}
	if len(parts) > 0 {
		said += " (" + strings.Join(parts, ", ") + ")"
	}
	if r.BandTo > r.BandFrom {
		c.band(s.at(r.BandFrom), y-3, s.at(r.BandTo)-s.at(r.BandFrom), barHeight+6)
		said += fmt.Sprintf(", %s %s to %s", cmp.Or(b.Band, "band"), b.Axis.print(r.BandFrom), b.Axis.print(r.BandTo))
	}
	if r.High > r.Low {
		c.interval(s.at(r.Low), s.at(r.High), y+barHeight/2)
		said += fmt.Sprintf(", %s %s to %s", cmp.Or(b.Range, "range"), b.Axis.print(r.Low), b.Axis.print(r.High))
	}
	if r.Limit > 0 {
		c.line(s.at(r.Limit), y-4, s.at(r.Limit), y+barHeight+4, Ink, 3, "")
		said += fmt.Sprintf(", %s %s", cmp.Or(b.Limit, "limit"), b.Axis.print(r.Limit))
	}
	c.fact("%s", said)
}

// band draws an outline.
func (c *canvas) band(x, y, w, h float64) {
	fmt.Fprintf(&c.b,
		`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="none" stroke="currentColor" stroke-dasharray="3 2"/>`, x,
		y, w, h)
}

// interval draws a line with end caps.
func (c *canvas) interval(from, to, y float64) {
	c.line(from, y, to, y, Ink, 2, "")
	c.line(from, y-5, from, y+5, Ink, 2, "")
	c.line(to, y-5, to, y+5, Ink, 2, "")
}

// marks draws the names of marks above the rows, on as many lines as needed to avoid overlap, and
// returns their height.
func (c *canvas) marks(s scale, marks []Mark, y float64) float64 {
	lines := 0
	for _, m := range marks {
		x := s.at(m.At)
		name := cut(plainMark(m, s.axis), c.width/2)
		anchor, half := middle, textWidth(name)/2
		switch {
		case x-half < margin:
			anchor = start
		case x+half > c.width-margin:
			anchor = end
		}
		for line := 0; ; line++ {
			if at := y + 12 + lineStep*float64(line); c.free(x, at, anchor, name) || line > len(marks) {
				c.text(x, at, anchor, name)
				lines = max(lines, line+1)
				break
			}
		}
		c.fact("%s", plainMark(m, s.axis))
	}
	return lineStep * float64(lines)
}

func plainMark(m Mark, a *Axis) string { return strings.TrimSpace(m.Label + " " + a.print(m.At)) }
