package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/usage"
)

// ErrTampered is returned if the audit log was changed after it was recorded.
var ErrTampered = errors.New("the audit log was changed")

// entryRow is an entry of the audit log. Its hash covers its columns and the previous hash, so that
// no entry can be changed, removed or inserted.
type entryRow struct {
	ID       int64                   `db:"id"`
	At       instant                 `db:"at"`
	Account  string                  `db:"account"`
	Round    int64                   `db:"round"`
	Actor    string                  `db:"actor"`
	What     string                  `db:"what"`
	Resource string                  `db:"resource"`
	Item     string                  `db:"item"`
	Verb     string                  `db:"verb"`
	Because  string                  `db:"because"`
	Outcome  string                  `db:"outcome"`
	Evidence document[[]evidenceDoc] `db:"evidence"`
	Hash     string                  `db:"hash"`
}

// evidenceDoc is the stored form of a usage.Evidence.
type evidenceDoc struct {
	Signal   string        `json:"signal"`
	Value    string        `json:"value"`
	Window   time.Duration `json:"window_ns,omitempty"`
	Coverage float64       `json:"coverage"`
	Source   string        `json:"source"`
}

var audit = describe("audit", entryRow{})

// headRow is the end of the log.
type headRow struct {
	Entry int64  `db:"entry"`
	Hash  string `db:"hash"`
}

const headQuery = "SELECT entry, hash FROM audit_head WHERE id = 1"

// record adds entries to the audit log, in the same transaction.
func (t *tx) record(entries ...action.Entry) error {
	for _, e := range entries {
		e, err := e.Storable()
		if err != nil {
			return err
		}
		t.entries, t.changed = append(t.entries, e), true
	}
	return nil
}

// append writes the recorded entries. They are numbered from 1 without gaps in the order of
// transactions, because the end of the log stays locked. It is the last lock that a transaction
// takes, which prevents deadlocks.
func (t *tx) append(ctx context.Context) error {
	if len(t.entries) == 0 && t.changed {
		return t.exec(ctx, "UPDATE audit_head SET generation = generation + 1 WHERE id = 1")
	}
	if len(t.entries) == 0 {
		return nil
	}
	var head headRow
	if err := t.get(ctx, &head, headQuery+t.forUpdate); err != nil {
		return err
	}
	for _, e := range t.entries {
		row := entryRow{
			ID: head.Entry + 1, At: at(e.At), Account: e.Account, Round: e.Round, Actor: e.Actor, What: e.What,
			Resource: e.Resource, Item: e.Item, Verb: e.Verb, Because: e.Because, Outcome: e.Outcome,
			Evidence: document[[]evidenceDoc]{convert(e.Evidence, evidenceOf)},
		}
		var err error
		if row.Hash, err = row.chain(head.Hash); err != nil {
			return err
		}
		if err := t.insert(ctx, audit(), row); err != nil {
			return fmt.Errorf("record %q: %w", e.What, err)
		}
		head = headRow{row.ID, row.Hash}
	}
	return t.exec(ctx, "UPDATE audit_head SET entry = ?, hash = ?, generation = generation + 1 WHERE id = 1",
		head.Entry,
		head.Hash)
}

