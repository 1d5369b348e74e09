package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

var (
	ctx     = context.Background()
	account = ledger.Account{Cloud: "aws", ID: "1"}
	start   = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
)

// delivery is a round with what it observed.
type delivery struct {
	round ledger.Round
	seen  []ledger.Observation
}

// deliveries draws rounds of a few resources that come and go, are launched, stopped and
// repriced. What they say need not fit together: a provider's word does not always.
func deliveries(t *rapid.T) []delivery {
	states := []inventory.State{inventory.StateRunning, inventory.StateRunning, inventory.StateStopped, inventory.StateDeleting}
	duties := []duty.State{duty.Busy, duty.Idle, duty.Held, duty.Starved}
	parts := []ledger.Part{{Region: "us-east-1", Kind: inventory.KindInstance}, {Region: "us-east-1", Kind: inventory.KindVolume}}
	var out []delivery
	now := start
	for range rapid.IntRange(1, 12).Draw(t, "rounds") {
		now = now.Add(time.Duration(rapid.Int64Range(1, 5*3600).Draw(t, "gap")) * time.Second)
		d := delivery{round: ledger.Round{Account: account, At: now, Source: "test"}}
		for _, p := range parts {
			if rapid.Bool().Draw(t, "complete") {
				d.round.Complete = append(d.round.Complete, p)
			}
			for i := range 2 {
				if !rapid.Bool().Draw(t, "seen") {
					continue
				}
				o := ledger.Observation{At: now, Ref: inventory.Ref{Cloud: "aws", Account: "1", Region: p.Region, Kind: p.Kind, ID: fmt.Sprint(p.Kind, i)}}
				o.State = rapid.SampledFrom(states).Draw(t, "state")
				o.Owner.Team = rapid.SampledFrom([]string{"", "vision", "speech"}).Draw(t, "team")
				o.Hold = rapid.SampledFrom([]string{"", "h-1"}).Draw(t, "hold")
				past := func(name string) time.Time {
					if rapid.Bool().Draw(t, name) {
						return time.Time{}
					}
					return now.Add(-time.Duration(rapid.Int64Range(0, 8*3600).Draw(t, name+" ago")) * time.Second)
				}
				o.CreatedAt, o.StateSince = past("created"), past("since")
				if o.State == inventory.StateRunning || p.Kind == inventory.KindVolume {
					m := ledger.Meter{Name: "compute", Category: ledger.Compute, Source: "list", MinimumSeconds: 60, AsOf: past("priced"),
						Monthly: money.Amount(rapid.Int64Range(1, 1e14).Draw(t, "rate")), Moves: rapid.Bool().Draw(t, "spot")}
					if p.Kind == inventory.KindVolume {
						m.Name, m.Category = "storage", ledger.Storage
					}
					if rapid.IntRange(0, 5).Draw(t, "priced") == 0 {
						m.Unpriced, m.Monthly = "no price", 0
					}
					o.Meters = []ledger.Meter{m}
				}
				if rapid.Bool().Draw(t, "measured") {
					o.Duty = []ledger.Span{{From: now.Add(-time.Duration(rapid.Int64Range(1, 4000).Draw(t, "for")) * time.Second), To: now, State: rapid.SampledFrom(duties).Draw(t, "duty")}}
				}
				d.seen = append(d.seen, o)
			}
		}
		out = append(out, d)
	}
	return out
}

// want derives everything at once.
func want(t interface{ Fatal(...any) }, all []delivery) map[string]ledger.Sums {
	seen := map[inventory.Ref][]ledger.Observation{}
	for _, d := range all {
		for _, o := range d.seen {
			seen[o.Ref] = append(seen[o.Ref], o)
		}
	}
	out := map[string]ledger.Sums{}
	for ref, observations := range seen {
		var rounds []time.Time
		for _, d := range all {
			if slices.Contains(d.round.Complete, ledger.Part{Region: ref.Region, Kind: ref.Kind}) {
				rounds = append(rounds, d.round.At)
			}
		}
		entries, err := ledger.Accrue(rounds, observations)
		if err != nil {
			t.Fatal(err)
		}
		addUp(out, entries)
	}
	return out
}

