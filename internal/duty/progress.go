package duty

import (
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// missedCheckpoints is after how many of their usual intervals checkpoints count as
// stopped. Our own choice.
const missedCheckpoints = 3

// standstill is computation without progress.
type standstill struct {
	stretch
	expires int64
	why     string
}

// worked is the time in which the GPU that has computed longest did not pause.
type worked struct {
	stretch
	expires int64 // never where none computes
}

// add looks at one GPU that computes.
func (w *worked) add(q *question, t *track) {
	for _, sig := range usage.Compute() {
		r := q.read(t, sig)
		if !q.fresh(r) || r.max < q.floor(r) {
			continue
		}
		if s := q.work(r); w.expires == never || s.from < w.from {
			w.stretch, w.expires = s, r.until()
		}
	}
}

// standstill says for how long GPUs have computed, without a pause, while every
// counter of progress that is measured stood still; ok is false where one of them
// moved lately, is too old to tell, is covered too little, or none is measured.
//
// A pause ends it, because the counters may be of work that is over. Steps stand still
// after [Thresholds.StalledAfter]; checkpoints also only after three times the
// interval at which they came before, so that nothing is said of a run that has not
// saved two.
func (q *question) standstill(work worked) (s standstill, ok bool) {
	stands := true
	for _, c := range [...]struct {
		signal usage.Signal
		what   string
	}{{usage.Step, "step"}, {usage.Checkpoints, "checkpoint"}} {
		r := q.read(&q.k.machine, c.signal)
		if r.meter == nil {
			continue
		}
		first, rises, rose := r.progress(q.horizon)
		patience := int64(q.k.t.StalledAfter)
		if c.signal == usage.Checkpoints {
			if rises < 2 {
				continue
			}
			patience = max(patience, missedCheckpoints*((rose-first)/rises))
		}
		both := work.and(q.unbroken(r).after(rose))
		lasting := both.length(q.now)
		if !q.fresh(r) || lasting < patience || both.coverage < q.k.t.MinCoverage {
			q.soon(both.from + patience)
			stands = false
			continue
		}
		if !ok {
			s, ok = standstill{both, min(work.expires, r.until()), q.say(func() string {
				return "it computes, and no " + c.what + " for " + plain.Duration(time.Duration(lasting))
			})}, true
			continue
		}
		s.stretch, s.expires = s.and(both), min(s.expires, r.until())
	}
	return s, ok && stands
}

// progressEvidence lists the counters of progress.
func (q *question) progressEvidence() []usage.Evidence {
	var out []usage.Evidence
	for _, c := range []struct {
		signal usage.Signal
		name   string
	}{{usage.Step, "training_step"}, {usage.Checkpoints, "checkpoints"}} {
		if r := q.read(&q.k.machine, c.signal); r.meter != nil {
			_, _, rose := r.progress(q.horizon)
			still := q.unbroken(r).after(rose)
			out = append(out, usage.Evidence{
				Signal: c.name, Value: plain.Number(r.mean, 0), Window: time.Duration(still.length(q.now)),
				Coverage: still.coverage, Source: r.opened.Source,
			})
		}
	}
	return out
}
