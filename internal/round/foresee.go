package round

import (
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/usage"
)

// foresight is what the policies of a replay say of a subject whenever it is in a state:
// the answers are the same while that has lasted for less than after, until a time. Most
// work and rest is over before that, and need not be asked about.
type foresight struct {
	state   duty.State
	answers []usage.Tristate
	after   time.Duration
	until   int64 // in nanoseconds since 1970
}

// patience is how long what cannot be foreseen is not tried again.
const patience = time.Hour

// foresees returns where the foresight is kept of what a subject does by itself, nil where
// the answers depend on more.
func (r *replay) foresees(s *subject) *foresight {
	switch {
	case !r.timeless || s.gang != nil || s.open || s.does == nil || s.does.State == duty.Unknown:
		return nil
	case s.does.Since.IsZero():
		return &s.foresight[0]
	}
	return &s.foresight[1]
}

// foreseen answers as was foreseen, and returns until when that holds; 0 where the policies
// have to be asked.
func (r *replay) foreseen(s *subject) (until int64) {
	f := r.foresees(s)
	if f == nil || f.state != s.does.State || s.does.Duration >= f.after {
		return 0
	}
	now := r.now.UnixNano()
	if now >= f.until {
		return 0
	}
	for i := range s.answers {
		s.answers[i].Tristate = f.answers[i]
	}
	// It grows older only as far as samples are known.
	if left := f.after - s.does.Duration; f.after < never && r.now.Before(s.does.Until) &&
		!r.now.Add(left).After(r.lastsTo(s)) {
		return min(f.until, now+int64(left))
	}
	return f.until
}

// foresee looks ahead after the policies were asked: at a state that begins now and lasts,
// and at one that goes on without growing older, which only time changes.
func (r *replay) foresee(s *subject) {
	f := r.foresees(s)
	now := r.now.UnixNano()
	if f == nil || f.state == s.does.State && now < f.until {
		return
	}
	*f = foresight{state: s.does.State, answers: f.answers[:0], after: never, until: never}
	begun, still := *s.does, *s.does
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
			f.after, f.until = 0, now+int64(patience)
			return
		}
		f.answers = append(f.answers, lasts.Answer)
		if !lasts.Next.IsZero() {
			f.after = min(f.after, lasts.Next.Sub(r.now))
		}
		if !goesOn.Next.IsZero() {
			f.until = min(f.until, goesOn.Next.UnixNano())
		}
	}
	if s.does.Duration >= f.after { // what was asked is not what would be answered
		f.state = duty.Unknown
	}
}

// why says why a policy's answer about a subject is what it is.
func (r *replay) why() string {
	s := r.about
	f := s.facts
	switch {
	case s.does == nil:
	case s.does == s.own:
		v := s.tracker.Explain(r.now, duty.MachineOf(s.Resource))
		f.Duty = &v
	default:
		var verdicts []duty.Verdict
		for _, o := range s.gang {
			if o.own != nil {
				verdicts = append(verdicts, o.tracker.Explain(r.now, duty.MachineOf(o.Resource)))
			}
		}
		v := duty.Gang(verdicts)
		f.Duty = &v
	}
	return r.Policies.Policies[r.policy].Explain(&f).Why()
}
