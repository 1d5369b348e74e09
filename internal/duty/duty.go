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
	Unknown State = ""     // not enough telemetry
	Busy    State = "busy" // it computes
	Held    State = "held" // memory, a session or an allocation is held and nothing computes
	Idle    State = "idle" // nothing computes and nothing is held
)

// String returns the state's name; "unknown" for the zero State.
func (s State) String() string {
	if s == Unknown {
		return "unknown"
	}
	return string(s)
}

// Verdict is a state with what it rests on.
type Verdict struct {
	State State
	// Lasting is how long nothing has computed, without a missing sample, up to the
	// newest one, and never more than the window; 0 for unknown and busy.
	Lasting time.Duration
	// Why is the deciding reason in a few words: "92 % of memory held, 0 % compute".
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
	Why   string
}
