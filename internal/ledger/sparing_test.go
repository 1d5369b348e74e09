package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

// life is the actual history of a resource, as intervals.
type life struct {
	ref        inventory.Ref
	dated      bool // the provider states when the current state began
	made, gone time.Time
	states     []interval[inventory.State]
	duties     []interval[duty.State]
	teams      []interval[string]
	rates      []interval[money.Amount]
}

type interval[T any] struct {
	from time.Time
	is   T
}

// at returns the interval that contains a time.
func at[T any](of []interval[T], t time.Time) interval[T] {
	var found interval[T]
	for _, i := range of {
		if !i.from.After(t) {
			found = i
		}
	}
	return found
}

// lives generates the histories of a few resources over some rounds.
func lives(t *rapid.T, end time.Time) []life {
	when := func(name string) time.Time {
		return start.Add(time.Duration(rapid.Int64Range(-7200, int64(end.Sub(start)/time.Second)).Draw(t, name)) *
			time.Second)
	}
	var out []life
	for i := range rapid.IntRange(1, 4).Draw(t, "resources") {
		l := life{dated: rapid.IntRange(0, 3).Draw(t, "dated") > 0, made: when("made"), gone: end.Add(time.Hour)}
		l.ref = inventory.Ref{
			Cloud: "aws", Account: "1", Region: "us-east-1",
			Kind: rapid.SampledFrom([]inventory.Kind{inventory.KindInstance, inventory.KindVolume}).Draw(t, "kind"),
			ID:   fmt.Sprint(i),
		}
		if rapid.Bool().Draw(t, "ends") {
			l.gone = when("gone")
		}
		states := []inventory.State{
			inventory.StateRunning, inventory.StateRunning, inventory.StateStopping, inventory.StateStopped,
			inventory.StateDeleting,
		}
		if l.ref.Kind == inventory.KindVolume {
			states = []inventory.State{inventory.StateInUse, inventory.StateAvailable}
		}
		l.states = draw(t, l.made, when, rapid.SampledFrom(states))
		l.duties = draw(t, l.made, when,
			rapid.SampledFrom([]duty.State{duty.Busy, duty.Idle, duty.Held, duty.Unknown}))
		l.teams = draw(t, l.made, when, rapid.SampledFrom([]string{"vision", "speech"}))
		l.rates = draw(t, l.made, when, rapid.Custom(func(t *rapid.T) money.Amount {
			return money.Amount(rapid.Int64Range(1, 1e14).Draw(t, "rate"))
		}))
		out = append(out, l)
	}
	return out
}

func draw[T any](t *rapid.T, from time.Time, when func(string) time.Time, of *rapid.Generator[T]) []interval[T] {
	out := []interval[T]{{from, of.Draw(t, "first")}}
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		if at := when("change"); at.After(from) {
			out = append(out, interval[T]{at, of.Draw(t, "next")})
		}
	}
	slices.SortStableFunc(out, func(a, b interval[T]) int { return a.from.Compare(b.from) })
	return out
}

// seenAt returns the observation of a resource by a round, or false if it does not exist. Its duty
// is known since the start.
func (l *life) seenAt(now time.Time) (ledger.Observation, bool) {
	if l.made.After(now) || !l.gone.After(now) {
		return ledger.Observation{}, false
	}
	state, does, rate := at(l.states, now), at(l.duties, now), at(l.rates, now)
	o := ledger.Observation{At: now, Ref: l.ref, State: state.is}
	o.Owner.Team = at(l.teams, now).is
	if l.dated {
		o.CreatedAt, o.StateSince = l.made, state.from
	}
	m := ledger.Meter{
		Name: "compute", Category: ledger.Compute, Monthly: rate.is, Source: "list",
		AsOf: rate.from, MinimumSeconds: 60,
	}
	if l.ref.Kind == inventory.KindVolume {
		m.Name, m.Category, m.MinimumSeconds = "storage", ledger.Storage, 0
		o.Meters = []ledger.Meter{m}
	} else if state.is == inventory.StateRunning {
		o.Meters = []ledger.Meter{m}
		if does.is != duty.Unknown && does.from.Before(now) {
			o.Duty = []ledger.Span{{From: does.from, To: now, State: does.is}}
		}
	}
	return o, true
}