// chain returns the entry's hash: SHA-256 over a JSON array of the previous hash and the entry's
// columns in order.
func (r entryRow) chain(before string) (string, error) {
	text, err := json.Marshal([]any{before, r.ID, r.At.UnixMicro(), r.Account, r.Round, r.Actor, r.What,
		r.Resource, r.Item, r.Verb, r.Because, r.Outcome, r.Evidence.of})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func evidenceOf(e usage.Evidence) evidenceDoc { return evidenceDoc(e) }

func (e evidenceDoc) evidence() usage.Evidence { return usage.Evidence(e) }

func (r entryRow) entry() action.Entry {
	return action.Entry{
		ID: r.ID, At: r.At.Time, Account: r.Account, Round: r.Round, Actor: r.Actor,
		What: r.What, Resource: r.Resource,
		Item: r.Item, Verb: r.Verb, Because: r.Because, Outcome: r.Outcome,
		Evidence: convert(r.Evidence.of, evidenceDoc.evidence),
	}
}

// Record appends to the audit log, all entries or none.
func (a actions) Record(ctx context.Context, entries ...action.Entry) error {
	err := a.transact(ctx, func(t *tx) error { return t.record(entries...) })
	return attempted(err, "write the audit log")
}

// Entries visits the matching entries recorded before the call, oldest first; with a limit, only
// the newest ones. It holds no connection while visit runs.
func (a actions) Entries(ctx context.Context, q action.Query, visit func(action.Entry) error) error {
	var head headRow
	if err := a.get(ctx, &head, headQuery); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	where, args := conditions(q)
	after := int64(0)
	if q.Limit > 0 {
		newest := "SELECT COALESCE(MIN(id), 1) - 1 FROM (SELECT id FROM audit WHERE id <= ?" + where +
			" ORDER BY id DESC LIMIT ?) AS newest"
		if err := a.get(ctx, &after, newest, append(append([]any{head.Entry}, args...), q.Limit)...); err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
	}
	return a.pages(ctx, after, head.Entry, where, args, func(r entryRow) error { return visit(r.entry()) })
}

// conditions returns the conditions of a query on entries, each prefixed with AND.
func conditions(q action.Query) (where string, args []any) {
	and := func(condition string, values ...any) {
		where, args = where+" AND "+condition, append(args, values...)
	}
	if !q.Since.IsZero() {
		and("at >= ?", at(q.Since))
	}
	if !q.Until.IsZero() {
		and("at < ?", at(q.Until))
	}
	if q.After > 0 {
		and("id > ?", q.After)
	}
	for _, equal := range []struct{ column, value string }{
		{"account", q.Account}, {"actor", q.Actor}, {"what", q.What}, {"item", q.Item},
	} {
		if equal.value != "" {
			and(equal.column+" = ?", equal.value)
		}
	}
	if q.Resource != "" {
		// LIKE is case-sensitive in only one of the databases and has wildcards.
		and("REPLACE(resource, ?, '') <> resource", q.Resource)
	}
	return where, args
}

// minPage and pageSize are the number of entries per read: few at first, for callers that stop
// early.
const minPage, pageSize = 64, 500

// pages reads the matching entries in (after, last] page by page.
func (d *database) pages(ctx context.Context, after, last int64, where string, args []any,
	visit func(entryRow) error) error {
	query := audit().query + " WHERE id > ? AND id <= ?" + where + " ORDER BY id LIMIT ?"
	for size := minPage; ; size = min(2*size, pageSize) {
		var rows []entryRow
		if err := d.list(ctx, &rows, query, append(append([]any{after, last}, args...), size)...); err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		for _, row := range rows {
			if err := visit(row); err != nil {
				return err
			}
			after = row.ID
		}
		if len(rows) < size {
			return nil
		}
	}
}

// Errors of a log that does not match a head; each wraps [ErrTampered].
var (
	// ErrRebuilt is returned if all entries from the first on differ, or if it is another log.
	ErrRebuilt = fmt.Errorf("%w: the chain was rebuilt from the first entry, or it is the log of another state",
		ErrTampered)
	// ErrTruncated is returned when the log ends before the head.
	ErrTruncated = fmt.Errorf("%w: its end was cut off", ErrTampered)
	// ErrRewritten is returned if the entry differs.
	ErrRewritten = fmt.Errorf("%w: entries were changed and the chain after them was rebuilt", ErrTampered)
)

// VerifyAudit reads the whole audit log and returns its end, whose Entry is the number of entries,
// or [ErrTampered] with the first entry that differs from the recorded one. A head also detects a
// log rewritten from an earlier entry to its end.
func (s *Store) VerifyAudit(ctx context.Context, heads ...action.Head) (action.Head, error) {
	var head headRow
	if err := s.db.get(ctx, &head, headQuery); err != nil {
		return action.Head{}, fmt.Errorf("verify the audit log: %w", err)
	}
	var at headRow
	var first string
	hashes := map[int64]string{}
	for _, h := range heads {
		hashes[h.Entry] = ""
	}
	err := s.db.pages(ctx, 0, head.Entry, "", nil, func(r entryRow) error {
		hash, err := r.chain(at.Hash)
		if err != nil {
			return err
		}
		if r.ID != at.Entry+1 || r.Hash != hash {
			return fmt.Errorf("entry %d: %w", at.Entry+1, ErrTampered)
		}
		at = headRow{r.ID, hash}
		if r.ID == 1 {
			first = hash
		}
		if _, asked := hashes[r.ID]; asked {
			hashes[r.ID] = hash
		}
		return nil
	})
	if err == nil && at != head {
		err = fmt.Errorf("entry %d: %w", at.Entry+1, ErrTampered)
	}
	for _, h := range heads {
		switch {
		case err != nil:
		case at.Entry > 0 && first != h.First:
			err = fmt.Errorf("entry 1: %w", ErrRebuilt)
		case at.Entry < h.Entry:
			err = fmt.Errorf("it ends at entry %d, and held entry %d: %w", at.Entry, h.Entry, ErrTruncated)
		case hashes[h.Entry] != h.Hash:
			err = fmt.Errorf("between entry 2 and entry %d: %w", h.Entry, ErrRewritten)
		}
	}
	if err != nil {
		err = fmt.Errorf("verify the audit log: %w", err)
	}
	return action.Head{Entry: at.Entry, Hash: at.Hash, First: first}, err
}
