package costs_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

// charged is a ledger in which each team's machine costs a number of dollars an hour on each day.
func charged(t testing.TB, days int, hourly func(team string, day int) int64) *ledgertest.Store {
	t.Helper()
	store := ledgertest.NewStore()
	for hour := range days*24 + 1 {
		now := start.Add(time.Duration(hour) * time.Hour)
		var seen []ledger.Observation
		for _, team := range []string{"vision", "language"} {
			o := ledger.Observation{
				At: now, State: inventory.StateRunning, CreatedAt: start,
				Ref: inventory.Ref{
					Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-" + team,
				},
				Meters: []ledger.Meter{{
					Name: "compute", Category: ledger.Compute,
					Monthly: money.Amount(730*hourly(team, hour/24)) * money.USD,
				}},
			}
			o.Owner.Team = team
			seen = append(seen, o)
		}
		r := ledger.Round{Account: account, At: now, Source: "test"}
		if _, err := ledger.Post(ctx, store, r, seen); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// TestComparesWithPeriodBefore compares the change with the difference of two queries, and its
// parts with their sum.
func TestComparesWithPeriodBefore(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		prices := map[string][]int64{}
		for _, team := range []string{"vision", "language"} {
			prices[team] = rapid.SliceOfN(rapid.Int64Range(0, 9), 9, 9).Draw(r, team)
		}
		store := charged(t, 8, func(team string, day int) int64 { return prices[team][day] })
		length := rapid.IntRange(1, 4).Draw(r, "days")
		until := start.AddDate(0, 0, 8)
		since := until.AddDate(0, 0, -length)
		c, err := costs.Spent(ctx, store, costs.Query{Since: since, Until: until, Compare: true})
		if err != nil {
			t.Fatal(err)
		}
		before, err := costs.Spent(ctx, store, costs.Query{Since: since.AddDate(0, 0, -length), Until: since})
		if err != nil {
			t.Fatal(err)
		}
		a := c.Comparison
		if a.Unknown != "" || *a.Total != before.Total.Amount || *a.Change != c.Total.Amount-before.Total.Amount {
			r.Fatalf("got %+v, want %s of %s", a, c.Total.Amount-before.Total.Amount, before.Total.Amount)
		}
		sum := money.Amount(0)
		for _, change := range a.Changes {
			sum += change.Change
		}
		if sum != *a.Change {
			r.Errorf("the changes of teams add up to %s, not %s", sum, *a.Change)
		}
	})
}

func TestComparesSamePartOfMonth(t *testing.T) {
	store := charged(t, 40, func(string, int) int64 { return 1 })
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	c, err := costs.Spent(ctx, store, costs.Query{Since: april, Until: april.AddDate(0, 0, 5), Compare: true})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Comparison; !a.Since.Equal(start) || !a.Until.Equal(start.AddDate(0, 0, 5)) || *a.Change != 0 ||
		len(a.Changes) != 0 {
		t.Errorf("got %+v", a)
	}
}

// TestDoesNotCompareUnrecordedDays checks that unrecorded days are not read as days without costs.
func TestDoesNotCompareUnrecordedDays(t *testing.T) {
	store := charged(t, 8, func(string, int) int64 { return 1 })
	for name, since := range map[string]time.Time{
		"before": start.AddDate(0, 0, 3), "now": start.AddDate(0, 0, 6),
	} {
		c, err := costs.Spent(ctx, store, costs.Query{Since: since, Until: since.AddDate(0, 0, 5), Compare: true})
		if err != nil {
			t.Fatal(err)
		}
		if a := c.Comparison; !strings.Contains(a.Unknown, "not recorded") || a.Total != nil || a.Change != nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
