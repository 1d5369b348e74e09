package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
)

// folds is the contract of [ledger.Folder], compared with a ledger that is never folded.
var folds = []test{
	{"folding between rounds changes no sum of any dimension", foldsKeepSums},
	{"a round that is older than what is folded is refused", func(t *testing.T, b *Backend) {
		rounds, observations := sights()
		for i, r := range rounds {
			must(ledger.Post(t.Context(), b.Ledger, r, observations[i]))(t)
		}
		late := rounds[0]
		late.At = late.At.Add(time.Minute)
		newest := rounds[len(rounds)-1].At
		foldWhole(t, b.Ledger, newest)
		if err := b.Ledger.Record(t.Context(), late, nil); err != nil {
			t.Errorf("within two days: %v", err)
		}
		for _, r := range must(b.Ledger.Pending(t.Context(), payer))(t) {
			no(t, b.Ledger.Settle(t.Context(), r))
		}
		foldWhole(t, b.Ledger, newest.Add(ledger.HoursAfter))
		late.At = late.At.Add(time.Minute)
		if err := b.Ledger.Record(t.Context(), late, nil); !errors.Is(err, ledger.ErrFolded) {
			t.Errorf("got %v, want ErrFolded", err)
		}
		if n := len(must(b.Ledger.Pending(t.Context(), payer))(t)); n != 0 {
			t.Errorf("%d rounds are pending", n)
		}
	}},
	{"a round that is not posted yet is not folded", func(t *testing.T, b *Backend) {
		want := ledgertest.NewStore()
		rounds, observations := sights()
		for i, r := range rounds {
			must(ledger.Post(t.Context(), want, r, observations[i]))(t)
			no(t, b.Ledger.Record(t.Context(), r, observations[i]))
		}
		foldWhole(t, b.Ledger, noon.AddDate(0, 0, 200))
		next, seen := sight(rand.New(rand.NewPCG(7, 8)), rounds[len(rounds)-1].At.Add(time.Hour))
		for _, s := range []ledger.Store{want, b.Ledger} {
			must(ledger.Post(t.Context(), s, next, seen))(t)
		}
		sameSums(t, b.Ledger, want, time.Time{})
	}},
	{"hours of single resources that are days are an error that says from when on", func(t *testing.T, b *Backend) {
		rounds, observations := sights()
		for i, r := range rounds {
			must(ledger.Post(t.Context(), b.Ledger, r, observations[i]))(t)
		}
		far, seen := sight(rand.New(rand.NewPCG(7, 8)), noon.AddDate(0, 0, 120))
		must(ledger.Post(t.Context(), b.Ledger, far, seen))(t)
		foldWhole(t, b.Ledger, far.At)
		until := far.At.Add(-ledger.DaysAfter).Truncate(24 * time.Hour)
		q := ledger.SumQuery{
			By: []ledger.Dimension{ledger.ByResource}, Since: noon, Until: noon.AddDate(0, 0, 1),
			Granularity: ledger.Hourly,
		}
		var folded *ledger.FoldedError
		if _, err := b.Ledger.Sums(t.Context(), q); !errors.As(err, &folded) || !folded.Until.Equal(until) {
			t.Errorf("got %v, want hours from %s on", err, until)
		}
		q.Since, q.Until, q.Granularity = noon.Truncate(24*time.Hour), far.At.Truncate(24*time.Hour), ledger.Daily
		if sums, err := b.Ledger.Sums(t.Context(), q); err != nil || len(sums) == 0 {
			t.Errorf("by day: %d sums, %v", len(sums), err)
		}
		q.Since, q.Until, q.Granularity = until, far.At.Add(time.Hour), ledger.Hourly
		if _, err := b.Ledger.Sums(t.Context(), q); err != nil {
			t.Errorf("from there on: %v", err)
		}
	}},
}

// foldWhole folds everything possible at a time, with a new process after each transaction.
func foldWhole(t *testing.T, s ledger.Store, now time.Time) {
	t.Helper()
	for must(s.(ledger.Folder).Fold(t.Context(), payer, now, 1))(t).More {
	}
}

