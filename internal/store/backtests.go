package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// BacktestState is the state of a replay.
type BacktestState string

// The states of replays; the first two are open.
const (
	BacktestQueued   BacktestState = "queued"
	BacktestRunning  BacktestState = "running"
	BacktestDone     BacktestState = "done"
	BacktestFailed   BacktestState = "failed"
	BacktestCanceled BacktestState = "canceled"
)

// Open reports whether the replay has not ended.
func (s BacktestState) Open() bool { return s == BacktestQueued || s == BacktestRunning }

// Backtest is a replay that a caller of the service requested.
type Backtest struct {
	ID        string
	CreatedBy string
	CreatedAt time.Time
	// Spec is the specification of the replay, opaque to the store.
	Spec  string
	State BacktestState
	// Attempts counts the starts: one more for each process that died during it. Fence is the
	// number of the lease of the last start.
	Attempts, Fence int64
	// Progress is in percent.
	Progress int64
	// Note is the reason for an end without a result, or an intermediate remark.
	Note               string
	StartedAt, EndedAt time.Time
	// Result is the document of a completed replay.
	Result string
}

// Errors of replays.
var (
	ErrNoBacktest       = errors.New("no such backtest")
	ErrTooManyBacktests = errors.New("too many backtests wait")
	ErrBacktestEnded    = errors.New("the backtest has ended")
)

type backtestRow struct {
	ID        string        `db:"id"`
	CreatedBy string        `db:"created_by"`
	CreatedAt instant       `db:"created_at"`
	Spec      string        `db:"spec"`
	State     BacktestState `db:"state"`
	Attempts  int64         `db:"attempts"`
	Fence     int64         `db:"fence"`
	Progress  int64         `db:"progress"`
	Note      string        `db:"note"`
	StartedAt instant       `db:"started_at"`
	EndedAt   instant       `db:"ended_at"`
	Result    string        `db:"result"`
}

var backtestTable = describe("backtests", backtestRow{})

// backtestHeads selects all columns but the result, which may be large.
const backtestHeads = "SELECT id, created_by, created_at, spec, state, attempts, fence, progress, note, started_at, " +
	"ended_at, '' AS result FROM backtests"

func (r backtestRow) backtest() Backtest {
	return Backtest{
		r.ID, r.CreatedBy, r.CreatedAt.Time, r.Spec, r.State, r.Attempts, r.Fence, r.Progress,
		r.Note, r.StartedAt.Time,
		r.EndedAt.Time, r.Result,
	}
}

// Backtests stores the replays.
type Backtests struct{ db *database }

// Backtests returns the store of replays.
func (s *Store) Backtests() Backtests { return Backtests{s.db} }

// Create stores a new replay and its entry. If too many replays are open it returns
// [ErrTooManyBacktests]. Of the ended replays, only the newest keep remain.
func (b Backtests) Create(ctx context.Context, v Backtest, open, keep int, e action.Entry) error {
	err := exact(v.ID, v.Spec)
	if err == nil && (v.ID == "" || v.CreatedAt.IsZero()) {
		err = errors.New("it needs an id and a time")
	}
	if err == nil {
		err = b.db.transact(ctx, func(t *tx) error {
			var n int
			if err := t.get(ctx, &n, "SELECT COUNT(*) FROM backtests WHERE state IN (?, ?)", BacktestQueued,
				BacktestRunning); err != nil {
				return err
			}
			if n >= open {
				return ErrTooManyBacktests
			}
			if err := t.exec(ctx,
				"DELETE FROM backtests WHERE state NOT IN (?, ?) AND id NOT IN (SELECT id FROM backtests "+
					"WHERE state NOT IN (?, ?) ORDER BY created_at DESC, id DESC LIMIT ?)",
				BacktestQueued, BacktestRunning, BacktestQueued, BacktestRunning, keep); err != nil {
				return err
			}
			row := backtestRow{
				ID: v.ID, CreatedBy: prose(v.CreatedBy), CreatedAt: at(v.CreatedAt),
				Spec: v.Spec, State: BacktestQueued,
			}
			if err := t.insert(ctx, backtestTable(), row); err != nil {
				return err
			}
			return t.record(e)
		})
	}
	return attempted(err, "keep backtest %s", v.ID)
}

// List returns all replays without their results, newest first.
func (b Backtests) List(ctx context.Context) ([]Backtest, error) {
	return b.list(ctx, backtestHeads+" ORDER BY created_at DESC, id DESC")
}

// Open returns the open replays without results, oldest first.
func (b Backtests) Open(ctx context.Context) ([]Backtest, error) {
	return b.list(ctx, backtestHeads+" WHERE state IN (?, ?) ORDER BY created_at, id", BacktestQueued, BacktestRunning)
}

