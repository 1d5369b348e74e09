package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
)

// foldBatch keeps transactions short: with a pass a minute, a day of one resource has some 3,000
// rows.
const foldBatch = 25

const (
	foldHour = int64(time.Hour / time.Microsecond)
	foldDay  = 24 * foldHour
)

// foldRow holds the midnights up to which the ledger of an account is folded.
type foldRow struct {
	Account    int64 `db:"account"`
	Started    int64 `db:"started"`
	RoundsFrom int64 `db:"rounds_from"`
	HoursDone  int64 `db:"hours_done"`
	DaysFrom   int64 `db:"days_from"`
	DaysDone   int64 `db:"days_done"`
}

// pass is one day of an account to fold to a grain.
type pass struct {
	account    int64
	grain      grain
	start, end int64
	roundsFrom int64
	resources  []int64
}

// Fold implements [ledger.Folder].
func (c charges) Fold(ctx context.Context, a ledger.Account, now time.Time, transactions int) (ledger.Folded, error) {
	var out ledger.Folded
	err := c.fold(ctx, a, now, transactions, &out)
	return out, attempted(c.explain(err), "fold the ledger of %s", a)
}

func (c charges) fold(ctx context.Context, a ledger.Account, now time.Time, left int, out *ledger.Folded) error {
	row, err := account(ctx, c, a)
	if err != nil || row.ID == 0 {
		return err
	}
	var f foldRow
	if err := c.transact(ctx, func(t *tx) (err error) {
		f, err = t.foldTo(ctx, a, row.ID, now)
		return err
	}); err != nil {
		return err
	}
	for {
		p, err := c.nextPass(ctx, f)
		if err != nil || p == nil {
			return err
		}
		for batch := range slices.Chunk(p.resources, foldBatch) {
			if left == 0 {
				out.More = true
				return nil
			}
			left--
			var observations, entries int
			if err := c.transact(ctx, func(t *tx) (err error) {
				observations, entries, err = t.foldResources(ctx, a, p, batch)
				return err
			}); err != nil {
				return err
			}
			out.Observations, out.Entries = out.Observations+observations, out.Entries+entries
		}
		if f, err = c.folded(ctx, f, p); err != nil {
			return err
		}
	}
}

// foldTo determines the midnights up to which an account is folded, and from now on refuses older
// rounds. A pending round and the newest round limit them, so that neither is refused.
func (t *tx) foldTo(ctx context.Context, a ledger.Account, id int64, now time.Time) (foldRow, error) {
	f := foldRow{Account: id}
	if _, err := t.lockAccount(ctx, a); err != nil {
		return f, err
	}
	var ends struct {
		Oldest  instant `db:"oldest"`
		Newest  instant `db:"newest"`
		Pending instant `db:"pending"`
	}
	if err := t.get(ctx, &ends, "SELECT (SELECT MIN(at) FROM ledger_rounds WHERE account = ?) AS oldest,"+
		" (SELECT MAX(at) FROM ledger_rounds WHERE account = ?) AS newest,"+
		" (SELECT MIN(at) FROM ledger_rounds WHERE account = ? AND mark > 0) AS pending", id, id, id); err != nil {
		return f, err
	}
	limit := ends.Newest.Time
	if !ends.Pending.IsZero() {
		limit = ends.Pending.Time
	}
	midnight := func(age time.Duration) int64 {
		to := now.Add(-age)
		if limit.Before(to) {
			to = limit
		}
		return daily.start(to).UnixMicro()
	}
	err := t.get(ctx, &f, "SELECT account, started, rounds_from, hours_done, days_from, days_done FROM ledger_folds "+
		"WHERE account = ?", id)
	if errors.Is(err, sql.ErrNoRows) {
		// The oldest charge may precede the first round.
		var first instant
		err = t.get(ctx, &first, "SELECT MIN(hour) FROM ledger_entries WHERE account = ?", id)
		if first.IsZero() || ends.Oldest.Before(first.Time) {
			first = ends.Oldest
		}
		begin := daily.start(first.Time).UnixMicro()
		f = foldRow{id, begin, begin, begin, begin, begin}
		if err == nil {
			err = t.exec(ctx, "INSERT INTO ledger_folds (account, started, rounds_from, hours_done, days_from, "+
				"days_done, folding) VALUES (?, ?, ?, ?, ?, ?, 0)", id, begin, begin, begin, begin, begin)
		}
	}
	if err != nil {
		return f, err
	}
	rounds, days := midnight(ledger.HoursAfter), midnight(ledger.DaysAfter)
	if ends.Newest.IsZero() || rounds <= f.RoundsFrom && days <= f.DaysFrom {
		return f, nil
	}
	f.RoundsFrom, f.DaysFrom = max(f.RoundsFrom, rounds), max(f.DaysFrom, days)
	return f, t.exec(ctx, "UPDATE ledger_folds SET rounds_from = ?, days_from = ? WHERE account = ?", f.RoundsFrom,
		f.DaysFrom, id)
}

