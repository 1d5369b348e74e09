package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
)

func TestAuditIsAppendOnly(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			fill(t, at)
			db := raw(t, at)
			statements := []string{
				"UPDATE audit SET actor = 'other' WHERE id = 7", "DELETE FROM audit WHERE id = 7", "DELETE FROM audit",
			}
			if at.URL == "" {
				statements = append(statements, "INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE id = 7")
			} else {
				statements = append(statements, "TRUNCATE audit")
			}
			for _, statement := range statements {
				if _, err := db.Exec(statement); err == nil ||
					!strings.Contains(err.Error(), "the audit log is append-only") {
					t.Errorf("%s: got %v, want a refusal", statement, err)
				}
			}
			if end, err := open(t, at).VerifyAudit(t.Context()); end.Entry != 100 || err != nil {
				t.Errorf("%d entries, error %v; want 100", end.Entry, err)
			}
		})
	}
}

// TestVerifyAuditFindsChanges modifies the log as the owner of the database could. Each change
// precedes the ones already detected.
func TestVerifyAuditFindsChanges(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			fill(t, at)
			db, s := raw(t, at), open(t, at)
			disarm := []string{"DROP TRIGGER audit_keeps_updated", "DROP TRIGGER audit_keeps_deleted"}
			if at.URL != "" {
				disarm = []string{"DROP TRIGGER audit_keeps_rows ON audit"}
			}
			do := func(statements ...string) {
				for _, statement := range statements {
					if _, err := db.Exec(statement); err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
				}
			}
			do(disarm...)
			for _, tc := range []struct {
				name    string
				changes []string
				want    string
			}{
				{"the end removed", []string{"DELETE FROM audit WHERE id > 90"}, "entry 91:"},
				{"an entry removed", []string{"DELETE FROM audit WHERE id = 50"}, "entry 50:"},
				{"evidence changed", []string{"UPDATE audit SET evidence = '[]' WHERE id = 9"}, "entry 9:"},
				{"a time changed", []string{"UPDATE audit SET at = at + 1 WHERE id = 8"}, "entry 8:"},
				{"a reason changed", []string{"UPDATE audit SET because = 'busy' WHERE id = 7"}, "entry 7:"},
				{"a hash changed", []string{"UPDATE audit SET hash = '' WHERE id = 6"}, "entry 6:"},
				{"two entries swapped", []string{
					"UPDATE audit SET id = CASE id WHEN 3 THEN -4 ELSE -3 END WHERE id IN (3, 4)",
					"UPDATE audit SET id = -id WHERE id < 0",
				}, "entry 3:"},
				{"everything removed", []string{"DELETE FROM audit"}, "entry 1:"},
			} {
				do(tc.changes...)
				if _, err := s.VerifyAudit(t.Context()); !errors.Is(err, store.ErrTampered) ||
					!strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want ErrTampered at %s", tc.name, err, tc.want)
				}
			}
		})
	}
}

// TestVerifiesAuditHead compares a log with an intact chain with a head stored elsewhere.
func TestVerifiesAuditHead(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			s := open(t, at)
			record := func(s *store.Store, n int, actor string) action.Head {
				t.Helper()
				for range n {
					if err := s.Actions().Record(t.Context(), action.Entry{
						At: noon, Actor: actor, What: "keep",
					}); err != nil {
						t.Fatal(err)
					}
				}
				end, err := s.VerifyAudit(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return end
			}
			none, head := action.Head{}, record(s, 7, "ana")
			if end := record(s, 3, "bo"); end.Entry != 10 || end.First != head.First {
				t.Errorf("the end is %+v", end)
			}
			if end, err := s.VerifyAudit(t.Context(), head, head); err != nil || end.Entry != 10 {
				t.Errorf("of %d entries: %v", end.Entry, err)
			}
			for _, tc := range []struct {
				name string
				head action.Head
				want error
				says string
			}{
				{
					"an entry to come", action.Head{Entry: 11, Hash: head.Hash, First: head.First}, store.ErrTruncated,
					"it ends at entry 10, and held entry 11",
				},
				{
					"another hash", action.Head{Entry: 7, Hash: head.First, First: head.First}, store.ErrRewritten,
					"entry 7",
				},
				{
					"another first", action.Head{Entry: 7, Hash: head.Hash, First: head.Hash}, store.ErrRebuilt,
					"entry 1",
				},
				{"nothing", none, store.ErrRebuilt, "entry 1"},
			} {
				if _, err := s.VerifyAudit(t.Context(), head, tc.head); !errors.Is(err, tc.want) ||
					!errors.Is(err, store.ErrTampered) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%s: %v", tc.name, err)
				}
			}
			if _, err := open(t, d.open(t)).VerifyAudit(t.Context(), head); !errors.Is(err, store.ErrTruncated) {
				t.Errorf("an empty log: %v", err)
			}
		})
	}
}
