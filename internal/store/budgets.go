package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// holds stores budget reservations, and reads spending from the ledger.
type holds struct{ *database }

// holdRow is a hold.
type holdRow struct {
	ID       string `db:"id"`
	Key      string `db:"hold_key"`
	Kind     string `db:"kind"`
	Name     string `db:"name"`
	SpecHash string `db:"spec_hash"`
	ownerRow
	Purpose   inventory.Purpose        `db:"purpose"`
	Amount    money.Amount             `db:"amount"`
	Hourly    money.Amount             `db:"hourly"`
	GPUs      document[map[string]int] `db:"gpus"`
	Machines  int                      `db:"machines"`
	From      instant                  `db:"begins_at"`
	Until     instant                  `db:"ends_at"`
	ExpiresAt instant                  `db:"expires_at"`
	State     budget.HoldState         `db:"state"`
	Approval  string                   `db:"approval"`
	Run       string                   `db:"run"`
	AskedBy   string                   `db:"asked_by"`
	Actual    money.Amount             `db:"actual"`
	CreatedAt instant                  `db:"created_at"`
	UpdatedAt instant                  `db:"updated_at"`
	Version   int64                    `db:"version"`
}

var holdTable, holdColumns = describe("holds", holdRow{}), tags(reflect.TypeFor[holdRow]())

// holdOf returns the row of a hold's next version.
func holdOf(h budget.Hold) (holdRow, error) {
	row := holdRow{
		ID: h.ID, Key: h.Key, Kind: h.Kind, Name: h.Name, SpecHash: h.SpecHash, ownerRow: ownerRow(h.Owner),
		Purpose: h.Purpose,
		Amount:  h.Amount, Hourly: h.Hourly, GPUs: document[map[string]int]{h.GPUs}, Machines: h.Machines,
		From: at(h.From), Until: at(h.Until), ExpiresAt: at(h.ExpiresAt), State: h.State,
		Approval: h.Approval, Run: h.Run, AskedBy: h.AskedBy, Actual: h.Actual,
		CreatedAt: at(h.CreatedAt), UpdatedAt: at(h.UpdatedAt), Version: h.Version + 1,
	}
	switch {
	case h.ID == "" || h.Key == "":
		return row, errors.New("it needs an id and a key")
	case h.From.IsZero() || h.Until.IsZero() || h.ExpiresAt.IsZero():
		return row, errors.New("it needs a begin, an end and an expiry")
	}
	for kind := range h.GPUs {
		if err := exact(kind); err != nil {
			return row, err
		}
	}
	o := h.Owner
	return row, exact(h.ID, h.Key, h.Kind, h.Name, h.SpecHash, o.Team, o.Project, o.User, o.Environment, o.CostCenter,
		string(h.Purpose), h.Approval, h.Run, h.AskedBy)
}

func (r holdRow) hold() budget.Hold {
	return budget.Hold{
		ID: r.ID, Key: r.Key, Kind: r.Kind, Name: r.Name, SpecHash: r.SpecHash, Owner: inventory.Owner(r.ownerRow),
		Purpose: r.Purpose,
		Amount:  r.Amount, Hourly: r.Hourly, GPUs: r.GPUs.of, Machines: r.Machines,
		From: r.From.Time, Until: r.Until.Time, ExpiresAt: r.ExpiresAt.Time, State: r.State,
		Approval: r.Approval, Run: r.Run, AskedBy: r.AskedBy, Actual: r.Actual,
		CreatedAt: r.CreatedAt.Time, UpdatedAt: r.UpdatedAt.Time, Version: r.Version,
	}
}

// Reserve writes a hold if it fits, decided while all budgets it counts against are locked.
func (h holds) Reserve(ctx context.Context, r budget.Reservation) (budget.Hold, error) {
	row, err := holdOf(r.Hold)
	var kept holdRow
	if err == nil {
		err = h.transact(ctx, func(t *tx) (err error) {
			kept, err = t.reserve(ctx, r, row)
			return err
		})
	}
	if err != nil {
		return budget.Hold{}, fmt.Errorf("reserve hold %s: %w", r.Hold.ID, h.explain(err))
	}
	return kept.hold(), nil
}

