package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
)

// stretch is the closed interval between two rounds or observations, in microseconds since 1970.
type stretch struct{ from, to int64 }

// Touched implements [ledger.Poster].
func (c charges) Touched(ctx context.Context, r ledger.Round) ([]ledger.Touch, error) {
	touches, err := c.touched(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("look for what the round of %s at %s touches: %w", r.Account,
			r.At.Format(time.RFC3339), err)
	}
	return touches, nil
}

func (c charges) touched(ctx context.Context, r ledger.Round) ([]ledger.Touch, error) {
	a, err := account(ctx, c, r.Account)
	if err != nil {
		return nil, err
	}
	stretches, err := c.stretches(ctx, a.ID, r.At)
	if err != nil {
		return nil, err
	}
	var pending []int64
	if err := c.list(ctx, &pending, "SELECT at FROM ledger_rounds WHERE account = ? AND mark > 0 AND at <> ?", a.ID,
		at(r.At)); err != nil {
		return nil, err
	}
	var ids []int64
	if err := c.list(ctx, &ids, "SELECT resource FROM ledger_observations WHERE account = ? AND at = ?", a.ID,
		at(r.At)); err != nil {
		return nil, err
	}
	for s, parts := range stretches {
		var seen []struct {
			ID     int64          `db:"id"`
			Region string         `db:"region"`
			Kind   inventory.Kind `db:"kind"`
		}
		query := "SELECT x.id, x.region, x.kind FROM ledger_resources x WHERE x.id IN" +
			" (SELECT o.resource FROM ledger_observations o WHERE o.account = ? AND o.at >= ? AND o.at <= ?)"
		if err := c.list(ctx, &seen, query, a.ID, s.from, s.to); err != nil {
			return nil, err
		}
		for _, x := range seen {
			if parts[ledger.Part{Region: x.Region, Kind: x.Kind}] {
				ids = append(ids, x.ID)
			}
		}
	}
	slices.Sort(ids)
	return c.touches(ctx, a.ID, r.At.UnixMicro(), pending, document[[]int64]{slices.Compact(ids)})
}

// touches returns the times over which a round can change the costs of resources while other rounds
// are pending.
func (c charges) touches(ctx context.Context, account, round int64, pending []int64, resources document[[]int64]) (
	[]ledger.Touch, error) {
	others := ""
	if len(pending) > 0 {
		others = " AND o.at NOT IN (SELECT CAST(value AS BIGINT) FROM " + c.elements + ")"
	}
	seen := func(before, order string) string {
		return "(SELECT o.at FROM ledger_observations o WHERE o.resource = x.id AND o.at " + before + " ?" + others +
			" ORDER BY o.at" + order + " LIMIT 1)"
	}
	listed := func(before, order string) string {
		return "(SELECT r.at FROM ledger_rounds r JOIN ledger_coverage_parts p ON p.coverage = r.coverage AND " +
			"p.region = " +
			"x.region AND p.kind = x.kind" +
			" WHERE r.account = ? AND r.at " + before + " ? AND r.mark = 0 ORDER BY r.at" + order + " LIMIT 1)"
	}
	query := "SELECT x.cloud, x.cloud_account, x.region, x.kind, x.resource_id, " +
		seen("<", " DESC") + " AS seen_before, " + listed("<", " DESC") + " AS listed_before, " +
		seen(">", "") + " AS seen_after, " + listed(">", "") + " AS listed_after" +
		" FROM ledger_resources x WHERE x.id IN (SELECT CAST(value AS BIGINT) FROM " + c.elements + ")" +
		" ORDER BY x.cloud, x.cloud_account, x.region, x.kind, x.resource_id"
	var rows []struct {
		refRow
		SeenBefore   instant `db:"seen_before"`
		ListedBefore instant `db:"listed_before"`
		SeenAfter    instant `db:"seen_after"`
		ListedAfter  instant `db:"listed_after"`
	}
	known := []any{round}
	if len(pending) > 0 {
		known = append(known, document[[]int64]{pending})
	}
	known = append(known, account, round)
	if err := c.list(ctx, &rows, query, append(slices.Concat(known, known), resources)...); err != nil {
		return nil, err
	}
	now := time.UnixMicro(round).UTC()
	oldest, newest := time.UnixMicro(slices.Min(append(pending, round))).UTC(), time.UnixMicro(
		slices.Max(append(pending, round))).UTC()
	touches := make([]ledger.Touch, len(rows))
	for i, row := range rows {
		touches[i] = ledger.Touch{Ref: row.ref(), From: row.SeenBefore.Time, To: row.SeenAfter.Time}
		if t := &touches[i]; t.From.IsZero() {
			t.From = slices.MinFunc([]time.Time{cmp.Or(row.ListedBefore.Time, now), oldest}, time.Time.Compare)
		}
		if t := &touches[i]; t.To.IsZero() {
			t.To = slices.MaxFunc([]time.Time{cmp.Or(row.ListedAfter.Time, now), newest}, time.Time.Compare)
		}
	}
	return touches, nil
}

