package store

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// freezeRow is the freeze, and the quarantine of an older state; their times are zero while
// there is none.
type freezeRow struct {
	At            instant `db:"at"`
	By            string  `db:"who"`
	Reason        string  `db:"reason"`
	QuarantinedAt instant `db:"quarantined_at"`
	Quarantine    string  `db:"quarantine"`
	// Generation and NewestAt are the state's generation and newest entry at that time.
	Generation int64   `db:"quarantine_generation"`
	NewestAt   instant `db:"quarantine_newest_at"`
}

const freezeQuery = "SELECT at, who, reason, quarantined_at, quarantine, quarantine_generation, " +
	"quarantine_newest_at FROM freezes WHERE id = 1"

// lockFreeze reads the freeze and locks it until the end of the transaction. All batches of all
// processes wait here, so that none is admitted on sums that another is about to change, nor after
// a freeze has been confirmed. Batches are rare; with a shared lock a stream of them could delay a
// freeze.
func (t *tx) lockFreeze(ctx context.Context) (freezeRow, error) {
	var row freezeRow
	err := t.get(ctx, &row, freezeQuery+t.forUpdate)
	return row, err
}

// Freeze starts or replaces a freeze, and records it. When it returns, no batch is admitted any
// more.
func (a actions) Freeze(ctx context.Context, f action.Freeze) error {
	if f.At.IsZero() {
		return fmt.Errorf("freeze: the time is missing")
	}
	err := a.setFreeze(ctx, freezeRow{At: at(f.At), By: f.By, Reason: prose(f.Reason)},
		action.Entry{At: f.At, Actor: f.By, What: action.EventFreeze, Because: f.Reason})
	return attempted(err, "freeze")
}

// Unfreeze ends a freeze and records it, even if nothing was frozen.
func (a actions) Unfreeze(ctx context.Context, by, reason string, at time.Time) error {
	err := a.setFreeze(ctx, freezeRow{}, action.Entry{At: at, Actor: by, What: action.EventUnfreeze, Because: reason})
	return attempted(err, "unfreeze")
}

func (a actions) setFreeze(ctx context.Context, to freezeRow, e action.Entry) error {
	return a.transact(ctx, func(t *tx) error {
		if err := t.exec(ctx, "UPDATE freezes SET at = ?, who = ?, reason = ? WHERE id = 1", to.At, to.By,
			to.Reason); err != nil {
			return err
		}
		return t.record(e)
	})
}

// Frozen returns the current freeze, or nil. A state in quarantine, or with an unusable witness, is
// frozen too.
func (a actions) Frozen(ctx context.Context) (*action.Freeze, error) {
	var row freezeRow
	if err := a.get(ctx, &row, freezeQuery); err != nil {
		return nil, fmt.Errorf("look for a freeze: %w", err)
	}
	return a.frozen(row), nil
}

// frozen returns the freeze or quarantine that stops all actions. A quarantine is named first,
// because lifting a freeze does not end it.
func (a actions) frozen(row freezeRow) *action.Freeze {
	switch {
	case !row.QuarantinedAt.IsZero():
		return &action.Freeze{At: row.QuarantinedAt.Time, By: quarantiner, Reason: row.Quarantine + "; " + acceptHint}
	case !row.At.IsZero():
		return row.freeze()
	}
	return a.watch.freeze()
}

// freeze returns the freeze by a person, or nil.
func (r freezeRow) freeze() *action.Freeze {
	if r.At.IsZero() {
		return nil
	}
	return &action.Freeze{At: r.At.Time, By: r.By, Reason: r.Reason}
}

// keepRow is a keep.
type keepRow struct {
	refRow
	Until  instant `db:"until"`
	Reason string  `db:"reason"`
	By     string  `db:"who"`
	At     instant `db:"at"`
}

var keeps = describe("keeps", keepRow{})

// PutKeep replaces a resource's keep, and records it.
func (a actions) PutKeep(ctx context.Context, k action.Keep) error {
	err := a.transact(ctx, func(t *tx) error { return t.putKeep(ctx, k) })
	return attempted(err, "keep %s", k.Ref)
}

// SaveKept writes an item and a resource's keep, and records both.
func (a actions) SaveKept(ctx context.Context, it action.Item, k action.Keep, entries ...action.Entry) (action.Item,
	error) {
	return a.save(ctx, it, entries, func(t *tx) error { return t.putKeep(ctx, k) })
}

// putKeep replaces a resource's keep, and records it.
func (t *tx) putKeep(ctx context.Context, k action.Keep) error {
	row := keepRow{refRow(k.Ref), at(k.Until), prose(k.Reason), k.By, at(k.At)}
	if _, err := t.named(ctx, keeps().insert+" ON CONFLICT (cloud, cloud_account, region, kind, resource_id)"+
		" DO UPDATE SET until = excluded.until, reason = excluded.reason, who = excluded.who, at = excluded.at",
		row); err != nil {
		return err
	}
	return t.record(action.Entry{
		At: k.At, Account: k.Ref.Cloud + "/" + k.Ref.Account, Actor: k.By, What: action.EventKeep,
		Resource: k.Ref.String(), Because: k.Reason, Outcome: "until " + row.Until.Format(time.RFC3339),
	})
}

// Keeps returns the keeps that end after a time, sorted by resource.
func (a actions) Keeps(ctx context.Context, t time.Time) ([]action.Keep, error) {
	var rows []keepRow
	query := keeps().query + " WHERE until > ? ORDER BY cloud, cloud_account, region, kind, resource_id"
	if err := a.list(ctx, &rows, query, at(t)); err != nil {
		return nil, fmt.Errorf("read the keeps: %w", err)
	}
	return convert(rows, func(r keepRow) action.Keep {
		return action.Keep{
			Ref: inventory.Ref(r.refRow), Until: r.Until.Time, Reason: r.Reason, By: r.By, At: r.At.Time,
		}
	}), nil
}
