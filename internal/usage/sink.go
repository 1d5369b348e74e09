package usage

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Sink takes the points of one resource. A [Window] is one.
type Sink interface {
	// Add records a point of a GPU (its index or UUID), or with an empty name of the
	// whole resource. Each Sink says what false means.
	Add(gpu string, s Signal, p Point) bool
}

// SinkFunc is a function as a [Sink].
type SinkFunc func(gpu string, s Signal, p Point) bool

// Add implements [Sink].
func (f SinkFunc) Add(gpu string, s Signal, p Point) bool { return f(gpu, s, p) }

// Opened is what a Sink is opened for: the points of one source.
type Opened struct {
	// From is the first moment whose points are handed over: the start of what is read,
	// or the resource's own if that is later, as the source's points are aligned. Zero is
	// that of the interval.
	From time.Time
	// Step is the time one point stands for.
	Step time.Duration
	// Source says where the points come from: "cloudwatch", "recorded", "sim".
	Source string
	// Aggregated says that GPU signals without a GPU's name are maxima over all GPUs
	// of the machine. False: they are one GPU's, which one is unknown.
	Aggregated bool
}

// Interval is the time a source is asked for, [From, To).
type Interval struct {
	From, To time.Time
	// Step is the finest step that is wanted; 0 leaves it to the source, which chooses
	// what suits the length.
	Step time.Duration
}

// Measured is what a measurement says of itself.
type Measured struct {
	BlindSpots []inventory.BlindSpot
	Calls      []inventory.Calls
	// Unread says of resources why metrics of them could not be read: there may be some.
	Unread map[inventory.Ref]string
}

// Source measures resources.
type Source interface {
	// Name is the source's, for people and as the Source of what it opens.
	Name() string
	// Measure hands the points of an interval over to the sinks that open returns; nil
	// means that the resource is not wanted. The points of one meter, that is of one
	// signal of one GPU or machine, come in order of time. What could not be measured
	// is a blind spot; an error means that nothing can be said of any resource.
	Measure(ctx context.Context, resources []*inventory.Resource, iv Interval,
		open func(r *inventory.Resource, o Opened) Sink) (Measured, error)
}

var _ Sink = (*Window)(nil)
