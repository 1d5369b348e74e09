package runtime

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
)

// Period is a period of time as written in flags and parameters.
type Period struct {
	Since string `query:"since" maxLength:"40" doc:"From then on: 7d, month, 2026-11-01." flag:"since" help:"from when: a date, a time, months with this one (3mo), or a duration back from now (7d)"`
	Until string `query:"until" maxLength:"40" doc:"Before then." flag:"until" help:"until when (default now)"`
}

// Or returns the period with a default beginning.
func (f Period) Or(standard string) Period {
	if f.Since == "" {
		f.Since = standard
	}
	return f
}

// Bounds returns the period in whole hours that covers --since to --until.
func (f Period) Bounds(now time.Time) (since, until time.Time, err error) {
	if since, err = moment("since", f.Since, now); err != nil {
		return
	}
	until = now
	if f.Until != "" {
		if until, err = moment("until", f.Until, now); err != nil {
			return
		}
	}
	since = since.Truncate(time.Hour)
	if end := until.Truncate(time.Hour); end.Before(until) {
		until = end.Add(time.Hour)
	}
	if !since.Before(until) {
		err = Invalid("--since %s is not before --until %s", since.Format(time.RFC3339), until.Format(time.RFC3339))
	}
	return
}

// moment parses "month" (its first day), "3mo" (the first day of the third month, including this
// one), "7d" (ago), a date or a time.
func moment(flag, text string, now time.Time) (time.Time, error) {
	now = now.UTC()
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	if text == "month" {
		return first, nil
	}
	if n, ok := strings.CutSuffix(text, "mo"); ok {
		if months, err := strconv.Atoi(n); err == nil && months > 0 && months <= 1200 {
			return first.AddDate(0, 1-months, 0), nil
		}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	if d, err := config.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, Invalid(
		"--%s %q: it is a date (2026-11-01), a time (2026-11-01T12:00:00Z), month, months with "+
			"this one (3mo), or a duration back from now (7d)", flag, text)
}

// Past parses a time before now: a duration ago, or a time.
func Past(now time.Time, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := config.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 7d nor a time", text)
}

// ParseUntil parses an end time: a duration from now, or a time.
func ParseUntil(now time.Time, text string) (time.Time, error) {
	if d, err := config.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(now) {
		return t.UTC(), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 24h or 7d nor an RFC 3339 time to come", text)
}
