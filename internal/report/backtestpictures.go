package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// drawnParts is how wide the box of a row of the timeline is.
const drawnParts = 480

// whole draws the time of all resources as one bar.
func whole(r *backtest.Result) (bar []segment, label string) {
	all := r.ResourceHours + r.UnknownHours
	if !(all > 0) {
		return nil, ""
	}
	idle := max(0, r.IdleHours-r.ReleasedHours)
	busy := max(0, r.ResourceHours-r.ReleasedHours-idle)
	at := 0.0
	for _, p := range []segment{{Class: "busy", To: busy}, {Class: "idle", To: idle}, {Class: "released", To: r.ReleasedHours}, {Class: "unknown", To: r.UnknownHours}} {
		if p.To > 0 {
			bar = append(bar, segment{p.Class, rounded(at), rounded(at + 100*p.To/all)})
			at += 100 * p.To / all
		}
	}
	return bar, fmt.Sprintf("Of %s hours, the resources worked %s, idled %s, would have been released %s, and were not measured %s.",
		plain.Number(all, 1), plain.Number(busy, 1), plain.Number(idle, 1), plain.Number(r.ReleasedHours, 1), plain.Number(r.UnknownHours, 1))
}

// drawnRow is one resource of the timeline.
type drawnRow struct {
	backtest.Drawn
	// Paths are by state, in a box of drawnParts by 10.
	Paths []statePath
	Label string
}

type statePath struct{ Class, Path string }

// tick is a mark of a time axis, in percent of its length.
type tick struct {
	At   float64
	Text string
	// Last says that the text stands before the mark.
	Last bool
}

// rows draws a timeline.
func drawnRows(t *backtest.Timeline) ([]drawnRow, []tick) {
	if t == nil || !t.To.After(t.From) {
		return nil, nil
	}
	length := t.To.Sub(t.From)
	place := func(at time.Time) float64 { return rounded(float64(at.Sub(t.From)) / float64(length) * drawnParts) }
	var out []drawnRow
	for _, d := range t.Resources {
		paths := map[string]*strings.Builder{}
		held := map[string]time.Duration{}
		var all time.Duration
		for _, s := range d.Spans {
			if paths[s.State] == nil {
				paths[s.State] = &strings.Builder{}
			}
			x := place(s.From)
			w := rounded(place(s.To) - x)
			fmt.Fprintf(paths[s.State], "M%g 0h%gv10h-%gz", x, w, w)
			held[s.State] += s.To.Sub(s.From)
			all += s.To.Sub(s.From)
		}
		row := drawnRow{Drawn: d}
		var parts []string
		for _, state := range backtest.States {
			if paths[state] != nil {
				row.Paths = append(row.Paths, statePath{state, paths[state].String()})
				parts = append(parts, state+" "+plain.Share(float64(held[state])/float64(all), 1))
			}
		}
		row.Label = d.Resource + ": " + strings.Join(parts, ", ")
		out = append(out, row)
	}
	return out, ticks(t.From, t.To)
}

// ticks marks a span of time at a few round times.
func ticks(from, to time.Time) []tick {
	length := to.Sub(from)
	every := 24 * time.Hour
	for _, e := range []time.Duration{
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	} {
		if length/e <= 8 {
			every = e
			break
		}
	}
	for length/every > 8 {
		every *= 2
	}
	layout := "15:04"
	if every >= 12*time.Hour {
		layout = "2 Jan"
	}
	var out []tick
	for at := from.Truncate(every); !at.After(to); at = at.Add(every) {
		if share := float64(at.Sub(from)) / float64(length); share >= 0 {
			out = append(out, tick{At: rounded(100 * share), Text: at.Format(layout), Last: share > 0.93})
		}
	}
	return out
}

// curve is what is saved against how often work came back to something that was let
// go.
type curve struct {
	// Path is what fixed waits do, in a box of curveWidth by curveHeight with margins.
	Path           string
	Points         []point
	Across, Upward []axisMark
	// Zero is where nothing is saved, if that is within the picture.
	Zero  float64
	Label string
}

// point is one rule on the curve.
type point struct {
	X, Y   float64
	Number int
	Class  string
	backtest.Result
}

type axisMark struct {
	At   float64
	Text string
}

// The picture of the curve.
const (
	curveWidth, curveHeight = 620.0, 330.0
	curveLeft, curveBottom  = 52.0, 40.0
	curveTop, curveRight    = 16.0, 18.0
)

// Box, Left, Right, Top and Bottom are the picture's bounds.
func (curve) Box() string     { return fmt.Sprintf("0 0 %g %g", curveWidth, curveHeight) }
func (curve) Left() float64   { return curveLeft }
func (curve) Right() float64  { return curveWidth - curveRight }
func (curve) Top() float64    { return curveTop }
func (curve) Bottom() float64 { return curveHeight - curveBottom }

