// Package fit measures how long a batch of n rows takes on a model server: the line a·n + b, and
// how well it holds.
package fit

import (
	"math"
	"slices"
	"time"
)

// Bounds of what an [Estimator] remembers and needs.
const (
	// perSize is how many recent batches of one size are kept.
	perSize = 64
	// maxSizes bounds the sizes that are kept; the least recent one is dropped.
	maxSizes = 256
	// minSizes and minBatches are what a line needs.
	minSizes, minBatches = 1, 8
	// levelWindow is how many batches in a row must differ in one direction by more than
	// levelShare before the level of the server is taken as changed. A shorter time of
	// contention for the processor is no change.
	levelWindow = 48
	levelShare  = 0.25
)

// Line is the time of a batch of n rows: PerRow·n + Base, in seconds, for n from Min to Max.
type Line struct {
	PerRow, Base float64
	// Min and Max are the smallest and the largest batch that were measured.
	Min, Max int
	// Error and ErrorP90 are the median and the 90th percentile of |measured - line| / measured.
	Error, ErrorP90 float64
	// Batches is how many batches the line was fitted to, Sizes how many sizes they had. With one
	// size PerRow is 0 and Base the time of that size: it is known, and the line is not.
	Batches, Sizes int
}

// Time returns the time of a batch of n rows. It returns false outside of the measured sizes: a
// line that was fitted to 1 to 16 rows was wrong by 15% at 64.
func (l Line) Time(n int) (time.Duration, bool) {
	if l.Batches == 0 || n < l.Min || n > l.Max {
		return 0, false
	}
	return time.Duration((l.PerRow*float64(n) + l.Base) * float64(time.Second)), true
}

// Size is what was measured of the batches of one size.
type Size struct {
	Rows    int
	Batches int
	Median  time.Duration
}

// Estimator fits a line to recent batches. The zero value is ready. It is not safe for concurrent
// use.
type Estimator struct {
	sizes   map[int]*ring
	counter int64
	line    Line
	fitted  bool
	pending int

	recent  []signed
	changes int
	changed time.Time
}

// ring holds the recent times of one size.
type ring struct {
	seconds []float64
	next    int
	used    int64 // the estimator's counter at the last batch
}

// signed is a batch and its deviation from the line, as a share of the line.
type signed struct {
	rows      int
	seconds   float64
	deviation float64
}

// Add takes a measured batch of n rows that ended at a time.
func (e *Estimator) Add(n int, took time.Duration, at time.Time) {
	if n < 1 || took <= 0 {
		return
	}
	if e.sizes == nil {
		e.sizes = map[int]*ring{}
	}
	e.detect(n, took.Seconds(), at)
	e.keep(n, took.Seconds())
	// Fitting costs a sort for each size: it is done for each batch at first, then for every
	// sixteenth.
	if e.pending++; e.pending >= 16 || e.line.Batches < 64 {
		e.refit()
	}
}

func (e *Estimator) keep(n int, seconds float64) {
	e.counter++
	r := e.sizes[n]
	if r == nil {
		if len(e.sizes) >= maxSizes {
			e.forgetOldest()
		}
		r = &ring{}
		e.sizes[n] = r
	}
	r.used = e.counter
	if len(r.seconds) < perSize {
		r.seconds = append(r.seconds, seconds)
		return
	}
	r.seconds[r.next] = seconds
	r.next = (r.next + 1) % perSize
}

func (e *Estimator) forgetOldest() {
	oldest, at := 0, int64(math.MaxInt64)
	for n, r := range e.sizes {
		if r.used < at {
			oldest, at = n, r.used
		}
	}
	delete(e.sizes, oldest)
}

