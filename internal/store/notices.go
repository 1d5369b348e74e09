package store

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// closedNoticeRetention is the time for which closed notices are kept.
const closedNoticeRetention = 30 * 24 * time.Hour

// briefingDoc is the stored form of an action.Briefing.
type briefingDoc struct {
	Recipients []string          `json:"recipients"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Zone       string            `json:"zone"`
	Tags       map[string]string `json:"tags"`
	Owner      inventory.Owner   `json:"owner"`
	Because    string            `json:"because"`
	Hourly     *money.Amount     `json:"hourly_nano"`
	Undo       string            `json:"undo"`
	Know       string            `json:"know"`
	Lost       string            `json:"lost"`
	Keep       string            `json:"keep"`
	KeepTag    string            `json:"keep_tag"`
	Evidence   []evidenceDoc     `json:"evidence"`
	Spent      *money.Amount     `json:"spent_nano,omitempty"`
}

func briefingOf(b action.Briefing) briefingDoc {
	return briefingDoc{
		Recipients: b.Recipients, Name: b.Name, Type: b.Type, Zone: b.Zone, Tags: b.Tags,
		Owner: b.Owner, Because: b.Because,
		Hourly: b.Hourly, Undo: b.Undo, Know: b.Know, Lost: b.Lost, Keep: b.Keep, KeepTag: b.KeepTag,
		Evidence: convert(b.Evidence, func(e usage.Evidence) evidenceDoc { return evidenceDoc(e) }),
		Spent:    b.Spent,
	}
}

func (d briefingDoc) briefing() action.Briefing {
	return action.Briefing{
		Recipients: d.Recipients, Name: d.Name, Type: d.Type, Zone: d.Zone, Tags: d.Tags,
		Owner: d.Owner, Because: d.Because,
		Hourly: d.Hourly, Undo: d.Undo, Know: d.Know, Lost: d.Lost, Keep: d.Keep, KeepTag: d.KeepTag,
		Evidence: convert(d.Evidence, func(e evidenceDoc) usage.Evidence { return usage.Evidence(e) }),
		Spent:    d.Spent,
	}
}

// noticeRow is a notice. The column kind belongs to its ref, so its own kind is in message.
type noticeRow struct {
	ID      string `db:"id"`
	Account string `db:"account"`
	Item    string `db:"item"`
	refRow
	Verb       policy.Verb           `db:"verb"`
	Message    string                `db:"message"`
	Recipient  string                `db:"recipient"`
	Alarm      string                `db:"alarm"`
	Briefing   document[briefingDoc] `db:"briefing"`
	CreatedAt  instant               `db:"created_at"`
	Attempts   int                   `db:"attempts"`
	DueAt      instant               `db:"due_at"`
	ClosedAt   instant               `db:"closed_at"`
	AcceptedBy string                `db:"accepted_by"`
	Error      string                `db:"error"`
}

var notices = describe("notices", noticeRow{})

func noticeOf(n action.Notice) (noticeRow, error) {
	n, err := n.Storable()
	return noticeRow{
		ID: n.ID, Account: n.Account, Item: n.Item, refRow: refRow(n.Ref), Verb: n.Verb, Message: n.Kind,
		Recipient: n.Recipient,
		Alarm:     n.Alarm, Briefing: document[briefingDoc]{briefingOf(n.Briefing)}, CreatedAt: at(n.CreatedAt),
		Attempts: n.Attempts,
		DueAt:    at(n.DueAt), ClosedAt: at(n.ClosedAt), AcceptedBy: n.AcceptedBy, Error: n.Error,
	}, err
}

func (r noticeRow) notice() action.Notice {
	return action.Notice{
		ID: r.ID, Account: r.Account, Item: r.Item, Ref: inventory.Ref(r.refRow), Verb: r.Verb, Kind: r.Message,
		Recipient: r.Recipient,
		Alarm:     r.Alarm, Briefing: r.Briefing.of.briefing(), CreatedAt: r.CreatedAt.Time, Attempts: r.Attempts,
		DueAt: r.DueAt.Time, ClosedAt: r.ClosedAt.Time, AcceptedBy: r.AcceptedBy, Error: r.Error,
	}
}

// SaveOwing writes an item with its entries and the notices that it causes.
func (a actions) SaveOwing(ctx context.Context, it action.Item, owed []action.Notice, entries ...action.Entry) (
	action.Item, error) {
	return a.save(ctx, it, entries, func(t *tx) error { return t.putNotices(ctx, owed) })
}

// putNotices writes new notices.
func (t *tx) putNotices(ctx context.Context, owed []action.Notice) error {
	for _, n := range owed {
		row, err := noticeOf(n)
		if err == nil {
			_, err = t.named(ctx, notices().insert, row)
		}
		if err != nil {
			return fmt.Errorf("notice %s: %w", n.ID, err)
		}
	}
	return nil
}

const dueNotice = " WHERE account = ? AND closed_at IS NULL AND due_at <= ? ORDER BY due_at, id LIMIT 1"

// ClaimNotice claims the account's notice that is most overdue, or returns nil.
func (a actions) ClaimNotice(ctx context.Context, account string, now, until time.Time) (*action.Notice, error) {
	claimed, err := a.claimNotice(ctx, account, now, until)
	return claimed, attempted(err, "claim a notice of %s", account)
}

func (a actions) claimNotice(ctx context.Context, account string, now, until time.Time) (*action.Notice, error) {
	var rows []noticeRow
	if err := a.list(ctx, &rows, notices().query+dueNotice, account, at(now)); err != nil || len(rows) == 0 {
		return nil, err // most rounds end here, without a writing transaction
	}
	var claimed *action.Notice
	err := a.transact(ctx, func(t *tx) error {
		claimed, rows = nil, nil
		var guards freezeRow
		if err := t.get(ctx, &guards, freezeQuery); err != nil || !guards.QuarantinedAt.IsZero() {
			return err
		}
		if err := t.list(ctx, &rows, notices().query+dueNotice+t.forUpdate, account, at(now)); err != nil ||
			len(rows) == 0 {
			return err
		}
		n := rows[0].notice()
		n.Attempts, n.DueAt = n.Attempts+1, utc(until)
		claimed = &n
		return t.exec(ctx, "UPDATE notices SET attempts = ?, due_at = ? WHERE id = ?", n.Attempts, at(n.DueAt), n.ID)
	})
	return claimed, err
}

// PutNotice writes the result of a delivery with its entries, and deletes old closed notices.
func (a actions) PutNotice(ctx context.Context, n action.Notice, entries ...action.Entry) error {
	row, err := noticeOf(n)
	if err != nil {
		return err
	}
	err = a.transact(ctx, func(t *tx) error {
		changed, err := t.named(ctx,
			"UPDATE notices SET due_at = :due_at, closed_at = :closed_at, accepted_by = :accepted_by,"+
				" error = :error WHERE id = :id AND attempts = :attempts", row)
		switch {
		case err != nil:
			return err
		case changed == 0:
			return action.ErrConflict
		}
		if !n.ClosedAt.IsZero() {
			if err := t.exec(ctx, "DELETE FROM notices WHERE closed_at < ?",
				at(n.ClosedAt.Add(-closedNoticeRetention))); err != nil {
				return err
			}
		}
		t.later = true
		return t.record(entries...)
	})
	return attempted(err, "keep what became of notice %s", n.ID)
}

// Owed returns the notices that no channel has accepted yet.
func (a actions) Owed(ctx context.Context) ([]action.Notice, error) {
	var rows []noticeRow
	if err := a.list(ctx, &rows, notices().query+" WHERE closed_at IS NULL ORDER BY created_at, id"); err != nil {
		return nil, fmt.Errorf("read the notices that are owed: %w", err)
	}
	return convert(rows, noticeRow.notice), nil
}
