package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// bills stores the imported billing periods.
type bills struct{ *database }

// costRow is a bill.Cost.
type costRow struct {
	Billed     money.Amount `db:"billed"`
	Effective  money.Amount `db:"effective"`
	List       money.Amount `db:"list"`
	Contracted money.Amount `db:"contracted"`
}

// exactRow is a bill.Exact.
type exactRow struct {
	Billed     string `db:"exact_billed"`
	Effective  string `db:"exact_effective"`
	List       string `db:"exact_list"`
	Contracted string `db:"exact_contracted"`
}

// periodRow is a billing period.
type periodRow struct {
	Account string  `db:"account"`
	Start   instant `db:"start"`
	End     instant `db:"finish"`
	Source  string  `db:"source"`
	Digest  string  `db:"digest"`
	Lines   int64   `db:"line_count"`
	Rows    int64   `db:"row_count"`
	costRow
	exactRow
	NoEffective  int64   `db:"no_effective"`
	NoList       int64   `db:"no_list"`
	NoContracted int64   `db:"no_contracted"`
	ImportedAt   instant `db:"imported_at"`
}

var periods = describe("bill_periods", periodRow{})

func periodOf(p bill.Period) periodRow {
	return periodRow{
		Account: p.Account, Start: at(p.Start), End: at(p.End), Source: prose(p.Source),
		Digest: p.Digest, Lines: p.Lines,
		Rows:    p.Rows,
		costRow: costRow(p.Total), exactRow: exactRow(p.Exact),
		NoEffective: p.NoEffective, NoList: p.NoList, NoContracted: p.NoContracted, ImportedAt: at(p.ImportedAt),
	}
}

func (r periodRow) period() bill.Period {
	return bill.Period{
		PeriodKey: bill.PeriodKey{Account: r.Account, Start: r.Start.Time}, End: r.End.Time, Source: r.Source,
		Digest: r.Digest,
		Lines:  r.Lines, Rows: r.Rows, Total: bill.Cost(r.costRow), Exact: bill.Exact(r.exactRow),
		NoEffective: r.NoEffective, NoList: r.NoList, NoContracted: r.NoContracted, ImportedAt: r.ImportedAt.Time,
	}
}

// billRow is a row of a period.
type billRow struct {
	Period int64 `db:"period"`
	Number int64 `db:"number"`
	billColumns
}

// billColumns are the columns of a row taken from its bill.
type billColumns struct {
	Day             instant       `db:"day"`
	Provider        string        `db:"provider"`
	SubAccount      string        `db:"sub_account"`
	Resource        string        `db:"resource"`
	Service         string        `db:"service"`
	Region          string        `db:"region"`
	Category        bill.Category `db:"category"`
	Transfer        bill.Transfer `db:"transfer"`
	ToRegion        string        `db:"to_region"`
	ChargeCategory  string        `db:"charge_category"`
	PricingCategory string        `db:"pricing_category"`
	Commitment      string        `db:"commitment"`
	Status          string        `db:"commitment_status"`
	ownerRow
	Purpose        inventory.Purpose `db:"purpose"`
	CapacityStatus string            `db:"capacity_status"`
	Type           string            `db:"machine_type"`
	Unknown        bill.Costs        `db:"unknown_costs"`
	costRow
	Bytes int64 `db:"bytes"`
	Lines int64 `db:"line_count"`
}

// ownerRow is an inventory.Owner.
type ownerRow struct {
	Team        string `db:"team"`
	Project     string `db:"project"`
	User        string `db:"username"`
	Environment string `db:"environment"`
	CostCenter  string `db:"cost_center"`
}

func billColumnsOf(r bill.Row) billColumns {
	return billColumns{
		Day: at(r.Day), Provider: r.Provider, SubAccount: r.SubAccount, Resource: r.Resource, Service: r.Service,
		Region:   r.Region,
		Category: r.Category, Transfer: r.Transfer, ToRegion: r.ToRegion,
		ChargeCategory: r.ChargeCategory, PricingCategory: r.PricingCategory,
		Commitment: r.Commitment, Status: r.Status,
		CapacityStatus: r.CapacityStatus, Type: r.Type,
		ownerRow: ownerRow(r.Owner), Purpose: r.Purpose, Unknown: r.Unknown, costRow: costRow(r.Cost), Bytes: r.Bytes,
		Lines: r.Lines,
	}
}

func (r billColumns) row(account string, start time.Time) bill.Row {
	return bill.Row{
		Account: account, Start: start, Day: r.Day.Time, Provider: r.Provider, SubAccount: r.SubAccount,
		Resource: r.Resource,
		Service:  r.Service, Region: r.Region, Category: r.Category, Transfer: r.Transfer, ToRegion: r.ToRegion,
		ChargeCategory: r.ChargeCategory, PricingCategory: r.PricingCategory,
		Commitment: r.Commitment, Status: r.Status,
		CapacityStatus: r.CapacityStatus, Type: r.Type,
		Owner: inventory.Owner(r.ownerRow), Purpose: r.Purpose, Unknown: r.Unknown, Cost: bill.Cost(r.costRow),
		Bytes: r.Bytes, Lines: r.Lines,
	}
}

// Periods returns the periods that start in [from, to), ordered by start and account.
func (b bills) Periods(ctx context.Context, from, to time.Time) ([]bill.Period, error) {
	f := filter{dialect: &b.dialect}
	f.span("start", from, to)
	var rows []periodRow
	if err := b.list(ctx, &rows, periods().query+f.where()+" ORDER BY start, account", f.args...); err != nil {
		return nil, fmt.Errorf("read the billing periods: %w", err)
	}
	return convert(rows, periodRow.period), nil
}

