package duty

import "time"

// Span is a period in one state, [From, To).
type Span struct {
	From, To time.Time
	State    State
}

// Spans records the states of a machine as spans of time; neighbors have different states. The zero
// Spans is empty.
//
// A state holds from the time of its verdict, or from its Since if that is earlier, to the time of
// the next verdict: judge again at each sample and at Verdict.Next. A state that turns out to have
// begun earlier, as a stall does, replaces what was recorded. Unknown time is no span.
type Spans struct {
	list []Span
	// began is the start of the newest verdict's state.
	began time.Time
	state State
}

// Add records a verdict, which must not be older than the previous one.
func (s *Spans) Add(now time.Time, v Verdict) {
	s.close(now)
	s.began, s.state = now, v.State
	if !v.Since.IsZero() && v.Since.Before(now) {
		s.began = v.Since
	}
}

// Until returns the spans before a time, which must not be before the newest verdict.
func (s *Spans) Until(to time.Time) []Span {
	c := Spans{list: append([]Span(nil), s.list...), began: s.began, state: s.state}
	c.close(to)
	return c.list
}

// close ends the newest state.
func (s *Spans) close(to time.Time) {
	if s.state == Unknown || !s.began.Before(to) {
		return
	}
	n := len(s.list)
	for n > 0 && !s.list[n-1].From.Before(s.began) {
		n--
	}
	s.list = s.list[:n]
	if n > 0 && !s.list[n-1].To.Before(s.began) {
		if s.list[n-1].State == s.state {
			s.list[n-1].To = to
			return
		}
		s.list[n-1].To = s.began
	}
	s.list = append(s.list, Span{s.began, to, s.state})
}
