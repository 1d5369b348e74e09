package usage

import "time"

// Stretch is a time span without missing points up to the newest point of a signal. The zero
// Stretch is empty.
type Stretch struct {
	From time.Time
	// To is the end of the newest point's step, even if that is after the end of the window.
	To time.Time
	// Coverage is the share of the stretch that points cover, 0.6 to 1: gaps of less than half a
	// step are jitter.
	Coverage float64
}

// Length returns the length of the stretch up to now.
func (s Stretch) Length(now time.Time) time.Duration {
	if now.After(s.To) {
		now = s.To
	}
	return max(0, now.Sub(s.From))
}

// Intersect returns the time in both stretches, with the lower coverage.
func (s Stretch) Intersect(o Stretch) Stretch {
	if o.From.After(s.From) {
		s.From = o.From
	}
	if o.To.Before(s.To) {
		s.To = o.To
	}
	s.Coverage = min(s.Coverage, o.Coverage)
	return s
}

// Rest returns the gapless time for which a signal has been below a limit.
func (w *Window) Rest(st *Stats, line float64) Stretch {
	s := w.Unbroken(st)
	if st == nil {
		return s
	}
	if at, ok := st.maxima.lastReached(line); ok {
		s = s.StartingAt(w.From.Add(at).Add(st.step))
	}
	return s
}

// Work returns the gapless time for which a signal has been at or above its floor.
func (w *Window) Work(st *Stats) Stretch {
	s := w.Unbroken(st)
	if st != nil && !st.LastQuiet.IsZero() {
		s = s.StartingAt(st.LastQuiet.Add(st.step))
	}
	return s
}

// Standstill returns the gapless time since a counter last rose.
func (w *Window) Standstill(st *Stats) Stretch {
	if st == nil {
		return Stretch{}
	}
	return w.Unbroken(st).StartingAt(st.LastActive)
}

// Quiet returns the gapless time, at most the window, for which a signal has been below its floor
// up to the end of the newest point; 0 if that point is active or nothing was measured.
func (w *Window) Quiet(st *Stats) time.Duration {
	s := w.Unbroken(st)
	if st != nil && !st.LastActive.IsZero() {
		s = s.StartingAt(st.LastActive.Add(st.step))
	}
	return s.Length(w.To)
}

// Unbroken returns the gapless time up to the newest point of a signal; empty for a meter with too
// many gaps.
func (w *Window) Unbroken(st *Stats) Stretch {
	if st == nil || len(st.coverage.spans) == 0 {
		return Stretch{}
	}
	newest := st.coverage.spans[len(st.coverage.spans)-1]
	if newest.to <= st.Last.Sub(w.From) {
		return Stretch{}
	}
	return Stretch{
		w.From.Add(newest.from), st.Last.Add(st.step), float64(newest.filled) / float64(newest.to-newest.from),
	}
}

// StartingAt drops the time before from.
func (s Stretch) StartingAt(from time.Time) Stretch {
	if from.After(s.From) {
		s.From = from
	}
	return s
}
