// Package duty judges from measured usage whether a compute resource is busy, idle or held, and
// names the signals that decided. Too little telemetry gives unknown, which is never treated as
// idle.
package duty

import (
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// State is the activity of a compute resource. The zero State is unknown.
type State string

// The states of duty.
const (
	Unknown State = ""        // not enough telemetry
	Busy    State = "busy"    // it computes
	Warming State = "warming" // it boots or loads data, but does not compute yet
	Starved State = "starved" // it waits for data that is on its way
	Stalled State = "stalled" // it computes and makes no progress
	Held    State = "held"    // memory, a session or an allocation is held and nothing computes
	Idle    State = "idle"    // nothing computes and nothing is held
)

// String returns the state's name; "unknown" for the zero State.
func (s State) String() string {
	if s == Unknown {
		return "unknown"
	}
	return string(s)
}

// Productive reports whether the machine computes or prepares to: busy, warming or starved.
func (s State) Productive() bool { return s == Busy || s == Warming || s == Starved }

// Verdict is a state with its evidence.
type Verdict struct {
	State State
	// Duration is how long nothing has computed without a missing sample, up to the newest sample
	// and at most the window. For stalled it is the time of computing without progress. It is 0 for
	// unknown, busy and warming.
	Duration time.Duration
	// Since is the start of Duration, and Until the end of the newest samples' steps: at a later
	// time t the state has lasted min(t, Until) - Since. Expires is the last moment at which the
	// state holds without newer samples. [Judge] leaves all three zero; they are zero for unknown,
	// and Since also for busy and warming.
	Since, Until, Expires time.Time
	// Next is the next moment at which State or Since may change without a new sample: a sample
	// expires, the warm-up or the patience with a stall ends, a run of samples covers enough, or
	// the horizon moves. Until then both stay the same. Zero is never. [Judge] leaves it zero.
	Next time.Time
	// Why is the deciding reason, such as "92% of memory held, 0% compute".
	Why string
	// Coverage is the lowest coverage of the signals that decided, 0 to 1.
	Coverage float64
	Evidence []usage.Evidence
	// GPUs are the verdicts of measured GPUs, by name.
	GPUs []GPU
}

// GPU is the verdict of one GPU of a machine.
type GPU struct {
	Name  string
	State State
	// Duration is how long the GPU has not computed; 0 for unknown and busy.
	Duration time.Duration
	// Coverage of the samples that decided, 0 to 1.
	Coverage float64
	Why      string
}
