package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// TestFoldedLedgerPlansTheSameCommitments: the hours of machines, and the plan on them, are those of the
// ledger before it was folded. Only hours of a machine that a finding ends are not known of days: a note names
// the time before which they count as hours that stay, and the plan is the one of that.
func TestFoldedLedgerPlansTheSameCommitments(t *testing.T) {
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
			hours := func(leaves accountplan.Leaving) ([]commit.Usage, []string) {
				t.Helper()
				use, notes, err := accountplan.Hours(t.Context(), s.Ledger(), january, end, leaves, book)
				if err != nil || len(use) < 24*(days-1) {
					t.Fatalf("%d hours, notes %q, %v", len(use), notes, err)
				}
				return use, notes
			}
			use, notes := hours(leaves)
			before, all := planOn(t, use), planOn(t, staying(use))
			if len(notes) > 0 || before == all {
				t.Fatalf("notes %q, and the plan without the machine that leaves is %s", notes, all)
			}
			foldAll(t, s.Ledger(), end.Add(ledger.HoursAfter))
			folded, notes := hours(leaves)
			if diff := cmp.Diff(before, planOn(t, folded)); diff != "" || len(notes) > 0 {
				t.Errorf("folded into hours, notes %q (-before +after):\n%s", notes, diff)
			}
			foldAll(t, s.Ledger(), end.Add(ledger.DaysAfter))
			stay, _ := hours(nil)
			if diff := cmp.Diff(all, planOn(t, stay)); diff != "" {
				t.Errorf("folded into days, without findings (-before +after):\n%s", diff)
			}
			folded, notes = hours(leaves)
			var until time.Time
			for _, note := range notes {
				var day string
				if _, err := fmt.Sscanf(note, "hours before %s are kept without the machine", &day); err == nil {
					if until, err = time.Parse(time.DateOnly, day); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !until.After(january) || !until.Before(end) {
				t.Fatalf("notes %q name no time within the ledger", notes)
			}
			for i := range use { // what the note says, of the hours before
				if use[i].Hour.Before(until) {
					use[i].Leaving = 0
				}
			}
			if diff := cmp.Diff(use, folded); diff != "" {
				t.Errorf("folded into days, with what the note says (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(planOn(t, use), planOn(t, folded)); diff != "" {
				t.Errorf("planned on days, with what the note says (-before +after):\n%s", diff)
			}
		})
	}
}

// staying returns hours in which no machine leaves.
func staying(use []commit.Usage) []commit.Usage {
	use = slices.Clone(use)
	for i := range use {
		use[i].Leaving = 0
	}
	return use
}

// planOn plans one kind of reservation on hours.
func planOn(t *testing.T, use []commit.Usage) string {
	t.Helper()
	r, err := commit.Plan(use, []commit.Offer{{
		Key: commit.PriceKey("g6.2xlarge", "us-east-1"), Kind: commit.Reserved, TermMonths: 12,
		Payment: commit.NoUpfront, Hourly: use[0].OnDemand * 3 / 5,
	}}, nil, commit.Options{MinHours: -1})
	if err != nil || len(r.Commitments) == 0 {
		t.Fatalf("nothing is planned: %+v, %v", r, err)
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// foldAll folds a ledger as far as it may be at a time.
func foldAll(t *testing.T, s ledger.Store, now time.Time) {
	t.Helper()
	for more := true; more; {
		f, err := s.(ledger.Folder).Fold(t.Context(), benchPayer, now, 2)
		if err != nil {
			t.Fatal(err)
		}
		more = f.More
	}
}

// TestKilledWhileFolding kills the folding process at boundaries between two statements. Sums stay,
// and the next process completes the fold.
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
