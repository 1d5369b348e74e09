package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
)

// january is the start of the year that the benchmarks query.
var january = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// benchPayer is the account of the benchmarks.
var benchPayer = ledger.Account{Cloud: "aws", ID: "123456789012"}

// fleetHour returns the entries of a fleet for an hour; each machine is busy for half of it.
func fleetHour(hour time.Time) []ledger.Entry {
	var out []ledger.Entry
	for i := range fleet {
		for _, duty := range []string{"busy", "idle"} {
			out = append(out, ledger.Entry{
				Kind: ledger.Accrual, Hour: hour, Round: hour, Sums: ledger.Sums{Seconds: 1800, Amount: money.USD / 2},
				Line: ledger.Line{
					Ref: inventory.Ref{
						Cloud: "aws", Account: benchPayer.ID, Region: "us-east-1", Kind: inventory.KindInstance,
						ID: fmt.Sprintf("i-%016x", i),
					},
					Meter: "compute", Category: ledger.Compute, ChargeCategory: ledger.Usage,
					Pricing: ledger.Standard, Duty: duty,
					Monthly: 730 * money.USD, Source: "catalog", AsOf: january,
					Attributes: ledger.Attributes{
						Name: fmt.Sprint("node-", i), Type: []string{
							"g5.xlarge", "p5.48xlarge",
						}[i%2], Purpose: "training",
						Owner: inventory.Owner{
							Team: fmt.Sprint("team-", i%20), Project: fmt.Sprint("project-", i%50),
							User: fmt.Sprint("user-", i%200),
						},
					},
				},
			})
		}
	}
	return out
}

// year returns a state with a year of hourly charges of a fleet: one hour is appended, and its sums
// are copied to every other day and month, to the hours of December, and per machine to the days of
// December. Queries for a year read no others.
func year(b *testing.B, at store.Options) *store.Store {
	s := open(b, at)
	if _, err := s.Ledger().Append(b.Context(), benchPayer, 0, fleetHour(january)); err != nil {
		b.Fatal(err)
	}
	db, december := raw(b, at), january.AddDate(0, 11, 0)
	for _, c := range []struct {
		table string
		grain int
		from  time.Time
		next  func(time.Time) time.Time
	}{
		{"group", 0, december, hourAfter}, {"group", 1, january, dayAfter}, {"group", 2, january, monthAfter},
		{"series", 1, december, dayAfter}, {"series", 2, january, monthAfter},
		{"purse", 0, december, hourAfter}, {"purse", 1, january, dayAfter},
	} {
		for start := c.from; start.Year() == january.Year(); start = c.next(start) {
			if start.Equal(january) {
				continue
			}
			copied := fmt.Sprintf(
				"INSERT INTO ledger_%s_sums SELECT grain, %d, about, seconds, amount, at_most, unbounded, "+
					"newest FROM ledger_%s_sums WHERE grain = %d AND start = %d",
				c.table, start.UnixMicro(), c.table, c.grain, january.UnixMicro())
			if _, err := db.Exec(copied); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ResetTimer()
	return s
}

func hourAfter(t time.Time) time.Time  { return t.Add(time.Hour) }
func dayAfter(t time.Time) time.Time   { return t.AddDate(0, 0, 1) }
func monthAfter(t time.Time) time.Time { return t.AddDate(0, 1, 0) }

// BenchmarkYear queries the costs of a year of hourly charges of 10,000 resources.
func BenchmarkYear(b *testing.B) {
	for _, d := range databases {
		b.Run(d.name, func(b *testing.B) { ask(b, year(b, d.open(b))) })
	}
}

func ask(b *testing.B, s *store.Store) {
	for _, tc := range []struct {
		name string
		q    ledger.SumQuery
		want int
	}{
		{"by team", ledger.SumQuery{By: []ledger.Dimension{ledger.ByTeam}}, 20},
		{
			"by team and day", ledger.SumQuery{By: []ledger.Dimension{ledger.ByTeam}, Granularity: ledger.Daily},
			365 * 20,
		},
		{
			"by user, month and duty",
			ledger.SumQuery{
				By: []ledger.Dimension{ledger.ByUser, ledger.ByDuty}, Granularity: ledger.Monthly,
			}, 12 * 200 * 2,
		},
		{"by resource", ledger.SumQuery{By: []ledger.Dimension{ledger.ByResource}}, fleet},
		{"by resource and duty", ledger.SumQuery{By: []ledger.Dimension{ledger.ByResource, ledger.ByDuty}}, 2 * fleet},
		{
			"of one team by resource",
			ledger.SumQuery{
				By:     []ledger.Dimension{ledger.ByResource},
				Filter: ledger.Filter{{By: ledger.ByTeam, Values: []string{"team-7"}}},
			},
			fleet / 20,
		},
	} {
		b.Run(tc.name, func(b *testing.B) {
			tc.q.Since, tc.q.Until = january, january.AddDate(1, 0, 0)
			for b.Loop() {
				if sums, err := s.Ledger().Sums(b.Context(), tc.q); err != nil || len(sums) != tc.want {
					b.Fatal(len(sums), err)
				}
			}
		})
	}
	b.Run("spent of a team's month", func(b *testing.B) {
		for b.Loop() {
			spend, err := s.Budgets().Spent(b.Context(), budget.Match{Team: "team-7"}, january.AddDate(0, 11, 0),
				january.AddDate(1, 0, 0))
			if err != nil || spend.Used == 0 {
				b.Fatal(spend, err)
			}
		}
	})
	b.Run("spent of a team's month in another zone", func(b *testing.B) {
		for b.Loop() {
			spend, err := s.Budgets().Spent(b.Context(), budget.Match{Team: "team-7"},
				january.AddDate(0, 11, 0).Add(time.Hour),
				january.AddDate(1, 0, 0))
			if err != nil || spend.Used == 0 {
				b.Fatal(spend, err)
			}
		}
	})
}

// BenchmarkAppend appends hours of a fleet: two entries per machine.
func BenchmarkAppend(b *testing.B) {
	s := open(b, store.Options{Dir: b.TempDir()})
	version := int64(0)
	for i := 0; b.Loop(); i++ {
		var err error
		if version, err = s.Ledger().Append(b.Context(), benchPayer, version,
			fleetHour(january.Add(time.Duration(i)*time.Hour))); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPost records a round of a fleet each hour and posts its entries.
func BenchmarkPost(b *testing.B) {
	for _, d := range databases {
		b.Run(d.name, func(b *testing.B) {
			s := open(b, d.open(b))
			seen := make([]ledger.Observation, fleet)
			for i, e := range fleetHour(january)[:fleet] {
				seen[i] = ledger.Observation{
					Ref: e.Ref, Attributes: e.Attributes, State: inventory.StateRunning, CreatedAt: january,
					Meters: []ledger.Meter{
						{
							Name: "compute", Category: ledger.Compute, Monthly: 730 * money.USD, Source: "catalog",
							AsOf: january,
						},
					},
				}
				seen[i].Ref.ID = fmt.Sprintf("i-%016x", i)
			}
			for i := 0; b.Loop(); i++ {
				r := ledger.Round{
					Account: benchPayer, At: january.Add(time.Duration(i) * time.Hour),
					Complete: []ledger.Part{{Region: "us-east-1", Kind: inventory.KindInstance}},
				}
				for j := range seen {
					seen[j].At = r.At
				}
				if p, err := ledger.Post(b.Context(), s.Ledger(), r, seen); err != nil || p.Resources != fleet {
					b.Fatal(p, err)
				}
			}
		})
	}
}
