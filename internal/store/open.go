// Package store persists the state that all processes share: the ladder's items, caps, freeze and
// keeps, the audit log, approval requests, bills, the ledger, holds and the gate's decisions. It is
// a SQLite file by default, or a PostgreSQL database. The same statements run on both, and
// internal/store/storetest checks that both behave the same.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/witness"
)

// Options locate the state.
type Options struct {
	// URL locates a PostgreSQL database, postgres://USER:PASSWORD@HOST:PORT/NAME. Without it the
	// state is the file [FileName] in the directory Dir.
	URL, Dir string
	// Temporary is true if a state in Dir need not survive a power failure, so that transactions do
	// not wait for the disk.
	Temporary bool
	// Host is the source of a file's time; a database has its own.
	Host Host `json:"-"`
	// Witness detects a restored older state; nil if nothing acts on the state.
	Witness *witness.Witness `json:"-"`
}

// Host reads the clocks of the machine that curfew runs on.
type Host struct {
	// Now is the wall clock; nil is the system's.
	Now func() time.Time
	// Uptime returns the ID of the machine's boot and the time since then; nil or an empty ID if
	// unknown.
	Uptime func() (boot string, up time.Duration)
	// FileTime returns the clock of a directory's file system, such as [FileTime]; nil uses the
	// wall clock.
	FileTime func(dir string) (time.Time, error)
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	db *database
	// lent is true if another Store closes the database.
	lent bool
}

// Transact runs do in one transaction: either all of its writes through the given state, with their
// audit entries, are committed, or none. After a conflict do is called again, so it must have no
// other side effects, and it must not use the network, because others wait for it.
func (s *Store) Transact(ctx context.Context, do func(*Store) error) error {
	return s.db.transact(ctx, func(t *tx) error {
		inner := *s.db
		inner.outer = t
		return do(&Store{&inner, true})
	})
}

// Lend returns the same state for a caller whose Close has no effect.
func (s *Store) Lend() *Store { return &Store{s.db, true} }

// Open opens the state, creating it if needed, and migrates it to this version's schema. Processes
// that open it at the same time wait for each other. Errors are one line and never contain the
// URL's password.
func Open(ctx context.Context, o Options) (*Store, error) {
	var db *database
	var err error
	if o.Host.Now == nil {
		o.Host.Now = time.Now
	}
	switch {
	case o.URL != "":
		db, err = openPostgres(ctx, o.URL)
	case o.Dir != "":
		db, err = openSQLite(ctx, o)
	default:
		err = errors.New("open the state: neither a directory nor a database is given")
	}
	if err != nil {
		return nil, err
	}
	if o.Witness != nil {
		db.watch = &watch{Witness: o.Witness, state: db.name, now: o.Host.Now}
	}
	return &Store{db: db}, nil
}

// Close closes the database.
func (s *Store) Close() error {
	if s.lent {
		return nil
	}
	s.db.watch.flush(context.Background(), s.db)
	if err := s.db.close(); err != nil {
		return fmt.Errorf("close the state: %w", err)
	}
	return nil
}

// Actions returns the store of the ladder.
func (s *Store) Actions() action.Store { return actions{s.db, nil} }

// Approvals returns the store of approval requests.
func (s *Store) Approvals() approval.Store { return approvals{s.db} }

// Bills returns the store of imported billing periods.
func (s *Store) Bills() bill.Store { return bills{s.db} }

// Ledger returns the store of observations and their costs.
func (s *Store) Ledger() ledger.Store { return charges{s.db} }

// Budgets returns the store of holds, with spending from the ledger.
func (s *Store) Budgets() budget.Store { return holds{s.db} }

// Gate returns the store of launch decisions.
func (s *Store) Gate() gate.Store { return decisions{s.db} }

// advice is an error with its remedy in one line.
type advice struct {
	text  string
	cause error
}

// Error returns the advice and the cause.
func (a *advice) Error() string {
	return a.text + " (" + strings.Join(strings.Fields(a.cause.Error()), " ") + ")"
}

// Unwrap returns the cause.
func (a *advice) Unwrap() error { return a.cause }
