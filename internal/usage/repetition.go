package usage

import "time"

// repetition detects a frozen exporter of a signal that a live exporter does not repeat for long.
type repetition struct {
	newest     Point
	count      int
	lastFrozen time.Time
	fall       Fall
}

// Fall is a decrease of a meter that should only rise: the driver, the exporter or the GPU was
// replaced or restarted. The zero Fall is none.
type Fall struct {
	At            time.Time
	Before, After float64
}

// add records a point. A point that is not later than last restarts the count.
func (r *repetition) add(s Signal, p Point, last time.Time) {
	switch {
	case r.count > 0 && p.Time.Before(last):
		r.count = 0
		return
	case r.count > 0 && p.Max == r.newest.Max && !s.MayRepeat(p.Max):
		r.count++
	default:
		if s == Energy && r.count > 0 && p.Max < r.newest.Max {
			r.fall = Fall{At: p.Time, Before: r.newest.Max, After: p.Max}
		}
		r.count = 1
	}
	if r.newest = p; r.count >= s.FrozenAfter() {
		r.lastFrozen = p.Time
	}
}

// IsFrozen reports whether the newest points of a signal are equal to the last bit and as many as
// only a frozen exporter sends (see [Signal.FrozenAfter]).
func (s *Stats) IsFrozen() bool {
	return s != nil && !s.repetition.lastFrozen.IsZero() && s.repetition.lastFrozen.Equal(s.Last)
}

// LastFrozen returns the newest point of the last frozen sequence; zero without one.
func (s *Stats) LastFrozen() time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.repetition.lastFrozen
}

// LastFall returns the last fall of a meter that should only rise.
func (s *Stats) LastFall() Fall {
	if s == nil {
		return Fall{}
	}
	return s.repetition.fall
}
