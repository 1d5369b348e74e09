package budget_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestReadsReplayedLedgerByDay checks a team's machine costs by day up to the end of the ledger,
// with unpriced ones separate and other teams excluded.
func TestReadsReplayedLedgerByDay(t *testing.T) {
	ctx, memory := context.Background(), &ledger.Memory{}
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	account, part := ledger.Account{Cloud: "trace"}, ledger.Part{Kind: inventory.KindInstance}
	for hour := range 50 {
		r := ledger.Round{
			Account: account, At: start.Add(time.Duration(hour) * time.Hour), Complete: []ledger.Part{part},
		}
		var seen []ledger.Observation
		for _, m := range []struct {
			id, team, unpriced string
			month              money.Amount
		}{
			{"a", "vision", "", 730 * money.USD}, {"b", "speech", "", 7300 * money.USD},
			{"c", "vision", "no price", 0},
		} {
			o := ledger.Observation{
				At: r.At, Ref: inventory.Ref{Cloud: account.Cloud, Kind: part.Kind, ID: m.id},
				State:     inventory.StateRunning,
				CreatedAt: start,
				Meters: []ledger.Meter{
					{Name: "compute", Category: ledger.Compute, Monthly: m.month, Unpriced: m.unpriced},
				}}
			o.Owner.Team = m.team
			seen = append(seen, o)
		}
		if _, err := ledger.Post(ctx, memory, r, seen); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		from, to int // hours
		want     budget.Spend
	}{
		{
			0, 72,
			budget.Spend{
				Used: 49 * money.USD, Through: start.Add(49 * time.Hour), Unbounded: 49 * time.Hour,
				Daily: []money.Amount{24 * money.USD, 24 * money.USD, money.USD},
			},
		},
		{
			24, 48,
			budget.Spend{
				Used: 24 * money.USD, Through: start.Add(48 * time.Hour), Unbounded: 24 * time.Hour,
				Daily: []money.Amount{24 * money.USD},
			},
		},
		{60, 72, budget.Spend{Through: start.Add(49 * time.Hour), Daily: []money.Amount{0}}},
		{-24, 0, budget.Spend{Daily: []money.Amount{0}}},
		{24, 24, budget.Spend{}},
	} {
		got, err := budget.ReplayedLedger{
			Ledger: memory,
		}.Spent(ctx, budget.Match{Team: "vision"}, start.Add(time.Duration(tc.from)*time.Hour),
			start.Add(time.Duration(tc.to)*time.Hour))
		if err != nil || got.Used != tc.want.Used || !got.Through.Equal(tc.want.Through) ||
			got.Unbounded != tc.want.Unbounded || got.Unknown != 0 || !slices.Equal(got.Daily, tc.want.Daily) {
			t.Errorf("from %dh to %dh: %+v, %v, want %+v", tc.from, tc.to, got, err, tc.want)
		}
	}
}
