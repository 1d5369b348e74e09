package fit

import (
	"math"
	"slices"
	"time"
)

// Concurrency measures how long a request takes on a server that batches continuously, by the
// requests that run: PerRow·c + Base. The zero value is ready. It is not safe for concurrent use.
//
// Requests are grouped by how many ran when they began, which does not depend on their own length.
// Each group is one point: its mean time by its mean of running requests over that time. Means and
// not medians, because the requests that run in a queue of shared processors depend on the mean work
// alone; groups by the requests that ran over the time would put the short ones at the extremes.
type Concurrency struct {
	groups  map[int]*group
	line    Line
	fitted  bool
	pending int

	recent []shared
	// reference is the line when the first of the recent requests ended: the line itself follows them.
	reference Line
	changes   int
	changed   time.Time
}

// group holds the recent requests that began with one number of running requests.
type group struct {
	requests []shared
	next     int
}

// shared is one request: its time and the running requests over that time, itself included.
type shared struct {
	start            int
	seconds, running float64
}

// Bounds of what a [Concurrency] remembers.
const (
	maxGroups = 1024
	// changeWindow is the length of a run of requests that take more or less than the line says, on
	// average by levelShare and by 5 standard errors, after which the level of the server counts as
	// changed. The line must rest on as many.
	changeWindow = 256
	// edgeRequests is the number of requests below a line's Min, and above its Max.
	edgeRequests = 4
)

// Level has the requests during which a range of requests ran on average.
type Level struct {
	Range
	// Running is their mean of running requests, weighted by time, and Time their mean time. Where the
	// load moves much within a request, those at the ends of all levels are short ones.
	Running float64
	Time    time.Duration
}

// Add takes a request that ended at a time. It began as one of start requests, and running is the
// mean of the requests that ran over its time, itself included.
func (e *Concurrency) Add(start int, running float64, took time.Duration, at time.Time) {
	if start < 1 || running < 1 || took <= 0 {
		return
	}
	one := shared{start, took.Seconds(), running}
	e.detect(one, at)
	e.keep(one)
	if e.pending++; e.pending >= 16 || e.line.Batches < 64 {
		e.refit()
	}
}

func (e *Concurrency) keep(one shared) {
	if e.groups == nil {
		e.groups = map[int]*group{}
	}
	g := e.groups[one.start]
	if g == nil {
		if len(e.groups) >= maxGroups {
			return
		}
		g = &group{}
		e.groups[one.start] = g
	}
	if len(g.requests) < perSize {
		g.requests = append(g.requests, one)
		return
	}
	g.requests[g.next] = one
	g.next = (g.next + 1) % perSize
}

// detect drops what was measured before the server's level changed.
func (e *Concurrency) detect(one shared, at time.Time) {
	if len(e.recent) == 0 {
		e.reference = e.line
	}
	l := e.reference
	if !e.fitted || l.Batches < changeWindow || one.running < float64(l.Min) || one.running > float64(l.Max) {
		return
	}
	if e.recent = append(e.recent, one); len(e.recent) < changeWindow {
		return
	}
	var sum, squares float64
	for _, r := range e.recent {
		d := r.seconds/(l.PerRow*r.running+l.Base) - 1
		sum, squares = sum+d, squares+d*d
	}
	mean := sum / changeWindow
	deviation := math.Sqrt(max(0, squares/changeWindow-mean*mean) / changeWindow)
	if mean < 0 { // half the time is as far as twice the time
		mean, deviation = 1-1/(1+mean), deviation/(1+mean)
	}
	kept := e.recent
	e.recent = nil
	if math.Abs(mean) < levelShare || math.Abs(mean) < 5*deviation {
		return
	}
	clear(e.groups)
	e.line, e.fitted, e.changes, e.changed = Line{}, false, e.changes+1, at
	for _, r := range kept[:changeWindow-1] { // the newest one is added by the caller
		e.keep(r)
	}
}

// point returns the mean of the running requests of a group, weighted by time, and its mean time.
func (g *group) point() (running, seconds float64) {
	area := 0.0
	for _, r := range g.requests {
		area += r.running * r.seconds
		seconds += r.seconds
	}
	return area / seconds, seconds / float64(len(g.requests))
}

// refit computes the line by least squares over the points, as [Estimator] does.
func (e *Concurrency) refit() {
	e.pending = 0
	l := Line{}
	var points []weighted
	var errs []float64
	var running []float64
	seen := map[int]bool{}
	for _, g := range e.groups {
		x, y := g.point()
		n := len(g.requests)
		l.Batches += n
		points = append(points, weighted{x, y, float64(n) / (y * y)})
		for _, r := range g.requests {
			running = append(running, r.running)
			seen[int(math.Round(r.running))] = true
		}
	}
	l.Sizes = len(seen)
	if e.fitted = l.Batches >= minBatches; !e.fitted {
		return
	}
	// Single requests at the ends are not enough to tell anything there.
	slices.Sort(running)
	edge := min(edgeRequests, len(running)/4)
	l.Min, l.Max = int(math.Round(running[edge])), int(math.Round(running[len(running)-1-edge]))
	l.PerRow, l.Base = leastSquares(points)
	for _, p := range points {
		errs = append(errs, math.Abs(p.y-l.PerRow*p.x-l.Base)/p.y)
	}
	slices.Sort(errs)
	l.Error, l.ErrorP90 = errs[len(errs)/2], errs[len(errs)*9/10]
	e.line = l
}

// Line returns the fitted line, with running requests as rows; false while too little is measured.
func (e *Concurrency) Line() (Line, bool) { return e.line, e.fitted }

// Changes returns how often the level of the server changed, and when last.
func (e *Concurrency) Changes() (int, time.Time) { return e.changes, e.changed }

// Levels returns what was measured of each range of running requests up to the most: 1, 2, 3-4, 5-8,
// and so on.
func (e *Concurrency) Levels(most int) []Level {
	out := []Level{}
	for _, r := range (&Estimator{}).Ranges(most) {
		one := Level{Range: r}
		var area, seconds float64
		for _, g := range e.groups {
			for _, s := range g.requests {
				if n := int(math.Round(s.running)); n < r.Low || n > r.High {
					continue
				}
				one.Batches++
				seconds += s.seconds
				area += s.running * s.seconds
			}
		}
		if one.Batches > 0 {
			one.Running = area / seconds
			one.Time = time.Duration(seconds / float64(one.Batches) * float64(time.Second))
		}
		out = append(out, one)
	}
	return out
}