// addUp sums entries by hour and line, without what comes to nothing.
func addUp(out map[string]ledger.Sums, entries []ledger.Entry) {
	for _, e := range entries {
		k := fmt.Sprintf("%s %+v", e.Hour.UTC().Format(time.RFC3339), e.Line)
		s := out[k]
		s.Seconds += e.Seconds
		s.Amount += e.Amount
		s.AtMost += e.AtMost
		s.Unbounded += e.Unbounded
		if out[k] = s; s == (ledger.Sums{}) {
			delete(out, k)
		}
	}
}

func compare(t interface{ Fatalf(string, ...any) }, got, want map[string]ledger.Sums) {
	for k, w := range want {
		if got[k] != w {
			t.Fatalf("%s\ngot  %+v\nwant %+v", k, got[k], w)
		}
	}
	for k, g := range got {
		if _, ok := want[k]; !ok {
			t.Fatalf("%s\ngot  %+v\nwant nothing", k, g)
		}
	}
}

// TestAnyOrderGivesTheSameLedger: rounds that come late, twice, in parts, or after a
// crash in the middle leave what all of them say together.
func TestAnyOrderGivesTheSameLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := deliveries(t)
		store := ledgertest.NewStore()
		crash := errors.New("crash")
		left, where := rapid.IntRange(1, 30).Draw(t, "writes until a crash"), ""
		store.Before = func(method string) error {
			if left--; left == 0 {
				where = method
				return crash
			}
			return nil
		}
		post := func(d delivery, last bool) {
			_, err := ledger.Post(ctx, store, d.round, d.seen)
			// A round that was recorded is posted by the next one that comes.
			if errors.Is(err, crash) && (where == "Record" || last) {
				_, err = ledger.Post(ctx, store, d.round, d.seen)
			}
			if err != nil && !errors.Is(err, crash) {
				t.Fatal(err)
			}
		}
		again := append(slices.Clone(all), rapid.SliceOfN(rapid.SampledFrom(all), 0, 4).Draw(t, "again")...)
		for i, d := range rapid.Permutation(again).Draw(t, "order") {
			if rapid.Bool().Draw(t, "in parts") {
				half := delivery{round: d.round, seen: d.seen[:len(d.seen)/2]}
				half.round.Complete = nil
				post(half, false)
			}
			post(d, i == len(again)-1)
		}
		got := map[string]ledger.Sums{}
		addUp(got, store.All(account))
		compare(t, got, want(t, all))
	})
}

// TestProcessesBesideOneAnother: rounds that several processes post at once count once.
func TestProcessesBesideOneAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := deliveries(t)
		store := ledgertest.NewStore()
		var wg sync.WaitGroup
		for p := range 3 {
			wg.Go(func() {
				for i := range all {
					d := all[(i+p)%len(all)]
					for {
						if _, err := ledger.Post(ctx, store, d.round, d.seen); !errors.Is(err, ledger.ErrConflict) {
							break
						}
					}
				}
			})
		}
		wg.Wait()
		got := map[string]ledger.Sums{}
		addUp(got, store.All(account))
		compare(t, got, want(t, all))
	})
}

