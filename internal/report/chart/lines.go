package chart

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Lines is a chart of series over a common axis.
type Lines struct {
	// Title describes the chart for the alternative text.
	Title  string
	X, Y   Axis
	Series []Series
	// Limits are reference values of Y, Moments of X.
	Limits, Moments []Mark
	// Free omits 0 from the Y axis.
	Free bool
}

// Series is one line of [Lines].
type Series struct {
	Name   string
	Color  Color
	Points []Point
	// Step holds each value until the next point.
	Step bool
	// Dashed marks expected instead of measured values.
	Dashed bool
	// Scatter draws points without a line.
	Scatter bool
}

// Point is a value. A Y of NaN is a gap: unknown values are not drawn as 0. Low and High are a band
// around it; none if equal. Note is its tooltip.
type Point struct {
	X, Y, Low, High float64
	Note            string
}

const (
	plotHeight = 220.0
	maxDots    = 60
	maxFacts   = 24
)

// SVG draws the chart.
func (l Lines) SVG() string {
	var xs, ys []float64
	for _, s := range l.Series {
		for _, p := range s.Points {
			if finite(p.X) && finite(p.Y) {
				xs, ys = append(xs, p.X), append(ys, p.Y)
				if p.High > p.Low {
					ys = append(ys, p.Low, p.High)
				}
			}
		}
	}
	if len(xs) == 0 {
		return nothing(l.Title)
	}
	for _, m := range l.Limits {
		ys = append(ys, m.At)
	}
	for _, m := range l.Moments {
		xs = append(xs, m.At)
	}
	return picture(l.Title, func(c *canvas) float64 { return l.render(c, xs, ys) })
}

// render draws the chart for the given axis values, and returns its height.
func (l *Lines) render(c *canvas, xs, ys []float64) float64 {
	y := margin
	if names := l.names(); len(names) > 1 {
		y += c.legend(names, func(i int, x, y float64) {
			s := l.Series[i]
			if !s.Scatter {
				c.line(x, y+5, x+14, y+5, s.Color, 2.5, dash(s))
			}
			c.dot(i, x+7, y+5, s.Color, "")
		})
	}
	if l.Y.Label != "" {
		c.label(margin, y+12, start, l.Y.Label, c.width-2*margin)
		y += lineStep + 4
	}
	vertical := newScale(&l.Y, ys, !l.Free, 0, 1).rounded()
	left := vertical.room()
	horizontal := newScale(&l.X, xs, false, left, c.width-24)
	y += c.marks(horizontal, l.Moments, y) + 6
	vertical.from, vertical.to = y+plotHeight, y
	c.left(vertical, left, c.width-24)
	below := c.below(horizontal, y, y+plotHeight)
	for _, m := range l.Moments {
		c.line(horizontal.at(m.At), y, horizontal.at(m.At), y+plotHeight, Ink, 1.5, "5 3")
	}
	for i := range l.Series {
		l.draw(c, i, horizontal, vertical)
	}
	l.limits(c, vertical, left)
	return y + plotHeight + below
}

func (l *Lines) names() []string {
	var out []string
	for _, s := range l.Series {
		out = append(out, s.Name)
	}
	return out
}

func dash(s Series) string {
	if s.Dashed {
		return "6 4"
	}
	return ""
}

// draw draws one series.
func (l *Lines) draw(c *canvas, i int, h, v scale) {
	s := l.Series[i]
	var path, upper, lower strings.Builder
	var said []string
	pen, held := "M", 0.0
	band := 0
	known := 0
	for _, p := range s.Points {
		if finite(p.X) && finite(p.Y) {
			known++
		}
	}
	for k, p := range s.Points {
		if !finite(p.X) || !finite(p.Y) {
			pen = "M"
			continue
		}
		x, y := h.at(p.X), v.at(p.Y)
		if s.Step && pen == "L" {
			fmt.Fprintf(&path, "L%.1f %.1f", x, held)
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, x, y)
		pen, held = "L", y
		if p.High > p.Low {
			fmt.Fprintf(&upper, "%.1f,%.1f ", x, v.at(p.High))
			lower.WriteString(fmt.Sprintf("%.1f,%.1f;", x, v.at(p.Low)))
			band++
		}
		text := strings.TrimSpace(l.X.print(p.X) + " " + s.Name + " " + l.Y.print(p.Y) + " " + p.Note)
		if known <= maxDots || s.Scatter {
			c.dot(i, x, y, s.Color, text)
		}
		// A long series is described by points spread over it, including the last.
		if every := (len(s.Points) + maxFacts - 1) / maxFacts; k%every == 0 || k == len(s.Points)-1 {
			said = append(said, l.X.print(p.X)+" "+l.Y.print(p.Y))
		}
	}
	if band > 1 {
		back := strings.Split(strings.TrimSuffix(lower.String(), ";"), ";")
		slices.Reverse(back)
		fmt.Fprintf(&c.b, `<polygon points="%s" fill="%s" fill-opacity=".22"/>`,
			upper.String()+strings.Join(back, " "),
			s.Color.paint())
	}
	if !s.Scatter {
		attribute := ""
		if d := dash(s); d != "" {
			attribute = ` stroke-dasharray="` + d + `"`
		}
		fmt.Fprintf(&c.b, `<path d="%s" fill="none" stroke="%s" stroke-width="2.5" stroke-linejoin="round"%s/>`,
			path.String(), s.Color.paint(), attribute)
	}
	c.fact("%s: %s", plain.Line(s.Name), strings.Join(said, ", "))
}

