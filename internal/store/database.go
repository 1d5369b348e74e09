package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/wait"
)

// dialect has the differences between the two databases.
type dialect struct {
	// begin are the options of a transaction that writes.
	begin *sql.TxOptions
	// forUpdate ends a SELECT whose rows stay locked to the end of the transaction;
	// empty where a transaction that writes excludes all others anyway.
	forUpdate string
	// contended is true if a transaction failed only because of others at the same
	// time, and left nothing behind; duplicate that a unique index refused a row.
	contended, duplicate func(error) bool
	// overflow is true if a sum passed the range of an amount.
	overflow func(error) bool
	// elements is the table of the elements, named value, of a parameter that is an
	// array in JSON.
	elements string
	// clock is a query for the database's own time in microseconds since 1970; empty where
	// it has only the host's.
	clock string
}

// database is an open database: one pool of connections that write and one that only
// read, which may be the same.
type database struct {
	dialect
	write, read *sqlx.DB
	turns       *turns // nil where connections write at the same time
	host        Host
	dir         string // of a file
	name        string // names the state: the path of a file, or a database without user and password
	// outer is the transaction that every statement is part of; nil: each write has its own.
	outer *tx
	// watch compares the state with its witness; nil: it has none.
	watch *watch
}

func (d *database) close() error {
	if d.outer != nil {
		return nil // it is the transaction's
	}
	if d.read == d.write {
		return d.write.Close()
	}
	return errors.Join(d.read.Close(), d.write.Close())
}

// patience is for how long a transaction is tried again while others are in the way.
const patience = 30 * time.Second

// transact runs do in a writing transaction, again after a conflict with others, so do must not
// change anything outside the database before it succeeds. Within another transaction do is a part
// of that one, and the writes of a failed do are rolled back.
func (d *database) transact(ctx context.Context, do func(*tx) error) error {
	if d.outer != nil {
		return d.outer.nested(ctx, do)
	}
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		written, err := d.once(ctx, do)
		if err == nil && written.changed && d.watch != nil {
			d.watch.committed(context.WithoutCancel(ctx), d, written.later)
		}
		if err == nil || !d.contended(err) {
			return err
		}
		if ended := pause(waiting); ended != nil {
			return fmt.Errorf("others kept the database busy: %w (%w)", ended, err)
		}
	}
}

// takeTurn waits until it is this transaction's turn to write, where the database has turns.
func (d *database) takeTurn(ctx context.Context) error {
	if d.turns == nil {
		return nil
	}
	return d.turns.take(ctx, ctx.Value(hurryKey{}) != nil)
}

func (d *database) giveTurn() {
	if d.turns != nil {
		d.turns.give()
	}
}

