package chart

import (
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

// scale maps values of an axis to positions in the picture.
type scale struct {
	axis     *Axis
	low, top float64 // values
	from, to float64 // positions of low and top
}

// newScale fits an axis to values; origin includes 0.
func newScale(axis *Axis, values []float64, origin bool, from, to float64) scale {
	low, top := math.Inf(1), math.Inf(-1)
	take := func(v float64) {
		if finite(v) && (!axis.Log || v > 0) {
			low, top = min(low, v), max(top, v)
		}
	}
	for _, v := range values {
		take(v)
	}
	if axis.Least != axis.Most {
		take(axis.Least)
		take(axis.Most)
	}
	if origin && !axis.Log {
		take(0)
	}
	switch {
	case low > top:
		low, top = 0, 1
		if axis.Log {
			low, top = 1, 10
		}
	case low == top && axis.Log:
		low, top = low/2, top*2
	case low == top:
		// A single value is in the middle.
		gap := max(math.Abs(low)/2, 1e-9)
		low, top = low-gap, top+gap
	}
	return scale{axis: axis, low: low, top: top, from: from, to: to}
}

// at returns the position of a value, clamped to the ends.
func (s scale) at(v float64) float64 {
	v = min(max(v, s.low), s.top)
	share := (v - s.low) / (s.top - s.low)
	if s.axis.Log {
		share = math.Log(v/s.low) / math.Log(s.top/s.low)
	}
	return s.from + share*(s.to-s.from)
}

// rounded extends the scale to round values, so that its ends are ticks.
func (s scale) rounded() scale {
	if s.axis.Log || s.axis.Ticks != nil {
		return s
	}
	step := s.step(5)
	s.low, s.top = math.Floor(s.low/step+1e-9)*step, math.Ceil(s.top/step-1e-9)*step
	return s
}

// step returns a distance for about n round values: 1, 2 or 5 times a power of ten.
func (s scale) step(n float64) float64 {
	rough := (s.top - s.low) / n
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, k := range []float64{1, 2, 5} {
		if k*power >= rough*(1-1e-9) {
			return k * power
		}
	}
	return 10 * power
}

// ticks returns the labeled values in order.
func (s scale) ticks() []float64 {
	inside := func(v float64) bool {
		slack := (s.top - s.low) * 1e-9
		return v >= s.low-slack && v <= s.top+slack
	}
	var out []float64
	switch {
	case s.axis.Ticks != nil:
		for _, v := range s.axis.Ticks {
			if inside(v) {
				out = append(out, v)
			}
		}
	case s.axis.Log:
		for _, multiples := range [][]float64{{1}, {1, 2, 5}} {
			out = out[:0]
			for e := math.Floor(math.Log10(s.low)); e <= math.Ceil(math.Log10(s.top)); e++ {
				for _, k := range multiples {
					if v := k * math.Pow(10, e); inside(v) {
						out = append(out, v)
					}
				}
			}
			if len(out) >= 3 {
				break
			}
		}
		if len(out) < 2 {
			out = []float64{s.low, s.top}
		}
	default:
		step := s.step(5)
		first := math.Ceil(s.low/step - 1e-9)
		for i := 0.0; i < 50 && inside((first+i)*step); i++ {
			v := (first + i) * step
			if math.Abs(v) < step*1e-6 {
				v = 0
			}
			out = append(out, v)
		}
	}
	return out
}

// below draws the ticks and the label of a horizontal axis from y on, with lines up to top, and
// returns its height. Overlapping labels are left out.
func (c *canvas) below(s scale, top, y float64) float64 {
	for _, v := range s.ticks() {
		x := s.at(v)
		c.grid(x, top, x, y)
		label := s.axis.print(v)
		anchor := middle
		switch w := textWidth(label) / 2; {
		case x+w > c.width-margin:
			anchor = end
		case x-w < 0:
			anchor = start
		}
		if c.free(x, y+16, anchor, label) {
			c.text(x, y+16, anchor, label)
		}
	}
	if s.axis.Label == "" {
		return 24
	}
	c.label((s.from+s.to)/2, y+36, middle, s.axis.Label, 0.9*min(s.from+s.to, 2*c.width-s.from-s.to))
	return 44
}

// left draws the ticks of a vertical axis at x, with lines to the right end, and its
// label above the upper end.
func (c *canvas) left(s scale, x, right float64) {
	for _, v := range s.ticks() {
		y := s.at(v)
		c.grid(x, y, right, y)
		if label := s.axis.print(v); c.free(x-8, y+4, end, label) {
			c.text(x-8, y+4, end, label)
		}
	}
}

// room returns the width of the labels of a vertical axis.
func (s scale) room() float64 {
	w := 0.0
	for _, v := range s.ticks() {
		w = max(w, textWidth(s.axis.print(v)))
	}
	return w + 8 + 2*margin
}

// Dates returns a UTC time axis. Its values are Unix seconds (see [Second]).
func Dates(from, to time.Time) Axis {
	const day = 24 * time.Hour
	length := to.Sub(from)
	step := 365 * day
	for _, s := range []time.Duration{
		5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
		3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day,
	} {
		if length <= 6*s {
			step = s
			break
		}
	}
	layout := time.DateOnly
	if step < day {
		layout = "15:04"
		switch {
		case length > day:
			layout = "01-02 15:04"
		case step < time.Minute:
			layout = time.TimeOnly
		}
	}
	a := Axis{Label: "time (UTC)", Format: func(v float64) string {
		return time.Unix(int64(v), 0).UTC().Format(layout)
	},
		Least: Second(from), Most: Second(to), Ticks: []float64{}}
	if step >= day {
		a.Label = "day (UTC)"
	} else if length <= day {
		a.Label = "time (UTC), " + plain.Date(from.UTC())
	}
	if step <= 0 || length <= 0 {
		return a
	}
	for t := from.UTC().Truncate(step); !t.After(to); t = t.Add(step) {
		if !t.Before(from) {
			a.Ticks = append(a.Ticks, Second(t))
		}
	}
	return a
}

// Second converts a time to a value of [Dates].
func Second(t time.Time) float64 { return float64(t.Unix()) }
