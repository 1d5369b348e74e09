package backtest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// Never is the wait of a decider that does not let go.
const Never = time.Duration(math.MaxInt64)

// Decider decides when to let go of resources, from the past only. It is handed
// the samples of all resources, one step of time after the other: all samples of a
// step before those of the next, each resource's own in order of time.
type Decider interface {
	// Begin says that the samples of all steps before at were handed over. Within a
	// step samples of different resources are not in order of time, so a decision
	// may rest on other resources only as they were when the step began.
	Begin(at time.Time)
	// Decide takes a sample and returns how long after it the resource is let go,
	// unless a later sample of it comes first and changes that: 0 is at once, Never
	// is not. The answer to a busy sample is not used, nor are those after a
	// release until work has come back.
	Decide(s Sample) time.Duration
}

// Sample is what a decider sees of a resource at one time.
type Sample struct {
	// Resource is its number in the [Fleet].
	Resource int
	Time     time.Time
	Idle     bool
	// Gap says that samples before this one are missing: what was idle before is
	// no longer known to have lasted.
	Gap bool
	// Lasting is how long the resource has been idle without a gap until now; 0 at
	// the first idle sample.
	Lasting time.Duration
}

// watched is a resource within a replay.
type watched struct {
	reader
	index int
	// samples of the open stretch, and the point of it at which the resource was
	// let go, negative while it is held.
	samples, point int64
}

// follow replays a decider over the trace. decided, where it is not nil, is told
// of every release when it is decided.
func (t *trace) follow(ctx context.Context, d Decider, decided func(Sample, time.Duration)) (tally, error) {
	var sum tally
	var all []*watched
	for i, track := range t.tracks {
		w := &watched{reader: reader{cursor: track.cursor(t.step)}, index: i, point: -1}
		if w.next() {
			all = append(all, w)
		}
	}
	slices.SortStableFunc(all, func(a, b *watched) int { return cmp.Compare(a.at, b.at) })
	var active []*watched
	if len(all) == 0 {
		return sum, nil
	}
	for at := all[0].at; len(all) > 0 || len(active) > 0; {
		if err := ctx.Err(); err != nil {
			return sum, context.Cause(ctx)
		}
		end := at + t.step
		n := 0
		for n < len(all) && all[n].at < end {
			n++
		}
		if n > 0 {
			active, all = append(active, all[:n]...), all[n:]
			slices.SortFunc(active, func(a, b *watched) int { return cmp.Compare(a.index, b.index) })
		}
		d.Begin(time.UnixMicro(at).UTC())
		nearest, kept := int64(math.MaxInt64), active[:0]
		for _, w := range active {
			more := true
			for more && w.at < end {
				w.sample(d, t, &sum, decided)
				more = w.next()
			}
			if more {
				kept, nearest = append(kept, w), min(nearest, w.at)
			} else {
				w.end(t, &sum, false)
			}
		}
		clear(active[len(kept):])
		active = kept
		if len(all) > 0 {
			nearest = min(nearest, all[0].at)
		}
		if len(all) > 0 || len(active) > 0 {
			// Steps in which nothing was sampled are passed over.
			at += max(1, (nearest-at)/t.step) * t.step
		}
	}
	return sum, nil
}

// sample hands the resource's next sample to the decider.
func (w *watched) sample(d Decider, t *trace, sum *tally, decided func(Sample, time.Duration)) {
	first := w.left == w.run.count-1
	s := Sample{Resource: w.index, Time: time.UnixMicro(w.at).UTC(), Idle: w.run.idle, Gap: first && w.run.gap}
	if s.Gap || !s.Idle {
		w.end(t, sum, !s.Gap)
	}
	if s.Idle {
		s.Lasting = span(w.samples * t.step)
		w.samples++
	}
	wait := d.Decide(s)
	if s.Idle && w.point < 0 && wait < span(t.step) {
		w.point = micros(s.Lasting + max(0, wait))
		if decided != nil {
			decided(s, wait)
		}
	}
}

// end closes the open stretch, if there is one.
func (w *watched) end(t *trace, sum *tally, busy bool) {
	if w.samples > 0 && w.point >= 0 {
		sum.release(w.samples*t.step-w.point, busy, t.restart, 1)
	}
	w.samples, w.point = 0, -1
}