func (d *database) once(ctx context.Context, do func(*tx) error) (*tx, error) {
	// The context that a transaction begins with ends it.
	ctx, end := context.WithCancel(ctx)
	defer end()
	var t *sqlx.Tx
	err := timed(ctx, end, "begin a transaction", func() (err error) {
		if err = d.takeTurn(ctx); err == nil {
			if t, err = d.write.BeginTxx(ctx, d.begin); err != nil {
				d.giveTurn()
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	defer d.giveTurn()
	writing := &tx{Tx: t, dialect: &d.dialect}
	err = do(writing)
	if err == nil {
		err = writing.append(ctx)
	}
	if err != nil {
		// A rollback that fails as well leaves the connection to the pool to discard.
		_ = timed(ctx, end, "roll back", t.Rollback)
		return nil, err
	}
	return writing, timed(ctx, end, "commit", t.Commit)
}

// answerIn is how long a database may take to answer one statement. Locks that others
// hold are waited for in [database.transact].
const answerIn = 30 * time.Second

// SilentError is returned when a database does not answer in time.
type SilentError struct {
	// Waiting names the operation: "commit".
	Waiting string
	cause   error
}

// Error names the operation and the time that it waited.
func (e *SilentError) Error() string {
	return fmt.Sprintf("%s: the database has not answered within %s", e.Waiting, answerIn)
}

// Unwrap returns the error of the statement.
func (e *SilentError) Unwrap() error { return e.cause }

// timed runs do, which ends with a context that end cancels, and cancels it if it takes too long.
func timed(ctx context.Context, end context.CancelFunc, what string, do func() error) error {
	alive := ctx.Err() == nil
	timer := time.AfterFunc(answerIn, end)
	err := do()
	if late := !timer.Stop(); err != nil && late && alive {
		return &SilentError{what, err}
	}
	return damaged(err)
}

// answered carries out a statement, which has to be answered in time.
func answered(ctx context.Context, statement string, do func(context.Context) error) error {
	bounded, end := context.WithTimeout(ctx, answerIn)
	defer end()
	err := do(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		words := strings.Fields(statement)
		return &SilentError{strings.Join(words[:min(4, len(words))], " ") + " …", err}
	}
	return damaged(err)
}

// damaged names the error of a damaged file.
func damaged(err error) error {
	if isDamaged(err) && !errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	return err
}

// pause waits for a random time of at most 4 ms. It is as short for who has waited
// long as for who comes new, or else the one who writes most would keep others out.
func pause(ctx context.Context) error { return wait.For(ctx, rand.N(4*time.Millisecond)) }

// tx is a transaction that writes. Statements mark their parameters by "?".
type tx struct {
	*sqlx.Tx
	*dialect
	// entries are appended to the audit log right before the commit.
	entries []action.Entry
	// changed is true if something changes which actions depend on, and later that the witness
	// need not know of it before the round goes on.
	changed, later bool
}

// nested runs do within the transaction, by a savepoint: if do fails, its writes are rolled back
// and the rest of the transaction can still be committed.
func (t *tx) nested(ctx context.Context, do func(*tx) error) error {
	if err := t.exec(ctx, "SAVEPOINT nested"); err != nil {
		return err
	}
	recorded := len(t.entries)
	if err := do(t); err != nil {
		t.entries = t.entries[:recorded]
		// The innermost of the savepoints with this name is meant. Where the transaction has
		// ended, its own error says so.
		return errors.Join(err, t.exec(ctx, "ROLLBACK TO SAVEPOINT nested"), t.exec(ctx, "RELEASE SAVEPOINT nested"))
	}
	return t.exec(ctx, "RELEASE SAVEPOINT nested")
}

// get reads the one row that a query finds; sql.ErrNoRows where there is none.
func (t *tx) get(ctx context.Context, to any, query string, args ...any) error {
	return answered(ctx, query, func(ctx context.Context) error {
		return t.GetContext(ctx, to, t.Rebind(query), args...)
	})
}

// list reads all rows that a query finds.
func (t *tx) list(ctx context.Context, to any, query string, args ...any) error {
	return answered(ctx, query, func(ctx context.Context) error {
		return t.SelectContext(ctx, to, t.Rebind(query), args...)
	})
}

// exec carries out a statement.
func (t *tx) exec(ctx context.Context, statement string, args ...any) error {
	_, err := t.run(ctx, statement, args...)
	return err
}

// run carries out a statement and returns how many rows it changed.
func (t *tx) run(ctx context.Context, statement string, args ...any) (changed int64, err error) {
	err = answered(ctx, statement, func(ctx context.Context) error {
		result, err := t.ExecContext(ctx, t.Rebind(statement), args...)
		if err == nil {
			changed, err = result.RowsAffected()
		}
		return err
	})
	return changed, err
}

// named carries out a statement whose parameters are the fields of a row.
func (t *tx) named(ctx context.Context, statement string, row any) (changed int64, err error) {
	err = answered(ctx, statement, func(ctx context.Context) error {
		result, err := t.NamedExecContext(ctx, statement, row)
		if err == nil {
			changed, err = result.RowsAffected()
		}
		return err
	})
	return changed, err
}

// insert writes a new row of a table.
func (t *tx) insert(ctx context.Context, to table, row any) error {
	_, err := t.named(ctx, to.insert, row)
	return err
}

// put writes the version of a row that follows the one that was read; 0 was read
// where the row is new. It returns conflict when the row is at another version, or
// when a unique index has its place taken.
func (t *tx) put(ctx context.Context, to table, row any, read int64, conflict error) error {
	if read == 0 {
		if err := t.insert(ctx, to, row); t.duplicate(err) {
			return conflict
		} else if err != nil {
			return err
		}
		return nil
	}
	changed, err := t.named(ctx, to.update, row)
	if t.duplicate(err) || err == nil && changed != 1 {
		return conflict
	}
	return err
}

// get reads the one row that a query finds; sql.ErrNoRows where there is none.
func (d *database) get(ctx context.Context, to any, query string, args ...any) error {
	if d.outer != nil {
		return d.outer.get(ctx, to, query, args...)
	}
	return answered(ctx, query, func(ctx context.Context) error {
		return d.read.GetContext(ctx, to, d.read.Rebind(query), args...)
	})
}

// reader returns the connection or transaction that rows are read from.
func (d *database) reader() interface {
	sqlx.QueryerContext
	Rebind(query string) string
} {
	if d.outer != nil {
		return d.outer
	}
	return d.read
}

// explain names the amount that overflowed where a sum did.
func (d *dialect) explain(err error) error {
	if d.overflow(err) {
		return fmt.Errorf("%w (%w)", money.ErrOverflow, err)
	}
	return err
}

// sums are columns that add up expressions: 0 over no rows, and an error past the range
// of 64 bits (PostgreSQL adds up in decimals, and SQLite says so itself).
func sums(expressions ...string) string {
	out := make([]string, len(expressions))
	for i, e := range expressions {
		out[i] = "CAST(COALESCE(SUM(" + e + "), 0) AS BIGINT)"
	}
	return strings.Join(out, ", ")
}

// list reads all rows that a query finds.
func (d *database) list(ctx context.Context, to any, query string, args ...any) error {
	if d.outer != nil {
		return d.outer.list(ctx, to, query, args...)
	}
	return answered(ctx, query, func(ctx context.Context) error {
		return d.read.SelectContext(ctx, to, d.read.Rebind(query), args...)
	})
}

// prefixed returns the row of an id, or the only one whose id begins so; none where
// there is no such row, or more than one.
func prefixed[Row any](ctx context.Context, d *database, from table, id string, idOf func(Row) string,
	none error) (Row, error) {
	var rows []Row
	var zero Row
	if id == "" {
		return zero, none
	}
	// Ids are put in order by their bytes, so the exact one comes first.
	err := d.list(ctx, &rows, from.query+" WHERE id >= ? AND id < ? ORDER BY id LIMIT 2", id, id+"\U0010FFFF")
	switch {
	case err != nil:
		return zero, err
	case len(rows) == 0:
		return zero, none
	case len(rows) > 1 && idOf(rows[0]) != id:
		return zero, fmt.Errorf("%w: more than one begins so", none)
	}
	return rows[0], nil
}

// attempted prefixes an error with the attempted operation; nil stays nil.
func attempted(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
