package usage

import "time"

// Evidence is one observation that supports a verdict or a finding.
type Evidence struct {
	// Signal names the observed property with its statistic and unit: "gpu_util_max_pct", "age",
	// "state".
	Signal string
	// Value is the observation as text: "0.4".
	Value string
	// Window is the observed time; 0 for a current fact.
	Window time.Duration
	// Coverage is the share of the window with samples, 0 to 1; negative if the evidence is not
	// sampled.
	Coverage float64
	// Source is the reporter: "cloudwatch", "recorded", "ec2".
	Source string
}

// NoCoverage is the Coverage of a fact that is not sampled.
const NoCoverage = -1

// Fact returns evidence that is not sampled: a state, an age, a setting.
func Fact(signal, value, source string) Evidence {
	return Evidence{Signal: signal, Value: value, Coverage: NoCoverage, Source: source}
}
