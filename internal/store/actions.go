package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// actions stores the items and the audit log of the ladder. If there is a lease, every write that
// begins a round, moves an item or admits a call must hold it.
type actions struct {
	*database
	lease *Lease
}

// clockRow is an account with the clocks of its last round.
type clockRow struct {
	Round  int64         `db:"round"`
	Wall   instant       `db:"wall"`
	Boot   string        `db:"boot"`
	Uptime time.Duration `db:"uptime"`
}

// Now returns the state's time, which all machines share on PostgreSQL.
func (a actions) Now(ctx context.Context) (now time.Time, common bool, err error) {
	now, err = charges{a.database}.Now(ctx)
	return now, a.clock != "", err
}

// BeginRound records a round's clocks. Rounds are numbered from 1 without gaps.
func (a actions) BeginRound(ctx context.Context, account string, c action.Clock) (int64, *action.Clock, error) {
	var last clockRow
	if a.outer == nil {
		a.watch.compare(ctx, a.database, account)
	}
	err := a.transact(ctx, func(t *tx) error {
		if err := a.guard(ctx, t); err != nil {
			return err
		}
		err := t.exec(ctx,
			"INSERT INTO accounts (account, round, boot, uptime) VALUES (?, 0, '', 0) ON CONFLICT DO NOTHING",
			account)
		if err != nil {
			return err
		}
		if err := t.get(ctx, &last, "SELECT round, wall, boot, uptime FROM accounts WHERE account = ?"+t.forUpdate,
			account); err != nil {
			return err
		}
		return t.exec(ctx, "UPDATE accounts SET round = ?, wall = ?, boot = ?, uptime = ? WHERE account = ?",
			last.Round+1, at(c.Wall), c.Boot, c.Uptime, account)
	})
	if err != nil {
		return 0, nil, fmt.Errorf("begin a round of %s: %w", account, err)
	}
	if last.Round == 0 {
		return 1, nil, nil
	}
	return last.Round + 1, &action.Clock{Wall: last.Wall.Time, Boot: last.Boot, Uptime: last.Uptime}, nil
}

// itemRow is an item.
type itemRow struct {
	ID      string `db:"id"`
	Account string `db:"account"`
	refRow
	Identity    string                  `db:"identity"`
	Source      string                  `db:"source"`
	Action      document[actionDoc]     `db:"action"`
	Gang        document[[]refRow]      `db:"gang"`
	Phase       action.Phase            `db:"phase"`
	Open        int                     `db:"is_open"`
	Because     string                  `db:"because"`
	Class       string                  `db:"class"`
	FirstRound  int64                   `db:"first_round"`
	FirstAt     instant                 `db:"first_at"`
	WarnedRound int64                   `db:"warned_round"`
	WarnedAt    instant                 `db:"warned_at"`
	GraceFrom   instant                 `db:"grace_from"`
	Grace       time.Duration           `db:"grace"`
	HeldTo      instant                 `db:"held_to"`
	Recipients  document[[]string]      `db:"recipients"`
	Steps       document[[]action.Step] `db:"steps"`
	Step        int                     `db:"step"`
	ApprovedAt  instant                 `db:"approved_at"`
	Briefing    document[*briefingDoc]  `db:"briefing"`
	Alarm       string                  `db:"alarm"`
	UpdatedAt   instant                 `db:"updated_at"`
	Boot        string                  `db:"boot"`
	Uptime      time.Duration           `db:"uptime"`
	Version     int64                   `db:"version"`
}

// actionDoc is the stored form of a policy.Do.
type actionDoc struct {
	Verb          policy.Verb `json:"verb"`
	EvenIfBusy    bool        `json:"even_if_busy,omitempty"`
	EvenIfUnknown bool        `json:"even_if_unknown,omitempty"`
	ScratchDisks  bool        `json:"scratch_disks,omitempty"`
	SaveDisks     bool        `json:"save_disks,omitempty"`

	ScratchInstanceStore bool `json:"scratch_instance_store,omitempty"`
	ScratchRoot          bool `json:"scratch_root,omitempty"`

	Tags          map[string]string `json:"tags,omitempty"`
	RetentionDays int               `json:"retention_days,omitempty"`
	To            int               `json:"to,omitempty"`
	Fleet         string            `json:"fleet,omitempty"`
	Min           int               `json:"min,omitempty"`
	Max           int               `json:"max,omitempty"`
	Zero          bool              `json:"zero,omitempty"`
	Target        float64           `json:"target,omitempty"`
	Change        change.Change     `json:"change,omitzero"`
	Members       []string          `json:"members,omitempty"`
}