// detect drops what was measured before the server's level changed, for example because another
// version of the model was loaded.
func (e *Estimator) detect(n int, seconds float64, at time.Time) {
	expected, ok := e.line.Time(n)
	if !ok {
		return
	}
	e.recent = append(e.recent, signed{n, seconds, seconds/expected.Seconds() - 1})
	if len(e.recent) < levelWindow {
		return
	}
	e.recent = e.recent[len(e.recent)-levelWindow:]
	up, down := 0, 0
	for _, r := range e.recent {
		switch {
		case r.deviation > levelShare:
			up++
		case r.deviation < -levelShare/(1+levelShare):
			down++
		}
	}
	if max(up, down) < levelWindow {
		return
	}
	clear(e.sizes)
	e.line, e.fitted, e.changes, e.changed = Line{}, false, e.changes+1, at
	for _, r := range e.recent[:levelWindow-1] { // the newest one is added by the caller
		e.keep(r.rows, r.seconds)
	}
	e.recent = nil
}

// refit computes the line: least squares over the medians of sizes, weighted by batches over the
// square of the time, so that the relative error counts.
func (e *Estimator) refit() {
	e.pending = 0
	sizes := e.Sizes()
	l := Line{Sizes: len(sizes)}
	for _, s := range sizes {
		l.Batches += s.Batches
	}
	e.fitted = len(sizes) >= minSizes && l.Batches >= minBatches
	if !e.fitted {
		return
	}
	l.Min, l.Max = sizes[0].Rows, sizes[len(sizes)-1].Rows
	points := make([]weighted, len(sizes))
	for i, s := range sizes {
		y := s.Median.Seconds()
		points[i] = weighted{float64(s.Rows), y, float64(s.Batches) / (y * y)}
	}
	l.PerRow, l.Base = leastSquares(points)
	var errs []float64
	for n, r := range e.sizes {
		want := l.PerRow*float64(n) + l.Base
		for _, s := range r.seconds {
			errs = append(errs, math.Abs(s-want)/s)
		}
	}
	slices.Sort(errs)
	l.Error, l.ErrorP90 = errs[len(errs)/2], errs[len(errs)*9/10]
	e.line = l
}

// weighted is a measured time y, in seconds, of x rows.
type weighted struct{ x, y, weight float64 }

// leastSquares fits the line. Neither part is negative: a batch that is larger takes no less, and
// one of 0 rows takes no negative time.
func leastSquares(points []weighted) (perRow, base float64) {
	var w, wx, wy, wxx, wxy float64
	for _, p := range points {
		x, y := p.x, p.y
		w, wx, wy, wxx, wxy = w+p.weight, wx+p.weight*x, wy+p.weight*y, wxx+p.weight*x*x, wxy+p.weight*x*y
	}
	if d := w*wxx - wx*wx; d > 1e-12*w*wxx {
		perRow = (w*wxy - wx*wy) / d
	}
	switch base = (wy - perRow*wx) / w; {
	case perRow < 0:
		return 0, wy / w
	case base < 0:
		return wxy / wxx, 0
	}
	return perRow, base
}

// Sizes returns what was measured, by size.
func (e *Estimator) Sizes() []Size {
	out := make([]Size, 0, len(e.sizes))
	for n, r := range e.sizes {
		sorted := slices.Clone(r.seconds)
		slices.Sort(sorted)
		out = append(out, Size{n, len(sorted), time.Duration(sorted[len(sorted)/2] * float64(time.Second))})
	}
	slices.SortFunc(out, func(a, b Size) int { return a.Rows - b.Rows })
	return out
}

// Line returns the fitted line; false while too few batches or sizes were measured.
func (e *Estimator) Line() (Line, bool) { return e.line, e.fitted }

// Changes returns how often the level of the server changed, and when last.
func (e *Estimator) Changes() (int, time.Time) { return e.changes, e.changed }

// Range is batch sizes from Low to High, which was measured with so many Batches.
type Range struct{ Low, High, Batches int }

// Ranges returns how many batches of each range of sizes up to the largest were measured: 1, 2,
// 3-4, 5-8, and so on.
func (e *Estimator) Ranges(largest int) []Range {
	var out []Range
	for low, high := 1, 1; low <= largest; low, high = high+1, 2*high {
		r := Range{Low: low, High: min(high, largest)}
		for size, measured := range e.sizes {
			if size >= r.Low && size <= r.High {
				r.Batches += len(measured.seconds)
			}
		}
		out = append(out, r)
	}
	return out
}
