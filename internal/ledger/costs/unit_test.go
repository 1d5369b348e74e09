package costs_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger/costs"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// month is the costs of a month: $6,000 used, $3,000 wasted, $1,000 of storage.
func month() *costs.Costs {
	usd := func(n int64) money.Amount { return money.Amount(n) * money.USD }
	c := costs.Cost{Period: start, Used: usd(6000), Wasted: usd(3000), Other: usd(1000), Amount: usd(10_000)}
	return &costs.Costs{
		Since: start, Until: start.AddDate(0, 1, 0), Granularity: "total", Rows: []costs.Cost{c},
		Total: c, Recorded: true,
	}
}

func TestUnits(t *testing.T) {
	target, _ := money.ParseRate("0.00015")
	for _, tc := range []struct {
		name   string
		unit   costs.Unit
		counts string
		want   string // used allocated idle
	}{
		{
			"$10,000 for 50 million predictions", costs.Unit{Name: "prediction"},
			"time,count\n2026-03-02,20000000\n2026-03-03,30000000\n", "0.00012 0.0002 0.00006",
		},
		{
			"per million tokens", costs.Unit{Name: "token", Per: 1_000_000}, "time,count\n2026-03-02,4000000000000\n",
			"0.0015 0.0025 0.00075",
		},
		{
			"GPU-hours", costs.Unit{Name: "GPU-hour"}, "time,count\n2026-03-02,2500.5\n",
			"2.399520095981 3.999200159968 1.19976004799",
		},
		{
			"less than a nano-dollar each", costs.Unit{Name: "token"}, "time,count\n2026-03-02,100000000000000\n",
			"0.00000000006 0.0000000001 0.00000000003",
		},
		{"nothing counted", costs.Unit{Name: "prediction"}, "time,count\n", "nothing was counted"},
		{"zero counted", costs.Unit{Name: "prediction"}, "time,count\n2026-03-02,0\n", "nothing was counted"},
		{
			"counted in another month", costs.Unit{Name: "prediction"}, "time,count\n2026-04-02,5\n",
			"nothing was counted",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counts, err := costs.ReadCounts("c.csv", strings.NewReader(tc.counts))
			if err != nil {
				t.Fatal(err)
			}
			tc.unit.Target = &target
			u, err := costs.Units(tc.unit, month(), counts)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range u.Total {
				if x.Cost == nil {
					got = []string{x.Reason}
					continue
				}
				got = append(got, x.Cost.String())
				if over := x.Basis == costs.AllocatedBasis && *x.Cost > target; over != x.OverTarget {
					t.Errorf("%s at %s: over the target %v", x.Basis, x.Cost, x.OverTarget)
				}
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("got %s, want %s", s, tc.want)
			}
			b, err := json.Marshal(u)
			if err != nil {
				t.Fatal(err)
			}
			null := strings.Contains(string(b), `"unit_cost_usd":null`)
			if null != (tc.want == "nothing was counted") {
				t.Errorf("document %s", b)
			}
		})
	}
}

