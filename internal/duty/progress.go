package duty

import (
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// missedCheckpoints is the number of usual intervals without a checkpoint, or a declared event, after which
// they count as stopped. Our own choice.
const missedCheckpoints = 3

// standstill is computation without progress.
type standstill struct {
	stretch
	expires int64
	why     string
}

// workPeriod is the uninterrupted work of the GPU that has computed longest.
type workPeriod struct {
	stretch
	expires int64 // never if none computes
}

// add takes a computing GPU into account.
func (w *workPeriod) add(q *evaluation, t *track) {
	for _, sig := range usage.ComputeSignals() {
		r := q.read(t, sig)
		if !q.fresh(r) || r.max < q.floor(r) {
			continue
		}
		if s := q.activePeriod(r); w.expires == never || s.from < w.from {
			w.stretch, w.expires = s, r.freshUntil()
		}
	}
}

// standstill returns how long GPUs have computed without a pause while every measured counter of
// progress stood still. ok is false if a counter moved recently, is too old or covered too little,
// or none is measured.
//
// A pause resets it, because the counters may belong to finished work. Steps stand still after
// [Thresholds.StalledAfter]; checkpoints and declared events only after three times their interval as
// well, so a run that has not saved twice is never stalled by them.
func (q *evaluation) standstill(work workPeriod) (s standstill, ok bool) {
	stands := true
	for _, c := range [...]struct {
		signal usage.Signal
		what   string
	}{{usage.Step, "step"}, {usage.Checkpoints, "checkpoint"}, {usage.Events, "declared event"}} {
		r := q.read(&q.k.machine, c.signal)
		if r.meter == nil {
			continue
		}
		first, rises, rose := r.progress(q.horizon)
		patience := int64(q.k.thresholds.StalledAfter)
		if c.signal != usage.Step {
			if rises < 2 {
				continue
			}
			patience = max(patience, missedCheckpoints*((rose-first)/rises))
		}
		both := work.intersect(q.unbroken(r).startingAt(rose))
		lasting := both.length(q.now)
		if !q.fresh(r) || lasting < patience || both.coverage < q.k.thresholds.MinCoverage {
			q.changesAt(both.from + patience)
			stands = false
			continue
		}
		if !ok {
			s, ok = standstill{both, min(work.expires, r.freshUntil()), q.text(func() string {
				return "it computes, and no " + c.what + " for " + plain.Duration(time.Duration(lasting))
			})}, true
			continue
		}
		s.stretch, s.expires = s.intersect(both), min(s.expires, r.freshUntil())
	}
	return s, ok && stands
}

// progressEvidence lists the counters of progress.
func (q *evaluation) progressEvidence() []usage.Evidence {
	var out []usage.Evidence
	for _, c := range []struct {
		signal usage.Signal
		name   string
	}{{usage.Step, "training_step"}, {usage.Checkpoints, "checkpoints"}, {usage.Events, "declared_events"}} {
		if r := q.read(&q.k.machine, c.signal); r.meter != nil {
			_, _, rose := r.progress(q.horizon)
			still := q.unbroken(r).startingAt(rose)
			out = append(out, usage.Evidence{
				Signal: c.name, Value: plain.Number(r.mean, 0), Window: time.Duration(still.length(q.now)),
				Coverage: still.coverage, Source: r.opened.Source,
			})
		}
	}
	return out
}