// stretches returns, for the parts that a round listed completely, the interval between the
// previous and the next settled round that did so.
func (c charges) stretches(ctx context.Context, account int64, round time.Time) (map[stretch]map[ledger.Part]bool,
	error) {
	var rows []struct {
		Region string         `db:"region"`
		Kind   inventory.Kind `db:"kind"`
		Before instant        `db:"before"`
		After  instant        `db:"after"`
	}
	nearest := func(which string) string {
		return "(SELECT b.at FROM ledger_rounds b JOIN ledger_coverage_parts q ON q.coverage = b.coverage AND " +
			"q.region = " +
			"p.region AND q.kind = p.kind" +
			" WHERE b.account = r.account AND b.mark = 0 AND b.at " + which + " LIMIT 1)"
	}
	query := "SELECT p.region, p.kind, " + nearest("< r.at ORDER BY b.at DESC") + " AS before, " +
		nearest("> r.at ORDER BY b.at") + " AS after" +
		" FROM ledger_rounds r JOIN ledger_coverage_parts p ON p.coverage = r.coverage WHERE r.account = ? AND r.at = ?"
	if err := c.list(ctx, &rows, query, account, at(round)); err != nil {
		return nil, err
	}
	out := map[stretch]map[ledger.Part]bool{}
	for _, row := range rows {
		s := stretch{math.MinInt64, math.MaxInt64} // unbounded
		if !row.Before.IsZero() {
			s.from = row.Before.UnixMicro()
		}
		if !row.After.IsZero() {
			s.to = row.After.UnixMicro()
		}
		if out[s] == nil {
			out[s] = map[ledger.Part]bool{}
		}
		out[s][ledger.Part{Region: row.Region, Kind: row.Kind}] = true
	}
	return out, nil
}

// Histories implements [ledger.Poster].
func (c charges) Histories(ctx context.Context, a ledger.Account, refs []inventory.Ref, from,
	to time.Time) ([]ledger.History, int64, error) {
	histories, version, err := c.histories(ctx, a, refs, from, to)
	if err != nil {
		return nil, 0, fmt.Errorf("read what is known of %d resources of %s: %w", len(refs), a, err)
	}
	return histories, version, nil
}