// nextPass returns the next day to fold with its resources, or nil. Empty days are skipped.
func (c charges) nextPass(ctx context.Context, f foldRow) (*pass, error) {
	p := &pass{account: f.Account, roundsFrom: f.RoundsFrom}
	switch {
	case f.HoursDone < f.RoundsFrom:
		p.grain, p.start, p.end = hourly, f.HoursDone, f.HoursDone+foldDay
	case f.DaysDone < f.DaysFrom:
		p.grain, p.start, p.end = daily, f.DaysDone, f.DaysDone+foldDay
	default:
		return nil, nil
	}
	err := c.list(ctx, &p.resources, "SELECT resource FROM ledger_observations WHERE account = ? AND at >= ? AND at < ?"+
		" UNION SELECT resource FROM ledger_entries WHERE account = ? AND hour >= ? AND hour < ? ORDER BY resource",
		p.account, p.observationsFrom(), p.end, p.account, p.start, p.end)
	return p, err
}

// observationsFrom returns an hour before the start, because the last hour of a resource is not
// folded with its day.
func (p *pass) observationsFrom() int64 {
	if p.grain == hourly {
		return p.start - foldHour
	}
	return p.start
}

// folded records that a day is folded.
func (c charges) folded(ctx context.Context, f foldRow, p *pass) (foldRow, error) {
	column := "days_done"
	if p.grain == hourly {
		f.HoursDone, column = p.end, "hours_done"
	} else {
		f.DaysDone = p.end
	}
	return f, c.transact(ctx, func(t *tx) error {
		return t.exec(ctx, "UPDATE ledger_folds SET "+column+" = ? WHERE account = ? AND "+column+" < ?",
			p.end, p.account, p.end)
	})
}

// anchor bounds the observations that a resource's next round may read: those since the hour of the
// last one before rounds_from, and the previous one.
type anchor struct {
	Resource int64   `db:"resource"`
	Last     instant `db:"last"`
	Before   instant `db:"before"`
}

// hour returns the first hour that may be derived again.
func (a anchor) hour() int64 { return a.Last.Truncate(time.Hour).UnixMicro() }

// foldResources folds a day of some resources.
func (t *tx) foldResources(ctx context.Context, a ledger.Account, p *pass, resources []int64) (observations,
	entries int, err error) {
	if _, err := t.lockAccount(ctx, a); err != nil {
		return 0, 0, err
	}
	among := document[[]int64]{resources}
	anchors, err := t.anchors(ctx, p, among)
	if err != nil {
		return 0, 0, err
	}
	if observations, err = t.foldObservations(ctx, p, anchors, among); err != nil {
		return 0, 0, err
	}
	if err := t.exec(ctx, "UPDATE ledger_folds SET folding = ? WHERE account = ?", p.end, p.account); err != nil {
		return 0, 0, err
	}
	if entries, err = t.foldEntries(ctx, p, anchors, among); err != nil {
		return 0, 0, err
	}
	return observations, entries, t.exec(ctx, "UPDATE ledger_folds SET folding = 0 WHERE account = ?", p.account)
}

