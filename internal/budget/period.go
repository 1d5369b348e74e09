package budget

import (
	"errors"
	"time"
)

// Every is the length of a period.
type Every string

// The lengths of a period.
const (
	Monthly   Every = "monthly" // also the zero Every
	Weekly    Every = "weekly"  // from Monday
	Quarterly Every = "quarterly"
	Custom    Every = "custom" // once, from From to Until
)

// Period defines the windows of an amount.
type Period struct {
	Every Every
	// From and Until bound a custom period, [From, Until).
	From, Until time.Time
	// Location is the time zone of days; nil is UTC.
	Location *time.Location
}

// Window is a half-open time range [From, To).
type Window struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// ErrOutside means that a time is outside of a custom period.
var ErrOutside = errors.New("outside of the budget's period")

// Window returns the window that contains a time, or ErrOutside. The windows of a repeating period
// are contiguous.
func (p Period) Window(at time.Time) (Window, error) {
	if p.Every == Custom {
		if at.Before(p.From) || !at.Before(p.Until) {
			return Window{}, ErrOutside
		}
		return Window{p.From.UTC(), p.Until.UTC()}, nil
	}
	// A day's first hour may be skipped by daylight saving time, which shifts the start of its
	// window by an hour.
	for n := -1; ; n++ {
		if to := p.windowStart(at, n+1); at.Before(to) {
			return Window{p.windowStart(at, n), to}, nil
		}
	}
}

// windowStart returns the start of the n-th window after that of a time.
func (p Period) windowStart(at time.Time, n int) time.Time {
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

// Windows returns the windows that overlap [from, until) in order, at least the one that contains
// from.
func (p Period) Windows(from, until time.Time) []Window {
	if p.Every == Custom {
		if w := (Window{p.From.UTC(), p.Until.UTC()}); w.From.Before(until) &&
			from.Before(w.To) || !from.Before(w.From) &&
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
