package session

import (
	"context"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// Errors of a Store.
var (
	// ErrNotFound means that the id names no session.
	ErrNotFound = errors.New("no such session")
	// ErrConflict means that another process wrote the session after it was read.
	ErrConflict = errors.New("another process changed the session meanwhile")
	// ErrNameTaken means that another open session has the name.
	ErrNameTaken = errors.New("a session of that name is not over")
)

// Query filters sessions.
type Query struct {
	// Name selects one name; empty selects all.
	Name string
	// OpenOnly leaves out final sessions.
	OpenOnly bool
	// Since leaves out final sessions that were requested before; zero leaves out none.
	Since time.Time
}

// KeeperNode is the node number of the keeper's own events.
const KeeperNode = -1

// LoggedEvent is a stored event: File is the number of the event file, or for [KeeperNode] the
// version of the record, and Line the index in it.
type LoggedEvent struct {
	Event
	File int64
	Line int
}

// Store keeps sessions; package store implements it.
type Store interface {
	// Put writes a session over the version it was read with, with events and audit entries in the
	// same transaction, and returns it with its new version. It returns ErrConflict if another
	// process wrote it since, and ErrNameTaken if a new session takes the name of an open one.
	Put(ctx context.Context, s Session, events []Event, entries ...action.Entry) (Session, error)
	// Session returns the session with an id, or ErrNotFound.
	Session(ctx context.Context, id string) (Session, error)
	// Sessions returns the matching sessions, newest first.
	Sessions(ctx context.Context, q Query) ([]Session, error)
	// AddEvents stores a host's event file; a file that is stored already is left unchanged.
	AddEvents(ctx context.Context, id string, node int, file int64, events []Event) error
	// Events returns the events of a session by time, then node, file and line.
	Events(ctx context.Context, id string) ([]LoggedEvent, error)
	// NewestEventFile returns the highest stored file number of a node; 0 means none.
	NewestEventFile(ctx context.Context, id string, node int) (int64, error)
	// Installation returns the immutable name that tags this installation's machines.
	Installation(ctx context.Context) (string, error)
}
