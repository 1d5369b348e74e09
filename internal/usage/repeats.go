package usage

import "time"

// repeats follows a signal of which a live exporter does not repeat values for long.
type repeats struct {
	newest Point
	count  int
	froze  time.Time
	fall   Fall
}

// Fall is a step of a meter that only rises to a lower value: the driver, the exporter or
// the GPU was replaced or restarted. The zero Fall is none.
type Fall struct {
	At       time.Time
	From, To float64
}

// add records a point that is later than last, or breaks the row.
func (r *repeats) add(s Signal, p Point, last time.Time) {
	switch {
	case r.count > 0 && p.Time.Before(last):
		r.count = 0
		return
	case r.count > 0 && p.Max == r.newest.Max && !s.Steady(p.Max):
		r.count++
	default:
		if s == Energy && r.count > 0 && p.Max < r.newest.Max {
			r.fall = Fall{At: p.Time, From: r.newest.Max, To: p.Max}
		}
		r.count = 1
	}
	if r.newest = p; r.count >= s.Repeats() {
		r.froze = p.Time
	}
}

// Repeated says whether the newest points of a signal are equal to the last bit and as
// many as only a frozen exporter gives (see [Signal.Repeats]).
func (s *Stats) Repeated() bool {
	return s != nil && !s.repeats.froze.IsZero() && s.repeats.froze.Equal(s.Last)
}

// Froze returns the newest of the last points that were repeated that way; zero where none
// were.
func (s *Stats) Froze() time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.repeats.froze
}

// Fell returns the last fall of a meter that only rises.
func (s *Stats) Fell() Fall {
	if s == nil {
		return Fall{}
	}
	return s.repeats.fall
}
