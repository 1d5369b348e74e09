package job

import (
	"context"
	"errors"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/session"
)

// Errors of a Store.
var (
	// ErrNotFound means that the id names no job.
	ErrNotFound = errors.New("no such job")
	// ErrConflict means that another process wrote the job after it was read.
	ErrConflict = errors.New("another process changed the job meanwhile")
	// ErrNameTaken means that another open job has the name.
	ErrNameTaken = errors.New("a job of that name is not over")
)

// Query filters jobs.
type Query struct {
	// Name selects one name; empty selects all.
	Name string
	// OpenOnly leaves out final jobs.
	OpenOnly bool
}

// Store keeps jobs; package store implements it. The events of a job are stored next to those of
// sessions, under the id of the job.
type Store interface {
	// Put writes a job over the version it was read with, with events and audit entries in the same
	// transaction, and returns it with its new version. It returns ErrConflict if another process
	// wrote it since, and ErrNameTaken if a new job takes the name of an open one.
	Put(ctx context.Context, j Job, events []session.Event, entries ...action.Entry) (Job, error)
	// Job returns the job with an id, or ErrNotFound.
	Job(ctx context.Context, id string) (Job, error)
	// Jobs returns the matching jobs, newest first.
	Jobs(ctx context.Context, q Query) ([]Job, error)
}
