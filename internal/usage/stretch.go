package usage

import "time"

// Stretch is unbroken time up to the newest point of a signal: no point of it is
// missing. The zero Stretch is no time at all.
type Stretch struct {
	From time.Time
	// To is the end of the step that the newest point stands for, also where that
	// is after the end of the window.
	To time.Time
	// Coverage is the share of the unbroken time that points cover, over 0.6 to 1:
	// jitter leaves holes of less than half a step.
	Coverage float64
}

// Length returns how much of the stretch has passed at now.
func (s Stretch) Length(now time.Time) time.Duration {
	if now.After(s.To) {
		now = s.To
	}
	return max(0, now.Sub(s.From))
}

// And returns the time in both.
func (s Stretch) And(o Stretch) Stretch {
	if o.From.After(s.From) {
		s.From = o.From
	}
	if o.To.Before(s.To) {
		s.To = o.To
	}
	s.Coverage = min(s.Coverage, o.Coverage)
	return s
}

// Rest returns for which time a signal has been under a line without a missing
// point.
func (w *Window) Rest(st *Stats, line float64) Stretch {
	s := w.Unbroken(st)
	if st == nil {
		return s
	}
	if at, ok := st.crest.reached(line); ok {
		s = s.After(w.From.Add(at).Add(st.step))
	}
	return s
}

// Work returns for which time a signal has been at or above its floor without a
// missing point.
func (w *Window) Work(st *Stats) Stretch {
	s := w.Unbroken(st)
	if st != nil && !st.LastQuiet.IsZero() {
		s = s.After(st.LastQuiet.Add(st.step))
	}
	return s
}

// Standstill returns for which time a counter has not risen, from the point on that
// rose last, without a missing point.
func (w *Window) Standstill(st *Stats) Stretch {
	if st == nil {
		return Stretch{}
	}
	return w.Unbroken(st).After(st.LastActive)
}

// Quiet returns for how long the signal has been under its floor without a
// missing point, up to the end of the newest point: 0 when that point is active
// or nothing was measured, and never more than the window.
func (w *Window) Quiet(st *Stats) time.Duration {
	s := w.Unbroken(st)
	if st != nil && !st.LastActive.IsZero() {
		s = s.After(st.LastActive.Add(st.step))
	}
	return s.Length(w.To)
}

// Unbroken returns the time up to the newest point of a signal in which none is
// missing; none at all for a meter that has too many holes to follow its newest
// points.
func (w *Window) Unbroken(st *Stats) Stretch {
	if st == nil || len(st.cover.spans) == 0 {
		return Stretch{}
	}
	newest := st.cover.spans[len(st.cover.spans)-1]
	if newest.to <= st.Last.Sub(w.From) {
		return Stretch{}
	}
	return Stretch{
		w.From.Add(newest.from), st.Last.Add(st.step), float64(newest.filled) / float64(newest.to-newest.from),
	}
}

// After cuts off what is before a time.
func (s Stretch) After(from time.Time) Stretch {
	if from.After(s.From) {
		s.From = from
	}
	return s
}