func (t *tx) anchors(ctx context.Context, p *pass, resources document[[]int64]) (map[int64]anchor, error) {
	nearest := func(before string) string {
		return "(SELECT MAX(o.at) FROM ledger_observations o WHERE o.resource = x.id AND o.at < " + before + ")"
	}
	var rows []anchor
	query := "SELECT y.id AS resource, y.last, " +
		"(SELECT MAX(o.at) FROM ledger_observations o WHERE o.resource = y.id AND o.at < y.last - y.last % ?) AS before" +
		" FROM (SELECT x.id, " + nearest("?") + " AS last FROM (SELECT CAST(value AS BIGINT) AS id FROM " + t.elements +
		") x) y"
	if err := t.list(ctx, &rows, query, foldHour, p.roundsFrom, resources); err != nil {
		return nil, err
	}
	out := make(map[int64]anchor, len(rows))
	for _, r := range rows {
		out[r.Resource] = r
	}
	return out, nil
}

// observed is an observation that may be merged into the next one of its hour or day.
type observed struct {
	Resource int64               `db:"resource"`
	At       int64               `db:"at"`
	Duty     document[[]spanDoc] `db:"duty"`
}

// foldObservations keeps the last observation of each hour or day, with all measured duty merged
// into it, and those protected by an anchor.
func (t *tx) foldObservations(
	ctx context.Context, p *pass, anchors map[int64]anchor, resources document[[]int64],
) (int, error) {
	var rows []observed
	if err := t.list(ctx, &rows, "SELECT resource, at, duty FROM ledger_observations WHERE resource IN (SELECT "+
		"CAST(value AS BIGINT) FROM "+t.elements+") AND at >= ? AND at < ? ORDER BY resource, at", resources,
		p.observationsFrom(), p.end); err != nil {
		return 0, err
	}
	length := foldHour
	if p.grain == daily {
		length = foldDay
	}
	gone := 0
	for i := 0; i < len(rows); {
		a := anchors[rows[i].Resource]
		end, drop := i, []int64(nil)
		var duty []ledger.Span
		for end < len(rows) && rows[end].Resource == rows[i].Resource && rows[end].At/length == rows[i].At/length {
			end++
		}
		same := rows[i:end]
		i = end
		last := same[len(same)-1]
		for _, o := range same {
			if o.At >= a.hour() {
				last.At = 0 // the hour may be derived again
				break
			}
			duty = append(convert(o.Duty.of, spanDoc.span), duty...) // the newest wins
			if o.At != last.At && o.At != a.Before.UnixMicro() {
				drop = append(drop, o.At)
			}
		}
		if last.At == 0 || len(drop) == 0 {
			continue
		}
		measured := document[[]spanDoc]{convert(ledger.Overlay(duty, time.UnixMicro(last.At).UTC()), spanOf)}
		if err := t.exec(ctx, "UPDATE ledger_observations SET duty = ? WHERE resource = ? AND at = ?", measured,
			last.Resource, last.At); err != nil {
			return 0, err
		}
		if err := t.exec(ctx, "DELETE FROM ledger_observations WHERE resource = ? AND at IN (SELECT CAST(value AS BIGINT) "+
			"FROM "+t.elements+")", last.Resource, document[[]int64]{drop}); err != nil {
			return 0, err
		}
		gone += len(drop)
	}
	return gone, nil
}

// foldedEntry is an accrual or correction as folding reads it.
type foldedEntry struct {
	Number   int64       `db:"number"`
	Entry    ledger.Kind `db:"entry"`
	Hour     int64       `db:"hour"`
	Resource int64       `db:"resource"`
	Line     int64       `db:"line"`
	sumRow
	Round instant `db:"round"`
}

