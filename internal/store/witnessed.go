package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/witness"
)

const (
	// quarantiner is the actor who freezes an older state.
	quarantiner = "curfew"
	// acceptHint is the way to end a quarantine.
	acceptHint = "review the losses, then `curfew state accept --reason TEXT`"
)

// mirrorTimeout bounds the wait of a committed change for its witness.
const mirrorTimeout = 10 * time.Second

// Quarantine describes the quarantine of a state, during which nothing may act.
type Quarantine struct {
	At  time.Time
	Why string
	// Generation and NewestAt are the number of changes of the state and the time of its newest
	// audit entry, at that time.
	Generation int64
	NewestAt   time.Time
}

// watch compares a state with its witness, and mirrors committed changes to it. A nil watch does
// nothing.
type watch struct {
	*witness.Witness
	state string
	now   func() time.Time

	mu sync.Mutex
	// acts is true if this process acts on the state, so that the witness must know it.
	acts bool
	// behind is true if the witness lacks a committed change.
	behind bool
	// problem is the reason why the witness could not be used, and since when.
	problem error
	since   time.Time
}

// trouble returns why the witness cannot be used; nil if it can, or if nothing acted.
func (w *watch) trouble() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.acts {
		return nil
	}
	return w.problem
}

// freeze returns a freeze while the witness cannot be used.
func (w *watch) freeze() *action.Freeze {
	if w.trouble() == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return &action.Freeze{
		By: quarantiner, At: w.since,
		Reason: w.problem.Error() + "; whether this state was put back is unknown, so nothing acts until it is known",
	}
}

// compare compares the state with its witness before acting, in an account if given, and
// quarantines an older state. Problems are returned as a freeze.
func (w *watch) compare(ctx context.Context, d *database, account string) {
	if w == nil || simulated(account) {
		return
	}
	w.mu.Lock()
	w.acts = true
	w.mu.Unlock()
	w.note(w.sync(ctx, d, account, true))
}

// simulated reports whether an account is simulated; such states have no witness.
func simulated(account string) bool { return strings.HasPrefix(account, "sim/") }

// committed mirrors a transaction, now or with the next comparison. A state that nothing acts on is
// unknown to the witness and not mirrored.
func (w *watch) committed(ctx context.Context, d *database, later bool) {
	if later {
		w.mu.Lock()
		w.behind = true
		w.mu.Unlock()
		return
	}
	w.mirror(ctx, d)
}

// flush mirrors the pending changes.
func (w *watch) flush(ctx context.Context, d *database) {
	if w == nil {
		return
	}
	w.mu.Lock()
	behind := w.behind
	w.mu.Unlock()
	if behind {
		w.mirror(ctx, d)
	}
}

func (w *watch) mirror(ctx context.Context, d *database) {
	w.mu.Lock()
	acts := w.acts
	w.mu.Unlock()
	bounded, end := context.WithTimeout(ctx, mirrorTimeout)
	defer end()
	err := w.sync(bounded, d, "", acts)
	if err != nil {
		w.mu.Lock()
		w.behind = true // retried with the next comparison
		w.mu.Unlock()
	}
	w.note(err)
	if err != nil && w.Warn != nil {
		w.Warn(fmt.Errorf("the write is valid, and a restored state would not know of it: %w", err))
	}
}

// note records whether the witness could be used.
func (w *watch) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.problem == nil {
		w.since = w.now().UTC()
	}
	w.problem = err
}

// sync compares the state with its witness: an older state is quarantined; otherwise the witness is
// updated. A state unknown to the witness is added if it acts.
func (w *watch) sync(ctx context.Context, d *database, account string, acts bool) error {
	unlock := w.Documents.Lock(ctx)
	defer unlock()
	w.mu.Lock()
	w.behind = false
	w.mu.Unlock()
	// Read the record first: its contents are committed, so a healthy state read afterwards is
	// never behind.
	known, err := w.Record(ctx, w.state)
	if err != nil {
		return err
	}
	var owner *witness.Owner
	if account != "" {
		if owner, err = w.Owner(ctx, account); err != nil {
			return err
		}
	}
	if known == nil && !acts {
		return nil
	}
	seen, held, err := d.seen(ctx)
	if err != nil || held != nil {
		return err
	}
	why := ""
	if known != nil {
		why, err = d.older(ctx, known, seen)
	}
	if err == nil && why == "" && owner != nil && owner.State != w.state {
		why, err = w.actedElsewhere(ctx, d, owner, seen)
	}
	if err == nil && why == "" && known == nil {
		why, err = w.misplaced(ctx, d, seen)
	}
	if err != nil {
		return err
	}
	if why != "" {
		return d.quarantine(ctx, w.now(), why)
	}
	return w.learn(ctx, known, owner, seen, account)
}