var items = describe("items", itemRow{})

// rowOf returns the row of an item's next version.
func rowOf(it action.Item) (itemRow, error) {
	it, err := it.Storable()
	row := itemRow{
		ID: it.ID, Account: it.Account, refRow: refRow(it.Ref), Identity: it.Identity, Source: it.Source,
		Action: document[actionDoc]{actionDoc(it.Do)}, Gang: document[[]refRow]{convert(it.Gang, refOf)},
		Phase: it.Phase, Because: it.Because, Class: it.Class,
		FirstRound: it.FirstRound, FirstAt: at(it.FirstAt),
		WarnedRound: it.WarnedRound, WarnedAt: at(it.WarnedAt), GraceFrom: at(it.GraceFrom), Grace: it.Grace,
		HeldTo:     at(it.ConditionHeldUntil),
		Recipients: document[[]string]{it.Recipients}, Steps: document[[]action.Step]{it.Steps}, Step: it.Step,
		ApprovedAt: at(it.ApprovedAt), Alarm: it.Alarm,
		UpdatedAt: at(it.UpdatedAt), Boot: it.Boot, Uptime: it.Uptime, Version: it.Version + 1,
	}
	if it.Phase.IsOpen() {
		row.Open = 1
	}
	if it.Briefing != nil {
		doc := briefingOf(*it.Briefing)
		row.Briefing.of = &doc
	}
	return row, err
}

// item converts a row to an item.
func (r itemRow) item() action.Item {
	it := action.Item{
		ID: r.ID, Account: r.Account, Ref: inventory.Ref(r.refRow), Identity: r.Identity, Source: r.Source,
		Do: policy.Do(r.Action.of), Gang: convert(r.Gang.of, refRow.ref),
		Phase: r.Phase, Because: r.Because, Class: r.Class,
		FirstRound: r.FirstRound, FirstAt: r.FirstAt.Time,
		WarnedRound: r.WarnedRound, WarnedAt: r.WarnedAt.Time, GraceFrom: r.GraceFrom.Time, Grace: r.Grace,
		ConditionHeldUntil: r.HeldTo.Time,
		Recipients:         r.Recipients.of, Steps: r.Steps.of, Step: r.Step,
		ApprovedAt: r.ApprovedAt.Time, Alarm: r.Alarm,
		UpdatedAt: r.UpdatedAt.Time, Boot: r.Boot, Uptime: r.Uptime, Version: r.Version,
	}
	if r.Briefing.of != nil {
		b := r.Briefing.of.briefing()
		it.Briefing = &b
	}
	return it
}

// Items returns the account's open items, sorted by ID.
func (a actions) Items(ctx context.Context, account string, q action.ItemQuery) ([]action.Item, error) {
	f := &filter{dialect: &a.dialect}
	f.and("account = ? AND is_open = 1", account)
	among(f, "source", q.Sources)
	if q.Refs != nil {
		among(f, "resource_id", convert(q.Refs, func(r inventory.Ref) string { return r.ID }))
	}
	// The conditions are written like those of the partial indexes.
	query, args := items().query+f.where(), f.args
	all := q.Refs == nil && q.Sources == nil
	if q.UnderWay && !all {
		query, args = query+" UNION "+items().query+
			" WHERE account = ? AND phase IN ('acting', 'confirming')", append(args,
			account)
	}
	if !q.UnconfirmedSince.IsZero() && !all {
		query, args = query+" UNION "+items().query+
			" WHERE account = ? AND phase = 'warned' AND updated_at < ?", append(args,
			account, at(q.UnconfirmedSince))
	}
	var rows []itemRow
	if err := a.list(ctx, &rows, query+" ORDER BY id", args...); err != nil {
		return nil, fmt.Errorf("read the open items of %s: %w", account, err)
	}
	// Resources of different kinds and regions may have the same ID.
	out, selected := convert(rows, itemRow.item), q.Selects()
	return slices.DeleteFunc(out, func(it action.Item) bool { return !selected(it) }), nil
}

// Item returns the item with an ID or a unique prefix of one; ErrNotFound otherwise.
func (a actions) Item(ctx context.Context, id string) (action.Item, error) {
	row, err := prefixed(ctx, a.database, items(), id, func(r itemRow) string { return r.ID }, action.ErrNotFound)
	if err != nil {
		return action.Item{}, fmt.Errorf("read item %q: %w", id, err)
	}
	return row.item(), nil
}

