package usage

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Evidence is one thing that was seen and that a verdict or a finding rests on.
type Evidence struct {
	// Signal names what was looked at, with its statistic and unit:
	// "gpu_util_max_pct", "age", "state".
	Signal string
	// Value is what was seen, as people write it: "0.4".
	Value string
	// Window is the time looked at; 0 when it is a fact of now.
	Window time.Duration
	// Coverage is the share of the window with samples, 0 to 1; negative when
	// coverage has no meaning for it.
	Coverage float64
	// Source says who reported it: "cloudwatch", "recorded", "ec2".
	Source string
}

// NoCoverage is the Coverage of a fact that is not sampled.
const NoCoverage = -1

// Fact returns evidence that is not sampled: a state, an age, a setting.
func Fact(signal, value, source string) Evidence {
	return Evidence{Signal: signal, Value: value, Coverage: NoCoverage, Source: source}
}

// Number prints a measured value with at most digits decimals and no trailing
// zeros.
func Number(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if digits > 0 && strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

// Span prints a duration the way people say it, in its two largest units:
// "14d", "6d 4h", "3h 20m", "45s".
func Span(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-max(d, -math.MaxInt64))
	}
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.size && i < len(units)-1 {
			continue
		}
		out := strconv.FormatInt(int64(d/u.size), 10) + u.name
		if i < len(units)-1 {
			if next := d % u.size / units[i+1].size; next > 0 {
				out += " " + strconv.FormatInt(int64(next), 10) + units[i+1].name
			}
		}
		return out
	}
	return "0s"
}