// TestUnitsOfShorterPeriods checks that a day's count is not applied to one of its hours.
func TestUnitsOfShorterPeriods(t *testing.T) {
	rows := func(g ledger.Granularity, step time.Duration) *costs.Costs {
		c := month()
		c.Granularity, c.Rows = string(g), nil
		for i := range 60 {
			c.Rows = append(c.Rows, costs.Cost{Period: start.Add(time.Duration(i) * step), Amount: money.USD})
		}
		return c
	}
	for _, tc := range []struct {
		name   string
		costs  *costs.Costs
		counts string
		want   string
	}{
		{"days by the hour", rows(ledger.Hourly, time.Hour), "2026-03-01,5\n2026-03-02,5\n", "show them by day"},
		{"hours by the hour", rows(ledger.Hourly, time.Hour), "2026-03-01,5\n2026-03-02T01:00:00Z,5\n", ""},
		{"days by the day", rows(ledger.Daily, 24*time.Hour), "2026-03-01,5\n2026-03-02,5\n", ""},
		{"a month by the day", rows(ledger.Daily, 24*time.Hour), "2026-03-01,5\n", "show them by month"},
	} {
		counts, err := costs.ReadCounts("c.csv", strings.NewReader("time,count\n"+tc.counts))
		if err != nil {
			t.Fatal(err)
		}
		_, err = costs.Units(costs.Unit{Name: "token"}, tc.costs, counts)
		if (tc.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestUnitsWithoutCosts checks that counts of a key without costs are reported.
func TestUnitsWithoutCosts(t *testing.T) {
	c := month()
	c.By, c.Rows[0].Key = []ledger.Dimension{ledger.ByTeam}, []string{"vision"}
	u, err := costs.Units(costs.Unit{
		Name: "token",
	}, c, []costs.Count{{Time: start, Count: 1000, Key: "vision"}, {Time: start, Count: 1000, Key: "visoin"}})
	if err != nil || len(u.CoverageNotes) != 1 ||
		!strings.Contains(u.CoverageNotes[0], "nothing was spent on visoin") {
		t.Errorf("got %v, %v", u, err)
	}
}

// TestUnitTrend covers a unit cost that rises by a quarter from the first to the last month, with
// an uncounted month between.
func TestUnitTrend(t *testing.T) {
	c := month()
	c.Granularity, c.Until, c.By = "month", start.AddDate(0, 3, 0), []ledger.Dimension{ledger.ByTeam}
	row := func(m int, dollars int64) costs.Cost {
		return costs.Cost{
			Period: start.AddDate(0, m, 0), Key: []string{"vision"}, Amount: money.Amount(dollars) * money.USD,
		}
	}
	c.Rows = []costs.Cost{row(0, 100), row(1, 100), row(2, 125)}
	n := func(m int) costs.Count {
		return costs.Count{Time: start.AddDate(0, m, 5), Count: 10_000, Key: "vision"}
	}
	u, err := costs.Units(costs.Unit{Name: "run"}, c, []costs.Count{n(0), n(2)})
	if err != nil || u.Trend == nil || *u.Trend != 0.25 || len(u.Rows) != 9 {
		t.Fatalf("%+v, %v; want nine rows and a trend of a quarter", u, err)
	}
	for i, r := range u.Rows { // the third month is compared with the first, because the second has no value
		if changed := r.Change != nil; changed != (i == 7) || (changed && *r.Change != 0.25) {
			t.Errorf("row %d, %s of %s: change %v", i, r.Basis, r.Period, r.Change)
		}
	}
	if _, err := costs.Units(costs.Unit{Name: "run"}, c, []costs.Count{{Time: start, Count: 1}}); err == nil ||
		!strings.Contains(err.Error(), "need a key") {
		t.Errorf("a count without a key: got %v", err)
	}
}

// TestUnitsOfUnknownDollars checks that an unknown cost yields no unit cost, not $0.
func TestUnitsOfUnknownDollars(t *testing.T) {
	usd := func(n int64) money.Amount { return money.Amount(n) * money.USD }
	at := func(d int) time.Time { return start.AddDate(0, 0, d) }
	count := func(days ...int) (out []costs.Count) {
		for _, d := range days {
			out = append(out, costs.Count{Time: at(d), Count: 1_000_000})
		}
		return out
	}
	recorded := func(from, to int) map[time.Time]bool {
		days := map[time.Time]bool{}
		for d := from; d < to; d++ {
			days[at(d)] = true
		}
		return days
	}
	costsOf := func(g string, rows ...costs.Cost) *costs.Costs {
		c := &costs.Costs{
			Since: start, Until: start.AddDate(0, 2, 0), Granularity: g, Rows: rows, Recorded: len(rows) > 0,
		}
		for _, r := range rows {
			c.Total.Amount += r.Amount
			c.Total.Used += r.Used
			c.Total.UnknownSeconds += r.UnknownSeconds
			c.Total.CannotJudge += r.CannotJudge
		}
		return c
	}
	march := costs.Cost{Period: start, Used: usd(1000), Amount: usd(1000)}
	april := costs.Cost{Period: start.AddDate(0, 1, 0), Used: usd(5000), Amount: usd(5000)}
	for _, tc := range []struct {
		name   string
		costs  *costs.Costs
		days   map[time.Time]bool
		counts []costs.Count
		want   string // used, allocated, idle of the total
		note   string
	}{
		{
			"nothing was recorded", costsOf("total"), map[time.Time]bool{}, count(3),
			"unknown: nothing was recorded in this time", "",
		},
		{
			"recorded from the second half on", costsOf("total", march), recorded(15, 31),
			count(3, 20), "1.00 1.00 0.00",
			"1 counts are of days whose dollars are unknown",
		},
		{
			"counted before it is recorded", costsOf("total", march), recorded(15, 31), count(3),
			"it was counted only on days whose dollars are unknown", "",
		},
		{
			"counted in March alone", costsOf("month", march, april), recorded(0, 61), count(3), "1.00 1.00 0.00",
			"$5,000 was spent where nothing was counted",
		},
		{
			"no price", costsOf("total", costs.Cost{Period: start, UnknownSeconds: 3600}), recorded(0, 31), count(3),
			"unknown: its cost is unknown", "",
		},
		{
			"a part without a price",
			costsOf("total", costs.Cost{Period: start, Used: usd(1000), Amount: usd(1000), UnknownSeconds: 3600}),
			recorded(0, 31), count(3), "≥1.00 ≥1.00 unknown: its cost is unknown", "",
		},
		{
			"not measured", costsOf("total", costs.Cost{Period: start, CannotJudge: usd(1000), Amount: usd(1000)}),
			recorded(0, 31), count(3), "unknown: compute was not measured 1.00 unknown: compute was not measured", "",
		},
		{"nothing ran", costsOf("total", costs.Cost{Period: start}), recorded(0, 31), count(3), "0.00 0.00 0.00", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.costs.Days = tc.days
			u, err := costs.Units(costs.Unit{Name: "token"}, tc.costs, tc.counts)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range u.Total {
				s := x.Reason
				if x.Amount == nil {
					s = "unknown: " + s
				}
				if x.Cost != nil {
					s = x.Cost.String()
				}
				if x.AtLeast {
					s = "≥" + s
				}
				if len(got) == 0 || got[0] != s || x.Cost != nil {
					got = append(got, s)
				}
				if (x.Cost == nil) != (x.Reason != "") || (x.Cost != nil && x.Amount == nil) {
					t.Errorf("%s: %+v", x.Basis, x)
				}
			}
			s := strings.Join(got, " ")
			if tc.name == "not measured" {
				s = strings.Join([]string{
					"unknown: " + u.Total[0].Reason, u.Total[1].Cost.String(), "unknown: " + u.Total[2].Reason,
				}, " ")
			}
			if s != tc.want {
				t.Errorf("got %s, want %s", s, tc.want)
			}
			if notes := strings.Join(u.CoverageNotes, "; "); !strings.Contains(notes, tc.note) {
				t.Errorf("the notes are %q, want %q", notes, tc.note)
			}
		})
	}
}

func TestReadCounts(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"an unknown column", "time,count,team\n", `c.csv:1:12: unknown column "team"`},
		{"no count", "time\n", `column "count" is missing`},
		{"a time that is none", "time,count\nyesterday,1\n", `c.csv:2:1: time "yesterday"`},
		{"a negative count", "time,count\n2026-01-01,-1\n", `c.csv:2:12: count "-1"`},
		{"too many digits", "time,count\n2026-01-01,1.2345\n", `count "1.2345"`},
		{"an exponent", "time,count\n2026-01-01,1e3\n", `count "1e3"`},
		{"out of range", "time,count\n2026-01-01,99999999999999999999\n", "out of range"},
		{"twice", "time,count,key\n2026-01-01,1,a\n2026-01-01,2,a\n", "c.csv:3:1: there is already a count of a"},
		{"an empty file", "", "empty file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := costs.ReadCounts("c.csv", strings.NewReader(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// FuzzReadCounts checks that every accepted count round-trips, and that no time and key repeats.
func FuzzReadCounts(f *testing.F) {
	f.Add("time,count\n2026-01-01,1\n")
	f.Add("time,count,key\n2026-01-01T15:00:00+02:00,1.5,a\n")
	f.Add("count,time\n0.001,2026-01-01\n")
	f.Fuzz(func(t *testing.T, in string) {
		counts, err := costs.ReadCounts("c.csv", strings.NewReader(in))
		if err != nil {
			return
		}
		seen := map[costs.Count]bool{}
		for _, c := range counts {
			q, err := costs.ParseQuantity(c.Count.String())
			if err != nil || q != c.Count || q < 0 {
				t.Fatalf("count %d prints as %s, read again as %d, %v", c.Count, c.Count, q, err)
			}
			c.Count = 0
			if seen[c] {
				t.Fatalf("%s of %q is there twice", c.Time, c.Key)
			}
			seen[c] = true
		}
	})
}
