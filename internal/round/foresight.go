package round

import (
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/usage"
)

// foresight caches the policies' answers about a subject in a state: they stay the same while the
// state has lasted less than validFor, until a time. Most periods of work and rest are shorter, and
// need no evaluation.
type foresight struct {
	state    duty.State
	answers  []usage.Tristate
	validFor time.Duration
	until    int64 // in nanoseconds since 1970
}

// foresightRetry is the delay before a failed foresight is tried again.
const foresightRetry = time.Hour

// foresightSlot returns the foresight for a subject's verdict; nil if the answers depend on more.
func (r *replay) foresightSlot(s *subject) *foresight {
	switch {
	case !r.foreseeable || s.gang != nil || s.hasItem || s.groupVerdict == nil || s.groupVerdict.State == duty.Unknown:
		return nil
	case s.groupVerdict.Since.IsZero():
		return &s.foresight[0]
	}
	return &s.foresight[1]
}

// applyForesight sets the foreseen answers and returns until when they hold; 0 if the policies have
// to be evaluated.
func (r *replay) applyForesight(s *subject) (until int64) {
	f := r.foresightSlot(s)
	if f == nil || f.state != s.groupVerdict.State || s.groupVerdict.Duration >= f.validFor {
		return 0
	}
	now := r.now.UnixNano()
	if now >= f.until {
		return 0
	}
	for i := range s.answers {
		s.answers[i].Tristate = f.answers[i]
	}
	// The state's duration can grow only up to the last known sample.
	if left := f.validFor - s.groupVerdict.Duration; f.validFor < never && r.now.Before(s.groupVerdict.Until) &&
		!r.now.Add(left).After(r.lastsUntil(s)) {
		return min(f.until, now+int64(left))
	}
	return f.until
}

// foresee fills the foresight after an evaluation: from the answers about a state that starts now
// and lasts, and about one that never gets older, which only time changes.
func (r *replay) foresee(s *subject) {
	f := r.foresightSlot(s)
	now := r.now.UnixNano()
	if f == nil || f.state == s.groupVerdict.State && now < f.until {
		return
	}
	*f = foresight{state: s.groupVerdict.State, answers: f.answers[:0], validFor: never, until: never}
	begun, still := *s.groupVerdict, *s.groupVerdict
	begun.Duration, begun.Until, begun.Expires = 0, time.Time{}, time.Time{}
	if !begun.Since.IsZero() {
		begun.Since = r.now
	}
	still.Duration, still.Since, still.Expires = 0, time.Time{}, time.Time{}
	facts := s.facts
	for _, p := range r.Policies.Policies {
		facts.Duty = &begun
		lasts := p.Evaluate(&facts)
		facts.Duty = &still
		goesOn := p.Evaluate(&facts)
		if lasts.Answer == usage.True || lasts.Answer != goesOn.Answer {
			f.validFor, f.until = 0, now+int64(foresightRetry)
			return
		}
		f.answers = append(f.answers, lasts.Answer)
		if !lasts.Next.IsZero() {
			f.validFor = min(f.validFor, lasts.Next.Sub(r.now))
		}
		if !goesOn.Next.IsZero() {
			f.until = min(f.until, goesOn.Next.UnixNano())
		}
	}
	if s.groupVerdict.Duration >= f.validFor { // the current state is already older than the foresight covers
		f.state = duty.Unknown
	}
}

// why explains a policy's answer about a subject.
func (r *replay) why() string {
	s := r.answerSubject
	f := s.facts
	switch {
	case s.groupVerdict == nil:
	case s.groupVerdict == s.ownVerdict:
		v := s.tracker.Explain(r.now, duty.MachineOf(s.Resource))
		f.Duty = &v
	default:
		var verdicts []duty.Verdict
		for _, o := range s.gang {
			if o.ownVerdict != nil {
				verdicts = append(verdicts, o.tracker.Explain(r.now, duty.MachineOf(o.Resource)))
			}
		}
		v := duty.Gang(verdicts)
		f.Duty = &v
	}
	return r.Policies.Policies[r.answerPolicy].Explain(&f).Why()
}
