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

// outcome is what one rule did with a trace.
type outcome struct {
	tally             // of all resources
	by       []tally  // by resource
	releases releases // where they were asked for
	*obeyed           // of a policy
}

// release is the time in which a resource was let go.
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
	o := outcome{by: make([]tally, len(t.tracks))}
	if collect {
		o.releases = releases{}
	}
	return o
}

// total adds up the resources.
func (o *outcome) total() {
	o.tally = tally{}
	for _, by := range o.by {
		o.add(by)
	}
}

// watched is a resource within a replay.
type watched struct {
	reader
	index int
	// samples of the open stretch, and the point of it at which the resource was
	// let go, negative while it is held; known is the end of the newest sample.
	samples, point, known int64
}

// follow replays a decider over the trace. decided, where it is not nil, is told
// of every release when it is decided.
func (t *trace) follow(ctx context.Context, d Decider, collect bool, decided func(Sample, time.Duration)) (outcome, error) {
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
func (w *watched) sample(d Decider, t *trace, out *outcome, decided func(Sample, time.Duration)) {
	first := w.left == w.run.count-1
	s := Sample{Resource: w.index, Time: time.UnixMicro(w.at).UTC(), Idle: w.run.idle, Gap: first && w.run.gap}
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
		out.by[w.index].release(length, busy, t.restart, 1)
		out.releases.add(w.index, w.known-length, w.known)
	}
	w.samples, w.point = 0, -1
}
