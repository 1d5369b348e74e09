package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// groupRow groups entries without resources: by the dimensions of costs, and by values that must
// not be summed together.
type groupRow struct {
	Account string         `db:"account"`
	Region  string         `db:"region"`
	Kind    inventory.Kind `db:"kind"`
	Type    string         `db:"type"`
	ownerRow
	Purpose    inventory.Purpose  `db:"purpose"`
	Lifetime   inventory.Lifetime `db:"lifetime"`
	Category   ledger.Category    `db:"category"`
	Duty       string             `db:"duty"`
	Pricing    ledger.Pricing     `db:"pricing"`
	Service    string             `db:"service"`
	Gapped     flag               `db:"gapped"`
	Unpriced   flag               `db:"unpriced"`
	Reconciled flag               `db:"reconciled"`
}

// seriesRow groups the entries of a group by resource.
type seriesRow struct {
	Group    int64            `db:"grp"`
	Resource int64            `db:"resource"`
	Name     string           `db:"name"`
	Market   inventory.Market `db:"market"`
	Hold     string           `db:"hold"`
}

// lineRow holds the fields that entries of a series share.
type lineRow struct {
	Series         int64                 `db:"series"`
	Meter          string                `db:"meter"`
	ChargeCategory ledger.ChargeCategory `db:"charge_category"`
	Monthly        money.Amount          `db:"monthly"`
	Source         string                `db:"source"`
	AsOf           instant               `db:"as_of"`
	Gap            ledger.Gap            `db:"gap"`
	Why            string                `db:"why"`
}

// budgetKeyRow groups entries for budgets.
type budgetKeyRow struct {
	Account int64 `db:"account"`
	ownerRow
	Purpose inventory.Purpose `db:"purpose"`
	Hold    string            `db:"hold"`
}

// sumRow is a sum of entries.
type sumRow struct {
	Seconds   int64        `db:"seconds"`
	Amount    money.Amount `db:"amount"`
	AtMost    money.Amount `db:"at_most"`
	Unbounded int64        `db:"unbounded"`
}

// plus adds two sums and reports overflow.
func (s sumRow) plus(o sumRow) (sumRow, error) {
	for _, add := range []struct{ to, more *int64 }{
		{&s.Seconds, &o.Seconds}, {(*int64)(&s.Amount), (*int64)(&o.Amount)},
		{(*int64)(&s.AtMost), (*int64)(&o.AtMost)},
		{&s.Unbounded, &o.Unbounded},
	} {
		sum, err := money.Amount(*add.to).Add(money.Amount(*add.more))
		if err != nil {
			return s, err
		}
		*add.to = int64(sum)
	}
	return s, nil
}