// curve draws every result, and the fixed waits between them as a line.
func newCurve(r *backtest.Report) *curve {
	if len(r.Results) < 2 {
		return nil
	}
	var most int64
	low, high := 0.0, 0.0
	for _, res := range r.Results {
		most = max(most, res.Restarts)
		low, high = min(low, res.NetSavedShare), max(high, res.NetSavedShare)
	}
	for _, w := range r.Waits {
		high = max(high, w.NetSavedShare)
	}
	if high <= 0 && low >= 0 {
		return nil
	}
	// What loses more than is ever won is cut off.
	low = max(low, -high)
	if high <= 0 {
		low = -1
	}
	right := niceAbove(float64(most))
	x := func(restarts int64) float64 {
		return rounded(curveLeft + min(1, float64(restarts)/right)*(curveWidth-curveLeft-curveRight))
	}
	up := niceStep(high - low)
	low, high = math.Floor(low/up)*up, math.Ceil(high/up)*up
	y := func(share float64) float64 {
		return rounded(curveTop + (high-max(low, share))/(high-low)*(curveHeight-curveTop-curveBottom))
	}
	c := &curve{Zero: y(0), Label: "Share of the resource hours saved, by the number of restarts, for each rule of the table below"}
	var path strings.Builder
	for _, w := range r.Waits {
		if float64(w.Restarts) > right || w.NetSavedShare < low {
			continue
		}
		command := "L"
		if path.Len() == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%g %g", command, x(w.Restarts), y(w.NetSavedShare))
	}
	c.Path = path.String()
	for i, res := range r.Results {
		class := "yardstick"
		switch {
		case res.Name == backtest.PerfectForesight || res.Name == backtest.Learned || res.Name == backtest.BestFixed:
			class = res.Name
		case !r.Baseline(i):
			class = "policy"
		}
		c.Points = append(c.Points, point{x(res.Restarts), y(res.NetSavedShare), i + 1, class, res})
	}
	// What lies on top of one another is read from the table; policies lie on top.
	slices.SortStableFunc(c.Points, func(a, b point) int {
		return cmp.Compare(slices.Index(layers, a.Class), slices.Index(layers, b.Class))
	})
	for v := low; v <= high+up/2; v += up {
		c.Upward = append(c.Upward, axisMark{y(v), plain.Number(100*v, 1) + "\u00a0%"})
	}
	across := niceStep(right)
	for v := 0.0; v <= right+across/2; v += across {
		c.Across = append(c.Across, axisMark{x(int64(v)), money.Thousands(int64(v))})
	}
	return c
}

// layers are the classes of points from the lowest to the topmost.
var layers = []string{"yardstick", "best-fixed", "learned", "oracle", "policy"}

// niceStep returns a round number of which four to nine make up a length.
func niceStep(length float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(length/4)))
	for _, f := range []float64{5, 2} {
		if length/(base*f) >= 4 {
			return base * f
		}
	}
	return base
}

// niceAbove returns a round number at or above v, and at least 1.
func niceAbove(v float64) float64 {
	step := niceStep(max(v, 4))
	return math.Ceil(max(v, 1)/step) * step
}

// ownerBar is one row of the picture of owners.
type ownerBar struct {
	backtest.Owned
	Name     string
	Segments []segment
}

// maxOwnerBars is how many owners are drawn.
const maxOwnerBars = 12

// ownerBars draws what a rule saves for each owner: of the hours of the largest,
// those that worked, that idled and that were released.
func ownerBars(r *backtest.Report, rule string) (bars []ownerBar, more int) {
	var list []backtest.Owned
	most := 0.0
	for _, o := range r.ByOwner {
		if o.Rule == rule {
			list = append(list, o)
			most = max(most, o.ResourceHours)
		}
	}
	slices.SortStableFunc(list, func(a, b backtest.Owned) int { return cmp.Compare(b.NetSavedHours, a.NetSavedHours) })
	for i, o := range list {
		if i == maxOwnerBars {
			return bars, len(list) - i
		}
		b := ownerBar{Owned: o, Name: strings.Trim(o.Team+" / "+o.User, " /")}
		if b.Name == "" {
			b.Name = "nobody named"
		}
		idle := max(0, o.IdleHours-o.ReleasedHours)
		at := 0.0
		for _, p := range []segment{{Class: "released", To: o.ReleasedHours}, {Class: "idle", To: idle}, {Class: "busy", To: o.ResourceHours - idle - o.ReleasedHours}} {
			if p.To > 0 && most > 0 {
				b.Segments = append(b.Segments, segment{p.Class, rounded(at), rounded(at + 100*p.To/most)})
				at += 100 * p.To / most
			}
		}
		bars = append(bars, b)
	}
	return bars, 0
}
