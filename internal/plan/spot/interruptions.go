package spot

import (
	"math"
	"strconv"
	"time"
)

// Interruptions is a rate of spot interruptions per machine-hour.
type Interruptions struct {
	// PerHour is the rate for costs. Low and High bound it; they are equal for a configured rate.
	PerHour, Low, High float64
	// Hours are the machine-hours of own runs that it was learned from.
	Hours float64
	// Source names the source for people.
	Source string
}

// PriorHours is the weight of the prior rate in machine-hours.
const PriorHours = 100

// CheckpointEvery is the default checkpoint interval, Restart the default time from an interruption
// until work continues.
const (
	CheckpointEvery = 10 * time.Minute
	Restart         = 10 * time.Minute
)

// Losses of single V100 and K80 machines on AWS spot capacity in 2022 and 2023: 1,740 in 5,287
// machine-hours, and the lowest and highest rate of a zone (github.com/skypilot-org/spot-traces,
// the traces of "Can't Be Late", NSDI 2024).
const (
	recordedRate = 0.33
	recordedLow  = 0.095
	recordedHigh = 1.39
)

// Unmeasured returns the rate without configuration and own runs: a range.
func Unmeasured() Interruptions {
	return Interruptions{PerHour: recordedRate, Low: recordedLow, High: recordedHigh,
		Source: "single V100 and K80 machines on AWS in 2022 and 2023, github.com/skypilot-org/spot-traces"}
}

// Configured returns a stated rate, which runs do not change.
func Configured(perHour float64) Interruptions {
	return Interruptions{PerHour: perHour, Low: perHour, High: perHour, Source: "the configuration"}
}

// Ranged reports whether the rate is a range rather than a configured value.
func (i Interruptions) Ranged() bool { return i.Low < i.High }

// Learn returns the rate after own runs with a number of interruptions in spot machine-hours. The
// prior rate has a weight of [PriorHours].
func (i Interruptions) Learn(taken int, hours float64) Interruptions {
	if !i.Ranged() || hours <= 0 || taken < 0 {
		return i
	}
	after := func(rate float64) float64 { return (float64(taken) + rate*PriorHours) / (hours + PriorHours) }
	i.PerHour, i.Low, i.High, i.Hours = after(i.PerHour), after(i.Low), after(i.High), hours
	return i
}

// String returns "0.33/h" or "0.33/h (0.1/h to 1.39/h)".
func (i Interruptions) String() string {
	rate := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) + "/h" }
	if !i.Ranged() {
		return rate(i.PerHour)
	}
	return rate(i.PerHour) + " (" + rate(i.Low) + " to " + rate(i.High) + ")"
}

// Overhead returns the share of a spot machine's time lost to restarts and unsaved work.
//
// A part of work of length T succeeds with exp(-λT) or is repeated after R, which takes (1/λ +
// R)(exp(λT) − 1) on average. The overhead is that over T, less 1.
func Overhead(perHour float64, every, restart time.Duration) float64 {
	if perHour <= 0 || every <= 0 {
		return 0
	}
	t := every.Hours()
	return (1/perHour+restart.Hours())*math.Expm1(perHour*t)/t - 1
}