func (c charges) histories(ctx context.Context, a ledger.Account, refs []inventory.Ref, from,
	to time.Time) ([]ledger.History, int64, error) {
	row, err := account(ctx, c, a)
	if err != nil {
		return nil, 0, err
	}
	rows := make([]resourceRow, len(refs))
	for i, ref := range refs {
		rows[i] = resourceOf(row.ID, ref)
	}
	ids, _, err := lookup(ctx, c, &c.dialect, "ledger_resources", rows)
	if err != nil {
		return nil, 0, err
	}
	known := document[[]int64]{slices.Sorted(maps.Values(ids))}
	observations, err := c.observations(ctx, known, from, to)
	if err != nil {
		return nil, 0, err
	}
	posted, err := c.posted(ctx, known, from, to)
	if err != nil {
		return nil, 0, err
	}
	looks, err := c.looks(ctx, row.ID, ids, observations)
	if err != nil {
		return nil, 0, err
	}
	out := make([]ledger.History, len(refs))
	for i, ref := range refs {
		out[i] = ledger.History{Ref: ref}
		if id, ok := ids[rows[i]]; ok {
			out[i].Observations, out[i].Posted = observations[id], posted[id]
			for j := range out[i].Observations {
				out[i].Observations[j].Ref = ref
			}
			out[i].Rounds = neighbors(looks[ledger.Part{Region: ref.Region, Kind: ref.Kind}], out[i].Observations)
		}
	}
	return out, row.Version, nil
}

// observations reads the observations of resources in [from, to) and the nearest on each side, in
// time order, without references.
func (c charges) observations(ctx context.Context, resources document[[]int64], from,
	to time.Time) (map[int64][]ledger.Observation, error) {
	var rows []struct {
		Resource int64               `db:"resource"`
		At       instant             `db:"at"`
		Facts    int64               `db:"facts"`
		Duty     document[[]spanDoc] `db:"duty"`
	}
	among := "(SELECT CAST(value AS BIGINT) AS id FROM " + c.elements + ")"
	nearest := "SELECT o.resource, o.at, o.facts, o.duty FROM " + among +
		" x JOIN ledger_observations o ON o.resource = x.id AND o.at = (SELECT "
	query := "SELECT resource, at, facts, duty FROM ledger_observations WHERE resource IN " + among +
		" AND at >= ? AND at < ?" +
		" UNION ALL " + nearest + "MAX(n.at) FROM ledger_observations n WHERE n.resource = x.id AND n.at < ?)" +
		" UNION ALL " + nearest + "MIN(n.at) FROM ledger_observations n WHERE n.resource = x.id AND n.at >= ?)" +
		" ORDER BY resource, at"
	if err := c.list(ctx, &rows, query, resources, at(from), at(to), resources, at(from),
		resources, at(to)); err != nil {
		return nil, err
	}
	ids := map[int64]bool{}
	for _, row := range rows {
		ids[row.Facts] = true
	}
	facts, err := c.facts(ctx, document[[]int64]{slices.Sorted(maps.Keys(ids))})
	if err != nil {
		return nil, err
	}
	out := map[int64][]ledger.Observation{}
	for _, row := range rows {
		o := ledger.Observation{At: row.At.Time, Duty: convert(row.Duty.of, spanDoc.span)}
		facts[row.Facts].observe(&o)
		out[row.Resource] = append(out[row.Resource], o)
	}
	return out, nil
}

func (c charges) facts(ctx context.Context, ids document[[]int64]) (map[int64]factsDoc, error) {
	var rows []struct {
		ID    int64  `db:"id"`
		Facts string `db:"facts"`
	}
	query := "SELECT id, facts FROM ledger_facts WHERE id IN (SELECT CAST(value AS BIGINT) FROM " + c.elements + ")"
	if err := c.list(ctx, &rows, query, ids); err != nil {
		return nil, err
	}
	out := make(map[int64]factsDoc, len(rows))
	for _, row := range rows {
		var f factsDoc
		if err := json.Unmarshal([]byte(row.Facts), &f); err != nil {
			return nil, err
		}
		out[row.ID] = f
	}
	return out, nil
}

