package ledger_test

import (
	"errors"
	"maps"
	"math"
	"path"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestMemoryMatchesStore checks for rounds in time order that the sums of a Memory equal
// those of a store's entries over any hours.
func TestMemoryMatchesStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, memory := ledgertest.NewStore(), &ledger.Memory{}
		all := ledgertest.Deliveries(t, account, start)
		for _, d := range all {
			if rapid.IntRange(0, 4).Draw(t, "in parts") == 0 { // one moment, observed twice
				first := ledgertest.Delivery{Round: d.Round, Seen: d.Seen[:len(d.Seen)/2]}
				first.Round.Complete = nil
				for _, to := range []ledger.Poster{store, memory} {
					if _, err := ledger.Post(ctx, to, first.Round, first.Seen); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, to := range []ledger.Poster{store, memory} {
				if _, err := ledger.Post(ctx, to, d.Round, d.Seen); err != nil {
					t.Fatal(err)
				}
			}
		}
		from := start.Add(time.Duration(rapid.IntRange(-12, 30).Draw(t, "from")) * time.Hour)
		to := from.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "hours")) * time.Hour)
		got, want := map[string]ledger.Sums{}, map[string]ledger.Sums{}
		for e := range memory.Entries(from, to) {
			addUp(got, []ledger.Entry{e})
		}
		for _, e := range store.All(account) {
			if !e.Hour.Before(from) && e.Hour.Before(to) {
				e.Line = ledger.Line{
					Attributes: ledger.Attributes{
						Owner: e.Owner, Purpose: e.Purpose, Hold: e.Hold,
					}, Category: e.Category,
					Duty: e.Duty, Gap: e.Gap,
				}
				addUp(want, []ledger.Entry{e})
			}
		}
		compare(t, got, want)
		before := len(got)
		last := all[len(all)-1]
		if p, err := ledger.Post(ctx, memory, last.Round, last.Seen); err != nil || p.Entries > 0 || p.Rounds > 0 {
			t.Fatalf("the same round again posts %+v, %v", p, err)
		}
		for range memory.Entries(from, to) { // iterating once is enough
			if before--; before < len(got)-1 {
				t.Fatal("it goes on")
			}
			break
		}
	})
}

// TestMemoryRefusesOlderRounds checks that observations older than the known ones of a resource or
// part are refused.
func TestMemoryRefusesOlderRounds(t *testing.T) {
	part := ledger.Part{Region: "us-east-1", Kind: inventory.KindInstance}
	at := func(hours int) ledger.Round {
		return ledger.Round{
			Account: account, At: start.Add(time.Duration(hours) * time.Hour), Complete: []ledger.Part{part},
		}
	}
	seen := func(r ledger.Round) []ledger.Observation {
		return []ledger.Observation{
			{
				At: r.At,
				Ref: inventory.Ref{
					Cloud: account.Cloud, Account: account.ID, Region: part.Region, Kind: part.Kind, ID: "i-1",
				},
				State: inventory.StateRunning,
			},
		}
	}
	memory := &ledger.Memory{}
	if err := memory.Record(ctx, at(2), seen(at(2))); err != nil {
		t.Fatal(err)
	}
	alone := at(1)
	alone.Complete = nil
	if memory.Record(ctx, at(1), nil) == nil || memory.Record(ctx, alone, seen(alone)) == nil {
		t.Error("an older round is taken")
	}
	_, version, err := memory.Histories(ctx, account, nil, start, start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Append(ctx, account, version+1, nil); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("entries of another version: %v", err)
	}
	huge := []ledger.Entry{
		{Hour: start, Line: ledger.Line{Ref: seen(at(2))[0].Ref}, Sums: ledger.Sums{Amount: math.MaxInt64}},
	}
	if _, err := memory.Append(ctx, account, version, append(huge, huge...)); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("more than fits: %v", err)
	}
}

