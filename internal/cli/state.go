package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
)

// until reads when something ends: a duration from now, or a time.
func until(now time.Time, text string) (time.Time, error) {
	if d, err := config.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(now) {
		return t.UTC(), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 24h or 7d nor an RFC 3339 time to come", text)
}

// first returns the first text that is not empty.
func first(texts ...string) string { return cmp.Or(texts...) }