// TestEveryNanoDollarIsKept: whatever is asked for, the rows add up to the total, the
// total is that of every other question, and no time is counted twice.
func TestEveryNanoDollarIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := deliveries(t)
		store := ledgertest.NewStore()
		for _, d := range all {
			if _, err := ledger.Post(ctx, store, d.round, d.seen); err != nil {
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
			if s < 0 || s > 3600+60*60 { // a run may be billed for a minute, and an hour has at most 60 of them
				t.Fatalf("%s has %d seconds", k, s)
			}
		}
		by := rapid.SliceOfNDistinct(rapid.SampledFrom(ledger.Dimensions), 0, 3, rapid.ID[ledger.Dimension]).Draw(t, "by")
		g := rapid.SampledFrom([]ledger.Granularity{ledger.Whole, ledger.Hourly, ledger.Daily, ledger.Monthly}).Draw(t, "granularity")
		costs, err := ledger.Spent(ctx, store, ledger.Query{By: by, Since: start, Until: start.AddDate(0, 0, 4), Granularity: g})
		if err != nil {
			t.Fatal(err)
		}
		var sum ledger.Dollars
		var unknown int64
		for _, r := range append(costs.Rows, costs.Total) {
			if r.Used+r.Wasted+r.CannotJudge+r.Other != r.Amount {
				t.Fatalf("the parts of %v are not its whole: %+v", r.Key, r)
			}
		}
		for _, r := range costs.Rows {
			sum, unknown = sum+r.Amount, unknown+r.UnknownSeconds
		}
		if sum != costs.Total.Amount || money.Amount(sum) != charged || unknown != costs.Total.UnknownSeconds {
			t.Fatalf("by %v: rows %d, total %d, entries %d; unknown %d of %d", by, sum, costs.Total.Amount, charged, unknown, costs.Total.UnknownSeconds)
		}
	})
}

// TestRedeliveryAddsNothing: the second time there is nothing to add.
func TestRedeliveryAddsNothing(t *testing.T) {
	store := ledgertest.NewStore()
	r, seen := fleet(100, start.Add(time.Hour))
	for i := range 3 {
		p, err := ledger.Post(ctx, store, r, seen)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && (p.Entries != 0 || p.Rounds != 0) {
			t.Errorf("delivered again: added %+v", p)
		}
	}
}

// TestCorrectionsAreVisible: an observation that comes late adds entries that take back
// what was said before, and changes none.
func TestCorrectionsAreVisible(t *testing.T) {
	store := ledgertest.NewStore()
	post := func(hour int, team string) ledger.Posted {
		r, seen := fleet(1, start.Add(time.Duration(hour)*time.Hour))
		seen[0].Owner.Team, seen[0].CreatedAt = team, time.Time{}
		seen[0].StateSince = time.Time{}
		p, err := ledger.Post(ctx, store, r, seen)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	post(1, "vision")
	post(5, "vision") // four hours unknown
	before := store.All(account)
	if p := post(3, "vision"); p.Corrections == 0 {
		t.Errorf("a late round brought no correction: %+v", p)
	}
	after := store.All(account)
	if !slices.Equal(after[:len(before)], before) {
		t.Error("entries were changed")
	}
	for _, e := range after[len(before):] {
		if e.Kind != ledger.Correction || !e.Round.Equal(start.Add(3*time.Hour)) {
			t.Errorf("an entry is no correction by the late round: %+v", e)
		}
	}
	costs, err := ledger.Spent(ctx, store, ledger.Query{Since: start, Until: start.AddDate(0, 0, 1)})
	if err != nil || costs.Total.UnknownSeconds != 0 || costs.Total.Amount == 0 {
		t.Errorf("total %+v, %v: want all four hours charged", costs.Total, err)
	}
}

// fleet is a round of n busy machines at a time.
func fleet(n int, at time.Time) (ledger.Round, []ledger.Observation) {
	part := ledger.Part{Region: "us-east-1", Kind: inventory.KindInstance}
	r := ledger.Round{Account: account, At: at, Source: "test", Complete: []ledger.Part{part}}
	seen := make([]ledger.Observation, n)
	for i := range seen {
		seen[i] = ledger.Observation{
			At: at, Ref: inventory.Ref{Cloud: "aws", Account: "1", Region: part.Region, Kind: part.Kind, ID: fmt.Sprintf("i-%08d", i)}, State: inventory.StateRunning,
			StateSince: start.Add(-time.Hour), CreatedAt: start.Add(-time.Hour),
			Attributes: ledger.Attributes{Type: "g6.2xlarge", Market: inventory.OnDemand, Owner: inventory.Owner{Team: fmt.Sprint("team-", i%7), Project: fmt.Sprint("p-", i%31)}},
			Meters:     []ledger.Meter{{Name: "compute", Category: ledger.Compute, Monthly: 713_648_000_000, Source: "list", AsOf: start.Add(-time.Hour), MinimumSeconds: 60}},
			Duty:       []ledger.Span{{From: at.Add(-25 * time.Minute), To: at, State: duty.Busy}},
		}
	}
	return r, seen
}

// BenchmarkPostHour posts an hour of 100,000 machines, the store in memory included.
func BenchmarkPostHour(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(strings.TrimSpace(money.Thousands(int64(n)))+" machines", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				store := ledgertest.NewStore()
				r, seen := fleet(n, start)
				if _, err := ledger.Post(ctx, store, r, seen); err != nil {
					b.Fatal(err)
				}
				r, seen = fleet(n, start.Add(time.Hour))
				b.StartTimer()
				if p, err := ledger.Post(ctx, store, r, seen); err != nil || p.Entries < n {
					b.Fatalf("added %+v, %v", p, err)
				}
			}
		})
	}
}

