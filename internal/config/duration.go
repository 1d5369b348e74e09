package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads "14d", "1w", "12h", "1d12h" and whatever time.ParseDuration
// reads. A day is 24 hours.
func ParseDuration(s string) (time.Duration, error) {
	rest, total := s, time.Duration(0)
	for _, u := range []struct {
		suffix string
		size   time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		n, after, found := strings.Cut(rest, u.suffix)
		if !found {
			continue
		}
		v, err := strconv.ParseFloat(n, 64)
		if err != nil || !(v >= 0 && v <= math.MaxInt64/float64(u.size)/4) {
			return 0, notDuration(s)
		}
		total, rest = total+time.Duration(v*float64(u.size)), after
	}
	if rest == "" && s != "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || (total > 0 && d < 0) || total+d < total && d > 0 {
		return 0, notDuration(s)
	}
	return total + d, nil
}

func notDuration(s string) error {
	return fmt.Errorf("%q is not a duration such as 14d, 12h or 30m", s)
}
