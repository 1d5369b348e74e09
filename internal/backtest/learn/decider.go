// Package learn decides how long to wait before an idle resource is released: fixed
// waits, the best of them in hindsight, a rule that learns from the past, and perfect
// foresight as the bound. It sees samples and idle periods only; the package backtest
// reads traces and hands them over.
//
// Times and spans are microseconds: a year of a million machines still adds up in 64 bits.
package learn

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Never is the wait of a decider that does not release.
const Never = time.Duration(math.MaxInt64)

// Decider decides when to release resources, from the past only. It receives the samples of all
// resources, one step of time after the other: all samples of a step before those of the next, each
// resource's own in time order.
type Decider interface {
	// Begin says that the samples of all steps before at were handed over. Within a step samples of
	// different resources are not in time order, so a decision may depend on other resources only
	// as they were when the step began.
	Begin(at time.Time)
	// Decide takes a sample and returns how long after it the resource is released,
	// unless a later sample of it comes first and changes that: 0 is at once, Never
	// is not. The answer to a busy sample is not used, nor are those after a
	// release until work has come back.
	Decide(s Sample) time.Duration
}

// Sample is a resource at one time as a decider sees it.
type Sample struct {
	// Resource is its number in the [Fleet].
	Resource int
	Time     time.Time
	Idle     bool
	// Gap is true if samples before this one are missing: earlier idleness is no longer known to
	// have lasted.
	Gap bool
	// Lasting is how long the resource has been idle without a gap until now; 0 at
	// the first idle sample.
	Lasting time.Duration
}

// Named is a [Decider] with the name that its result carries.
type Named struct {
	Name string
	// New starts a decider that has seen nothing yet, for a trace of those resources.
	New func(Fleet) Decider
}

// Fleet describes the resources to a decider before the first sample. Resources are numbered in the
// order of their names.
type Fleet struct {
	Step        time.Duration
	RestartCost time.Duration
	Resources   []Resource
}

// Resource is one resource of a trace.
type Resource struct {
	Name string
	// Description comes from the trace; nil if it has none.
	Description *usage.Description
}

// Class groups resources that behave alike. Type and Team are empty if the trace does not name
// them.
type Class struct {
	Kind    inventory.Kind
	Type    string
	Purpose inventory.Purpose
	Team    string
}

// String returns "instance/p4d.24xlarge/training/vision".
func (c Class) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", c.Kind, c.Type, c.Purpose, c.Team)
}

// Class returns the class of a resource. Without a description a resource of a trace is
// an ephemeral instance for experimentation, and all are of one class.
func (r Resource) Class() Class {
	d := r.Description
	if d == nil {
		d = &usage.Description{}
	}
	return Class{cmp.Or(d.Kind, inventory.KindInstance), d.Type, cmp.Or(d.Purpose, inventory.Experimentation), d.Team}
}
