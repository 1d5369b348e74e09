package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestPartialHistoryIsAnError checks that an unreadable table is an error, because charges
// derived from a part would be posted as corrections.
func TestPartialHistoryIsAnError(t *testing.T) {
	account := ledger.Account{Cloud: "aws", ID: "1"}
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			for _, table := range []string{
				"ledger_accounts", "ledger_resources", "ledger_observations", "ledger_entries", "ledger_rounds",
			} {
				o := empty(t, at)
				s := open(t, o)
				r, seen := ledgertest.Fleet(account, noon, 2, noon)
				if _, err := ledger.Post(t.Context(), s.Ledger(), r, seen); err != nil {
					t.Fatal(err)
				}
				refs := []inventory.Ref{seen[0].Ref, seen[1].Ref}
				histories := func(s *store.Store) ([]ledger.History, error) {
					all, _, err := s.Ledger().Histories(context.Background(), account, refs, noon.Add(-24*time.Hour),
						noon.Add(24*time.Hour))
					return all, err
				}
				if all, err := histories(s); err != nil || len(all) != 2 || len(all[0].Observations) == 0 ||
					len(all[0].Rounds) == 0 {
					t.Fatalf("%+v, %v", all, err)
				}
				if _, err := raw(t, o).Exec("ALTER TABLE " + table + " RENAME TO taken"); err != nil {
					t.Fatal(err)
				}
				if all, err := histories(s); err == nil {
					t.Errorf("without %s: %+v", table, all)
				}
			}
		})
	}
}