func (b Backtests) list(ctx context.Context, query string, args ...any) ([]Backtest, error) {
	var rows []backtestRow
	if err := b.db.list(ctx, &rows, query, args...); err != nil {
		return nil, fmt.Errorf("list the backtests: %w", err)
	}
	return convert(rows, backtestRow.backtest), nil
}

// Get returns a replay with its result, or [ErrNoBacktest].
func (b Backtests) Get(ctx context.Context, id string) (Backtest, error) {
	var row backtestRow
	err := b.db.get(ctx, &row, backtestTable().query+" WHERE id = ?", id)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoBacktest
	}
	if err != nil {
		return Backtest{}, fmt.Errorf("read backtest %s: %w", id, err)
	}
	return row.backtest(), nil
}

// Begin starts an open replay under a lease, again if its process died.
func (b Backtests) Begin(ctx context.Context, id string, lease Lease, now time.Time, note string) error {
	return b.change(ctx, id, "begin",
		"UPDATE backtests SET state = ?, attempts = attempts + 1, fence = ?, progress = "+
			"0, note = ?, started_at = ? WHERE id = ? AND state IN (?, ?) AND fence < ?",
		BacktestRunning, lease.Fence, prose(note), at(now), id, BacktestQueued, BacktestRunning, lease.Fence)
}

// Advance writes the progress of a replay; [ErrBacktestEnded] if it was canceled or another process
// runs it now.
func (b Backtests) Advance(ctx context.Context, id string, lease Lease, percent int64) error {
	return b.change(ctx, id, "go on with",
		"UPDATE backtests SET progress = ? WHERE id = ? AND state = ? AND fence = ?",
		percent, id, BacktestRunning, lease.Fence)
}

// Yield lets another process restart a replay, for example when this one shuts down. It does not
// count as an attempt.
func (b Backtests) Yield(ctx context.Context, id string, lease Lease, note string) error {
	return b.change(ctx, id, "give back",
		"UPDATE backtests SET state = ?, attempts = attempts - 1, progress = 0, note "+
			"= ?, started_at = NULL WHERE id = ? AND state = ? AND fence = ?",
		BacktestQueued, prose(note), id, BacktestRunning, lease.Fence)
}

// End ends a replay that runs under a lease with a state, a note and its result, and records that.
func (b Backtests) End(ctx context.Context, id string, lease Lease, state BacktestState, note, result string,
	now time.Time, e action.Entry) error {
	progress := 0
	if state == BacktestDone {
		progress = 100
	}
	return b.change(ctx, id, "end", "UPDATE backtests SET state = ?, progress = CASE WHEN ? > 0 THEN ? ELSE progress "+
		"END, note = ?, result = ?, ended_at = ? WHERE id = ? AND state = ? AND fence = ?",
		state, progress, progress, prose(note), result, at(now), id, BacktestRunning, lease.Fence, e)
}

// Cancel ends an open replay and records that; [ErrBacktestEnded] if it has ended.
func (b Backtests) Cancel(ctx context.Context, id, note string, now time.Time, e action.Entry) error {
	return b.change(ctx, id, "cancel",
		"UPDATE backtests SET state = ?, note = ?, ended_at = ? WHERE id = ? AND state IN (?, ?)",
		BacktestCanceled, prose(note), at(now), id, BacktestQueued, BacktestRunning, e)
}

// change runs a statement that changes one replay, and records the entries among its arguments.
func (b Backtests) change(ctx context.Context, id, what, statement string, args ...any) error {
	var entries []action.Entry
	if e, ok := args[len(args)-1].(action.Entry); ok {
		entries, args = append(entries, e), args[:len(args)-1]
	}
	err := b.db.transact(ctx, func(t *tx) error {
		changed, err := t.run(ctx, statement, args...)
		if err == nil && changed != 1 {
			err = ErrBacktestEnded
		}
		if err != nil {
			return err
		}
		return t.record(entries...)
	})
	return attempted(err, "%s backtest %s", what, id)
}

// Audited returns the time of the last successful audit of a source of the service; zero if none.
func (s *Store) Audited(ctx context.Context, source string) (time.Time, error) {
	var last instant
	err := s.db.get(ctx, &last, "SELECT at FROM audited WHERE source = ?", source)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read when %s was audited: %w", source, err)
	}
	return last.Time, nil
}

// PutAudited stores the time of a successful audit of a source.
func (s *Store) PutAudited(ctx context.Context, source string, now time.Time) error {
	err := s.db.transact(ctx, func(t *tx) error {
		return t.exec(ctx,
			"INSERT INTO audited (source, at) VALUES (?, ?) ON CONFLICT (source) DO UPDATE SET at = excluded.at",
			source,
			at(now))
	})
	return attempted(err, "keep when %s was audited", source)
}
