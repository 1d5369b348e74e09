package backtest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
)

// outcome is the result of one rule on a trace.
type outcome struct {
	learn.Tally               // of all resources
	by          []learn.Tally // by resource
	releases    releases      // where they were asked for
	*obeyed                   // of a policy
}

// release is the time in which a resource was released.
type release struct {
	resource int
	from, to int64
}

// releases collects releases where it is not nil.
type releases []release

func (r *releases) add(resource int, from, to int64) {
	if *r != nil && to > from {
		*r = append(*r, release{resource, from, to})
	}
}

func (t *trace) newOutcome(collect bool) outcome {
	o := outcome{by: make([]learn.Tally, len(t.tracks))}
	if collect {
		o.releases = releases{}
	}
	return o
}

// total adds up the resources.
func (o *outcome) total() {
	o.Tally = learn.Tally{}
	for _, by := range o.by {
		o.Add(by)
	}
}

// watched is a resource within a replay.
type watched struct {
	reader
	index int
	// samples of the open idle period, and the point of it at which the resource was
	// released, negative while it is held; known is the end of the newest sample.
	samples, point, known int64
}

// follow replays a decider over the trace. decided, where it is not nil, is told
// of every release when it is decided.
func (t *trace) follow(ctx context.Context, d learn.Decider, collect bool, decided func(learn.Sample, time.Duration)) (
	outcome, error) {
	out := t.newOutcome(collect)
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
		return out, nil
	}
	for at := all[0].at; len(all) > 0 || len(active) > 0; {
		if err := ctx.Err(); err != nil {
			return out, context.Cause(ctx)
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
				w.sample(d, t, &out, decided)
				more = w.next()
			}
			if more {
				kept, nearest = append(kept, w), min(nearest, w.at)
			} else {
				w.end(t, &out, false)
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
	out.total()
	return out, nil
}

// sample hands the resource's next sample to the decider.
func (w *watched) sample(d learn.Decider, t *trace, out *outcome, decided func(learn.Sample, time.Duration)) {
	first := w.left == w.run.count-1
	s := learn.Sample{Resource: w.index, Time: time.UnixMicro(w.at).UTC(), Idle: w.run.idle, Gap: first && w.run.gap}
	if s.Gap || !s.Idle {
		w.end(t, out, !s.Gap)
	}
	if s.Idle {
		s.Lasting = span(w.samples * t.step)
		w.samples++
		w.known = w.at + t.step
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
func (w *watched) end(t *trace, out *outcome, busy bool) {
	if length := w.samples*t.step - w.point; w.samples > 0 && w.point >= 0 {
		out.by[w.index].Release(length, busy, t.restart, 1)
		out.releases.add(w.index, w.known-length, w.known)
	}
	w.samples, w.point = 0, -1
}
