package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
)

// ErrKilled is returned by every call of a state after its process was killed.
var ErrKilled = errors.New("the process was killed")

// Mortal kills the process of a state as the database sees it: from a boundary between two
// statements on, no statement gets through, and the connections close without notice.
type Mortal struct {
	// Kill, if set, is called at the boundary instead of closing the connections.
	Kill func()

	mu sync.Mutex
	// the number of boundaries before it dies; negative for never
	left   int
	passed int
	dead   bool
}

// Arm lets the process pass a number of boundaries from now on; negative for all.
func (m *Mortal) Arm(boundaries int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.passed = boundaries, 0
}

// Passed returns the number of boundaries since [Mortal.Arm].
func (m *Mortal) Passed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.passed
}

// boundary is called before each statement, and before and after a commit.
func (m *Mortal) boundary() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.dead:
		return ErrKilled
	case m.left == 0:
		m.dead = true
		if m.Kill != nil {
			m.Kill()
		}
		return ErrKilled
	case m.left > 0:
		m.left--
	}
	m.passed++
	return nil
}

// Dead reports whether the process was killed.
func (m *Mortal) Dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// OpenMortal opens a state whose writing process can be killed.
func OpenMortal(tb testing.TB, o Options) (*Store, *Mortal) {
	tb.Helper()
	s, m, err := StartMortal(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s, m
}

// StartMortal is [OpenMortal] outside of a test.
func StartMortal(ctx context.Context, o Options) (*Store, *Mortal, error) {
	s, err := Open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	m := &Mortal{left: -1}
	var on driver.Connector
	name := "pgx"
	if o.URL == "" {
		name = "sqlite"
		on = named{
			s.db.write.Driver(),
			sqliteDSN(filepath.Join(o.Dir, FileName), "immediate", 0, "synchronous(off)", "foreign_keys(on)"),
		}
	} else {
		c, err := pgx.ParseConfig(o.URL)
		if err != nil {
			return nil, nil, err
		}
		on = stdlib.GetConnector(*c)
	}
	own := sqlx.NewDb(sql.OpenDB(mortalConnector{on, m}), name)
	if s.db.read == s.db.write {
		_ = s.db.write.Close()
		s.db.read = own
	} else {
		_ = s.db.write.Close()
		own.SetMaxOpenConns(1)
	}
	s.db.write = own
	return s, m, nil
}

// named connects to a database by its name.
type named struct {
	by   driver.Driver
	name string
}

func (n named) Connect(context.Context) (driver.Conn, error) { return n.by.Open(n.name) }
func (n named) Driver() driver.Driver                        { return n.by }

type mortalConnector struct {
	driver.Connector
	m *Mortal
}

func (c mortalConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.m.Dead() {
		return nil, ErrKilled
	}
	conn, err := c.Connector.Connect(ctx)
	return &mortalConn{Conn: conn, m: c.m}, err
}

// mortalConn is a connection of the process.
type mortalConn struct {
	driver.Conn
	m      *Mortal
	closed sync.Once
}

func (c *mortalConn) Close() (err error) {
	c.closed.Do(func() { err = c.Conn.Close() })
	return err
}

func (c *mortalConn) boundary() error {
	err := c.m.boundary()
	if err != nil {
		_ = c.Close() // uncommitted writes are gone
	}
	return err
}

func (c *mortalConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.boundary(); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *mortalConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.boundary(); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *mortalConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.boundary(); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *mortalConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, is := c.Conn.(driver.NamedValueChecker); is {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *mortalConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.boundary(); err != nil {
		return nil, err
	}
	t, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return mortalTx{t, c}, err
}

type mortalTx struct {
	driver.Tx
	on *mortalConn
}

func (t mortalTx) Commit() error {
	if err := t.on.boundary(); err != nil {
		return err
	}
	if err := t.Tx.Commit(); err != nil {
		return err
	}
	return t.on.boundary() // the response may be lost
}

func (t mortalTx) Rollback() error {
	if t.on.m.Dead() {
		return ErrKilled
	}
	return t.Tx.Rollback()
}