// Append adds entries with their roll-ups if the account is at a version.
func (c charges) Append(ctx context.Context, a ledger.Account, version int64, entries []ledger.Entry) (int64, error) {
	entries = slices.Clone(entries)
	err := appendable(a, entries)
	if err == nil {
		err = c.transact(ctx, func(t *tx) error {
			row, err := t.lockAccount(ctx, a)
			switch {
			case err != nil:
				return err
			case row.Version != version:
				return ledger.ErrConflict
			case len(entries) == 0:
				return nil
			}
			if err := t.post(ctx, row, entries); err != nil {
				return err
			}
			return t.exec(ctx, "UPDATE ledger_accounts SET version = ?, entries = ? WHERE id = ?", row.Version+1,
				row.Entries+int64(len(entries)), row.ID)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("add %d entries to the ledger of %s: %w", len(entries), a, c.explain(err))
	}
	if len(entries) > 0 {
		version++
	}
	return version, nil
}

// appendable refuses entries that would be summed wrongly, and makes texts storable in any
// database.
func appendable(a ledger.Account, entries []ledger.Entry) error {
	for i := range entries {
		e := &entries[i]
		if err := exact(e.Ref.String(), e.Hold, string(e.Kind)); err != nil {
			return fmt.Errorf("entry of %q: %w", e.Ref, err)
		}
		switch {
		case !a.Of(e.Ref):
			return fmt.Errorf("an entry is of %s", e.Ref)
		case e.Kind == "" || e.Hour.IsZero() || !e.Hour.Equal(e.Hour.Truncate(time.Hour)):
			return fmt.Errorf("an entry of %s is a %q at %s, which is no hour", e.Ref, e.Kind,
				e.Hour.Format(time.RFC3339Nano))
		case e.Gap != "" && e.Amount != 0:
			return errors.New("an entry of " + e.Ref.String() + " charges for time that is not known")
		}
		for _, text := range []*string{
			&e.Name, &e.Type, &e.Owner.Team, &e.Owner.Project, &e.Owner.User,
			&e.Owner.Environment, &e.Owner.CostCenter,
			(*string)(&e.Purpose), &e.Meter, &e.Service, &e.Duty, &e.Source, &e.Why} {
			*text = prose(*text)
		}
	}
	return nil
}

func groupOf(e *ledger.Entry) groupRow {
	return groupRow{
		Account: ledger.Account{Cloud: e.Ref.Cloud, ID: e.Ref.Account}.String(),
		Region:  e.Ref.Region, Kind: e.Ref.Kind,
		Type:     e.Type,
		ownerRow: ownerRow(e.Owner), Purpose: e.Purpose, Lifetime: e.Lifetime, Category: e.Category, Duty: e.Duty,
		Pricing: e.Pricing, Service: e.Service,
		Gapped: e.Gap != "", Unpriced: e.Gap == ledger.Unpriced, Reconciled: e.Kind == ledger.Reconciled,
	}
}

// post writes entries after the newest one of an account.
func (t *tx) post(ctx context.Context, a accountRow, entries []ledger.Entry) error {
	resources, groups, budgetKeys := make([]resourceRow, len(entries)), make([]groupRow, len(entries)), make(
		[]budgetKeyRow, len(entries))
	for i := range entries {
		e := &entries[i]
		resources[i], groups[i] = resourceOf(a.ID, e.Ref), groupOf(e)
		budgetKeys[i] = budgetKeyRow{a.ID, ownerRow(e.Owner), e.Purpose, e.Hold}
	}
	resourceIDs, err := intern(ctx, t, "ledger_resources", resources)
	if err != nil {
		return err
	}
	groupIDs, err := intern(ctx, t, "ledger_groups", groups)
	if err != nil {
		return err
	}
	budgetKeyIDs, err := intern(ctx, t, "ledger_purses", budgetKeys)
	if err != nil {
		return err
	}
	series := make([]seriesRow, len(entries))
	for i, e := range entries {
		series[i] = seriesRow{groupIDs[groups[i]], resourceIDs[resources[i]], e.Name, e.Market, e.Hold}
	}
	seriesIDs, err := intern(ctx, t, "ledger_series", series)
	if err != nil {
		return err
	}
	lines := make([]lineRow, len(entries))
	for i, e := range entries {
		lines[i] = lineRow{
			seriesIDs[series[i]], e.Meter, e.ChargeCategory, e.Monthly, e.Source, at(e.AsOf), e.Gap, e.Why,
		}
	}
	lineIDs, err := intern(ctx, t, "ledger_lines", lines)
	if err != nil {
		return err
	}
	into := t.bulk("ledger_entries", []string{
		"account", "number", "entry", "hour", "resource", "line", "seconds", "amount", "at_most", "unbounded", "round",
		"bill_period",
	}, "")
	rolled := map[string]rollup{"ledger_group_sums": {}, "ledger_series_sums": {}, "ledger_purse_sums": {}}
	for i, e := range entries {
		number := a.Entries + int64(i) + 1
		if err := into.add(ctx, a.ID, number, e.Kind, at(e.Hour), resourceIDs[resources[i]], lineIDs[lines[i]],
			e.Seconds, e.Amount, e.AtMost, e.Unbounded, at(e.Round), at(e.BillPeriod)); err != nil {
			return err
		}
		spent := sumRow(e.Sums)
		if e.Gap == "" {
			spent.AtMost, spent.Unbounded = 0, 0
		} else {
			spent.Seconds = 0
		}
		if err := errors.Join(
			rolled["ledger_group_sums"].add(groupIDs[groups[i]], e.Hour, number, sumRow(e.Sums),
				hourly, daily, monthly),
			rolled["ledger_series_sums"].add(seriesIDs[series[i]], e.Hour, number, sumRow(e.Sums), daily, monthly),
			rolled["ledger_purse_sums"].add(budgetKeyIDs[budgetKeys[i]], e.Hour, number, spent, hourly, daily),
		); err != nil {
			return err
		}
	}
	if err := into.flush(ctx); err != nil {
		return err
	}
	for _, table := range slices.Sorted(maps.Keys(rolled)) {
		if err := rolled[table].write(ctx, t, table); err != nil {
			return err
		}
	}
	return nil
}

// grain is the period of sums.
type grain int

// The grains, as stored.
const (
	hourly grain = iota
	daily
	monthly
)

// start returns the start of the UTC hour, day or month that contains a time.
func (g grain) start(t time.Time) time.Time {
	t = t.UTC()
	switch g {
	case hourly:
		return t.Truncate(time.Hour)
	case daily:
		return t.Truncate(24 * time.Hour)
	}
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// next returns the first start at or after a time.
func (g grain) next(t time.Time) time.Time {
	start := g.start(t)
	if start.Equal(t) {
		return start
	}
	if g == monthly {
		return start.AddDate(0, 1, 0)
	}
	return g.start(start.Add(24 * time.Hour))
}

// rollup holds increments to the sums of one table.
type rollup map[rollKey]rollRow

type rollKey struct {
	grain grain
	start int64
	about int64
}

type rollRow struct {
	sumRow
	newest int64
}

// add adds an entry to the sums of some grains.
func (r rollup) add(about int64, hour time.Time, number int64, sums sumRow, grains ...grain) error {
	for _, g := range grains {
		key := rollKey{g, g.start(hour).UnixMicro(), about}
		sum, err := r[key].plus(sums)
		if err != nil {
			return err
		}
		r[key] = rollRow{sum, number}
	}
	return nil
}

// write adds to the stored sums in key order.
func (r rollup) write(ctx context.Context, t *tx, table string) error {
	tail := " ON CONFLICT (grain, start, about) DO UPDATE SET newest = excluded.newest"
	for _, column := range []string{"seconds", "amount", "at_most", "unbounded"} {
		tail += ", " + column + " = " + table + "." + column + " + excluded." + column
	}
	into := t.bulk(table, []string{"grain", "start", "about", "seconds", "amount", "at_most", "unbounded", "newest"},
		tail)
	keys := slices.SortedFunc(maps.Keys(r), func(a, b rollKey) int {
		return cmp.Or(cmp.Compare(a.grain, b.grain), cmp.Compare(a.start, b.start), cmp.Compare(a.about, b.about))
	})
	for _, key := range keys {
		row := r[key]
		if err := into.add(ctx, key.grain, key.start, key.about, row.Seconds, row.Amount, row.AtMost, row.Unbounded,
			row.newest); err != nil {
			return err
		}
	}
	return into.flush(ctx)
}

// attributesRow is a ledger.Attributes.
type attributesRow struct {
	Name   string           `db:"name"`
	Type   string           `db:"type"`
	Market inventory.Market `db:"market"`
	ownerRow
	Purpose  inventory.Purpose  `db:"purpose"`
	Lifetime inventory.Lifetime `db:"lifetime"`
	Hold     string             `db:"hold"`
}

func (r attributesRow) attributes() ledger.Attributes {
	return ledger.Attributes{
		Name: r.Name, Type: r.Type, Market: r.Market, Owner: inventory.Owner(r.ownerRow), Purpose: r.Purpose,
		Lifetime: r.Lifetime, Hold: r.Hold,
	}
}

// chargeRow is an entry with its line and attributes.
type chargeRow struct {
	Resource int64       `db:"resource"`
	Entry    ledger.Kind `db:"entry"`
	Hour     instant     `db:"hour"`
	sumRow
	Round      instant `db:"round"`
	BillPeriod instant `db:"bill_period"`
	refRow
	attributesRow
	Category       ledger.Category       `db:"category"`
	Duty           string                `db:"duty"`
	Pricing        ledger.Pricing        `db:"pricing"`
	Service        string                `db:"service"`
	Meter          string                `db:"meter"`
	ChargeCategory ledger.ChargeCategory `db:"charge_category"`
	Monthly        money.Amount          `db:"monthly"`
	Source         string                `db:"source"`
	AsOf           instant               `db:"as_of"`
	Gap            ledger.Gap            `db:"gap"`
	Why            string                `db:"why"`
}

const chargeQuery = "SELECT e.resource, e.entry, e.hour, e.seconds, e.amount, e.at_most, e.unbounded, e.round, " +
	"e.bill_period," +
	" x.cloud, x.cloud_account, x.region, x.kind, x.resource_id, s.name, s.market, s.hold," +
	" g.type, g.team, g.project, g.username, g.environment, g.cost_center, g.purpose, g.lifetime, g.category, g.duty, " +
	"g.pricing, g.service," +
	" l.meter, l.charge_category, l.monthly, l.source, l.as_of, l.gap, l.why" +
	" FROM ledger_entries e JOIN ledger_lines l ON l.id = e.line JOIN ledger_series s ON s.id = l.series" +
	" JOIN ledger_groups g ON g.id = s.grp JOIN ledger_resources x ON x.id = e.resource"

// chargeRows reads the matching entries in the order of appending.
func (c charges) chargeRows(ctx context.Context, f *filter) ([]chargeRow, error) {
	var rows []chargeRow
	err := c.list(ctx, &rows, chargeQuery+f.where()+" ORDER BY e.number", f.args...)
	return rows, err
}

func (r chargeRow) entry() ledger.Entry {
	return ledger.Entry{
		Kind: r.Entry, Hour: r.Hour.Time, Sums: ledger.Sums(r.sumRow), Round: r.Round.Time,
		BillPeriod: r.BillPeriod.Time,
		Line: ledger.Line{
			Ref: r.ref(), Attributes: r.attributes(), Meter: r.Meter, Category: r.Category, Service: r.Service,
			ChargeCategory: r.ChargeCategory, Pricing: r.Pricing, Duty: r.Duty, Monthly: r.Monthly, Source: r.Source,
			AsOf: r.AsOf.Time, Gap: r.Gap, Why: r.Why,
		},
	}
}
