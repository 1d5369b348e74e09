package store_test

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/test/postgres"
)

func TestLedgerIsAppendOnly(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			s := open(t, at)
			if _, err := s.Ledger().Append(t.Context(), benchPayer, 0, fleetHour(january)[:10]); err != nil {
				t.Fatal(err)
			}
			db := raw(t, at)
			statements := []string{
				"UPDATE ledger_entries SET amount = 0 WHERE number = 7", "DELETE FROM ledger_entries WHERE number = 7",
				"DELETE FROM ledger_entries",
				"UPDATE ledger_lines SET meter = '' WHERE series = 7", "DELETE FROM ledger_lines",
			}
			if at.URL == "" {
				statements = append(statements,
					"INSERT OR REPLACE INTO ledger_entries SELECT * FROM ledger_entries WHERE number = 7",
					"INSERT OR REPLACE INTO ledger_lines SELECT * FROM ledger_lines WHERE series = 7")
			} else {
				statements = append(statements, "TRUNCATE ledger_entries", "TRUNCATE ledger_lines CASCADE")
			}
			for _, statement := range statements {
				if _, err := db.Exec(statement); err == nil ||
					!strings.Contains(err.Error(), "the ledger is append-only") {
					t.Errorf("%s: got %v, want a refusal", statement, err)
				}
			}
			sums, err := s.Ledger().Sums(t.Context(), ledger.SumQuery{Since: january, Until: january.AddDate(1, 0, 0)})
			if err != nil || len(sums) != 1 || sums[0].Sums.Amount != 5*money.USD {
				t.Errorf("the sums are %+v, %v; want $5", sums, err)
			}
		})
	}
}

// TestPassesDoNotGrowSums checks that rewriting the sums of an hour with each posted round does not
// grow their tables and indexes, also without a vacuum, as on the test servers.
func TestPassesDoNotGrowSums(t *testing.T) {
	at := store.Options{URL: postgres.Start(t)}
	s := open(t, at)
	entries := fleetHour(january)[:600]
	size := func() (bytes int64) {
		t.Helper()
		if err := raw(t, at).QueryRow("SELECT SUM(pg_relation_size(oid) + pg_indexes_size(oid)) FROM pg_class " +
			"WHERE relname LIKE 'ledger_%_sums'").Scan(&bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	var version, first int64
	for round := range 30 {
		var err error
		if version, err = s.Ledger().Append(t.Context(), benchPayer, version, entries); err != nil {
			t.Fatal(err)
		}
		if round == 1 { // the first update uses the free space reserved for it
			first = size()
		}
	}
	if last := size(); last > first*11/10 {
		t.Errorf("28 rounds made the sums grow from %d to %d bytes", first, last)
	}
}
