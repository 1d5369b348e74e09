package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// charges stores the rounds, observations and entries of the ledger.
type charges struct{ *database }

// accountRow is an account; Entries is the number of its entries, and thus that of the newest one.
type accountRow struct {
	ID      int64 `db:"id"`
	Version int64 `db:"version"`
	Entries int64 `db:"entries"`
}

const accountQuery = "SELECT id, version, entries FROM ledger_accounts WHERE cloud = ? AND cloud_account = ?"

// account reads an account; the zero row if there is none.
func account(ctx context.Context, on reader, a ledger.Account) (accountRow, error) {
	var row accountRow
	err := on.get(ctx, &row, accountQuery, a.Cloud, a.ID)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return row, err
}

// lockAccount reads an account, creating it if needed, and locks it until the end of the
// transaction.
func (t *tx) lockAccount(ctx context.Context, a ledger.Account) (accountRow, error) {
	var row accountRow
	if err := exact(a.Cloud, a.ID); err != nil {
		return row, err
	}
	err := t.exec(ctx, "INSERT INTO ledger_accounts (cloud, cloud_account, version, entries) VALUES (?, ?, 0, 0) ON "+
		"CONFLICT DO NOTHING", a.Cloud, a.ID)
	if err == nil {
		err = t.get(ctx, &row, accountQuery+t.forUpdate, a.Cloud, a.ID)
	}
	return row, err
}

// resourceRow is a resource with observations or charges.
type resourceRow struct {
	Account int64 `db:"account"`
	refRow
	Ref string `db:"ref"`
}

func resourceOf(account int64, ref inventory.Ref) resourceRow {
	return resourceRow{account, refRow(ref), ref.String()}
}

// coverageRow is the coverage of a round: distinct ledger.Parts as sorted JSON.
type coverageRow struct {
	Parts string `db:"parts"`
}

// partDoc is the stored form of a ledger.Part.
type partDoc struct {
	Region string         `json:"region"`
	Kind   inventory.Kind `json:"kind"`
}

func partOf(p ledger.Part) partDoc  { return partDoc(p) }
func (p partDoc) part() ledger.Part { return ledger.Part(p) }

// factsRow holds facts shared by equal observations.
type factsRow struct {
	Facts string `db:"facts"`
}

// factsDoc is an observation without time, resource and duty.
type factsDoc struct {
	Name        string             `json:"name,omitempty"`
	Type        string             `json:"type,omitempty"`
	Market      inventory.Market   `json:"market,omitempty"`
	Team        string             `json:"team,omitempty"`
	Project     string             `json:"project,omitempty"`
	User        string             `json:"user,omitempty"`
	Environment string             `json:"environment,omitempty"`
	CostCenter  string             `json:"cost_center,omitempty"`
	Purpose     inventory.Purpose  `json:"purpose,omitempty"`
	Lifetime    inventory.Lifetime `json:"lifetime,omitempty"`
	Hold        string             `json:"hold,omitempty"`
	State       inventory.State    `json:"state,omitempty"`
	StateSince  time.Time          `json:"state_since,omitzero"`
	CreatedAt   time.Time          `json:"created_at,omitzero"`
	Meters      []meterDoc         `json:"meters,omitempty"`
}

// meterDoc is the stored form of a ledger.Meter.
type meterDoc struct {
	Name           string          `json:"name"`
	Category       ledger.Category `json:"category"`
	Monthly        money.Amount    `json:"monthly"`
	AtMost         money.Amount    `json:"at_most,omitempty"`
	Moves          bool            `json:"moves,omitempty"`
	Source         string          `json:"source,omitempty"`
	AsOf           time.Time       `json:"as_of,omitzero"`
	Unpriced       string          `json:"unpriced,omitempty"`
	MinimumSeconds int64           `json:"minimum_seconds,omitempty"`
}

func meterOf(m ledger.Meter) meterDoc {
	m.Name, m.Source, m.Unpriced, m.AsOf = prose(m.Name), prose(m.Source), prose(m.Unpriced), utc(m.AsOf)
	return meterDoc(m)
}

