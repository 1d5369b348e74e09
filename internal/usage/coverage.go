package usage

import (
	"slices"
	"sort"
	"time"
)

// coverage is the time covered by points, as ordered spans that do not touch. Times are offsets
// from the start of the window.
type coverage struct {
	spans []span
	total time.Duration
}

// span is time without a missing point. Gaps of less than half a step are jitter: they are part of
// the span but not of filled or of the total.
type span struct{ from, to, filled time.Duration }

// maxSpans bounds the memory of a meter with many gaps. Points that would need another span do not
// count as covered, which errs toward unknown.
const maxSpans = 1024

// add marks [at, at+step) as covered, cut at end.
func (c *coverage) add(at, step, end time.Duration) {
	if step <= 0 {
		return
	}
	to := min(at+step, end)
	if to < at { // the step is so long that the sum overflows
		to = end
	}
	i := len(c.spans)
	if i > 0 && c.spans[i-1].from > at {
		i = sort.Search(i, func(i int) bool { return c.spans[i].from > at })
	}
	joins := func(gap time.Duration) bool { return gap < (step+1)/2 }
	var before, after bool
	lo, hi := at, to
	if i > 0 {
		lo = max(lo, c.spans[i-1].to)
		before = joins(at - c.spans[i-1].to)
	}
	if i < len(c.spans) {
		hi = min(hi, c.spans[i].from)
		after = joins(c.spans[i].from - to)
	}
	gain := hi - lo
	if gain <= 0 {
		return
	}
	switch {
	case before && after:
		c.spans[i-1].to = c.spans[i].to
		c.spans[i-1].filled += gain + c.spans[i].filled
		c.spans = slices.Delete(c.spans, i, i+1)
	case before:
		c.spans[i-1].to = hi
		c.spans[i-1].filled += gain
	case after:
		c.spans[i].from = lo
		c.spans[i].filled += gain
	case len(c.spans) < maxSpans:
		c.spans = slices.Insert(c.spans, i, span{lo, hi, gain})
	default:
		return
	}
	c.total += gain
}