// older returns why a state is older than a record, or "".
func (d *database) older(ctx context.Context, r *witness.Record, seen witness.Seen) (string, error) {
	return r.Older(seen.Mark, func(entry int64) (string, error) { return d.entryHash(ctx, entry) })
}

// actedElsewhere returns why a state must not act on an account, or "": a state elsewhere has acted on
// it, either another state or a newer copy of this one.
func (w *watch) actedElsewhere(
	ctx context.Context, d *database, owner *witness.Owner, seen witness.Seen,
) (string, error) {
	if owner.Identity != seen.Identity {
		return fmt.Sprintf(
			"another state has acted on %s, %s, last seen on %s: this one does not know what that one did",
			owner.Account, owner.State, plain.Time(owner.SeenAt)), nil
	}
	moved, err := w.Record(ctx, owner.State)
	if err != nil || moved == nil {
		return "", err
	}
	return d.older(ctx, moved, seen)
}

// misplaced returns why a state with an unknown name must not act, or "": it is an older copy of
// one that has acted on the same accounts.
func (w *watch) misplaced(ctx context.Context, d *database, seen witness.Seen) (string, error) {
	for _, account := range slices.Sorted(maps.Keys(seen.Rounds)) {
		owner, err := w.Owner(ctx, account)
		if err != nil {
			return "", err
		}
		if owner == nil || owner.State == w.state || owner.Identity != seen.Identity {
			continue // another state is refused in a round of its account
		}
		if why, err := w.actedElsewhere(ctx, d, owner, seen); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// learn updates the witness.
func (w *watch) learn(ctx context.Context, known *witness.Record, owner *witness.Owner, seen witness.Seen,
	account string) error {
	now := w.now().UTC()
	if !known.Same(seen) {
		if err := w.Put(ctx, witness.Record{State: w.state, Seen: seen, SeenAt: now}); err != nil {
			return err
		}
	}
	if account == "" || owner != nil && owner.Identity == seen.Identity && owner.State == w.state {
		return nil
	}
	return w.PutOwner(ctx, witness.Owner{Account: account, Identity: seen.Identity, State: w.state, SeenAt: now})
}

type markRow struct {
	Identity   string `db:"identity"`
	Epoch      int64  `db:"epoch"`
	Generation int64  `db:"generation"`
	Entry      int64  `db:"entry"`
	Hash       string `db:"hash"`
}

const markQuery = "SELECT identity, epoch, generation, entry, hash FROM audit_head WHERE id = 1"

// seen reads the mirrored rows at one moment, and the quarantine if any.
func (d *database) seen(ctx context.Context) (witness.Seen, *Quarantine, error) {
	var mark markRow
	var freeze freezeRow
	var kept []keepRow
	var rounds []struct {
		Account string `db:"account"`
		Round   int64  `db:"round"`
	}
	// Rows read after the mark may be newer; the next change corrects it.
	err := d.get(ctx, &mark, markQuery)
	if err == nil {
		err = d.get(ctx, &freeze, freezeQuery)
	}
	if err == nil {
		err = d.list(ctx, &kept, keeps().query+" ORDER BY cloud, cloud_account, region, kind, resource_id")
	}
	if err == nil {
		err = d.list(ctx, &rounds, "SELECT account, round FROM accounts ORDER BY account")
	}
	if err != nil {
		return witness.Seen{}, nil, fmt.Errorf("read how far the state is: %w", err)
	}
	out := witness.Seen{Mark: witness.Mark(mark), Freeze: freeze.freeze(), Rounds: map[string]int64{}}
	for _, k := range kept {
		out.Keeps = append(out.Keeps, witness.KeepOf(k.keep()))
	}
	for _, r := range rounds {
		out.Rounds[r.Account] = r.Round
	}
	if freeze.QuarantinedAt.IsZero() {
		return out, nil, nil
	}
	return out, &Quarantine{
		At: freeze.QuarantinedAt.Time, Why: freeze.Quarantine, Generation: freeze.Generation,
		NewestAt: freeze.NewestAt.Time,
	}, nil
}

func (r keepRow) keep() action.Keep {
	return action.Keep{Ref: inventory.Ref(r.refRow), Until: r.Until.Time, Reason: r.Reason, By: r.By, At: r.At.Time}
}

// entryHash returns the hash of an audit entry, or "".
func (d *database) entryHash(ctx context.Context, entry int64) (hash string, err error) {
	err = d.get(ctx, &hash, "SELECT hash FROM audit WHERE id = ?", entry)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return hash, err
}

// quarantine stops all actions until an operator accepts the state, and moves every item back to
// its first step.
func (d *database) quarantine(ctx context.Context, now time.Time, why string) error {
	err := d.transact(ctx, func(t *tx) error {
		t.later = true // it is not newer than its witness
		row, err := t.lockFreeze(ctx)
		if err != nil || !row.QuarantinedAt.IsZero() {
			return err
		}
		if err := t.exec(ctx,
			"UPDATE freezes SET quarantined_at = ?, quarantine = ?, quarantine_generation = (SELECT "+
				"generation FROM audit_head WHERE id = 1),"+
				" quarantine_newest_at = (SELECT MAX(at) FROM audit WHERE id = (SELECT entry FROM audit_head WHERE id = 1)) "+
				"WHERE id = 1", at(now), prose(why)); err != nil {
			return err
		}
		if err := t.record(action.Entry{
			At: now, Actor: quarantiner, What: action.EventQuarantine, Because: why,
		}); err !=
			nil {
			return err
		}
		return t.takeBack(ctx, now)
	})
	return attempted(err, "put the state in quarantine")
}

// takeBack moves every open item back to its first step.
func (t *tx) takeBack(ctx context.Context, now time.Time) error {
	var open []itemRow
	if err := t.list(ctx, &open, items().query+" WHERE is_open = 1 ORDER BY id"); err != nil {
		return err
	}
	for _, row := range open {
		it := row.item()
		if it.Phase == action.Observed {
			continue
		}
		e := action.Entry{
			At: now, Account: it.Account, Actor: quarantiner, What: action.EventPutBack,
			Resource: it.Ref.String(), Item: it.ID,
			Verb:    string(it.Do.Verb),
			Because: "the state is older than its witness", Outcome: "put back from " + string(it.Phase)}
		if it.Step < len(it.Steps) && it.Steps[it.Step].Key != "" {
			e.Outcome += fmt.Sprintf("; %s with key %s may have been called",
				it.Steps[it.Step].Name, it.Steps[it.Step].Key)
		}
		if _, err := t.putItem(ctx, it.Reset()); err != nil {
			return err
		}
		if err := t.record(e); err != nil {
			return err
		}
	}
	return nil
}

// ErrNotOlder is returned if there is nothing to accept.
var ErrNotOlder = errors.New("the state is not older than its witness: there is nothing to accept")

// Standing compares a state with its witness.
type Standing struct {
	Mark witness.Mark
	// NewestAt is the time of the newest entry of the audit log.
	NewestAt time.Time
	// Quarantine is the reason why nothing acts; nil if there is none.
	Quarantine *Quarantine
	// Witness is the location of the witness, or empty. Problem is the reason why it cannot be
	// used.
	Witness string
	Problem error
	// Known is the witness's record of the state, here or at a former location; nil if there is
	// none.
	Known *witness.Record
}

// Standing reads the state and its witness.
func (s *Store) Standing(ctx context.Context) (Standing, error) {
	var out Standing
	seen, held, err := s.db.seen(ctx)
	if err != nil {
		return out, err
	}
	out.Mark, out.Quarantine = seen.Mark, held
	var newest instant
	if err := s.db.get(ctx, &newest,
		"SELECT MAX(at) FROM audit WHERE id = (SELECT entry FROM audit_head WHERE id = 1)"); err != nil {
		return out, fmt.Errorf("read the end of the audit log: %w", err)
	}
	out.NewestAt = newest.Time
	if w := s.db.watch; w != nil {
		out.Witness = w.Documents.String()
		out.Known, out.Problem = w.newest(ctx, s.db, seen.Identity)
	}
	return out, nil
}

// newest returns the record of the state, or a newer one of the same state elsewhere; nil if there
// is none.
func (w *watch) newest(ctx context.Context, d *database, identity string) (known *witness.Record, err error) {
	records, err := w.records(ctx, d)
	for _, r := range records {
		further := known != nil && known.Identity == identity && (r.Epoch > known.Epoch ||
			r.Epoch == known.Epoch && r.Generation > known.Generation)
		if r.State == w.state || r.Identity == identity && (known == nil || further) {
			known = &r
		}
	}
	return known, err
}

// Compare compares the state with its witness before something acts on it, in an account if given.
// It returns an [action.ErrFrozen] if the state is in quarantine or the witness cannot be used, nil
// otherwise.
func (s *Store) Compare(ctx context.Context, account string) error {
	s.db.watch.compare(ctx, s.db, account)
	return s.HeldBack(ctx)
}

// Check is like [Store.Compare] for readers: it does not add the state to the witness.
func (s *Store) Check(ctx context.Context) error {
	if w := s.db.watch; w != nil {
		if err := w.sync(ctx, s.db, "", false); err != nil {
			return fmt.Errorf("%w: %w", action.ErrFrozen, err)
		}
	}
	return s.HeldBack(ctx)
}

// HeldBack returns the result of the last comparison: an [action.ErrFrozen] as of [Store.Compare],
// or nil.
func (s *Store) HeldBack(ctx context.Context) error {
	var row freezeRow
	if err := s.db.get(ctx, &row, freezeQuery); err != nil {
		return fmt.Errorf("look whether the state is in quarantine: %w", err)
	}
	if !row.QuarantinedAt.IsZero() {
		return fmt.Errorf("%w since %s: %s", ErrQuarantined, plain.Time(row.QuarantinedAt.Time), row.Quarantine)
	}
	if err := s.db.watch.trouble(); err != nil {
		return fmt.Errorf("%w: %w", action.ErrFrozen, err)
	}
	return nil
}

// ErrQuarantined is returned if the state is older than its witness; it wraps [action.ErrFrozen].
var ErrQuarantined = fmt.Errorf("%w: the state is in quarantine", action.ErrFrozen)

// Flush mirrors the committed changes to the witness and waits for it.
func (s *Store) Flush(ctx context.Context) { s.db.watch.flush(ctx, s.db) }

// Accept ends the quarantine of a state: it replaces the newer one known to the witness, restores
// the mirrored freeze and keeps, and starts every item at its first step. It returns what it
// restored, or [ErrNotOlder] if there is no quarantine.
func (s *Store) Accept(ctx context.Context, by, reason string, now time.Time) (freeze *action.Freeze,
	restored []action.Keep, err error) {
	w := s.db.watch
	var known []witness.Record
	if w != nil {
		if known, err = w.records(ctx, s.db); err != nil {
			return nil, nil, err
		}
	}
	err = s.db.transact(ctx, func(t *tx) error {
		freeze, restored = nil, nil
		t.later = true // it is written below as this state's
		row, err := t.lockFreeze(ctx)
		if err != nil {
			return err
		}
		if row.QuarantinedAt.IsZero() {
			return ErrNotOlder
		}
		if err := t.takeBack(ctx, now); err != nil {
			return err
		}
		for _, r := range known {
			again, kept, err := t.recall(ctx, r.Seen, row, now)
			if err != nil {
				return err
			}
			if again != nil {
				freeze, row.At = again, at(again.At)
			}
			restored = append(restored, kept...)
		}
		if err := t.exec(ctx, "UPDATE freezes SET quarantined_at = NULL, quarantine = '' WHERE id = 1"); err != nil {
			return err
		}
		if err := t.record(action.Entry{
			At: now, Actor: by, What: action.EventAccept, Because: reason, Outcome: row.Quarantine,
		}); err != nil {
			return err
		}
		return t.advance(ctx, known, w)
	})
	if err != nil {
		return nil, nil, attempted(err, "accept the state")
	}
	if w == nil {
		return freeze, restored, nil
	}
	return freeze, restored, w.adopt(ctx, s.db)
}

// recall writes the mirrored freeze and keeps, and raises the round numbers above the used ones,
// because idempotency keys contain them.
func (t *tx) recall(ctx context.Context, seen witness.Seen, row freezeRow, now time.Time) (*action.Freeze,
	[]action.Keep, error) {
	freeze := seen.Freeze
	if freeze != nil && row.At.IsZero() {
		if err := t.exec(ctx, "UPDATE freezes SET at = ?, who = ?, reason = ? WHERE id = 1", at(freeze.At), freeze.By,
			prose(freeze.Reason)); err != nil {
			return nil, nil, err
		}
	} else {
		freeze = nil
	}
	var restored []action.Keep
	for _, mirrored := range seen.Keeps {
		k := mirrored.Keep()
		if !k.Until.After(now) {
			continue
		}
		// A keep of the older state that lasts longer stays.
		changed, err := t.named(ctx, keeps().insert+" ON CONFLICT (cloud, cloud_account, region, kind, resource_id)"+
			" DO UPDATE SET until = excluded.until, reason = excluded.reason, who = excluded.who, at = excluded.at WHERE "+
			"keeps.until < excluded.until",
			keepRow{refRow(k.Ref), at(k.Until), prose(k.Reason), k.By, at(k.At)})
		if err != nil {
			return nil, nil, err
		}
		if changed > 0 {
			restored = append(restored, k)
		}
	}
	for account, round := range seen.Rounds {
		if err := t.exec(ctx, "INSERT INTO accounts (account, round, boot, uptime) VALUES (?, ?, '', 0)"+
			" ON CONFLICT (account) DO UPDATE SET round = CASE WHEN accounts.round < excluded.round THEN "+
			"excluded.round ELSE "+
			"accounts.round END", account, round+1); err != nil {
			return nil, nil, err
		}
	}
	return freeze, restored, nil
}

// advance makes the state newer than its witness, also for the witnesses of other hosts.
func (t *tx) advance(ctx context.Context, known []witness.Record, w *watch) error {
	var mark markRow
	if err := t.get(ctx, &mark, markQuery+t.forUpdate); err != nil {
		return err
	}
	for _, r := range known {
		if r.State == w.state { // this state replaces it
			mark.Identity = r.Identity
		}
	}
	for _, r := range known {
		if r.Identity == mark.Identity {
			mark.Epoch, mark.Generation = max(mark.Epoch, r.Epoch), max(mark.Generation, r.Generation)
		}
	}
	return t.exec(ctx, "UPDATE audit_head SET identity = ?, epoch = ?, generation = ? WHERE id = 1", mark.Identity,
		mark.Epoch+1, mark.Generation)
}

// records returns the witness's records of the state, and of states elsewhere that acted on its
// accounts.
func (w *watch) records(ctx context.Context, d *database) ([]witness.Record, error) {
	seen, _, err := d.seen(ctx)
	if err != nil {
		return nil, err
	}
	var out []witness.Record
	states := []string{w.state}
	for account := range seen.Rounds {
		owner, err := w.Owner(ctx, account)
		if err != nil {
			return nil, err
		}
		if owner != nil && !slices.Contains(states, owner.State) {
			states = append(states, owner.State)
		}
	}
	for _, state := range states {
		r, err := w.Record(ctx, state)
		if err != nil {
			return nil, err
		}
		if r != nil {
			out = append(out, *r)
		}
	}
	return out, nil
}

// adopt writes an accepted state to the witness, also as that of its accounts.
func (w *watch) adopt(ctx context.Context, d *database) error {
	unlock := w.Documents.Lock(ctx)
	defer unlock()
	seen, held, err := d.seen(ctx)
	if err != nil || held != nil {
		return err
	}
	for account := range seen.Rounds {
		if simulated(account) {
			continue
		}
		owner, err := w.Owner(ctx, account)
		if err != nil {
			return err
		}
		if err := w.learn(ctx, nil, owner, seen, account); err != nil {
			return err
		}
	}
	if len(seen.Rounds) == 0 {
		return w.learn(ctx, nil, nil, seen, "")
	}
	return nil
}
