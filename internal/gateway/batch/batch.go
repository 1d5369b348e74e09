// Package batch decides which requests go to a model server together, and when. A free slot of a
// server takes the queue at once, unless the fitted line of the server's batch times says that
// waiting for the next request pays.
package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/fit"
)

// Item is one request in a pool.
type Item struct {
	// Model is what batch times are measured by. Items of one batch have equal keys, which are
	// unique over models.
	Model, Key string
	// Rows is how many rows of a batch it takes, Bytes how much memory.
	Rows  int
	Bytes int64
	// Priority is how urgent the request is: each level counts as much as Options.Aging of waiting.
	Priority int
	// Deadline is when the answer is of no use any more; zero is never.
	Deadline time.Time
	// Payload is the caller's own.
	Payload any

	rank    time.Time // the arrival, moved by the priority
	arrived time.Time
	seq     uint64
	index   int  // in its queue; -1 once it left
	alone   bool // it shares no batch
	left    bool // its caller waits no more
	run     *running
	done    chan Result
}

// Again returns an item that asks for the same once more.
func (it *Item) Again() *Item {
	return &Item{
		Model: it.Model, Key: it.Key, Rows: it.Rows, Bytes: it.Bytes, Priority: it.Priority, Deadline: it.Deadline,
		Payload: it.Payload,
	}
}

// Waited returns how long the item was in the queue until a time.
func (it *Item) Waited(until time.Time) time.Duration { return until.Sub(it.arrived) }

// Result is the answer to one item.
type Result struct {
	Value any
	Err   error
}

// Options are what a pool needs.
type Options struct {
	// MaxRows is the most rows of one batch.
	MaxRows int
	// MaxBytes bounds the memory of queued items.
	MaxBytes int64
	// Aging is how much waiting one level of priority is worth.
	Aging time.Duration
	// Timeout bounds one exchange with a server.
	Timeout time.Duration
	// Idempotent lets the items of a failed batch be sent again, each alone and once.
	Idempotent bool

	// Exchange sends a batch to a server and reads its answer while the slot is taken.
	Exchange func(ctx context.Context, server string, items []*Item) (answer any, err error)
	// Divide turns the answer to a batch into one for each item, after the slot was freed.
	Divide func(items []*Item, answer any) ([]any, error)
	// Observe is told of each exchange; nil tells no one.
	Observe func(Exchange)
}

// Exchange is a batch that was sent.
type Exchange struct {
	Server, Model string
	Items         []*Item
	Rows          int
	Start, End    time.Time
	Err           error
}

// Reasons for which a request is not answered.
var (
	// ErrQueueFull: the queue has as many bytes as it may have.
	ErrQueueFull = errors.New("the queue is full")
	// ErrNoServer: no server is healthy.
	ErrNoServer = errors.New("no upstream is healthy")
	// ErrClosed: the pool takes no request any more.
	ErrClosed = errors.New("the gateway is shutting down")
	// ErrTooManyRows: the request alone is larger than a batch.
	ErrTooManyRows = errors.New("the request has more rows than a batch may have")
)

// LateError says that an answer would come after the deadline.
type LateError struct {
	// Expected is the estimated time until the answer, 0 where the deadline has passed.
	Expected time.Duration
	// InQueue is true where the item had been admitted.
	InQueue bool
}

// Error implements error.
func (e *LateError) Error() string {
	if e.Expected > 0 {
		return fmt.Sprintf("the answer would take about %s, which is after the deadline",
			e.Expected.Round(time.Millisecond))
	}
	return "the deadline has passed"
}

// NotSentError wraps the reason for which no byte of a batch reached a server: its items may go to
// another one.
type NotSentError struct{ Err error }

// Error implements error.
func (e *NotSentError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *NotSentError) Unwrap() error { return e.Err }

// server is one model server of a pool.
type server struct {
	name     string
	slots    int
	healthy  bool
	draining bool // it was left out, and goes once it has no batch
	paused   bool
	running  map[*running]struct{}
	fits     map[string]*fit.Estimator // by model
}

// maxModels bounds the models of which one server's times are remembered.
const maxModels = 256

// estimator returns the estimator of a model.
func (s *server) estimator(model string) *fit.Estimator {
	e := s.fits[model]
	if e == nil {
		if len(s.fits) >= maxModels {
			clear(s.fits)
		}
		e = &fit.Estimator{}
		s.fits[model] = e
	}
	return e
}

// line returns the fitted line of a model.
func (s *server) line(model string) (fit.Line, bool) {
	if e := s.fits[model]; e != nil {
		return e.Line()
	}
	return fit.Line{}, false
}

// running is a batch that a server works on.
type running struct {
	items          []*Item
	rows           int
	server         *server
	options        Options // those at its start
	started, ended time.Time
	gone           int // items whose callers have left
	// measured is true where the server's batch times were known before.
	measured bool
	ctx      context.Context
	cancel   context.CancelFunc
}

// ServerStatus is one server as it is now.
type ServerStatus struct {
	Name           string
	Slots, Running int
	// Draining is set for a server that takes no new batches: it was left out, or is paused.
	Healthy, Draining bool
}

// ModelFit is the line of one model on one server.
type ModelFit struct {
	Server, Model string
	Line          fit.Line
	Fitted        bool
	Sizes         []fit.Size
	Changes       int
	ChangedAt     time.Time
}