// limits draws the limits across the plot, with their names moved apart.
func (l *Lines) limits(c *canvas, v scale, left float64) {
	for _, m := range l.Limits {
		y := v.at(m.At)
		c.line(left, y, c.width-24, y, Ink, 1.5, "5 3")
		name := cut(plainMark(m, &l.Y), c.width/2)
		for _, off := range []float64{-5, 15, -23, 33, -41, 51, -59} {
			if at := y + off; at > v.to+8 && at < v.from && c.free(c.width-28, at, end, name) {
				fmt.Fprintf(&c.b,
					`<rect x="%.1f" y="%.1f" width="%.1f" height="16" fill="var(--card, #fff)" fill-opacity=".75"/>`,
					c.width-30-textWidth(name), at-12, textWidth(name)+4)
				c.text(c.width-28, at, end, name)
				break
			}
		}
		c.fact("%s", plainMark(m, &l.Y))
	}
}

// dot draws a point. Series differ in shape as well as color.
func (c *canvas) dot(series int, x, y float64, color Color, tip string) {
	shape := fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="3.2"`, x, y)
	switch series % 4 {
	case 1:
		shape = fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="6" height="6"`, x-3, y-3)
	case 2:
		shape = fmt.Sprintf(`<path d="M%.1f %.1fl4 7h-8z"`, x, y-4)
	case 3:
		shape = fmt.Sprintf(`<path d="M%.1f %.1fl4 4l-4 4l-4-4z"`, x, y-4)
	}
	element := strings.TrimPrefix(strings.SplitN(shape, " ", 2)[0], "<")
	fmt.Fprintf(&c.b, `%s fill="%s"><title>%s</title></%s>`, shape, color.paint(), html.EscapeString(plain.Line(tip)),
		element)
}

// Columns is a chart of stacked columns, one per label, in order.
type Columns struct {
	// Title describes the chart for the alternative text.
	Title string
	// Labels name the columns: days, periods.
	Labels []string
	// X is the name of the labels: "day".
	X string
	Y Axis
	// Parts are stacked from the bottom.
	Parts []Part
	// Limits are reference values of Y.
	Limits []Mark
}

// Part is one part of all columns. A NaN value is unknown and not drawn.
type Part struct {
	Name   string
	Color  Color
	Values []float64
}

// SVG draws the chart.
func (l Columns) SVG() string {
	if len(l.Labels) == 0 || len(l.Parts) == 0 {
		return nothing(l.Title)
	}
	sums := make([]float64, len(l.Labels))
	for _, p := range l.Parts {
		for i, v := range p.Values[:min(len(p.Values), len(sums))] {
			if finite(v) && v > 0 {
				sums[i] += v
			}
		}
	}
	values := slices.Clone(sums)
	for _, m := range l.Limits {
		values = append(values, m.At)
	}
	return picture(l.Title, func(c *canvas) float64 { return l.render(c, values) })
}

// render draws the chart and returns its height; values are all values of the axis.
func (l *Columns) render(c *canvas, values []float64) float64 {
	y := margin
	if len(l.Parts) > 1 {
		var names []string
		for _, p := range l.Parts {
			names = append(names, p.Name)
		}
		y += c.legend(names, func(i int, x, y float64) { c.rect(x, y, 14, 10, l.Parts[i].Color, names[i]) })
	}
	if l.Y.Label != "" {
		c.label(margin, y+12, start, l.Y.Label, c.width-2*margin)
		y += lineStep + 4
	}
	y += 6
	v := newScale(&l.Y, values, true, y+plotHeight, y).rounded()
	left := v.room()
	c.left(v, left, c.width-margin)
	step := (c.width - margin - left) / float64(len(l.Labels))
	w := max(min(step*0.8, 60), 1)
	for i, name := range l.Labels {
		x := left + step*(float64(i)+0.5)
		at := 0.0
		var said []string
		for _, p := range l.Parts {
			if i >= len(p.Values) || !finite(p.Values[i]) || p.Values[i] <= 0 {
				continue
			}
			value := p.Values[i]
			c.rect(x-w/2, v.at(at+value), w, v.at(at)-v.at(at+value), p.Color, name+", "+p.Name+": "+l.Y.print(value))
			said = append(said, strings.TrimSpace(p.Name+" "+l.Y.print(value)))
			at += value
		}
		if n := len(l.Labels); n <= maxFacts || i%int(math.Ceil(float64(n)/maxFacts)) == 0 || i == n-1 {
			c.fact("%s: %s", name, strings.Join(said, ", "))
		}
		anchor := middle
		if half := textWidth(name) / 2; x+half > c.width-margin {
			anchor, x = end, min(x+half, c.width-margin)
		}
		if c.free(x, y+plotHeight+16, anchor, name) {
			c.text(x, y+plotHeight+16, anchor, name)
		}
	}
	lines := Lines{Y: l.Y, Limits: l.Limits}
	lines.limits(c, v, left)
	below := 24.0
	if l.X != "" {
		c.label((left+c.width)/2, y+plotHeight+36, middle, l.X, c.width-left)
		below = 44
	}
	return y + plotHeight + below
}