// reserve writes a hold if it fits, or returns the existing one with its key.
func (t *tx) reserve(ctx context.Context, r budget.Reservation, row holdRow) (holdRow, error) {
	for _, name := range r.Locks() {
		if err := t.lock(ctx, name); err != nil {
			return row, err
		}
	}
	if r.Hold.Version == 0 {
		kept, err := keyed(ctx, t, row.Key)
		if !errors.Is(err, budget.ErrNotFound) {
			return kept, err
		}
	} else if err := t.expect(ctx, row); err != nil {
		return row, err
	}
	span := r.Span()
	others, err := overlapping(ctx, t, span.From, span.To)
	if err != nil {
		return row, err
	}
	held := convert(others, holdRow.hold)
	reads := r.Reads(held)
	spent, tally := make([]budget.Spend, len(reads)), map[budget.Window]spending{}
	for i, read := range reads {
		of, ok := tally[read.Window]
		if !ok {
			if of, err = spentIn(ctx, t, read.From, read.To); err != nil {
				return row, err
			}
			tally[read.Window] = of
		}
		if spent[i], err = of.by(read.Match); err != nil {
			return row, err
		}
	}
	if err := r.Check(held, spent); err != nil {
		return row, err
	}
	if r.Hold.Version > 0 {
		return row, t.putHold(ctx, row, r.Hold.Version, r.Event)
	}
	into := t.bulk("holds", holdColumns, " ON CONFLICT DO NOTHING")
	if err := errors.Join(into.add(ctx, fields(row)...), into.flush(ctx)); err != nil {
		return row, err
	}
	if into.written == 1 {
		return row, t.recordHold(row, r.Event)
	}
	// A concurrent write took the key or the id.
	kept, err := keyed(ctx, t, row.Key)
	if errors.Is(err, budget.ErrNotFound) {
		err = budget.ErrConflict
	}
	return kept, err
}

// lock locks a name until the end of the transaction.
func (t *tx) lock(ctx context.Context, name string) error {
	if err := exact(name); err != nil {
		return err
	}
	if err := t.exec(ctx, "INSERT INTO budget_locks (name) VALUES (?) ON CONFLICT DO NOTHING", name); err != nil {
		return err
	}
	var locked string
	return t.get(ctx, &locked, "SELECT name FROM budget_locks WHERE name = ?"+t.forUpdate, name)
}

// expect locks the row of a hold and checks that it has the previous version.
func (t *tx) expect(ctx context.Context, row holdRow) error {
	var version int64
	err := t.get(ctx, &version, "SELECT version FROM holds WHERE id = ?"+t.forUpdate, row.ID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return budget.ErrNotFound
	case err == nil && version+1 != row.Version:
		return budget.ErrConflict
	}
	return err
}

// putHold writes the next version of a hold and records it.
func (t *tx) putHold(ctx context.Context, row holdRow, read int64, e budget.Event) error {
	if err := t.put(ctx, holdTable(), row, read, budget.ErrConflict); err != nil {
		return err
	}
	t.changed = true
	return t.recordHold(row, e)
}

// recordHold records an event of a hold.
func (t *tx) recordHold(row holdRow, e budget.Event) error {
	if e.Verb == "" {
		return nil
	}
	amount := row.Amount
	if row.State == budget.Settled {
		amount = row.Actual
	}
	return t.record(action.Entry{
		At: e.At, Actor: e.By, What: "hold-" + string(e.Verb), Because: row.Kind + " " + row.Name,
		Outcome: "hold " + row.ID + " " + string(row.State) + ", " + amount.Exact(),
	})
}

// PutHold writes a hold if its version is unchanged, and records it.
func (h holds) PutHold(ctx context.Context, hold budget.Hold, e budget.Event) (budget.Hold, error) {
	row, err := holdOf(hold)
	if err == nil && hold.Version == 0 {
		err = budget.ErrConflict
	}
	if err == nil {
		err = h.transact(ctx, func(t *tx) error { return t.putHold(ctx, row, hold.Version, e) })
	}
	if err != nil {
		return budget.Hold{}, fmt.Errorf("write hold %s: %w", hold.ID, err)
	}
	return row.hold(), nil
}

// Hold returns the hold with an ID or a unique prefix of one; ErrNotFound otherwise.
func (h holds) Hold(ctx context.Context, id string) (budget.Hold, error) {
	row, err := prefixed(ctx, h.database, holdTable(), id, func(r holdRow) string { return r.ID }, budget.ErrNotFound)
	if err != nil {
		return budget.Hold{}, fmt.Errorf("read hold %q: %w", id, err)
	}
	return row.hold(), nil
}

// Keyed returns the hold with a key.
func (h holds) Keyed(ctx context.Context, key string) (budget.Hold, error) {
	row, err := keyed(ctx, h, key)
	if err != nil {
		return budget.Hold{}, fmt.Errorf("read the hold of key %q: %w", key, err)
	}
	return row.hold(), nil
}

func keyed(ctx context.Context, on reader, key string) (holdRow, error) {
	var row holdRow
	err := on.get(ctx, &row, holdTable().query+" WHERE hold_key = ?", key)
	if errors.Is(err, sql.ErrNoRows) {
		err = budget.ErrNotFound
	}
	return row, err
}

// Holds returns the holds that overlap [from, to), sorted by ID.
func (h holds) Holds(ctx context.Context, from, to time.Time) ([]budget.Hold, error) {
	rows, err := overlapping(ctx, h, from, to)
	if err != nil {
		return nil, fmt.Errorf("read the holds: %w", err)
	}
	return convert(rows, holdRow.hold), nil
}