func (m meterDoc) meter() ledger.Meter { return ledger.Meter(m) }

// spanDoc is the stored form of a ledger.Span.
type spanDoc struct {
	From  time.Time  `json:"from"`
	To    time.Time  `json:"to"`
	State duty.State `json:"state"`
}

func spanOf(s ledger.Span) spanDoc  { return spanDoc{utc(s.From), utc(s.To), s.State} }
func (s spanDoc) span() ledger.Span { return ledger.Span(s) }

// factsOf returns the stored facts of an observation, without its time, resource and duty.
func factsOf(o ledger.Observation) (factsRow, error) {
	text, err := json.Marshal(factsDoc{
		Name: prose(o.Name), Type: prose(o.Type), Market: o.Market, Team: prose(o.Owner.Team),
		Project: prose(o.Owner.Project),
		User:    prose(o.Owner.User), Environment: prose(o.Owner.Environment), CostCenter: prose(o.Owner.CostCenter),
		Purpose: inventory.Purpose(prose(string(o.Purpose))), Lifetime: o.Lifetime, Hold: prose(o.Hold),
		State: o.State, StateSince: utc(o.StateSince), CreatedAt: utc(o.CreatedAt), Meters: convert(o.Meters, meterOf),
	})
	return factsRow{string(text)}, err
}

// observe fills an observation with its facts.
func (f factsDoc) observe(o *ledger.Observation) {
	o.Attributes = ledger.Attributes{
		Name: f.Name, Type: f.Type, Market: f.Market, Purpose: f.Purpose, Lifetime: f.Lifetime, Hold: f.Hold,
		Owner: inventory.Owner{
			Team: f.Team, Project: f.Project, User: f.User, Environment: f.Environment, CostCenter: f.CostCenter,
		},
	}
	o.State, o.StateSince, o.CreatedAt, o.Meters = f.State, f.StateSince, f.CreatedAt, convert(
		f.Meters, meterDoc.meter)
}

// Record stores the new parts of a round and its observations.
func (c charges) Record(ctx context.Context, r ledger.Round, observations []ledger.Observation) error {
	err := recordable(r, observations)
	if err == nil {
		err = c.transact(ctx, func(t *tx) error { return t.keep(ctx, r, observations) })
	}
	return attempted(err, "record the round of %s at %s", r.Account, r.At.Format(time.RFC3339))
}

// keep writes the new parts of a round and its observations.
func (t *tx) keep(ctx context.Context, r ledger.Round, observations []ledger.Observation) error {
	a, err := t.lockAccount(ctx, r.Account)
	if err != nil {
		return err
	}
	if err := t.recordableSince(ctx, a.ID, r); err != nil {
		return err
	}
	added, err := t.addRound(ctx, a.ID, r)
	if err != nil {
		return err
	}
	more, err := t.addObservations(ctx, a.ID, observations)
	if err != nil || !added && !more {
		return err
	}
	if err := t.exec(ctx, "UPDATE ledger_rounds SET mark = ? WHERE account = ? AND at = ?", a.Version+1, a.ID,
		at(r.At)); err != nil {
		return err
	}
	return t.exec(ctx, "UPDATE ledger_accounts SET version = ? WHERE id = ?", a.Version+1, a.ID)
}

// recordable refuses records that no query could find.
func recordable(r ledger.Round, observations []ledger.Observation) error {
	if r.At.IsZero() {
		return errors.New("it has no time")
	}
	for _, p := range r.Complete {
		if err := exact(p.Region, string(p.Kind)); err != nil {
			return fmt.Errorf("part %s/%s: %w", p.Region, p.Kind, err)
		}
	}
	for i := range observations {
		o := &observations[i]
		if !r.Account.Of(o.Ref) || !o.At.Equal(r.At) {
			return fmt.Errorf("the observation of %s at %s is of another round", o.Ref, o.At.Format(time.RFC3339))
		}
		if err := exact(o.Ref.String()); err != nil {
			return fmt.Errorf("resource %q: %w", o.Ref, err)
		}
	}
	return nil
}

