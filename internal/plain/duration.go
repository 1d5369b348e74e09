package plain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// durationUnits are the units that people write, largest first. A day is 24 hours.
var durationUnits = []struct {
	name string
	size time.Duration
}{
	{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", time.Nanosecond},
}

// durationPart matches one number with its unit.
var durationPart = lazyregexp.New(`^([0-9]+)(\.[0-9]+)?(ns|us|µs|ms|w|d|h|m|s)`)

// ParseDuration reads numbers that each have a unit: "30m", "1d12h", "1.5h" or "-5m". A day is 24
// hours.
func ParseDuration(s string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(s, "-")
	total := time.Duration(0)
	for rest != "" {
		m := durationPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, notDuration(s)
		}
		size := unitSize(m[3])
		whole, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || whole > math.MaxInt64/int64(size) {
			return 0, notDuration(s)
		}
		fraction := 0.0
		if m[2] != "" {
			fraction, _ = strconv.ParseFloat("0"+m[2], 64) // the pattern matches only digits
		}
		for _, part := range []time.Duration{
			time.Duration(whole) * size, time.Duration(math.Round(fraction * float64(size))),
		} {
			if total > math.MaxInt64-part {
				return 0, notDuration(s)
			}
			total += part
		}
		rest = rest[len(m[0]):]
	}
	if s == "" || s == "-" {
		return 0, notDuration(s)
	}
	if negative {
		total = -total
	}
	return total, nil
}

func unitSize(name string) time.Duration {
	if name == "µs" { // the spelling of the standard library
		name = "us"
	}
	for _, u := range durationUnits {
		if u.name == name {
			return u.size
		}
	}
	return 0
}

func notDuration(s string) error {
	return fmt.Errorf("%q is not a duration such as 30m, 12h or 7d", s)
}

// ExactDuration writes a duration in the syntax of [ParseDuration], in whole units without weeks:
// "1d12h", "30m", "0s".
func ExactDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	out, rest := "", uint64(d)
	if d < 0 {
		out, rest = "-", uint64(-(d+1))+1
	}
	for _, u := range durationUnits {
		if u.name == "w" {
			continue // people count days
		}
		if n := rest / uint64(u.size); n > 0 {
			out += strconv.FormatUint(n, 10) + u.name
			rest -= n * uint64(u.size)
		}
	}
	return out
}
