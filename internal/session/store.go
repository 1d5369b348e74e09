package session

import (
	"context"
	"errors"

	"github.com/curfew-dev/curfew/internal/action"
)

// Errors of the store.
var (
	// ErrNotFound says that there is no such session.
	ErrNotFound = errors.New("no such session")
	// ErrConflict says that another process wrote the session since it was read.
	ErrConflict = errors.New("another process changed the session meanwhile")
	// ErrTaken says that a session that is not over has the name.
	ErrTaken = errors.New("a session of that name is not over")
)

// Query says which sessions are asked for.
type Query struct {
	// Name is one name; empty: all.
	Name string
	// Open leaves out those that are over.
	Open bool
}

// Keepers is the node of events that the keeper wrote.
const Keepers = -1

// Logged is an event with its place in a journal: the node that wrote it ([Keepers] for the
// keeper), the number of the file (of the keeper: the version of the record), and the line.
type Logged struct {
	Event
	File int64
	Line int
}

// Store keeps sessions. The implementation is in internal/store.
type Store interface {
	// Put writes a session whose version is the one it was read with, with events of the
	// keeper and entries of the audit log in the same transaction, and returns it with its
	// new version. ErrConflict where another wrote it meanwhile, ErrTaken where a new one has
	// the name of one that is not over.
	Put(ctx context.Context, s Session, events []Event, entries ...action.Entry) (Session, error)
	// Session returns the session of an id; ErrNotFound where there is none.
	Session(ctx context.Context, id string) (Session, error)
	// Sessions returns those that are asked for, the newest first.
	Sessions(ctx context.Context, q Query) ([]Session, error)
	// AddEvents keeps a file of a host's events. A file that is kept already changes nothing.
	AddEvents(ctx context.Context, id string, node int, file int64, events []Event) error
	// Events returns the events of a session, by time, and within one instant by node, file
	// and line.
	Events(ctx context.Context, id string) ([]Logged, error)
	// Newest returns the highest number of a node's files of events that is kept; 0: none.
	Newest(ctx context.Context, id string, node int) (int64, error)
	// Installation returns the name under which this state's machines are tagged. It never
	// changes.
	Installation(ctx context.Context) (string, error)
}
