// Package duty tells from measured usage what a compute resource is doing, and
// says which signals decided. Too little telemetry gives unknown, which is never
// treated as idle.
package duty

import (
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// State is what a compute resource is doing. The zero State is unknown.
type State string

// The states of duty.
const (
	Unknown State = ""        // not enough telemetry
	Busy    State = "busy"    // it computes
	Warming State = "warming" // it boots or loads, and does not compute yet
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

// Used says whether the time is used: the machine computes, or is on its way to.
func (s State) Used() bool { return s == Busy || s == Warming || s == Starved }

// Verdict is a state with what it rests on.
type Verdict struct {
	State State
	// Lasting is how long nothing has computed, without a missing sample, up to the
	// newest one, and never more than the window; for stalled, how long it has
	// computed without progress; 0 for unknown, busy and warming.
	Lasting time.Duration
	// Since is when Lasting began, and Until the end of what the newest samples
	// stand for: at a later time t the state has lasted min(t, Until) - Since. Expires
	// is the last moment at which the state holds without newer samples; after it
	// the state has to be judged again. [Judge] leaves them zero; they are zero for
	// unknown, and Since also for busy and warming.
	Since, Until, Expires time.Time
	// Next is the next moment at which State or Since may change by itself, that is
	// without any sample that was not handed over yet: a sample expires, a machine has
	// warmed up, the patience with a stall ends, a run of samples covers enough, the
	// horizon moves on. Until then both are the same at any time. Zero is never.
	// [Judge] leaves it zero.
	Next time.Time
	// Why is the deciding reason in a few words: "92% of memory held, 0% compute".
	Why string
	// Coverage is the least coverage of the signals that decided, 0 to 1.
	Coverage float64
	Evidence []usage.Evidence
	// GPUs holds the verdict of each GPU, by name, where GPUs were measured.
	GPUs []GPU
}

// GPU is the verdict of one GPU of a machine.
type GPU struct {
	Name  string
	State State
	// Lasting is how long it has not computed; 0 for unknown and busy.
	Lasting time.Duration
	// Coverage is that of the samples that vouch for it, 0 to 1.
	Coverage float64
	Why      string
}
