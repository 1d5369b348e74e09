package backtest

import (
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// forecast is what a policy says of a resource that works, or rests, whenever that
// begins: it is not True until after that much rest, as long as nothing but time goes
// on. Most rests are over before that, and need not be looked at.
type forecast struct {
	known bool
	after int64
	// until is when time itself may change that, retry when to try anew.
	until, retry int64
}

// worthwhile is how long a forecast has to hold to be made.
const worthwhile = int64(time.Hour)

// foreseeable returns the forecast of what the subject does now; nil where it does not
// depend on itself alone.
func (s *subject) foreseeable(now int64) (*forecast, *runMeter) {
	m, ok := s.meter.(*runMeter)
	switch {
	case !ok || s.gang != nil || s.item.Phase != "" || now > m.expires():
		return nil, nil
	case !m.run.idle:
		return &s.forecasts[0], m
	case m.rests(now) && !m.exact:
		return &s.forecasts[1], m
	}
	return nil, nil
}

// foreseen says whether the policy need not be asked, and when it has to be.
func (s *subject) foreseen(now int64) bool {
	f, m := s.foreseeable(now)
	if f == nil || !f.known || now >= f.until {
		return false
	}
	due := f.until
	if m.run.idle {
		if now >= nanos(m.until) {
			return false
		}
		if f.after < never {
			due = min(due, nanos(m.since)+f.after)
		}
	}
	if now >= due {
		return false
	}
	s.due, s.settled, s.answer = due, true, usage.False
	return true
}

// foresee makes a forecast after the policy was asked.
func (s *subject) foresee(now int64, p *policy.Policy) {
	f, m := s.foreseeable(now)
	if f == nil || f.known && now < f.until || now < f.retry || s.answer == usage.True {
		return
	}
	*f = forecast{after: never, until: s.due, retry: now + worthwhile}
	if m.run.idle {
		// Rest that begins now, and rest that stands still: what changes the second is
		// not the rest.
		begun, still := *s.facts.Duty, *s.facts.Duty
		begun.Lasting, begun.Since = 0, s.facts.Now
		still.Lasting, still.Since, still.Until, still.Expires = 0, s.facts.Now, s.facts.Now, time.Time{}
		f.until = s.ask(p, still)
		if next := s.ask(p, lasting(begun)); next < never {
			f.after = next - now
		}
	}
	f.known = f.until-now >= worthwhile
}

// ask returns when a policy's answer changes under another verdict; now where it is
// True.
func (s *subject) ask(p *policy.Policy, v duty.Verdict) int64 {
	facts := s.facts
	facts.Duty = &v
	out := p.Evaluate(&facts)
	if out.Answer == usage.True {
		return s.facts.Now.UnixNano()
	}
	return nanosOf(out.Next)
}
