package usage

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Sink takes the points of one resource, such as a [Window].
type Sink interface {
	// Add records a point of a GPU (its index or UUID), or of the whole resource if the name is
	// empty. Each Sink defines the meaning of false.
	Add(gpu string, s Signal, p Point) bool
}

// SinkFunc adapts a function to [Sink].
type SinkFunc func(gpu string, s Signal, p Point) bool

// Add implements [Sink].
func (f SinkFunc) Add(gpu string, s Signal, p Point) bool { return f(gpu, s, p) }

// SourceInfo describes the points of one source, for which a Sink is opened.
type SourceInfo struct {
	// From is the first moment with points: the start of the interval, or of the resource if that
	// is later, aligned to the source's points. Zero is the start of the interval.
	From time.Time
	// Step is the time covered by one point.
	Step time.Duration
	// Source names the origin of the points: "cloudwatch", "recorded", "sim".
	Source string
	// Aggregated is set if GPU signals without a GPU's name are maxima over all GPUs of the
	// machine. Otherwise they belong to one unknown GPU.
	Aggregated bool
}

// Interval is the time that a source is read for, [From, To).
type Interval struct {
	From, To time.Time
	// Step is the finest step wanted; 0 leaves it to the source, which chooses by the length.
	Step time.Duration
}

// MeasureResult is the result of a measurement besides its points.
type MeasureResult struct {
	BlindSpots []inventory.BlindSpot
	Calls      []inventory.Calls
	// Unread has the reasons why some metrics of a resource could not be read.
	Unread map[inventory.Ref]string
}

// Source measures resources.
type Source interface {
	// Name is the source's name, for people and as SourceInfo.Source.
	Name() string
	// Measure adds the points of an interval to the sinks that open returns; a nil sink skips the
	// resource. The points of one signal of one GPU or machine come in time order. Missing
	// measurements are blind spots; an error means that nothing was measured.
	Measure(ctx context.Context, resources []*inventory.Resource, iv Interval,
		open func(r *inventory.Resource, o SourceInfo) Sink) (MeasureResult, error)
}

var _ Sink = (*Window)(nil)