// TestSparingEqualsJournal checks that sparing posting, with errors in between, yields the
// same charges as posting every round.
func TestSparingEqualsJournal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := ledgertest.NewStore()
		fails := errors.New("it does not answer")
		left := rapid.IntRange(0, 100).Draw(t, "writes until one fails")
		store.Before = func(string) error {
			if left--; left == 0 {
				return fails
			}
			return nil
		}
		sparing := &ledger.Sparing{
			Store: store, Every: time.Duration(rapid.IntRange(0, 40).Draw(t, "every")) * time.Minute,
		}
		parts := []ledger.Part{
			{Region: "us-east-1", Kind: inventory.KindInstance}, {Region: "us-east-1", Kind: inventory.KindVolume},
		}
		rounds := rapid.IntRange(1, 60).Draw(t, "rounds")
		all := lives(t, start.Add(time.Duration(rounds)*70*time.Second))
		now := start
		var posted []ledgertest.Delivery
		for i := range rounds {
			now = now.Add(time.Duration(rapid.Int64Range(30, 90).Draw(t, "gap")) * time.Second)
			d := ledgertest.Delivery{Round: ledger.Round{Account: account, At: now, Source: "test"}}
			read := map[inventory.Kind]bool{}
			for _, p := range parts {
				if rapid.IntRange(0, 9).Draw(t, "unread") > 0 {
					d.Round.Complete, read[p.Kind] = append(d.Round.Complete, p), true
				}
			}
			for k := range all {
				if o, there := all[k].seenAt(now); there && read[o.Ref.Kind] {
					d.Seen = append(d.Seen, o)
				}
			}
			if i == rounds-1 {
				sparing.Every = 0 // the final round is compared
			}
			posted = append(posted, d)
			err := ledger.SparinglyPosted(sparing, d.Round, slices.Clone(d.Seen))
			if errors.Is(err, fails) {
				err = ledger.SparinglyPosted(sparing, d.Round, slices.Clone(d.Seen))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		got := map[string]ledger.Sums{}
		addUp(got, store.All(account))
		compare(t, got, want(t, posted))
	})
}

// TestSparingPostsFewRounds checks that an unchanged fleet posts its first round and one each quarter of
// an hour, and that a changed machine posts only itself.
func TestSparingPostsFewRounds(t *testing.T) {
	store := ledgertest.NewStore()
	recorded := 0
	sparing := &ledger.Sparing{Store: store, Every: 15 * time.Minute}
	for minute := range 61 {
		now := start.Add(time.Duration(minute) * time.Minute)
		r, seen := ledgertest.Fleet(account, start, 100, now)
		for i := range seen {
			seen[i].Duty = []ledger.Span{{From: now.Add(-time.Minute), To: now, State: duty.Busy}}
		}
		if minute >= 20 {
			seen[7].State, seen[7].StateSince, seen[7].Meters = inventory.StateStopped, start.Add(20*time.Minute), nil
		}
		if err := ledger.SparinglyPosted(sparing, r, seen); err != nil {
			t.Fatal(err)
		}
	}
	rounds, err := store.Rounds(ctx, account, start, start.Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	histories, _, err := store.Histories(ctx, account, []inventory.Ref{
		{Cloud: "aws", Account: account.ID, Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-00000007"},
		{
			Cloud: "aws", Account: account.ID, Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-00000008",
		}}, start,
		start.Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	spans := 0
	for _, h := range histories {
		for _, o := range h.Observations {
			recorded, spans = recorded+1, spans+len(o.Duty)
		}
	}
	if len(rounds) != 7 || recorded != 7+5 {
		t.Errorf("%d rounds and %d observations of two machines, want 7 and 12", len(rounds), recorded)
	}
	if spans != recorded {
		t.Errorf("%d spans in %d observations of machines that are busy all the time, want one in each", spans,
			recorded)
	}
}