// addRound writes a round or its new parts, and reports whether anything was new.
func (t *tx) addRound(ctx context.Context, account int64, r ledger.Round) (bool, error) {
	var kept document[[]partDoc]
	err := t.get(ctx, &kept, "SELECT c.parts FROM ledger_rounds r JOIN ledger_coverages c ON c.id = r.coverage WHERE "+
		"r.account = ? AND r.at = ?", account, at(r.At))
	isNew := errors.Is(err, sql.ErrNoRows)
	if err != nil && !isNew {
		return false, err
	}
	parts := append(slices.Clone(kept.of), convert(r.Complete, partOf)...)
	slices.SortFunc(parts, func(a, b partDoc) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Kind, b.Kind))
	})
	if parts = slices.Compact(parts); !isNew && len(parts) == len(kept.of) {
		return false, nil
	}
	coverage, err := t.internCoverage(ctx, parts)
	if err != nil {
		return false, err
	}
	if isNew {
		return true, t.exec(ctx,
			"INSERT INTO ledger_rounds (account, at, source, coverage, mark) VALUES (?, ?, ?, ?, 0)",
			account, at(r.At), prose(r.Source), coverage)
	}
	return true, t.exec(ctx, "UPDATE ledger_rounds SET coverage = ? WHERE account = ? AND at = ?", coverage, account,
		at(r.At))
}

func (t *tx) internCoverage(ctx context.Context, parts []partDoc) (int64, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return 0, err
	}
	row := coverageRow{string(text)}
	ids, err := intern(ctx, t, "ledger_coverages", []coverageRow{row})
	if err != nil {
		return 0, err
	}
	into := t.bulk("ledger_coverage_parts", []string{"coverage", "region", "kind"}, " ON CONFLICT DO NOTHING")
	for _, p := range parts {
		if err := into.add(ctx, ids[row], p.Region, p.Kind); err != nil {
			return 0, err
		}
	}
	return ids[row], into.flush(ctx)
}

// addObservations writes the new observations, and reports whether there were any.
func (t *tx) addObservations(ctx context.Context, account int64, observations []ledger.Observation) (bool, error) {
	resources, facts := make([]resourceRow, len(observations)), make([]factsRow, len(observations))
	for i, o := range observations {
		resources[i] = resourceOf(account, o.Ref)
		var err error
		if facts[i], err = factsOf(o); err != nil {
			return false, fmt.Errorf("observation of %s: %w", o.Ref, err)
		}
	}
	ids, err := intern(ctx, t, "ledger_resources", resources)
	if err != nil {
		return false, err
	}
	said, err := intern(ctx, t, "ledger_facts", facts)
	if err != nil {
		return false, err
	}
	into := t.bulk("ledger_observations", []string{"resource", "at", "account", "facts", "duty"},
		" ON CONFLICT DO NOTHING")
	for i, o := range observations {
		measured := document[[]spanDoc]{convert(o.Duty, spanOf)}
		if err := into.add(ctx, ids[resources[i]], at(o.At), account, said[facts[i]], measured); err != nil {
			return false, err
		}
	}
	err = into.flush(ctx)
	return into.written > 0, err
}

// roundRow is a round with its completely listed parts.
type roundRow struct {
	At     instant             `db:"at"`
	Source string              `db:"source"`
	Mark   int64               `db:"mark"`
	Parts  document[[]partDoc] `db:"parts"`
}

// rounds reads the matching rounds of an account in time order.
func (c charges) rounds(ctx context.Context, a ledger.Account, f *filter) ([]ledger.PendingRound, error) {
	f.and("a.cloud = ?", a.Cloud)
	f.and("a.cloud_account = ?", a.ID)
	var rows []roundRow
	query := "SELECT r.at, r.source, r.mark, c.parts FROM ledger_rounds r JOIN ledger_coverages c ON c.id = r.coverage" +
		" JOIN ledger_accounts a ON a.id = r.account" + f.where() + " ORDER BY r.at"
	if err := c.list(ctx, &rows, query, f.args...); err != nil {
		return nil, fmt.Errorf("read the rounds of %s: %w", a, err)
	}
	return convert(rows, func(r roundRow) ledger.PendingRound {
		round := ledger.Round{Account: a, At: r.At.Time, Source: r.Source, Complete: convert(r.Parts.of, partDoc.part)}
		return ledger.PendingRound{Round: round, Mark: r.Mark}
	}), nil
}

