package costs_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

// afternoon is a ledger of two hours: machines of two teams and an unallocated one, a disk, a
// commitment, and a machine without a price.
func afternoon(t testing.TB) *ledgertest.Store {
	t.Helper()
	store := ledgertest.NewStore()
	for hour := range 3 {
		now := start.Add(time.Duration(12+hour) * time.Hour)
		one := func(id, team string, kind inventory.Kind, m ledger.Meter, state duty.State) ledger.Observation {
			o := ledger.Observation{
				At: now, Ref: inventory.Ref{Cloud: "aws", Account: "1", Region: "us-east-1", Kind: kind, ID: id},
				State: inventory.StateRunning, CreatedAt: start, Meters: []ledger.Meter{m}}
			o.Owner.Team = team
			if state != duty.Unknown {
				o.Duty = []ledger.Span{{From: now.Add(-time.Hour), To: now, State: state}}
			}
			return o
		}
		compute := ledger.Meter{Name: "compute", Category: ledger.Compute, Monthly: 730 * money.USD}
		seen := []ledger.Observation{
			one("i-1", "vision", inventory.KindInstance, compute, duty.Busy),
			one("i-2", "=cmd()", inventory.KindInstance, compute, duty.Held),
			one("i-3", "", inventory.KindInstance, compute, duty.Unknown),
			one("v-1", "vision", inventory.KindVolume, ledger.Meter{
				Name: "storage", Category: ledger.Storage, Monthly: 73 * money.USD,
			}, duty.Unknown),
			one("c-1", "", inventory.KindCommitment, ledger.Meter{
				Name: "commitment", Category: ledger.Committed, Monthly: 7300 * money.USD,
			}, duty.Unknown),
			one("i-4", "vision", inventory.KindInstance, ledger.Meter{
				Name: "compute", Category: ledger.Compute, Unpriced: "no price",
			}, duty.Busy),
		}
		if _, err := ledger.Post(ctx, store, ledger.Round{
			Account: account, At: now, Source: "test",
		}, seen); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func spent(t testing.TB, store ledger.Store, by string, g ledger.Granularity, f ledger.Filter) *costs.Costs {
	t.Helper()
	dims, err := ledger.ParseDimensions(by)
	if err != nil {
		t.Fatal(err)
	}
	c, err := costs.Spent(ctx, store, costs.Query{
		By: dims, Since: start, Until: start.AddDate(0, 0, 1), Granularity: g, Filter: f,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSpent(t *testing.T) {
	store := afternoon(t)
	const sums = ",used_usd,wasted_usd,cannot_judge_usd,other_usd,total_usd,unknown_seconds,unknown_at_most_usd,unbounded_seconds,starved_usd,warming_usd\n"
	for _, tc := range []struct {
		name   string
		by     string
		g      ledger.Granularity
		filter ledger.Filter
		want   string
	}{
		{
			"by team", "team", ledger.Whole, nil,
			"period,team" + sums + `2026-03-01T00:00:00Z,vision,2.00,0.00,0.00,0.20,2.20,7200,,7200,0.00,0.00
2026-03-01T00:00:00Z,,0.00,0.00,2.00,0.00,2.00,0,0.00,0,0.00,0.00
2026-03-01T00:00:00Z,'=cmd(),0.00,2.00,0.00,0.00,2.00,0,0.00,0,0.00,0.00
`},
		{
			"by duty and hour, of some teams", "duty", ledger.Hourly, ledger.Filter{
				{By: ledger.ByKind, Values: []string{"instance"}}, {By: ledger.ByTeam, Values: []string{"", "vision"}},
			},
			"period,duty" + sums + `2026-03-01T12:00:00Z,busy,1.00,0.00,0.00,0.00,1.00,3600,,3600,0.00,0.00
2026-03-01T12:00:00Z,unknown,0.00,0.00,1.00,0.00,1.00,0,0.00,0,0.00,0.00
2026-03-01T13:00:00Z,busy,1.00,0.00,0.00,0.00,1.00,3600,,3600,0.00,0.00
2026-03-01T13:00:00Z,unknown,0.00,0.00,1.00,0.00,1.00,0,0.00,0,0.00,0.00
`},
		{
			"what commitments cost, when asked", "category", ledger.Whole, ledger.Filter{
				{By: ledger.ByCategory, Values: []string{"committed"}},
			},
			"period,category" + sums +
				"2026-03-01T00:00:00Z,committed,0.00,0.00,0.00,20.00,20.00,0,0.00,0,0.00,0.00\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := report.CostsCSV(&b, view.NewCosts(spent(t, store, tc.by, tc.g, tc.filter))); err != nil {
				t.Fatal(err)
			}
			if b.String() != tc.want {
				t.Errorf("got\n%swant\n%s", &b, tc.want)
			}
			if _, err := csv.NewReader(&b).ReadAll(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCostsDocument(t *testing.T) {
	c := spent(t, afternoon(t), "team", ledger.Daily, nil)
	b, err := json.Marshal(view.NewCosts(c))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"schema":"curfew.costs/v1"`, `"granularity":"day"`, `"by":["team"]`, `"committed_usd":"20.00"`,
		`"total_usd":"6.20"`,
		`"unknown_at_most_usd":null,"unknown_at_most_reason":"no price for 2 metered hours"`, `"key":[""]`,
	} {
		if !strings.Contains(string(b), part) {
			t.Errorf("the document lacks %s:\n%s", part, b)
		}
	}
	if len(c.CoverageNotes) != 3 || len(c.Assumptions) == 0 || len(c.Changes) == 0 {
		t.Errorf("notes %q, assumptions %q, changes %q", c.CoverageNotes, c.Assumptions, c.Changes)
	}
}

func TestRejectsInvalidQueries(t *testing.T) {
	store := ledgertest.NewStore()
	for _, q := range []costs.Query{
		{}, {Since: start, Until: start}, {Since: start.Add(time.Minute), Until: start.Add(time.Hour)},
	} {
		if _, err := costs.Spent(ctx, store, q); err == nil || !strings.Contains(err.Error(), "whole hours") {
			t.Errorf("%+v: got %v", q, err)
		}
	}
	for _, s := range []string{"", "color", "team,team"} {
		if _, err := ledger.ParseDimensions(s); err == nil {
			t.Errorf("dimensions %q: no error", s)
		}
	}
	if _, err := ledger.ParseGranularity("week"); err == nil {
		t.Error("granularity week: no error")
	}
	for _, d := range ledger.Dimensions {
		if got, err := ledger.ParseDimensions(string(d)); err != nil || !slices.Equal(got, []ledger.Dimension{d}) {
			t.Errorf("dimension %s: %v, %v", d, got, err)
		}
	}
}

// TestRowsSumToTotal checks for any query that the rows sum to the total, that the total
// does not depend on the grouping, and that no time is counted twice.
func TestRowsSumToTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := ledgertest.Deliveries(t, account, start)
		store := ledgertest.NewStore()
		for _, d := range all {
			if _, err := ledger.Post(ctx, store, d.Round, d.Seen); err != nil {
				t.Fatal(err)
			}
		}
		var charged money.Amount
		timed := map[string]int64{}
		for _, e := range store.All(account) {
			charged += e.Amount
			timed[e.Hour.Format(time.RFC3339)+e.Ref.String()+e.Meter] += e.Seconds
		}
		for k, s := range timed {
			if s < 0 || s > 3600+60*60 { // a run is billed for at least a minute, and an hour has at most 60 of them
				t.Fatalf("%s has %d seconds", k, s)
			}
		}
		by := rapid.SliceOfNDistinct(rapid.SampledFrom(ledger.Dimensions), 0, 3,
			rapid.ID[ledger.Dimension]).Draw(t, "by")
		g := rapid.SampledFrom([]ledger.Granularity{ledger.Whole, ledger.Hourly, ledger.Daily, ledger.Monthly}).Draw(t,
			"granularity")
		c, err := costs.Spent(ctx, store, costs.Query{
			By: by, Since: start, Until: start.AddDate(0, 0, 4), Granularity: g,
		})
		if err != nil {
			t.Fatal(err)
		}
		var sum money.Amount
		var unknown int64
		for _, r := range append(c.Rows, c.Total) {
			if r.Used+r.Wasted+r.CannotJudge+r.Other != r.Amount {
				t.Fatalf("the parts of %v are not its whole: %+v", r.Key, r)
			}
		}
		for _, r := range c.Rows {
			sum, unknown = sum+r.Amount, unknown+r.UnknownSeconds
		}
		if sum != c.Total.Amount || sum != charged || unknown != c.Total.UnknownSeconds {
			t.Fatalf("by %v: rows %d, total %d, entries %d; unknown %d of %d", by, sum,
				c.Total.Amount, charged, unknown,
				c.Total.UnknownSeconds)
		}
	})
}