// Save writes an item with its entries in one transaction.
func (a actions) Save(ctx context.Context, it action.Item, entries ...action.Entry) (action.Item, error) {
	return a.save(ctx, it, entries, func(t *tx) error {
		t.later = true
		return nil
	})
}

// save writes an item, its entries and the other rows of the same transaction.
func (a actions) save(ctx context.Context, it action.Item, entries []action.Entry, also func(*tx) error) (action.Item,
	error) {
	var saved action.Item
	err := a.transact(ctx, func(t *tx) (err error) {
		if err := a.guard(ctx, t); err != nil {
			return err
		}
		if saved, err = t.putItem(ctx, it); err != nil {
			return err
		}
		if err := also(t); err != nil {
			return err
		}
		return t.record(entries...)
	})
	if err != nil {
		return action.Item{}, fmt.Errorf("save item %s: %w", it.ID, err)
	}
	return saved, nil
}

// putItem writes an item and returns it as stored.
func (t *tx) putItem(ctx context.Context, it action.Item) (action.Item, error) {
	row, err := rowOf(it)
	if err != nil {
		return action.Item{}, err
	}
	if err := t.put(ctx, items(), row, it.Version, action.ErrConflict); err != nil {
		return action.Item{}, err
	}
	t.changed = true
	return row.item(), nil
}

// Admit writes the intents of a batch that the caps allow. The caps count the source's admissions
// in the account within an hour before the batch, and later ones if another process's clock is
// ahead.
func (a actions) Admit(ctx context.Context, b action.Batch) ([]action.AdmissionResult, error) {
	if err := b.Validate(); err != nil {
		return nil, fmt.Errorf("admit actions of %s: %w", b.Source, err)
	}
	var admitted []action.AdmissionResult
	err := a.transact(ctx, func(t *tx) error {
		if err := a.guard(ctx, t); err != nil {
			return err
		}
		frozen, err := t.lockFreeze(ctx)
		if err != nil {
			return err
		}
		if f := a.frozen(frozen); f != nil {
			return fmt.Errorf("%w by %s since %s: %s", action.ErrFrozen, f.By, f.At.Format(time.RFC3339), f.Reason)
		}
		fuse, err := t.fuse(ctx, b.Account, b.Source)
		if err != nil {
			return err
		}
		if fuse != nil && fuse.IsBlown() {
			return action.ErrFuse
		}
		admitted, err = t.admit(ctx, b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("admit actions of %s: %w", b.Source, err)
	}
	return admitted, nil
}

// admit writes the allowed part of a batch, provided that nothing is frozen and no other batch is
// in flight.
func (t *tx) admit(ctx context.Context, b action.Batch) ([]action.AdmissionResult, error) {
	var hour []money.Amount
	query := "SELECT hourly FROM admissions WHERE account = ? AND source = ? AND at > ?"
	if err := t.list(ctx, &hour, query, b.Account, b.Source, at(b.Now.Add(-time.Hour))); err != nil {
		return nil, err
	}
	sum, err := money.Sum(hour...)
	if err != nil {
		return nil, err
	}
	admitted := make([]action.AdmissionResult, len(b.Admissions))
	var entries []action.Entry
	for i, deferred := range b.Defer(len(hour), sum) {
		adm := b.Admissions[i]
		if admitted[i].Deferred = deferred; deferred != nil {
			continue
		}
		it, err := t.putItem(ctx, adm.Item)
		if err != nil {
			return nil, fmt.Errorf("item %s: %w", adm.Item.ID, err)
		}
		if a := adm.Approval; a != nil {
			if _, err := t.putRequest(ctx, a.Request, a.Event); errors.Is(err, approval.ErrConflict) {
				return nil, fmt.Errorf("approval %s of item %s: %w", a.Request.ID, it.ID, action.ErrConflict)
			} else if err != nil {
				return nil, fmt.Errorf("approval %s of item %s: %w", a.Request.ID, it.ID, err)
			}
		}
		if err := t.exec(ctx,
			"INSERT INTO admissions (item, version, account, source, at, hourly) VALUES (?, ?, ?, ?, ?, ?)",
			it.ID, it.Version, b.Account, b.Source, at(b.Now), adm.Hourly); err != nil {
			return nil, err
		}
		admitted[i].Item, entries = it, append(entries, adm.Entries...)
	}
	return admitted, t.record(entries...)
}
