package usage

import "time"

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
