package store_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/store"
)

// postDays posts a pass every 15 minutes over some days for a few machines.
func postDays(t *testing.T, s ledger.Store, from time.Time, days, machines int) time.Time {
	t.Helper()
	at := from
	for ; at.Before(from.AddDate(0, 0, days)); at = at.Add(15 * time.Minute) {
		r, seen := ledgertest.Fleet(benchPayer, from, machines, at)
		if _, err := ledger.Post(t.Context(), s, r, seen); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// everyHour returns the sums by hour and team that plans and budgets use.
func everyHour(t *testing.T, s ledger.Store) []ledger.Sum {
	t.Helper()
	sums, err := s.Sums(t.Context(), ledger.SumQuery{
		Since: january, Until: january.AddDate(1, 0, 0), Granularity: ledger.Hourly,
		By: []ledger.Dimension{ledger.ByTeam, ledger.ByDuty, ledger.ByType},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// TestFoldingBoundsGrowth counts the rows per machine and day: 96 observations and some 120 charges
// at first, 24 of each after two days, one of each after 90.
func TestFoldingBoundsGrowth(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := empty(t, d.open(t))
			s := open(t, at)
			const days, machines = 6, 2
			end := postDays(t, s.Ledger(), january, days, machines)
			before := everyHour(t, s.Ledger())
			count := func(query string) (n int) {
				t.Helper()
				if err := raw(t, at).QueryRow(query).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			rows := func() [2]int {
				return [2]int{
					count("SELECT COUNT(*) FROM ledger_observations"), count("SELECT COUNT(*) FROM ledger_entries"),
				}
			}
			if n := rows(); n[0] != 96*days*machines || n[1] < 95*days*machines {
				t.Fatalf("at first there are %v rows", n)
			}
			fold := func(now time.Time) {
				t.Helper()
				for more := true; more; {
					f, err := s.Ledger().(ledger.Folder).Fold(t.Context(), benchPayer, now, 3)
					if err != nil {
						t.Fatal(err)
					}
					more = f.More
				}
			}
			fold(end.Add(ledger.HoursAfter))
			// The day of the newest pass and the hour that it may derive again are not folded.
			if n, most := rows(), machines*(24*(days-1)+96+4); n[0] > most || n[1] > most {
				t.Errorf("hours leave %v rows", n)
			}
			fold(end.Add(ledger.DaysAfter))
			if n, most := rows(), machines*(days-2+24+3+96); n[0] > most || n[1] > most {
				t.Errorf("days leave %v rows", n)
			}
			if diff := cmp.Diff(before, everyHour(t, s.Ledger())); diff != "" {
				t.Errorf("the hours of teams (-want +got):\n%s", diff)
			}
			if _, err := raw(t, at).Exec("DELETE FROM ledger_entries"); err == nil {
				t.Error("a ledger that was folded lets charges be deleted")
			}
		})
	}
}

// TestFoldingKeepsCommitmentPlan checks that folding into hours changes neither the hours
// of machines nor the plan, also if a finding ends a machine.
func TestFoldingKeepsCommitmentPlan(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s := open(t, empty(t, d.open(t)))
			const days, machines = 5, 3
			end := postDays(t, s.Ledger(), january, days, machines)
			leaves := accountplan.NewLeaving([]accountplan.Fix{{
				Resource: inventory.Ref{
					Cloud: benchPayer.Cloud, Account: benchPayer.ID, Region: "us-east-1",
					Kind: inventory.KindInstance, ID: "i-00000000",
				},
				Type: "g6.2xlarge", Change: change.Change{Verb: change.Stop},
			}})
			plan := func() string {
				t.Helper()
				use, notes, err := accountplan.Hours(t.Context(), s.Ledger(), january, end, leaves, book)
				if err != nil || len(notes) > 0 || len(use) < 24*(days-1) {
					t.Fatalf("%d hours, notes %q, %v", len(use), notes, err)
				}
				r, err := commit.Plan(use, []commit.Offer{{
					Key: commit.PriceKey("g6.2xlarge", "us-east-1"), Kind: commit.Reserved, TermMonths: 12,
					Payment: commit.NoUpfront, Hourly: use[0].OnDemand * 3 / 5,
				}}, nil, commit.Options{MinHours: -1})
				if err != nil || len(r.Commitments) == 0 || r.LeavingUSD == 0 {
					t.Fatalf("nothing is planned: %+v, %v", r, err)
				}
				text, err := json.MarshalIndent(r, "", " ")
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			before := plan()
			for more := true; more; {
				f, err := s.Ledger().(ledger.Folder).Fold(t.Context(), benchPayer, end.Add(ledger.HoursAfter), 2)
				if err != nil {
					t.Fatal(err)
				}
				more = f.More
			}
			if diff := cmp.Diff(before, plan()); diff != "" {
				t.Errorf("folded into hours (-before +after):\n%s", diff)
			}
		})
	}
}

// TestKilledWhileFolding kills the folding process between statements. Sums are unchanged, and the
// next process completes the fold.
func TestKilledWhileFolding(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := empty(t, d.open(t))
			healthy := open(t, at)
			end := postDays(t, healthy.Ledger(), january, 4, 1)
			before, now := everyHour(t, healthy.Ledger()), end.Add(ledger.DaysAfter)
			for boundary, more := 0, true; more; boundary++ {
				s, m, err := store.StartMortal(t.Context(), at)
				if err != nil {
					t.Fatal(err)
				}
				m.Arm(boundary)
				f, err := s.Ledger().(ledger.Folder).Fold(t.Context(), benchPayer, now, 100)
				_ = s.Close()
				if err == nil {
					more = f.More
				} else if !m.Dead() {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, everyHour(t, healthy.Ledger())); diff != "" {
					t.Fatalf("killed at boundary %d (-want +got):\n%s", boundary, diff)
				}
				var whole, rolled int64
				if err := errors.Join(
					raw(t, at).QueryRow("SELECT CAST(SUM(amount) AS BIGINT) FROM ledger_entries").Scan(&whole),
					raw(t, at).QueryRow("SELECT CAST(SUM(amount) AS BIGINT) FROM ledger_group_sums WHERE grain = 0").Scan(
						&rolled)); err != nil || whole != rolled || whole == 0 {
					t.Fatalf("killed at boundary %d: charges come to %d, their hours to %d, %v", boundary, whole, rolled, err)
				}
				more = more || err != nil
			}
			if f, err := healthy.Ledger().(ledger.Folder).Fold(t.Context(), benchPayer, now, 100); err != nil ||
				f != (ledger.Folded{}) {
				t.Errorf("it was not folded to the end: %+v, %v", f, err)
			}
		})
	}
}