func overlapping(ctx context.Context, on reader, from, to time.Time) ([]holdRow, error) {
	var rows []holdRow
	err := on.list(ctx, &rows, holdTable().query+" WHERE expires_at > ? AND begins_at < ? ORDER BY id", from.UnixMicro(),
		ceil(to))
	return rows, err
}

// ceil returns the first storable time, in microseconds since 1970, that is not before t. Times are
// stored rounded down, so every time before t is stored as less.
func ceil(t time.Time) int64 {
	return t.Add(time.Microsecond - time.Nanosecond).UnixMicro()
}

// budgetKeySum is the spending under a budget key in a period of 24 hours.
type budgetKeySum struct {
	ownerRow
	Purpose inventory.Purpose `db:"purpose"`
	Hold    string            `db:"hold"`
	Day     int               `db:"day"`
	Amount  money.Amount      `db:"amount"`
	AtMost  money.Amount      `db:"at_most"`
	// Unbounded is the time in seconds without even an upper bound of the cost.
	Unbounded int64 `db:"unbounded"`
}

// spending is the spending under every budget key in a period.
type spending struct {
	sums    []budgetKeySum
	days    int
	through time.Time
}

// Spent sums the charges in [from, to) that match.
func (h holds) Spent(ctx context.Context, m budget.Match, from, to time.Time) (budget.Spend, error) {
	all, err := spentIn(ctx, h, from, to)
	var spend budget.Spend
	if err == nil {
		spend, err = all.by(m)
	}
	if err != nil {
		return budget.Spend{}, fmt.Errorf("add up what was spent: %w", h.explain(err))
	}
	return spend, nil
}

// spentIn reads the spending in [from, to): by UTC day if the interval begins with one, else by
// hour.
func spentIn(ctx context.Context, on reader, from, to time.Time) (spending, error) {
	if !from.Before(to) {
		return spending{}, nil
	}
	const day = 24 * time.Hour
	out := spending{days: int((to.Sub(from) + day - 1) / day)}
	hours := from
	if from.Equal(daily.start(from)) {
		hours = daily.start(to)
	}
	sum := "SELECT (start - ?) / ? AS day, about, " + sums("amount") + " AS amount, " + sums("at_most") +
		" AS at_most, " + sums("unbounded") + " AS unbounded" +
		" FROM ledger_purse_sums WHERE grain = ? AND start >= ? AND start < ? GROUP BY day, about"
	// Work under a hold without an owner counts for the owner of the hold.
	var owner, others []string
	for _, column := range []string{"team", "project", "username", "environment", "cost_center", "purpose"} {
		owner = append(owner, "COALESCE(NULLIF(p."+column+", ''), h."+column+", '') AS "+column)
		if column != "purpose" { // budget.Hold.Owns
			others = append(others, "p."+column+" <> '' AND h."+column+" <> '' AND LOWER(p."+column+
				") <> LOWER(h."+column+")")
		}
	}
	query := "SELECT " + strings.Join(owner, ", ") + ", CASE WHEN " + strings.Join(others, " OR ") +
		" THEN '' ELSE p.hold END AS hold, s.day, s.amount, s.at_most, s.unbounded" +
		" FROM (" + sum + " UNION ALL " + sum +
		") s JOIN ledger_purses p ON p.id = s.about LEFT JOIN holds h ON h.id = p.hold"
	err := on.list(ctx, &out.sums, query, ceil(from), day.Microseconds(), daily, ceil(from), ceil(hours),
		ceil(from), day.Microseconds(), hourly, ceil(hours), ceil(to))
	if err != nil {
		return spending{}, err
	}
	var newest []int64
	if err := on.list(ctx, &newest,
		"SELECT start FROM ledger_purse_sums WHERE grain = ? AND start < ? ORDER BY start DESC LIMIT 1", hourly,
		ceil(to)); err != nil {
		return spending{}, err
	}
	for _, start := range newest {
		out.through = time.UnixMicro(start).UTC().Add(time.Hour)
	}
	return out, nil
}

// by sums the matching spending.
func (s spending) by(m budget.Match) (budget.Spend, error) {
	if s.days == 0 {
		return budget.Spend{}, nil
	}
	out := budget.Spend{ByHold: map[string]money.Amount{}, Daily: make([]money.Amount, s.days), Through: s.through}
	for _, sum := range s.sums {
		if !m.Covers(inventory.Owner(sum.ownerRow), sum.Purpose) {
			continue
		}
		held := out.ByHold[sum.Hold]
		for _, add := range []struct {
			to   *money.Amount
			more money.Amount
		}{
			{
				&out.Used, sum.Amount,
			}, {&out.Unknown, sum.AtMost}, {&out.Daily[sum.Day], sum.Amount}, {&held, sum.Amount},
		} {
			total, err := add.to.Add(add.more)
			if err != nil {
				return budget.Spend{}, err
			}
			*add.to = total
		}
		out.Unbounded += time.Duration(sum.Unbounded) * time.Second
		if sum.Hold != "" {
			out.ByHold[sum.Hold] = held
		}
	}
	return out, nil
}