// foldEntries sums the charges of each line by hour or day. Reconciliations stay, because they are
// daily already.
func (t *tx) foldEntries(
	ctx context.Context, p *pass, anchors map[int64]anchor, resources document[[]int64],
) (int, error) {
	var rows []foldedEntry
	if err := t.list(ctx, &rows, "SELECT number, entry, hour, resource, line, seconds, amount, at_most, unbounded, "+
		"round FROM ledger_entries WHERE resource IN (SELECT CAST(value AS BIGINT) FROM "+t.elements+
		") AND hour >= ? AND hour < ? AND entry <> ?", resources, p.start, p.end, ledger.Reconciled); err != nil {
		return 0, err
	}
	// A day that may be derived again keeps its hours.
	rows = slices.DeleteFunc(rows, func(e foldedEntry) bool {
		return p.grain == daily && p.end > anchors[e.Resource].hour()
	})
	if p.grain == daily {
		for i := range rows {
			if rows[i].Hour != p.start {
				rows[i].Hour, rows[i].Entry = p.start, "" // it is written again
			}
		}
	}
	slices.SortFunc(rows, func(x, y foldedEntry) int {
		return cmp.Or(cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Hour, y.Hour), cmp.Compare(x.Line, y.Line),
			cmp.Compare(x.Number, y.Number))
	})
	var old []int64
	var sums []foldedEntry
	for i := 0; i < len(rows); {
		sum, first := rows[i], i
		for i++; i < len(rows) && rows[i].Resource == sum.Resource && rows[i].Hour == sum.Hour &&
			rows[i].Line == sum.Line; i++ {
			var err error
			if sum.sumRow, err = sum.plus(rows[i].sumRow); err != nil {
				return 0, err
			}
			if rows[i].Round.After(sum.Round.Time) {
				sum.Round = rows[i].Round
			}
		}
		if i == first+1 && sum.Entry != "" && sum.sumRow != (sumRow{}) {
			continue // a single row stays
		}
		for _, e := range rows[first:i] {
			old = append(old, e.Number)
		}
		if sum.sumRow != (sumRow{}) {
			sums = append(sums, sum)
		}
	}
	if len(old) == 0 {
		return 0, nil
	}
	if err := t.exec(ctx, "DELETE FROM ledger_entries WHERE account = ? AND number IN (SELECT CAST(value AS "+
		"BIGINT) FROM "+t.elements+")", p.account, document[[]int64]{old}); err != nil {
		return 0, err
	}
	into := t.bulk("ledger_entries", []string{
		"account", "number", "entry", "hour", "resource", "line", "seconds", "amount", "at_most", "unbounded", "round",
		"bill_period",
	}, "")
	for _, e := range sums {
		if err := into.add(ctx, p.account, e.Number, ledger.Accrual, e.Hour, e.Resource, e.Line, e.Seconds, e.Amount,
			e.AtMost, e.Unbounded, e.Round, instant{}); err != nil {
			return 0, err
		}
	}
	return len(old) - len(sums), into.flush(ctx)
}

// recordableSince refuses a round before the time up to which an account is folded.
func (t *tx) recordableSince(ctx context.Context, account int64, r ledger.Round) error {
	var from []instant
	if err := t.list(ctx, &from, "SELECT rounds_from FROM ledger_folds WHERE account = ?", account); err != nil {
		return err
	}
	if len(from) > 0 && r.At.Before(from[0].Time) {
		return fmt.Errorf("%w (%s)", ledger.ErrFolded, from[0].UTC().Format(time.RFC3339))
	}
	return nil
}

// hoursFrom refuses a query for hours of single resources that are folded into days.
func (c charges) hoursFrom(ctx context.Context, segments []segment) error {
	var folds []foldRow
	if err := c.list(ctx, &folds, "SELECT account, started, rounds_from, hours_done, days_from, days_done FROM "+
		"ledger_folds WHERE days_from > started"); err != nil {
		return err
	}
	for _, f := range folds {
		until := time.UnixMicro(f.DaysFrom).UTC()
		for _, s := range segments {
			if s.grain == hourly && s.from.Before(until) && s.to.UnixMicro() > f.Started {
				return &ledger.FoldedError{Until: until}
			}
		}
	}
	return nil
}