// foldsKeepSums posts 130 days of rounds with changing resources and gaps of days and weeks to a
// ledger that is folded meanwhile, often incompletely.
func foldsKeepSums(t *testing.T, b *Backend) {
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 11))
		want, at, gone := ledgertest.NewStore(), noon.AddDate(0, 0, -130), 0
		begin, end := at, noon
		folder := b.Ledger.(ledger.Folder)
		for at.Before(end) {
			pause := time.Duration(random.IntN(6*3600)) * time.Second
			switch random.IntN(12) {
			case 0:
				pause = time.Duration(random.IntN(40*24)) * time.Hour
			case 1:
				pause = time.Duration(random.IntN(4*24)) * time.Hour
			}
			at = at.Add(pause + time.Second)
			when := at
			if random.IntN(4) == 0 { // it arrives late
				when = when.Add(-time.Duration(random.IntN(30*3600)) * time.Second)
			}
			r, seen := sight(random, when)
			r.Account.ID = fmt.Sprint("fold-", seed)
			for i := range seen {
				seen[i].Ref.Account = r.Account.ID
			}
			for _, s := range []ledger.Store{want, b.Ledger} {
				must(ledger.Post(t.Context(), s, r, seen))(t)
			}
			if random.IntN(4) == 0 {
				f := must(folder.Fold(t.Context(), r.Account, at, random.IntN(20)))(t)
				gone += f.Observations + f.Entries
			}
		}
		days := at.Add(-ledger.DaysAfter).Truncate(24 * time.Hour)
		sameSumsOf(t, b.Ledger, want, payerOf(seed), days)
		first, last := begin.Truncate(24*time.Hour), end.Truncate(24*time.Hour)
		kept := must(want.ResourceDays(t.Context(), payerOf(seed), first, last))(t)
		folded := must(b.Ledger.ResourceDays(t.Context(), payerOf(seed), first, last))(t)
		if diff := cmp.Diff(kept, folded); diff != "" {
			t.Fatalf("seed %d: days of resources (-want +got):\n%s", seed, diff)
		}
		if gone == 0 {
			t.Errorf("seed %d: nothing was folded", seed)
		}
	}
	b.Check(t)
}

func payerOf(seed uint64) ledger.Account {
	return ledger.Account{Cloud: payer.Cloud, ID: fmt.Sprint("fold-", seed)}
}

// sameSums compares two ledgers in every dimension and granularity. Hours of single resources are
// compared from a time on.
func sameSums(t *testing.T, got, want ledger.Store, hoursFrom time.Time) {
	t.Helper()
	sameSumsOf(t, got, want, payer, hoursFrom)
}

func sameSumsOf(t *testing.T, got, want ledger.Store, a ledger.Account, hoursFrom time.Time) {
	t.Helper()
	n := 0
	mine := ledger.Match{By: ledger.ByAccount, Values: []string{a.String()}}
	bys := [][]ledger.Dimension{nil, {ledger.ByTeam, ledger.ByDuty, ledger.ByResource}}
	for _, d := range ledger.Dimensions {
		bys = append(bys, []ledger.Dimension{d})
	}
	for _, by := range bys {
		for _, g := range []ledger.Granularity{ledger.Whole, ledger.Hourly, ledger.Daily, ledger.Monthly} {
			q := ledger.SumQuery{
				By: by, Since: noon.AddDate(0, 0, -140).Truncate(24 * time.Hour),
				Until: noon.AddDate(0, 0, 9).Truncate(24 * time.Hour), Granularity: g, Filter: ledger.Filter{mine},
			}
			for _, d := range by {
				if d == ledger.ByResource && g == ledger.Hourly && q.Since.Before(hoursFrom) {
					q.Since = hoursFrom
				}
			}
			sums := nonzero(must(want.Sums(t.Context(), q))(t))
			if diff := cmp.Diff(sums, nonzero(must(got.Sums(t.Context(), q))(t))); diff != "" {
				t.Fatalf("%s by %v, %q (-want +got):\n%s", a, by, g, diff)
			}
			n += len(sums)
		}
	}
	if n < 100 {
		t.Errorf("%d sums were compared", n)
	}
}
