package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Size is the size of a state, and the range of its audit log.
type Size struct {
	// Database is sqlite or postgres. Bytes is its size on disk, including indexes and, for a file,
	// the write-ahead log.
	Database string
	Bytes    int64
	Entries  int64
	// OldestAt and NewestAt are the times of the first and last entry of the audit log.
	OldestAt, NewestAt time.Time
	// OldestChargeAt is the time of the oldest observation of the ledger; zero without any.
	OldestChargeAt time.Time
}

// Size returns the size of the state.
func (s *Store) Size(ctx context.Context) (Size, error) {
	out := Size{Database: "postgres"}
	query := "SELECT pg_database_size(current_database())"
	if s.db.turns != nil {
		out.Database, query = "sqlite", "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
	}
	if err := s.db.get(ctx, &out.Bytes, query); err != nil {
		return out, fmt.Errorf("read the size of the state: %w", err)
	}
	var ends struct {
		Entries int64   `db:"entries"`
		Oldest  instant `db:"oldest"`
		Newest  instant `db:"newest"`
	}
	err := s.db.get(ctx, &ends, "SELECT (SELECT entry FROM audit_head WHERE id = 1) AS entries,"+
		" (SELECT at FROM audit ORDER BY id LIMIT 1) AS oldest, (SELECT at FROM audit ORDER BY id DESC LIMIT 1) AS newest")
	out.Entries, out.OldestAt, out.NewestAt = ends.Entries, ends.Oldest.Time, ends.Newest.Time
	if err != nil {
		return out, attempted(err, "read the ends of the audit log")
	}
	var oldest sql.NullInt64
	err = s.db.get(ctx, &oldest, "SELECT MIN(oldest) FROM (SELECT (SELECT MIN(at) FROM ledger_observations"+
		" WHERE account = a.id) AS oldest FROM ledger_accounts a) AS ends")
	if oldest.Valid {
		out.OldestChargeAt = time.UnixMicro(oldest.Int64).UTC()
	}
	return out, attempted(err, "read the oldest row of the ledger")
}

// AccountRound is the newest round of an account.
type AccountRound struct {
	Account string
	Round   int64
	At      time.Time
}

// Rounds returns the newest round of each account, sorted by name.
func (s *Store) Rounds(ctx context.Context) ([]AccountRound, error) {
	var rows []struct {
		Account string  `db:"account"`
		Round   int64   `db:"round"`
		Wall    instant `db:"wall"`
	}
	if err := s.db.list(ctx, &rows,
		"SELECT account, round, wall FROM accounts WHERE round > 0 ORDER BY account"); err !=
		nil {
		return nil, fmt.Errorf("read the newest rounds: %w", err)
	}
	out := make([]AccountRound, len(rows))
	for i, r := range rows {
		out[i] = AccountRound{r.Account, r.Round, r.Wall.Time}
	}
	return out, nil
}

// Notified returns the items of notifying policies whose condition persists, oldest first.
func (s *Store) Notified(ctx context.Context) ([]action.Item, error) {
	var rows []itemRow
	query := items().query + " WHERE is_open = 1 AND phase = 'warned' ORDER BY first_at, id"
	if err := s.db.list(ctx, &rows, query); err != nil {
		return nil, fmt.Errorf("read what people were notified of: %w", err)
	}
	return slices.DeleteFunc(convert(rows, itemRow.item), func(it action.Item) bool {
		return it.Do.Verb != policy.Notify
	}), nil
}

// Alarms returns up to limit items, newest first: those with failing or unconfirmed calls, those
// that failed since a time, and those about which no one could be warned. Items that wait for their
// owner's consent are excluded.
func (s *Store) Alarms(ctx context.Context, since time.Time, limit int) ([]action.Item, error) {
	var rows []itemRow
	query := items().query + " WHERE alarm <> '' AND (phase IN ('acting', 'confirming')" +
		" OR phase = 'observed' AND alarm LIKE ? OR phase = 'failed' AND updated_at >= ?)" +
		" ORDER BY updated_at DESC, id LIMIT ?"
	if err := s.db.list(ctx, &rows, query, action.NoWarning+"%", at(since), limit); err != nil {
		return nil, fmt.Errorf("read the alarms: %w", err)
	}
	return convert(rows, itemRow.item), nil
}