// TestHourlyCharges checks that a charge without a price makes the hour unknown, and that no
// charge is not free.
func TestHourlyCharges(t *testing.T) {
	charge := func(month money.Amount, unpriced string) ledger.Charge {
		return ledger.Charge{ListCost: month, Unpriced: unpriced}
	}
	for name, tc := range map[string]struct {
		charges []ledger.Charge
		want    inventory.Fact[money.Amount]
	}{
		"none": {nil, inventory.Fact[money.Amount]{}},
		"two": {
			[]ledger.Charge{charge(730*money.USD, ""), charge(1460*money.USD, "")}, inventory.Known(3 * money.USD),
		},
		"one has no price": {
			[]ledger.Charge{charge(730*money.USD, ""), charge(0, "no price")}, inventory.Fact[money.Amount]{},
		},
		"what costs naught": {[]ledger.Charge{charge(0, "")}, inventory.Known[money.Amount](0)},
	} {
		if got, err := ledger.AnHour(tc.charges); err != nil || got != tc.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tc.want)
		}
	}
	if got, err := ledger.AnHour([]ledger.Charge{charge(math.MaxInt64, ""), charge(1, "")}); !errors.Is(err,
		money.ErrOverflow) {
		t.Errorf("more than fits is %v, %v", got, err)
	}
}

// TestWindowByDimensions checks grouping by team with separate unknown time, and that overflow is
// an error.
func TestWindowByDimensions(t *testing.T) {
	machine := func(id, team string, hourly money.Amount) (*inventory.Resource, []ledger.Charge) {
		r := &inventory.Resource{
			Cloud: account.Cloud, Account: account.ID, Region: "us-east-1", Kind: inventory.KindInstance, ID: id,
			State: inventory.StateRunning, CreatedAt: start.Add(-time.Hour), Owner: inventory.Owner{Team: team}}
		return r, []ledger.Charge{{Category: ledger.Compute, ListCost: hourly}}
	}
	const atMost = -2
	window := func(hours int, hourly ...money.Amount) (map[string]ledger.Sum, error) {
		seen := ledger.Seen{
			Account: account, At: start.Add(time.Duration(hours) * time.Hour), Regions: []string{"us-east-1"},
			Rates: map[inventory.Ref][]ledger.Charge{},
		}
		for i, h := range hourly {
			r, rates := machine(string(rune('a'+i)), []string{"vision", "speech"}[i%2], h)
			switch {
			case h == atMost: // its price moves, and was observed only at the end
				rates[0].ListCost, rates[0].Moves, rates[0].AtMost = 1, true, math.MaxInt64
			case h < 0:
				rates[0].ListCost, rates[0].Unpriced = 0, "no price"
			}
			seen.Resources, seen.Rates[r.Ref()] = append(seen.Resources, r), rates
		}
		all, err := ledger.Window([]ledger.Seen{seen}, start, []ledger.Dimension{ledger.ByTeam, ledger.ByResource})
		out := map[string]ledger.Sum{}
		for _, s := range all {
			out[s.Key[0]+"/"+path.Base(s.Key[1])] = s
		}
		return out, err
	}
	got, err := window(48, 730*money.USD, 1460*money.USD, -1)
	if err != nil {
		t.Fatal(err)
	}
	amounts := map[string]money.Amount{}
	for key, s := range got {
		amounts[key] = s.Sums.Amount
	}
	if want := map[string]money.Amount{
		"vision/a": 48 * money.USD, "speech/b": 96 * money.USD, "vision/c": 0,
	}; !maps.Equal(amounts, want) {
		t.Errorf("got %v, want %v", amounts, want)
	}
	if c := got["vision/c"]; c.Unknown.Seconds != 48*3600 || c.Sums.Seconds != 0 {
		t.Errorf("without a price: %+v", c)
	}
	if a := got["vision/a"]; a.Unknown != (ledger.Sums{}) || a.Sums.Seconds != 48*3600 {
		t.Errorf("with a price: %+v", a)
	}
	if got, err := window(800, 1, atMost); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("more than fits at most: %+v, %v", got, err)
	}
	if got, err := window(800, math.MaxInt64); !errors.Is(err, money.ErrOverflow) {
		t.Errorf("more than fits: %+v, %v", got, err)
	}
}