// TestACrashIsMadeUpFor: what a round was recorded for and never posted is posted by the
// next round.
func TestACrashIsMadeUpFor(t *testing.T) {
	for _, method := range []string{"Append", "Settle"} {
		store, crash := ledgertest.NewStore(), errors.New("crash")
		for hour := range 4 {
			store.Before = func(m string) error {
				if hour == 2 && m == method {
					return crash
				}
				return nil
			}
			r, seen := fleet(3, start.Add(time.Duration(hour)*time.Hour))
			if _, err := ledger.Post(ctx, store, r, seen); (err != nil) != (hour == 2) {
				t.Fatalf("hour %d: %v", hour, err)
			}
		}
		costs, err := ledger.Spent(ctx, store, ledger.Query{Since: start, Until: start.AddDate(0, 0, 1)})
		if got := money.Amount(costs.Total.Amount).String(); err != nil || got != "8.7984" {
			t.Errorf("a crash in %s: %s, %v; want 3 machines for 3 hours at 0.9776", method, got, err)
		}
	}
}

// TestAClockFarAheadInventsNothing: a round that the store's time has not reached by far is
// refused whole, and what follows is charged as if it had never come.
func TestAClockFarAheadInventsNothing(t *testing.T) {
	now := start.Add(time.Hour)
	store := ledgertest.NewStore()
	store.Clock = func() time.Time { return now }
	post := func(at time.Time) error {
		r, seen := fleet(1, at)
		_, err := ledger.Post(ctx, store, r, seen)
		return err
	}
	for _, at := range []time.Time{now, now.Add(ledger.MaxAhead)} {
		if err := post(at); err != nil {
			t.Errorf("a round at %s: %v", at, err)
		}
	}
	before := store.All(account)
	for _, at := range []time.Time{now.Add(ledger.MaxAhead + time.Second), now.AddDate(0, 0, 30)} {
		if err := post(at); !errors.Is(err, ledger.ErrAhead) {
			t.Errorf("a round at %s: %v", at, err)
		}
	}
	rounds, err := store.Rounds(ctx, account, start, start.AddDate(1, 0, 0))
	if after := store.All(account); err != nil || len(rounds) != 2 || !slices.Equal(before, after) {
		t.Errorf("%d rounds and %d entries more are kept, %v", len(rounds), len(after)-len(before), err)
	}
	now = now.Add(2 * time.Hour)
	if err := post(now); err != nil {
		t.Error(err)
	}
	broken := errors.New("no clock")
	if _, err := ledger.Post(ctx, timeless{store, broken}, ledger.Round{Account: account, At: now}, nil); !errors.Is(err, broken) {
		t.Errorf("a store that cannot tell the time: %v", err)
	}
}

// timeless is a store that cannot tell the time.
type timeless struct {
	ledger.Store
	err error
}

func (s timeless) Now(context.Context) (time.Time, error) { return time.Time{}, s.err }
