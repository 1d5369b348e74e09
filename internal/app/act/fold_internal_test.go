package act

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestFoldsWholeBacklog checks that if passes run from cron, one pass folds a whole backlog that
// takes more transactions than a service spends on one pass.
func TestFoldsWholeBacklog(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	account := ledger.Account{Cloud: "aws", ID: "123456789012"}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const days = 30
	end := begin
	for ; end.Before(begin.AddDate(0, 0, days)); end = end.Add(6 * time.Hour) {
		r, seen := ledgertest.Fleet(account, begin, 1, end)
		if _, err := ledger.Post(t.Context(), s.Ledger(), r, seen); err != nil {
			t.Fatal(err)
		}
	}
	now := end.Add(ledger.HoursAfter)
	pass := &round.Result{}
	pass.Cloud, pass.Accounts, pass.StartedAt = account.Cloud, []string{account.ID}, now
	if err := keepSmall(t.Context(), apptest.Request(t, ""), s, pass); err != nil {
		t.Fatal(err)
	}
	left, err := s.Ledger().(ledger.Folder).Fold(t.Context(), account, now, 1000)
	if err != nil || left != (ledger.Folded{}) {
		t.Errorf("after the pass %+v was left to fold, %v", left, err)
	}
}
