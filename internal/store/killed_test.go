package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/store"
)

// isAgain reports whether an error is that of a repeated decision.
func (d decision) isAgain(err error) bool {
	var refusal *approval.Refusal
	return d.taken || errors.As(err, &refusal) && refusal.Rule == d.refused ||
		slices.ContainsFunc(d.again, func(want error) bool { return errors.Is(err, want) })
}

// contents returns the rows of each table, except the audit log, the state's time and migrations.
func contents(tb testing.TB, db *sql.DB, o store.Options) map[string][]string {
	tb.Helper()
	ignored := []string{"audit", "audit_head", "clocks", "goose_db_version", "sqlite_sequence"}
	out := map[string][]string{}
	if o.URL == "" {
		for _, table := range rowsOf(tb, db, "SELECT name FROM sqlite_master WHERE type = 'table'") {
			if !slices.Contains(ignored, table) {
				out[table] = rowsOf(tb, db, "SELECT * FROM "+table)
			}
		}
	} else {
		var parts []string // in one statement, to save round trips to the server
		for _, table := range rowsOf(tb, db, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()") {
			if !slices.Contains(ignored, table) {
				out[table] = nil
				parts = append(parts, "SELECT '"+table+" ' || CAST(t AS TEXT) FROM "+table+" t")
			}
		}
		for _, row := range rowsOf(tb, db, strings.Join(parts, " UNION ALL ")) {
			table, row, _ := strings.Cut(row, " ")
			out[table] = append(out[table], row)
		}
	}
	for _, rows := range out {
		slices.Sort(rows)
	}
	return out
}

// rowsOf reads rows as text.
func rowsOf(tb testing.TB, db *sql.DB, query string) (out []string) {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), query)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	for rows.Next() {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			tb.Fatal(err)
		}
		text := make([]string, len(values))
		for i, v := range values {
			if b, is := v.([]byte); is {
				v = string(b)
			}
			text[i] = fmt.Sprint(v)
		}
		out = append(out, strings.Join(text, "|"))
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return out
}

// kept is the part of a state that decisions write: its tables, and the number of entries in the
// audit log and the gate's records.
type kept struct {
	tables  map[string][]string
	entries int
}

func keptBy(tb testing.TB, db *sql.DB, o store.Options) kept {
	tables := contents(tb, db, o)
	return kept{tables, len(rowsOf(tb, db, "SELECT id FROM audit")) + len(tables["decisions"])}
}

// changed returns the tables that differ, with the difference in rows.
func (k kept) changed(before kept) map[string]int {
	out := map[string]int{}
	for table, rows := range k.tables {
		if !slices.Equal(rows, before.tables[table]) {
			out[table] = len(rows) - len(before.tables[table])
		}
	}
	return out
}

// TestKilledBetweenTwoStatements kills the process of each decision between any two statements.
// Afterwards the decision and its entries both exist or are both missing, and another process can
// make it.
func TestKilledBetweenTwoStatements(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			o := empty(t, d.open(t))
			o.Temporary = true
			healthy := open(t, o)
			db := raw(t, o)
			for i, c := range decisions {
				if c.onlyFile && o.URL != "" {
					continue
				}
				t.Run(c.name, func(t *testing.T) { killEverywhere(t, o, healthy, db, c, i) })
			}
			if _, err := healthy.VerifyAudit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// killEverywhere kills the process of one decision between any two statements.
func killEverywhere(t *testing.T, o store.Options, healthy *store.Store, db *sql.DB, c decision, number int) {
	ctx := t.Context()
	prepare := func(id string) {
		t.Helper()
		if c.prepare != nil {
			if err := c.prepare(ctx, healthy, id); err != nil {
				t.Fatal("prepare:", err)
			}
		}
	}
	all := c.entries[len(c.entries)-1]
	id := fmt.Sprintf("%02d-whole", number)
	prepare(id)
	before := keptBy(t, db, o)
	s, m := store.OpenMortal(t, o)
	m.Arm(-1)
	if err := c.decide(ctx, s, id); err != nil {
		t.Fatal(err)
	}
	boundaries := m.Passed()
	after := keptBy(t, db, o)
	whole := after.changed(before)
	if after.entries-before.entries != all || len(whole) == 0 && !c.onlyFile || boundaries < 4 {
		t.Fatalf(
			"undisturbed it passes %d boundaries, changes %v and has %d entries, want %d",
			boundaries,
			whole,
			after.entries-before.entries,
			all,
		)
	}
	for n := range boundaries {
		id := fmt.Sprintf("%02d-%02d", number, n)
		prepare(id)
		before := keptBy(t, db, o)
		s, m := store.OpenMortal(t, o)
		m.Arm(n)
		if err := c.decide(ctx, s, id); !errors.Is(err, store.ErrKilled) {
			t.Fatalf("killed at boundary %d of %d: %v", n, boundaries, err)
		}
		_ = s.Close()
		killed := keptBy(t, db, o)
		changed, entries := killed.changed(before), killed.entries-before.entries
		if entries != 0 && !slices.Contains(c.entries, entries) ||
			(len(changed) == 0) != (entries == 0) && !c.onlyFile ||
			entries == all && !maps.Equal(changed, whole) {
			t.Errorf(
				"killed at boundary %d of %d it leaves %d entries and changes %v; all of it is %d and %v",
				n,
				boundaries,
				entries,
				changed,
				all,
				whole,
			)
			continue
		}
		if entries == all && c.repeats {
			continue
		}
		if err := c.decide(ctx, healthy, id); err != nil && (entries == 0 || !c.isAgain(err)) {
			t.Errorf("after it was killed at boundary %d of %d it cannot be made: %v", n, boundaries, err)
			continue
		}
		last := keptBy(t, db, o)
		if made := last.entries - before.entries; made != all || !maps.Equal(last.changed(before), whole) {
			t.Errorf(
				"killed at boundary %d of %d and made again it has %d entries and changes %v, want %d and %v",
				n,
				boundaries,
				made,
				last.changed(before),
				all,
				whole,
			)
		}
	}
	t.Logf("killed at each of %d boundaries", boundaries)
}
