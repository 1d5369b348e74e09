package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
)

// segment is a part of a query that uses sums of one grain.
type segment struct {
	grain    grain
	from, to time.Time
	// period is the period of all sums; if nil, each sum's own start.
	period *time.Time
}

// segments divides [since, until) so that each period uses the longest available sums.
func segments(g ledger.Granularity, since, until time.Time) []segment {
	var out []segment
	add := func(g grain, from, to time.Time, period *time.Time) {
		if from.Before(to) {
			out = append(out, segment{g, from, to, period})
		}
	}
	// cut adds the longest sums of a grain that fit, and the remainders before and after.
	cut := func(g grain, from, to time.Time, period *time.Time, rest func(from, to time.Time, period *time.Time)) {
		first, last := g.next(from), g.start(to)
		if first.After(last) { // all within one
			rest(from, to, orStart(period, from))
			return
		}
		rest(from, first, orStart(period, from))
		add(g, first, last, period)
		rest(last, to, orStart(period, last))
	}
	hours := func(from, to time.Time, period *time.Time) { add(hourly, from, to, period) }
	days := func(from, to time.Time, period *time.Time) { cut(daily, from, to, period, hours) }
	switch g {
	case ledger.Hourly:
		hours(since, until, nil)
	case ledger.Daily:
		days(since, until, nil)
	case ledger.Monthly:
		cut(monthly, since, until, nil, days)
	default:
		cut(monthly, since, until, &since, days)
	}
	return out
}

func orStart(period *time.Time, start time.Time) *time.Time {
	if period != nil {
		return period
	}
	return &start
}

// ledgerDimensions maps dimensions to columns.
var ledgerDimensions = map[ledger.Dimension]string{
	ledger.ByTeam: "g.team", ledger.ByProject: "g.project", ledger.ByUser: "g.username",
	ledger.ByEnvironment: "g.environment",
	ledger.ByCostCenter:  "g.cost_center", ledger.ByPurpose: "g.purpose", ledger.ByResource: "x.ref",
	ledger.ByKind: "g.kind",
	ledger.ByType: "g.type", ledger.ByRegion: "g.region", ledger.ByAccount: "g.account",
	ledger.ByCategory: "g.category",
	ledger.ByDuty:     "g.duty", ledger.ByPricing: "g.pricing", ledger.ByLifetime: "g.lifetime",
	ledger.ByService: "g.service",
}

// Sums sums entries by period and dimension values, in that order.
func (c charges) Sums(ctx context.Context, q ledger.SumQuery) ([]ledger.Sum, error) {
	out, err := c.sums(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("add up the ledger: %w", c.explain(err))
	}
	return out, nil
}

