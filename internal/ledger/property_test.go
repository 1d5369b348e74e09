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

	"github.com/curfew-dev/curfew/internal/ledger/costs"

	"pgregory.net/rapid"

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

// want derives all entries at once.
func want(t interface{ Fatal(...any) }, all []ledgertest.Delivery) map[string]ledger.Sums {
	seen := map[inventory.Ref][]ledger.Observation{}
	for _, d := range all {
		for _, o := range d.Seen {
			seen[o.Ref] = append(seen[o.Ref], o)
		}
	}
	out := map[string]ledger.Sums{}
	for ref, observations := range seen {
		var rounds []time.Time
		for _, d := range all {
			if slices.Contains(d.Round.Complete, ledger.Part{Region: ref.Region, Kind: ref.Kind}) {
				rounds = append(rounds, d.Round.At)
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

// addUp sums entries by hour and line, without zeros.
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

// TestRoundOrderDoesNotMatter checks that rounds that come late, twice, in parts, or after a
// crash yield the same ledger.
func TestRoundOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := ledgertest.Deliveries(t, account, start)
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
		post := func(d ledgertest.Delivery, last bool) {
			_, err := ledger.Post(ctx, store, d.Round, d.Seen)
			// The next round also posts a recorded one.
			if errors.Is(err, crash) && (where == "Record" || last) {
				_, err = ledger.Post(ctx, store, d.Round, d.Seen)
			}
			if err != nil && !errors.Is(err, crash) {
				t.Fatal(err)
			}
		}
		again := append(slices.Clone(all), rapid.SliceOfN(rapid.SampledFrom(all), 0, 4).Draw(t, "again")...)
		for i, d := range rapid.Permutation(again).Draw(t, "order") {
			if rapid.Bool().Draw(t, "in parts") {
				half := ledgertest.Delivery{Round: d.Round, Seen: d.Seen[:len(d.Seen)/2]}
				half.Round.Complete = nil
				post(half, false)
			}
			post(d, i == len(again)-1)
		}
		got := map[string]ledger.Sums{}
		addUp(got, store.All(account))
		compare(t, got, want(t, all))
	})
}

// TestConcurrentProcesses checks that rounds posted concurrently by several processes count
// once.
func TestConcurrentProcesses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := ledgertest.Deliveries(t, account, start)
		store := ledgertest.NewStore()
		var wg sync.WaitGroup
		for p := range 3 {
			wg.Go(func() {
				for i := range all {
					d := all[(i+p)%len(all)]
					for {
						if _, err := ledger.Post(ctx, store, d.Round, d.Seen); !errors.Is(err, ledger.ErrConflict) {
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

// TestRedeliveryAddsNothing checks that posting again adds nothing.
func TestRedeliveryAddsNothing(t *testing.T) {
	store := ledgertest.NewStore()
	r, seen := ledgertest.Fleet(account, start, 100, start.Add(time.Hour))
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

// TestLateObservationAddsCorrections checks that a late observation adds correcting entries and changes
// none.
func TestLateObservationAddsCorrections(t *testing.T) {
	store := ledgertest.NewStore()
	post := func(hour int, team string) ledger.Posted {
		r, seen := ledgertest.Fleet(account, start, 1, start.Add(time.Duration(hour)*time.Hour))
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
			t.Errorf("an entry is no correction by the late Round: %+v", e)
		}
	}
	costs, err := costs.Spent(ctx, store, costs.Query{Since: start, Until: start.AddDate(0, 0, 1)})
	if err != nil || costs.Total.UnknownSeconds != 0 || costs.Total.Amount == 0 {
		t.Errorf("total %+v, %v: want all four hours charged", costs.Total, err)
	}
}

// BenchmarkPostHour posts an hour of 100,000 machines, including the in-memory store.
func BenchmarkPostHour(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(strings.TrimSpace(money.Thousands(int64(n)))+" machines", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				store := ledgertest.NewStore()
				r, seen := ledgertest.Fleet(account, start, n, start)
				if _, err := ledger.Post(ctx, store, r, seen); err != nil {
					b.Fatal(err)
				}
				r, seen = ledgertest.Fleet(account, start, n, start.Add(time.Hour))
				b.StartTimer()
				if p, err := ledger.Post(ctx, store, r, seen); err != nil || p.Entries < n {
					b.Fatalf("added %+v, %v", p, err)
				}
			}
		})
	}
}

// TestNextRoundPostsAfterCrash checks that the next round posts one that was recorded but not posted.
func TestNextRoundPostsAfterCrash(t *testing.T) {
	for _, method := range []string{"Append", "Settle"} {
		store, crash := ledgertest.NewStore(), errors.New("crash")
		for hour := range 4 {
			store.Before = func(m string) error {
				if hour == 2 && m == method {
					return crash
				}
				return nil
			}
			r, seen := ledgertest.Fleet(account, start, 3, start.Add(time.Duration(hour)*time.Hour))
			if _, err := ledger.Post(ctx, store, r, seen); (err != nil) != (hour == 2) {
				t.Fatalf("hour %d: %v", hour, err)
			}
		}
		costs, err := costs.Spent(ctx, store, costs.Query{Since: start, Until: start.AddDate(0, 0, 1)})
		if got := costs.Total.Amount.String(); err != nil || got != "8.7984" {
			t.Errorf("a crash in %s: %s, %v; want 3 machines for 3 hours at 0.9776", method, got, err)
		}
	}
}

// TestRefusesRoundAheadOfClock checks that a round far ahead of the store's time is refused
// completely and leaves no trace.
func TestRefusesRoundAheadOfClock(t *testing.T) {
	now := start.Add(time.Hour)
	store := ledgertest.NewStore()
	store.Clock = func() time.Time { return now }
	post := func(at time.Time) error {
		r, seen := ledgertest.Fleet(account, start, 1, at)
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
	if _, err := ledger.Post(ctx, brokenClock{
		store, broken,
	}, ledger.Round{Account: account, At: now}, nil); !errors.Is(err,
		broken) {
		t.Errorf("a store that cannot tell the time: %v", err)
	}
}

// brokenClock is a store whose clock fails.
type brokenClock struct {
	ledger.Store
	err error
}

func (s brokenClock) Now(context.Context) (time.Time, error) { return time.Time{}, s.err }
