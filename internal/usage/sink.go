package usage

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Sink takes the points of one resource. A *Window is one.
type Sink interface {
	// Add takes a point of one GPU or, with an empty gpu or a signal of the machine, of
	// the whole resource, and says whether it was kept. See [Window.Add].
	Add(gpu string, s Signal, p Point) bool
}

// Opened is what a sink is opened for.
type Opened struct {
	// From is the first moment whose points are handed over: the start of what is read,
	// or the resource's own if that is later, as the source's points are aligned.
	From time.Time
	// Step is the time that each point stands for.
	Step time.Duration
	// Source says where the points come from: "cloudwatch", "sim".
	Source string
	// Aggregated says that GPU signals without a GPU's name are maxima over all GPUs.
	Aggregated bool
}

// Interval is the time that is measured: [From, To).
type Interval struct {
	From, To time.Time
	// Step is the finest step that is wanted; 0 is what suits the interval's length.
	Step time.Duration
}

// Measured is what came of measuring, besides the points.
type Measured struct {
	BlindSpots []inventory.BlindSpot
	Calls      []inventory.Calls
}

// Source measures resources.
type Source interface {
	// Name is the source's name, the same as in Opened.Source.
	Name() string
	// Measure hands the points of resources within an interval to the sinks that open
	// returns; nil is for what is not wanted. It leaves out resources that are not the
	// source's to measure.
	//
	// All of a resource is handed over, or nothing of it: where a part could not be read,
	// open is not called for it, and a blind spot says so. The first sink of a resource
	// has the step that the source reads by; a meter that is reported less often gets a
	// sink of its own step. Per meter, points come in order of time, and one goroutine at
	// a time calls open and the sinks. The step that is not over at the interval's end may
	// have a point of what is known so far.
	//
	// An error means that nothing could be measured at all, or is ctx's own; it wraps
	// inventory.ErrUnauthenticated, ErrDenied or ErrUnavailable where those are the cause.
	Measure(ctx context.Context, resources []*inventory.Resource, iv Interval, open func(r *inventory.Resource, o Opened) Sink) (Measured, error)
}
