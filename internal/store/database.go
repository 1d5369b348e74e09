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
	// begin holds the options of a writing transaction.
	begin *sql.TxOptions
	// forUpdate ends a SELECT whose rows stay locked until the end of the transaction; empty if
	// writing transactions exclude each other anyway.
	forUpdate string
	// contended reports that a transaction failed only due to concurrent ones, without effect;
	// duplicate, that a unique index refused a row.
	contended, duplicate func(error) bool
	// overflow reports that a sum exceeded the range of an amount.
	overflow func(error) bool
	// elements is a table with the elements, in column value, of a JSON array parameter.
	elements string
	// clock is a query for the database's time in microseconds since 1970; empty if it only has the
	// host's.
	clock string
}

// database is an open database: a pool of writing connections and one of reading connections, which
// may be the same.
type database struct {
	dialect
	write, read *sqlx.DB
	turns       *turns // nil if connections can write concurrently
	host        Host
	dir         string // of a file
	name        string // names the state: the path of a file, or a database without user and password
	// outer is the transaction that all statements are part of; nil if each write has its own.
	outer *tx
	// watch compares the state with its witness; nil if it has none.
	watch *watch
}

func (d *database) close() error {
	if d.outer != nil {
		return nil // it belongs to the transaction
	}
	if d.read == d.write {
		return d.write.Close()
	}
	return errors.Join(d.read.Close(), d.write.Close())
}

// retryTimeout bounds the time for which a transaction is retried under contention.
const retryTimeout = 30 * time.Second

// transact runs do in a writing transaction, and again after a conflict, so do must have no other
// side effects. Within another transaction do is a part of that one, and the writes of a failed do
// are rolled back.
func (d *database) transact(ctx context.Context, do func(*tx) error) error {
	if d.outer != nil {
		return d.outer.nested(ctx, do)
	}
	waiting, stop := context.WithTimeout(ctx, retryTimeout)
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

// takeTurn waits for this transaction's turn to write, if the database has turns.
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
		// If the rollback fails too, the pool discards the connection.
		_ = timed(ctx, end, "roll back", t.Rollback)
		return nil, err
	}
	return writing, timed(ctx, end, "commit", t.Commit)
}

// statementTimeout bounds the time for one statement. Waiting for locks of others is handled by
// [database.transact].
const statementTimeout = 30 * time.Second

// SilentError is returned when a database does not respond in time.
type SilentError struct {
	// Waiting names the operation: "commit".
	Waiting string
	cause   error
}

// Error names the operation and the time waited.
func (e *SilentError) Error() string {
	return fmt.Sprintf("%s: the database has not answered within %s", e.Waiting, statementTimeout)
}

// Unwrap returns the error of the statement.
func (e *SilentError) Unwrap() error { return e.cause }

// timed runs do, and cancels its context if it takes too long.
func timed(ctx context.Context, end context.CancelFunc, what string, do func() error) error {
	alive := ctx.Err() == nil
	timer := time.AfterFunc(statementTimeout, end)
	err := do()
	if late := !timer.Stop(); err != nil && late && alive {
		return &SilentError{what, err}
	}
	return damaged(err)
}

// answered runs a statement with a time limit.
func answered(ctx context.Context, statement string, do func(context.Context) error) error {
	bounded, end := context.WithTimeout(ctx, statementTimeout)
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

// pause waits for a random time of at most 4 ms. It does not back off, because the most frequent
// writer would then starve the others.
func pause(ctx context.Context) error { return wait.For(ctx, rand.N(4*time.Millisecond)) }

// tx is a writing transaction. Statements mark parameters with "?".
type tx struct {
	*sqlx.Tx
	*dialect
	// entries are appended to the audit log right before the commit.
	entries []action.Entry
	// changed is true if something changed that actions depend on; later, that the witness can be
	// informed after the round.
	changed, later bool
}

// nested runs do in a savepoint: if do fails, its writes are rolled back and the rest of the
// transaction can still commit.
func (t *tx) nested(ctx context.Context, do func(*tx) error) error {
	if err := t.exec(ctx, "SAVEPOINT nested"); err != nil {
		return err
	}
	recorded := len(t.entries)
	if err := do(t); err != nil {
		t.entries = t.entries[:recorded]
		// The name refers to the innermost savepoint. If the transaction has ended, its own error
		// says so.
		return errors.Join(err, t.exec(ctx, "ROLLBACK TO SAVEPOINT nested"), t.exec(ctx, "RELEASE SAVEPOINT nested"))
	}
	return t.exec(ctx, "RELEASE SAVEPOINT nested")
}

// get reads the only row of a query; sql.ErrNoRows if there is none.
func (t *tx) get(ctx context.Context, to any, query string, args ...any) error {
	return answered(ctx, query, func(ctx context.Context) error {
		return t.GetContext(ctx, to, t.Rebind(query), args...)
	})
}

// list reads all rows of a query.
func (t *tx) list(ctx context.Context, to any, query string, args ...any) error {
	return answered(ctx, query, func(ctx context.Context) error {
		return t.SelectContext(ctx, to, t.Rebind(query), args...)
	})
}

// exec runs a statement.
func (t *tx) exec(ctx context.Context, statement string, args ...any) error {
	_, err := t.run(ctx, statement, args...)
	return err
}

// run runs a statement and returns the number of changed rows.
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

// named runs a statement with the fields of a row as parameters.
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

// put writes the next version of a row; version 0 was read if the row is new. It returns conflict
// if the row has another version, or if a unique index refuses it.
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

// get reads the only row of a query; sql.ErrNoRows if there is none.
func (d *database) get(ctx context.Context, to any, query string, args ...any) error {
	if d.outer != nil {
		return d.outer.get(ctx, to, query, args...)
	}
	return answered(ctx, query, func(ctx context.Context) error {
		return d.read.GetContext(ctx, to, d.read.Rebind(query), args...)
	})
}

// reader returns the connection or transaction for reads.
func (d *database) reader() interface {
	sqlx.QueryerContext
	Rebind(query string) string
} {
	if d.outer != nil {
		return d.outer
	}
	return d.read
}

// explain reports an overflow of a sum by the name of the amount.
func (d *dialect) explain(err error) error {
	if d.overflow(err) {
		return fmt.Errorf("%w (%w)", money.ErrOverflow, err)
	}
	return err
}

// sums returns columns that sum expressions: 0 without rows, and an error beyond 64 bits
// (PostgreSQL sums in decimals, SQLite reports overflow itself).
func sums(expressions ...string) string {
	out := make([]string, len(expressions))
	for i, e := range expressions {
		out[i] = "CAST(COALESCE(SUM(" + e + "), 0) AS BIGINT)"
	}
	return strings.Join(out, ", ")
}

// list reads all rows of a query.
func (d *database) list(ctx context.Context, to any, query string, args ...any) error {
	if d.outer != nil {
		return d.outer.list(ctx, to, query, args...)
	}
	return answered(ctx, query, func(ctx context.Context) error {
		return d.read.SelectContext(ctx, to, d.read.Rebind(query), args...)
	})
}

// prefixed returns the row with an ID or a unique prefix of one, or none.
func prefixed[Row any](ctx context.Context, d *database, from table, id string, idOf func(Row) string,
	none error) (Row, error) {
	var rows []Row
	var zero Row
	if id == "" {
		return zero, none
	}
	// IDs are ordered by their bytes, so an exact match comes first.
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
