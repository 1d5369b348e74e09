package budget

import (
	"errors"
	"time"
)

// Every is how often a new period begins.
type Every string

// The lengths of a period.
const (
	Monthly   Every = "monthly" // the zero Every is monthly as well
	Weekly    Every = "weekly"  // from Monday
	Quarterly Every = "quarterly"
	Custom    Every = "custom" // once, from From to Until
)

// Period says over which windows of time an amount is meant.
type Period struct {
	Every Every
	// From and Until bound a custom period, [From, Until).
	From, Until time.Time
	// Location is where days begin; nil is UTC.
	Location *time.Location
}

// Window is a stretch of time, [From, To).
type Window struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// ErrOutside is returned for a time that is in no window of a custom period.
var ErrOutside = errors.New("outside of the budget's period")

// Window returns the window that a time is in. The windows of a period that repeats
// follow one another without a gap. It returns ErrOutside where a custom period does not
// hold the time.
func (p Period) Window(at time.Time) (Window, error) {
	if p.Every == Custom {
		if at.Before(p.From) || !at.Before(p.Until) {
			return Window{}, ErrOutside
		}
		return Window{p.From.UTC(), p.Until.UTC()}, nil
	}
	// A day's first hour may not exist where clocks are put forward at midnight, and the
	// window that begins there then begins an hour earlier or later.
	for n := -1; ; n++ {
		if to := p.begin(at, n+1); at.Before(to) {
			return Window{p.begin(at, n), to}, nil
		}
	}
}

// begin is the beginning of the n-th window after the one that the calendar says.
func (p Period) begin(at time.Time, n int) time.Time {
	loc := p.Location
	if loc == nil {
		loc = time.UTC
	}
	y, m, d := at.In(loc).Date()
	switch p.Every {
	case Weekly:
		monday := d - (int(at.In(loc).Weekday())+6)%7
		d = monday + 7*n
	case Quarterly:
		m, d = m-(m-1)%3+time.Month(3*n), 1
	default:
		m, d = m+time.Month(n), 1
	}
	return time.Date(y, m, d, 0, 0, 0, 0, loc).UTC()
}

// Windows returns those that overlap [from, until), in order; at least the one that from
// is in, where there is one.
func (p Period) Windows(from, until time.Time) []Window {
	if p.Every == Custom {
		if w := (Window{p.From.UTC(), p.Until.UTC()}); w.From.Before(until) && from.Before(w.To) || !from.Before(w.From) &&
			from.Before(w.To) {
			return []Window{w}
		}
		return nil
	}
	var out []Window
	for at := from; len(out) == 0 || at.Before(until); at = out[len(out)-1].To {
		w, err := p.Window(at)
		if err != nil {
			break
		}
		out = append(out, w)
	}
	return out
}