// Pending returns the unsettled rounds of an account in time order.
func (c charges) Pending(ctx context.Context, a ledger.Account) ([]ledger.PendingRound, error) {
	f := &filter{dialect: &c.dialect}
	f.and("r.mark > 0")
	return c.rounds(ctx, a, f)
}

// Rounds returns the rounds of an account in [from, to), in time order.
func (c charges) Rounds(ctx context.Context, a ledger.Account, from, to time.Time) ([]ledger.Round, error) {
	f := &filter{dialect: &c.dialect}
	f.span("r.at", from, to)
	rounds, err := c.rounds(ctx, a, f)
	return convert(rounds, func(r ledger.PendingRound) ledger.Round { return r.Round }), err
}

// Settle marks a round as posted, unless something was added since it was read.
func (c charges) Settle(ctx context.Context, r ledger.PendingRound) error {
	err := c.transact(ctx, func(t *tx) error {
		return t.exec(ctx, "UPDATE ledger_rounds SET mark = 0 WHERE at = ? AND mark = ?"+
			" AND account = (SELECT id FROM ledger_accounts WHERE cloud = ? AND cloud_account = ?)", at(r.At), r.Mark,
			r.Account.Cloud, r.Account.ID)
	})
	return attempted(err, "settle the round of %s at %s", r.Account, r.At.Format(time.RFC3339))
}

// Version returns the account's version.
func (c charges) Version(ctx context.Context, a ledger.Account) (int64, error) {
	row, err := account(ctx, c, a)
	if err != nil {
		return 0, fmt.Errorf("read the version of the ledger of %s: %w", a, err)
	}
	return row.Version, nil
}

// Reach returns the recorded time of each part of an account, by region and kind.
func (c charges) Reach(ctx context.Context, a ledger.Account) ([]ledger.Reach, error) {
	var rows []struct {
		Region string         `db:"region"`
		Kind   inventory.Kind `db:"kind"`
		First  instant        `db:"oldest"`
		Last   instant        `db:"newest"`
	}
	// Thousands of rounds list the same parts: each list of parts is read once.
	query := "SELECT p.region, p.kind, MIN(c.oldest) AS oldest, MAX(c.newest) AS newest FROM (SELECT r.coverage, " +
		"MIN(r.at) AS oldest, MAX(r.at) AS newest" +
		" FROM ledger_rounds r JOIN ledger_accounts a ON a.id = r.account WHERE a.cloud = ? AND a.cloud_account = ? GROUP " +
		"BY r.coverage) c" +
		" JOIN ledger_coverage_parts p ON p.coverage = c.coverage GROUP BY p.region, p.kind ORDER BY p.region, p.kind"
	if err := c.list(ctx, &rows, query, a.Cloud, a.ID); err != nil {
		return nil, fmt.Errorf("read what is recorded of %s: %w", a, err)
	}
	out := make([]ledger.Reach, len(rows))
	for i, r := range rows {
		out[i] = ledger.Reach{
			Part: ledger.Part{Region: r.Region, Kind: r.Kind}, First: r.First.Time, Last: r.Last.Time,
		}
	}
	return out, nil
}

// Accounts returns every account with a round or an entry, sorted.
func (c charges) Accounts(ctx context.Context) ([]ledger.Account, error) {
	var rows []struct {
		Cloud string `db:"cloud"`
		ID    string `db:"cloud_account"`
	}
	if err := c.list(ctx, &rows,
		"SELECT cloud, cloud_account FROM ledger_accounts WHERE version > 0 ORDER BY cloud, cloud_account"); err !=
		nil {
		return nil, fmt.Errorf("read the accounts of the ledger: %w", err)
	}
	out := make([]ledger.Account, len(rows))
	for i, r := range rows {
		out[i] = ledger.Account{Cloud: r.Cloud, ID: r.ID}
	}
	return out, nil
}