func (c charges) sums(ctx context.Context, q ledger.SumQuery) ([]ledger.Sum, error) {
	columns, f, byResource := make([]string, len(q.By)), &filter{dialect: &c.dialect}, false
	for i, d := range q.By {
		if columns[i] = ledgerDimensions[d]; columns[i] == "" {
			return nil, fmt.Errorf("there is no dimension %q", d)
		}
		byResource = byResource || d == ledger.ByResource
	}
	parts, args := []string(nil), []any(nil)
	for _, m := range q.Filter {
		column := ledgerDimensions[m.By]
		switch {
		case column == "":
			return nil, fmt.Errorf("there is no dimension %q", m.By)
		case len(m.Values) == 0:
			return nil, nil
		}
		byResource = byResource || m.By == ledger.ByResource
		among(f, column, m.Values)
	}
	if q.Accrued {
		f.and("g.reconciled = 0")
	}
	all := segments(q.Granularity, q.Since.UTC(), q.Until.UTC())
	if byResource {
		if err := c.hoursFrom(ctx, all); err != nil {
			return nil, err
		}
	}
	for _, s := range all {
		part, values := s.query(byResource)
		parts, args = append(parts, part), append(args, values...)
	}
	if len(parts) == 0 {
		return nil, nil
	}
	from := " FROM (" + strings.Join(parts, " UNION ALL ") + ") s JOIN ledger_groups g ON g.id = s.about"
	if byResource {
		from = " FROM (" + strings.Join(parts, " UNION ALL ") + ") s JOIN ledger_series r ON r.id = s.about" +
			" JOIN ledger_groups g ON g.id = r.grp JOIN ledger_resources x ON x.id = r.resource"
	}
	charged := func(column string) string { return "CASE WHEN g.gapped = 0 THEN s." + column + " ELSE 0 END" }
	gap := func(column string) string { return "CASE WHEN g.gapped = 0 THEN 0 ELSE s." + column + " END" }
	keys := strings.Join(append([]string{"s.period"}, columns...), ", ")
	query := "SELECT " + keys + ", " + sums(charged("seconds"), charged("amount"), charged("at_most"),
		charged("unbounded"),
		gap("seconds"), gap("at_most"), gap("unbounded")) + from + f.where() + " GROUP BY " +
		keys + " ORDER BY " + keys
	var out []ledger.Sum
	err := answered(ctx, "add up costs", func(ctx context.Context) error {
		rows, err := c.reader().QueryContext(ctx, c.reader().Rebind(query), append(args, f.args...)...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // reading reports the error
		for rows.Next() {
			var period int64
			sum, values := ledger.Sum{Key: make([]string, len(q.By))}, []any{&period}
			for i := range sum.Key {
				values = append(values, &sum.Key[i])
			}
			values = append(values, &sum.Sums.Seconds, &sum.Sums.Amount, &sum.Sums.AtMost, &sum.Sums.Unbounded,
				&sum.Unknown.Seconds, &sum.Unknown.AtMost, &sum.Unknown.Unbounded)
			if err := rows.Scan(values...); err != nil {
				return err
			}
			sum.Period = time.UnixMicro(period).UTC()
			out = append(out, sum)
		}
		return rows.Err()
	})
	return out, err
}

// query selects a segment's sums, of series or of groups. Hourly sums of series are the entries
// themselves.
func (s segment) query(series bool) (query string, args []any) {
	table, start, where := "ledger_group_sums t", "t.start", "t.grain = ? AND "
	about, args := "t.about", []any{s.grain}
	if series {
		table = "ledger_series_sums t"
		if s.grain == hourly {
			table, start, about, where, args = "ledger_entries t JOIN ledger_lines l ON l.id = t.line", "t.hour",
				"l.series",
				"", nil
		}
	}
	columns, end := "t.seconds, t.amount, t.at_most, t.unbounded", ""
	period := start
	if s.period != nil { // merge the sums of each group or series before joining their texts
		period, args = "CAST(? AS BIGINT)", append([]any{s.period.UnixMicro()}, args...)
		columns, end = sums("t.seconds")+" AS seconds, "+sums("t.amount")+" AS amount, "+
			sums("t.at_most")+" AS at_most, "+
			sums("t.unbounded")+" AS unbounded", " GROUP BY "+about
	}
	query = "SELECT " + period + " AS period, " + about + " AS about, " + columns + " FROM " + table +
		" WHERE " + where + start + " >= ? AND " + start + " < ?" + end
	return query, append(args, s.from.UnixMicro(), s.to.UnixMicro())
}

// ResourceDays sums the entries of an account over the days of [from, to).
func (c charges) ResourceDays(ctx context.Context, a ledger.Account, from, to time.Time) ([]ledger.ResourceDay,
	error) {
	var rows []dayRow
	query := "SELECT t.start, t.seconds, t.amount, t.at_most, t.unbounded, x.cloud, x.cloud_account, x.region, x.kind, " +
		"x.resource_id, r.name, r.market, r.hold," +
		" g.type, g.team, g.project, g.username, g.environment, g.cost_center, g.purpose, g.lifetime, g.category, g.duty, " +
		"g.service, g.pricing," +
		" g.gapped, g.unpriced, g.reconciled" +
		" FROM ledger_series_sums t JOIN ledger_series r ON r.id = t.about JOIN ledger_groups g ON g.id = r.grp JOIN " +
		"ledger_resources x ON x.id = r.resource" +
		" JOIN ledger_accounts a ON a.id = x.account WHERE t.grain = ? AND t.start >= ? AND t.start < ? AND a.cloud = ? " +
		"AND a.cloud_account = ?"
	err := c.list(ctx, &rows, query, daily, daily.next(from).UnixMicro(), daily.start(to).UnixMicro(), a.Cloud, a.ID)
	var out []ledger.ResourceDay
	if err == nil {
		out, err = joinDays(convert(rows, dayRow.day))
	}
	if err != nil {
		return nil, fmt.Errorf("add up the days of %s: %w", a, err)
	}
	return out, nil
}

// dayRow is the sum of the entries of a series on a day.
type dayRow struct {
	Start instant `db:"start"`
	sumRow
	refRow
	attributesRow
	Category   ledger.Category `db:"category"`
	Duty       string          `db:"duty"`
	Service    string          `db:"service"`
	Pricing    ledger.Pricing  `db:"pricing"`
	Gapped     bool            `db:"gapped"`
	Unpriced   bool            `db:"unpriced"`
	Reconciled bool            `db:"reconciled"`
}

// day converts a row.
func (r dayRow) day() ledger.ResourceDay {
	d := ledger.ResourceDay{
		Ref: r.ref(), Day: r.Start.Time, Category: r.Category, Duty: r.Duty, Service: r.Service, Pricing: r.Pricing,
		Attributes: r.attributes(),
	}
	switch {
	case r.Reconciled:
		d.Reconciled = r.Amount
	case r.Unpriced:
		d.UnpricedSeconds = r.Seconds
	case r.Gapped:
		d.Unknown = ledger.Sums{Seconds: r.Seconds, AtMost: r.AtMost, Unbounded: r.Unbounded}
	default:
		d.Accrued = r.Amount
	}
	return d
}

// joinDays sorts days and merges those that are equal in all dimensions of costs.
func joinDays(days []ledger.ResourceDay) ([]ledger.ResourceDay, error) {
	slices.SortFunc(days, ledger.CompareResourceDays)
	var out []ledger.ResourceDay
	for _, d := range days {
		if n := len(out); n == 0 || ledger.CompareResourceDays(out[n-1], d) != 0 {
			out = append(out, d)
			continue
		}
		last := &out[len(out)-1]
		unknown, errUnknown := last.Unknown.Plus(d.Unknown)
		accrued, errAccrued := last.Accrued.Add(d.Accrued)
		reconciled, errReconciled := last.Reconciled.Add(d.Reconciled)
		if err := errors.Join(errUnknown, errAccrued, errReconciled); err != nil {
			return nil, err
		}
		last.Unknown, last.Accrued, last.Reconciled = unknown, accrued, reconciled
		last.UnpricedSeconds += d.UnpricedSeconds
	}
	return out, nil
}
