package duty

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// missedCheckpoints is after how many of their usual intervals checkpoints count as
// stopped. Our own choice.
const missedCheckpoints = 3

// standstill is computation without progress.
type standstill struct {
	usage.Stretch
	expires time.Time
	why     string
}

// standstill says for how long GPUs have computed, without a pause, while every
// counter of progress that is measured stood still; ok is false where one of them
// moved lately, is too old to tell, is covered too little, or none is measured.
//
// A pause ends it, because the counters may be of work that is over. Steps stand still
// after [Thresholds.StalledAfter]; checkpoints also only after three times the
// interval at which they came before, so that nothing is said of a run that has not
// saved two.
func (j *judge) standstill(busy []*usage.Track) (s standstill, ok bool) {
	work, expires := j.work(busy)
	for _, c := range []struct {
		signal usage.Signal
		why    string
	}{{usage.Step, "no step for %s"}, {usage.Checkpoints, "no checkpoint for %s"}} {
		st := j.w.Machine.Stats(c.signal)
		patience, judged := j.patience(c.signal, st)
		if !judged {
			continue
		}
		both := work.And(j.w.Standstill(st))
		lasting := both.Length(j.now)
		if !j.fresh(st) || lasting < patience || both.Coverage < j.t.MinCoverage {
			return standstill{}, false
		}
		if !ok {
			s = standstill{both, earlier(expires, j.w.Expires(st)), fmt.Sprintf("it computes, and "+c.why, usage.Span(lasting))}
			ok = true
			continue
		}
		s.Stretch, s.expires = s.And(both), earlier(s.expires, j.w.Expires(st))
	}
	return s, ok
}

// patience returns after how long without a rise a counter stands still; ok is false
// where it cannot tell.
func (j *judge) patience(sig usage.Signal, st *usage.Stats) (d time.Duration, ok bool) {
	switch {
	case st == nil:
		return 0, false
	case sig == usage.Step:
		return j.t.StalledAfter, true
	case st.Active < 2:
		return 0, false
	}
	usual := st.LastActive.Sub(st.First) / time.Duration(st.Active)
	return max(j.t.StalledAfter, missedCheckpoints*usual), true
}

// work returns the time in which the GPU that has computed longest did not pause.
func (j *judge) work(busy []*usage.Track) (longest usage.Stretch, expires time.Time) {
	for _, t := range busy {
		for _, sig := range usage.Compute() {
			st := t.Stats(sig)
			if !st.Works() || !j.fresh(st) {
				continue
			}
			if s := j.w.Work(st); expires.IsZero() || s.From.Before(longest.From) {
				longest, expires = s, j.w.Expires(st)
			}
		}
	}
	return longest, expires
}

// progressEvidence lists the counters of progress.
func (j *judge) progressEvidence() []usage.Evidence {
	var out []usage.Evidence
	for _, c := range []struct {
		signal usage.Signal
		name   string
	}{{usage.Step, "training_step"}, {usage.Checkpoints, "checkpoints"}} {
		st := j.w.Machine.Stats(c.signal)
		if v, err := st.Newest(); err == nil {
			still := j.w.Standstill(st)
			out = append(out, usage.Evidence{
				Signal: c.name, Value: usage.Number(v, 0), Window: still.Length(j.now), Coverage: still.Coverage, Source: j.w.SourceOf(st),
			})
		}
	}
	return out
}
