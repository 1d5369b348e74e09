package store

import (
	"context"
	"fmt"

	"github.com/curfew-dev/curfew/internal/action"
)

// fuseRow is the newest fuse of a source in an account; ConfirmedAt is empty while it is blown.
type fuseRow struct {
	Account     string             `db:"account"`
	Source      string             `db:"source"`
	At          instant            `db:"at"`
	Due         int                `db:"due"`
	Selected    int                `db:"selected"`
	Items       document[[]string] `db:"items"`
	ConfirmedAt instant            `db:"confirmed_at"`
	By          string             `db:"who"`
	Reason      string             `db:"reason"`
	Until       instant            `db:"until"`
}

var fuses = describe("fuses", fuseRow{})

func fuseOf(f action.Fuse) fuseRow {
	return fuseRow{
		f.Account, f.Source, at(f.At), f.Due, f.Selected, document[[]string]{f.Items}, at(f.ConfirmedAt), f.By,
		prose(f.Reason), at(f.Until),
	}
}

func (r fuseRow) fuse() action.Fuse {
	return action.Fuse{
		Account: r.Account, Source: r.Source, At: r.At.Time, Due: r.Due, Selected: r.Selected, Items: r.Items.of,
		ConfirmedAt: r.ConfirmedAt.Time, By: r.By, Reason: r.Reason, Until: r.Until.Time}
}

// fuse returns the newest fuse of a source in an account, or nil.
func (t *tx) fuse(ctx context.Context, account, source string) (*action.Fuse, error) {
	var rows []fuseRow
	if err := t.list(ctx, &rows, fuses().query+" WHERE account = ? AND source = ?", account, source); err != nil ||
		len(rows) == 0 {
		return nil, err
	}
	f := rows[0].fuse()
	return &f, nil
}

// Blow stores and records a blown fuse, unless one is blown already. When it returns, no batch of
// its source is admitted any more.
func (a actions) Blow(ctx context.Context, f action.Fuse, notices ...action.Notice) error {
	f, entry := f.StorableBlown()
	err := a.transact(ctx, func(t *tx) error {
		if _, err := t.lockFreeze(ctx); err != nil {
			return err
		}
		old, err := t.fuse(ctx, f.Account, f.Source)
		if err != nil || (old != nil && old.IsBlown()) {
			return err
		}
		if err := t.putFuse(ctx, f); err != nil {
			return err
		}
		if err := t.putNotices(ctx, notices); err != nil {
			return err
		}
		return t.record(entry)
	})
	return attempted(err, "keep that the fuse of %s has blown", f.Name())
}

// Confirm stores and records that a person confirmed the blown fuse.
func (a actions) Confirm(ctx context.Context, f action.Fuse) error {
	f, entry := f.StorableConfirmed()
	err := a.transact(ctx, func(t *tx) error {
		if _, err := t.lockFreeze(ctx); err != nil {
			return err
		}
		old, err := t.fuse(ctx, f.Account, f.Source)
		switch {
		case err != nil:
			return err
		case old == nil || !old.IsBlown() || !old.At.Equal(f.At):
			return action.ErrConflict
		}
		old.ConfirmedAt, old.By, old.Reason, old.Until = f.ConfirmedAt, f.By, f.Reason, f.Until
		if err := t.putFuse(ctx, *old); err != nil {
			return err
		}
		return t.record(entry)
	})
	return attempted(err, "confirm the fuse of %s", f.Name())
}

func (t *tx) putFuse(ctx context.Context, f action.Fuse) error {
	_, err := t.named(ctx, fuses().insert+" ON CONFLICT (account, source) DO UPDATE SET at = excluded.at, due = "+
		"excluded.due, selected = excluded.selected,"+
		" items = excluded.items, confirmed_at = excluded.confirmed_at, who = excluded.who, reason = excluded.reason, "+
		"until = excluded.until", fuseOf(f))
	return err
}

// Fuses returns the newest fuse of each source in each account.
func (a actions) Fuses(ctx context.Context) ([]action.Fuse, error) {
	var rows []fuseRow
	if err := a.list(ctx, &rows, fuses().query+" ORDER BY account, source"); err != nil {
		return nil, fmt.Errorf("read which fuses have blown: %w", err)
	}
	return convert(rows, fuseRow.fuse), nil
}