// looks returns the sorted times at which the resources' parts were listed completely: between the
// observations of a part's resources, and the nearest on each side.
func (c charges) looks(ctx context.Context, account int64, ids map[resourceRow]int64,
	observations map[int64][]ledger.Observation) (map[ledger.Part][]time.Time, error) {
	spans := map[ledger.Part]stretch{}
	for row, id := range ids {
		of := observations[id]
		if len(of) == 0 {
			continue
		}
		part := ledger.Part{Region: row.Region, Kind: row.Kind}
		span, ok := spans[part]
		if first := of[0].At.UnixMicro(); !ok || first < span.from {
			span.from = first
		}
		if last := of[len(of)-1].At.UnixMicro(); !ok || last > span.to {
			span.to = last
		}
		spans[part] = span
	}
	const listed = " FROM ledger_rounds r JOIN ledger_coverage_parts p ON p.coverage = r.coverage WHERE r.account = ? " +
		"AND p.region = ? AND p.kind = ? AND r.at "
	const query = "SELECT r.at" + listed + ">= COALESCE((SELECT r.at" + listed +
		"< ? ORDER BY r.at DESC LIMIT 1), ?)" +
		" AND r.at <= COALESCE((SELECT r.at" + listed + "> ? ORDER BY r.at LIMIT 1), ?) ORDER BY r.at"
	out := map[ledger.Part][]time.Time{}
	for part, span := range spans {
		var times []instant
		if err := c.list(ctx, &times, query, account, part.Region, part.Kind, account,
			part.Region, part.Kind, span.from,
			span.from,
			account, part.Region, part.Kind, span.to, span.to); err != nil {
			return nil, err
		}
		out[part] = convert(times, func(i instant) time.Time { return i.Time })
	}
	return out, nil
}

// neighbors returns the times adjacent or equal to that of an observation.
func neighbors(times []time.Time, observations []ledger.Observation) []time.Time {
	var out []time.Time
	for _, o := range observations {
		i, at := slices.BinarySearchFunc(times, o.At, time.Time.Compare)
		last := i
		if at {
			last++
		}
		out = append(out, times[max(0, i-1):min(last+1, len(times))]...)
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.Compact(out)
}

// posted reads the accruals and corrections of resources in [from, to), merged by hour and line: an
// hour has one for each round that charged for it.
func (c charges) posted(ctx context.Context, resources document[[]int64], from,
	to time.Time) (map[int64][]ledger.Entry, error) {
	f := &filter{dialect: &c.dialect}
	f.and("e.resource IN (SELECT CAST(value AS BIGINT) FROM "+c.elements+")", resources)
	f.span("e.hour", from, to)
	f.and("e.entry <> ?", ledger.Reconciled)
	var rows []chargeRow
	query := strings.Replace(chargeQuery, "FROM ledger_entries e ",
		"FROM (SELECT e.resource, e.hour, e.line, MIN(e.number) AS number, MIN(e.entry) AS entry, "+
			sums("e.seconds")+" AS seconds, "+sums("e.amount")+" AS amount, "+sums("e.at_most")+" AS at_most, "+
			sums("e.unbounded")+" AS unbounded,"+
			" MAX(e.round) AS round, MAX(e.bill_period) AS bill_period FROM ledger_entries e"+f.where()+
			" GROUP BY e.resource, e.hour, e.line) e ", 1) + " ORDER BY e.number"
	if err := c.list(ctx, &rows, query, f.args...); err != nil {
		return nil, c.explain(err)
	}
	out := map[int64][]ledger.Entry{}
	for _, row := range rows {
		out[row.Resource] = append(out[row.Resource], row.entry())
	}
	return out, nil
}

// Entries returns the entries of a resource in [from, to), in the order of appending.
func (c charges) Entries(ctx context.Context, ref inventory.Ref, from, to time.Time) ([]ledger.Entry, error) {
	f := &filter{dialect: &c.dialect}
	f.and(
		"e.resource = (SELECT x.id FROM ledger_resources x JOIN ledger_accounts a ON a.id = x.account WHERE a.cloud "+
			"= ? AND a.cloud_account = ?"+
			" AND x.region = ? AND x.kind = ? AND x.resource_id = ?)", ref.Cloud, ref.Account,
		ref.Region, ref.Kind, ref.ID)
	f.span("e.hour", from, to)
	rows, err := c.chargeRows(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the entries of %s: %w", ref, err)
	}
	return convert(rows, chargeRow.entry), nil
}