// Replace replaces whole periods, all or none.
func (b bills) Replace(ctx context.Context, all []bill.Replacement) error {
	// All processes lock periods in the same order, to avoid deadlocks.
	all = slices.SortedFunc(slices.Values(all), func(x, y bill.Replacement) int {
		return cmp.Or(x.Start.Compare(y.Start), strings.Compare(x.Account, y.Account))
	})
	for i, r := range all {
		var err error
		switch {
		case i > 0 && all[i-1].PeriodKey == r.PeriodKey:
			err = errors.New("it is given twice")
		case r.Content != nil && r.Digest == "":
			err = errors.New("it has no digest")
		case r.Start.IsZero():
			err = errors.New("it has no start")
		default:
			err = exact(r.Account, r.Digest)
		}
		if err != nil {
			return fmt.Errorf("replace the billing period %s of %q: %w", r.Start.Format(time.DateOnly), r.Account, err)
		}
	}
	return b.transact(ctx, func(t *tx) error {
		for _, r := range all {
			if err := t.replace(ctx, r); err != nil {
				return fmt.Errorf("replace the billing period %s of %q: %w",
					r.Start.Format(time.DateOnly), r.Account, err)
			}
		}
		return nil
	})
}

// replace replaces one period, or returns [bill.ErrChanged].
func (t *tx) replace(ctx context.Context, r bill.Replacement) error {
	var kept struct {
		ID     int64  `db:"id"`
		Digest string `db:"digest"`
	}
	err := t.get(ctx, &kept, "SELECT id, digest FROM bill_periods WHERE account = ? AND start = ?"+t.forUpdate,
		r.Account,
		at(r.Start))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if kept.Digest != r.Replaces {
		return bill.ErrChanged
	}
	if kept.Digest != "" {
		for _, statement := range []string{
			"DELETE FROM bill_rows WHERE period = ?", "DELETE FROM bill_periods WHERE id = ?",
		} {
			if err := t.exec(ctx, statement, kept.ID); err != nil {
				return err
			}
		}
	}
	if r.Content == nil {
		return nil
	}
	if err := t.insert(ctx, periods(), periodOf(r.Period)); t.duplicate(err) {
		return bill.ErrChanged // changed by a concurrent import
	} else if err != nil {
		return err
	}
	var id int64
	if err := t.get(ctx, &id, "SELECT id FROM bill_periods WHERE account = ? AND start = ?", r.Account,
		at(r.Start)); err != nil {
		return err
	}
	return t.fillPeriod(ctx, id, r)
}

// fillPeriod writes the rows of a period.
func (t *tx) fillPeriod(ctx context.Context, id int64, r bill.Replacement) error {
	into := t.bulk("bill_rows", tags(reflect.TypeFor[billRow]()), "")
	number := int64(0)
	for row := range r.Content {
		number++
		if row.Day.IsZero() {
			return fmt.Errorf("row %d has no day", number)
		}
		if err := exact(row.Provider, row.SubAccount, row.Resource, row.Service, row.Region, row.ToRegion,
			row.ChargeCategory,
			row.PricingCategory, row.Commitment, row.Status, row.Owner.Team, row.Owner.Project, row.Owner.User,
			row.Owner.Environment,
			row.Owner.CostCenter, string(row.Purpose), row.CapacityStatus, row.Type); err != nil {
			return fmt.Errorf("row %d: %w", number, err)
		}
		if err := into.add(ctx, fields(billRow{id, number, billColumnsOf(row)})...); err != nil {
			return err
		}
	}
	if number != r.Rows {
		return fmt.Errorf("it yields %d rows, and says that it holds %d", number, r.Rows)
	}
	return into.flush(ctx)
}

// chosen returns the conditions of a query.
func (b bills) chosen(q bill.Query) *filter {
	f := &filter{dialect: &b.dialect}
	f.span("r.day", q.From, q.To)
	f.times("p.start", q.Starts)
	among(f, "p.account", q.Accounts)
	among(f, "r.resource", q.Resources)
	among(f, "r.category", q.Categories)
	return f
}

const billJoin = " FROM bill_rows r JOIN bill_periods p ON p.id = r.period"

// Rows yields rows by period, day and resource. It is a single statement, so that concurrent
// replacements are not visible.
func (b bills) Rows(ctx context.Context, q bill.Query) iter.Seq2[bill.Row, error] {
	return func(yield func(bill.Row, error) bool) {
		if err := b.eachRow(ctx, q, func(r bill.Row) bool { return yield(r, nil) }); err != nil {
			yield(bill.Row{}, fmt.Errorf("read the rows of bills: %w", err))
		}
	}
}

func (b bills) eachRow(ctx context.Context, q bill.Query, yield func(bill.Row) bool) error {
	f := b.chosen(q)
	query := "SELECT p.account, p.start, r." + strings.Join(tags(reflect.TypeFor[billColumns]()), ", r.") + billJoin +
		f.where() +
		" ORDER BY p.start, p.account, r.day, r.resource, r.number"
	ctx, end := context.WithCancel(ctx)
	defer end()
	var rows *sqlx.Rows
	err := timed(ctx, end, "read bills", func() (err error) {
		rows, err = b.reader().QueryxContext(ctx, b.reader().Rebind(query), f.args...)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // reading reports the error
	more := false
	next := func() error {
		more = rows.Next()
		return rows.Err()
	}
	for {
		if err := timed(ctx, end, "read bills", next); err != nil || !more {
			return err
		}
		var row struct {
			Account string  `db:"account"`
			Start   instant `db:"start"`
			billColumns
		}
		if err := rows.StructScan(&row); err != nil {
			return err
		}
		if !yield(row.row(row.Account, row.Start.Time)) {
			return nil
		}
	}
}
