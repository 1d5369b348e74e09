package spot

import (
	"math"
	"strconv"
	"time"
)

// Interruptions is how often a spot machine is taken away, in interruptions an hour of one
// machine.
type Interruptions struct {
	// PerHour is the rate at which dollars are counted. Low and High bound it; they are
	// equal where the rate is configured.
	PerHour, Low, High float64
	// Hours are the machine hours of own runs that it was learned from.
	Hours float64
	// Source says where it is from, for people.
	Source string
}

// PriorHours is how many machine hours of experience the rate before own runs counts for.
const PriorHours = 100

// CheckpointEvery is how often work is saved, and Restart how long an interruption takes
// until work goes on, where nothing says so.
const (
	CheckpointEvery = 10 * time.Minute
	Restart         = 10 * time.Minute
)

// What single V100 and K80 machines saw on spot capacity of AWS in 2022 and 2023: 1,740
// losses in 5,287 machine hours, and the lowest and the highest rate of a zone
// (github.com/skypilot-org/spot-traces, the traces of "Can't Be Late", NSDI 2024).
const (
	recordedRate = 0.33
	recordedLow  = 0.095
	recordedHigh = 1.39
)

// Unmeasured is the rate where nothing is configured and no own run is known: a range.
func Unmeasured() Interruptions {
	return Interruptions{PerHour: recordedRate, Low: recordedLow, High: recordedHigh,
		Source: "single V100 and K80 machines on AWS in 2022 and 2023, github.com/skypilot-org/spot-traces"}
}

// Configured is a rate that people state; runs do not change it.
func Configured(perHour float64) Interruptions {
	return Interruptions{PerHour: perHour, Low: perHour, High: perHour, Source: "the configuration"}
}

// Ranged says whether the rate is a range and not a figure that people stated.
func (i Interruptions) Ranged() bool { return i.Low < i.High }

// Learn returns the rate after own runs: interruptions in machine hours on spot, with the
// rate before as if it had been seen for [PriorHours].
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

// Overhead is the share of its time that a spot machine loses to restarts and to work
// that was not saved, where work is saved every so often and a restart takes a while.
//
// A part of work of length T succeeds with exp(-λT) or is begun again after R, so it takes
// (1/λ + R)(exp(λT) − 1) in the mean. The share is that over T, less 1.
func Overhead(perHour float64, every, restart time.Duration) float64 {
	if perHour <= 0 || every <= 0 {
		return 0
	}
	t := every.Hours()
	return (1/perHour+restart.Hours())*math.Expm1(perHour*t)/t - 1
}
