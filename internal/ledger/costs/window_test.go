package costs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger/costs"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

// drawnSeen generates an account as one round observes it, with measurements since start: machines,
// volumes, addresses and reservations of two teams, made before or within that time.
func drawnSeen(t *rapid.T, at time.Time) ledger.Seen {
	s := ledger.Seen{
		Account: account, At: at, Source: "scan", Regions: []string{"us-east-1"},
		Rates: map[inventory.Ref][]ledger.Charge{}, Spans: map[inventory.Ref][]ledger.Span{},
	}
	moment := func(name string) time.Time {
		return start.Add(time.Duration(rapid.Int64Range(-40*3600, int64(at.Sub(start)/time.Second)).Draw(t, name)) *
			time.Second)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "resources") {
		r := &inventory.Resource{
			ID: fmt.Sprint("r-", i), Cloud: "aws", Account: "1", Region: "us-east-1", State: inventory.StateRunning,
			CreatedAt: moment("created"),
			Kind: rapid.SampledFrom([]inventory.Kind{
				inventory.KindInstance, inventory.KindInstance, inventory.KindVolume, inventory.KindAddress,
				inventory.KindCapacityReservation,
			}).Draw(t, "kind")}
		r.Owner.Team = rapid.SampledFrom([]string{"", "vision"}).Draw(t, "team")
		c := ledger.Charge{
			Resource: r, Meter: "compute", Category: ledger.Compute,
			ListCost: money.Amount(rapid.Int64Range(1, 1e14).Draw(t, "rate")), MinimumSeconds: 60,
		}
		states := []duty.State{duty.Busy, duty.Idle, duty.Held, duty.Starved, duty.Stalled, duty.Warming}
		switch r.Kind {
		case inventory.KindVolume, inventory.KindAddress:
			c.Meter, c.Category, c.MinimumSeconds, states = "storage", ledger.Storage, 0, []duty.State{ledger.Unused}
			r.State = rapid.SampledFrom([]inventory.State{
				inventory.StateAvailable, inventory.StateInUse,
			}).Draw(t, "attached")
		case inventory.KindCapacityReservation:
			c.Meter = "unused"
		}
		if rapid.IntRange(0, 7).Draw(t, "priced") == 0 {
			c.Unpriced = "no price"
		}
		s.Rates[r.Ref()] = []ledger.Charge{c}
		from := start.Add(-time.Hour)
		for from.Before(at) && rapid.IntRange(0, 9).Draw(t, "more") > 0 {
			to := from.Add(
				time.Duration(rapid.SampledFrom([]int{60, 599, 3600, 7200, 5 * 3600, 30 * 3600}).Draw(t, "for")) *
					time.Second)
			if rapid.Bool().Draw(t, "known") {
				s.Spans[r.Ref()] = append(s.Spans[r.Ref()], ledger.Span{
					From: from, To: to, State: rapid.SampledFrom(states).Draw(t, "state"),
				})
			}
			from = to
		}
		s.Resources = append(s.Resources, r)
	}
	return s
}

// TestWindowEqualsPostedEntries checks that the window of one round equals the posted entries if the
// account was listed at its start and end, and equals a sum second by second.
func TestWindowEqualsPostedEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := start.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "hours")) * time.Hour)
		s := drawnSeen(t, at)
		by := []ledger.Dimension{ledger.ByTeam}
		got, err := costs.Window([]ledger.Seen{s}, start, by)
		if err != nil {
			t.Fatal(err)
		}
		kept := ledgertest.NewStore()
		books := ledger.Journal{Store: kept}
		for _, post := range []ledger.Seen{{Account: account, At: start, Source: "scan", Regions: s.Regions}, s} {
			if err := books.Post(ctx, post); err != nil {
				t.Fatal(err)
			}
		}
		posted, err := costs.Spent(ctx, kept, costs.Query{By: by, Since: start, Until: at})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(posted.Rows, got.Rows); diff != "" {
			t.Fatalf("posted and of the window differ (-posted +window):\n%s", diff)
		}
		if diff := cmp.Diff(posted.Total, got.Total); diff != "" {
			t.Fatalf("posted and of the window differ (-posted +window):\n%s", diff)
		}
		if want := secondBySecond(t, s); got.Total.Wasted != want.Wasted || got.Total.Used != want.Used ||
			got.Total.Starved != want.Starved ||
			got.Total.Warming != want.Warming || got.Total.CannotJudge != want.CannotJudge ||
			got.Total.Other != want.Other ||
			got.Total.UnknownSeconds != want.UnknownSeconds {
			t.Fatalf("the window comes to %+v, second by second it is %+v", got.Total, want)
		}
	})
}

// secondBySecond charges every resource for each hour since start in which it existed.
func secondBySecond(t *rapid.T, s ledger.Seen) (c costs.Cost) {
	for _, r := range s.Resources {
		m := s.Rates[r.Ref()][0]
		for hour := start; hour.Before(s.At); hour = hour.Add(time.Hour) {
			parts := map[string]int64{}
			var whole int64
			for at := hour; at.Before(hour.Add(time.Hour)); at = at.Add(time.Second) {
				if at.Before(r.CreatedAt) {
					continue
				}
				whole++
				state := "unknown"
				if m.Category != ledger.Compute {
					state = ""
				}
				for _, span := range s.Spans[r.Ref()] {
					if !at.Before(span.From) && at.Before(span.To) {
						state = string(span.State)
					}
				}
				if m.Meter == "unused" {
					state = ledger.Unused
				}
				parts[state]++
			}
			if m.Unpriced != "" {
				c.UnknownSeconds += whole
				continue
			}
			total, err := m.ListCost.Mul(whole, 730*3600)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for name := range parts {
				names = append(names, name)
			}
			slices.Sort(names)
			weights := make([]int64, len(names))
			for i, name := range names {
				weights[i] = parts[name]
			}
			if len(names) == 0 {
				continue
			}
			amounts, err := money.Split(total, weights)
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range names {
				amount := amounts[i]
				switch name {
				case "idle", "held", "stalled", "unused":
					c.Wasted += amount
				case "unknown":
					c.CannotJudge += amount
				case "":
					c.Other += amount
				case "starved":
					c.Starved += amount
					c.Used += amount
				case "warming":
					c.Warming += amount
					c.Used += amount
				default:
					c.Used += amount
				}
			}
		}
	}
	return c
}

// TestUnattachedVolumeIsWasted checks that an unattached volume is waste from the time since which it is
// known to be unattached: by measurements, by the provider's date, or between two close
// observations.
func TestUnattachedVolumeIsWasted(t *testing.T) {
	at := func(hours int) time.Time { return start.Add(time.Duration(hours) * time.Hour) }
	look := func(hours int, state inventory.State, since time.Time) ledger.Observation {
		return ledger.Observation{
			At: at(hours), Ref: inventory.Ref{
				Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindVolume, ID: "vol-1",
			},
			State: state, StateSince: since, CreatedAt: start.Add(-time.Hour), Meters: []ledger.Meter{
				{Name: "storage", Category: ledger.Storage, Monthly: 730 * money.USD},
			}}
	}
	measured := look(10, inventory.StateAvailable, time.Time{})
	measured.Duty = []ledger.Span{{From: at(4), To: at(10), State: ledger.Unused}}
	none := time.Time{}
	for _, tc := range []struct {
		name          string
		looks         []ledger.Observation
		wasted, other money.Amount
	}{
		{"measured", []ledger.Observation{look(0, inventory.StateInUse, none), measured}, 6, 4},
		{
			"dated", []ledger.Observation{
				look(0, inventory.StateInUse, none), look(10, inventory.StateAvailable, at(7)),
			}, 3,
			7,
		},
		{
			"seen every two hours",
			[]ledger.Observation{
				look(0, inventory.StateAvailable, none), look(2, inventory.StateAvailable, none),
				look(4, inventory.StateInUse, none), look(6, inventory.StateInUse, none),
			},
			4, 2,
		},
		{
			"seen twice in ten hours",
			[]ledger.Observation{
				look(0, inventory.StateAvailable, none), look(10, inventory.StateAvailable, none),
			}, 0, 10,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := ledgertest.NewStore()
			for _, o := range tc.looks {
				if _, err := ledger.Post(ctx, store, ledger.Round{Account: account, At: o.At, Source: "test"},
					[]ledger.Observation{o}); err != nil {
					t.Fatal(err)
				}
			}
			c, err := costs.Spent(ctx, store, costs.Query{
				By: []ledger.Dimension{ledger.ByDuty}, Since: start, Until: at(24),
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Total; got.Wasted != tc.wasted*money.USD || got.Other != tc.other*money.USD {
				t.Errorf("wasted %s, other %s; want %d and %d dollars", got.Wasted, got.Other, tc.wasted, tc.other)
			}
		})
	}
}

// TestMeasuredTimeCountsAsRunning checks that a machine with an unknown start counts as running while it was
// measured.
func TestMeasuredTimeCountsAsRunning(t *testing.T) {
	at := func(hours int) time.Time { return start.Add(time.Duration(hours) * time.Hour) }
	r := &inventory.Resource{
		ID: "m", Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance,
		State: inventory.StateRunning,
	}
	for _, tc := range []struct {
		name   string
		spans  []ledger.Span
		wasted money.Amount
		gap    int64 // hours
	}{
		{"all the time", []ledger.Span{{From: at(0), To: at(20), State: duty.Idle}}, 20, 0},
		{"from some time on", []ledger.Span{{From: at(5), To: at(20), State: duty.Idle}}, 15, 5},
		{
			"with a short gap",
			[]ledger.Span{
				{From: at(5), To: at(10), State: duty.Idle}, {From: at(12), To: at(20), State: duty.Idle},
			}, 13, 5,
		},
		{
			"with a long gap",
			[]ledger.Span{
				{From: at(5), To: at(10), State: duty.Idle}, {From: at(13), To: at(20), State: duty.Idle},
			}, 7, 13,
		},
		{"long ago", []ledger.Span{{From: at(5), To: at(10), State: duty.Idle}}, 0, 20},
		{"never", nil, 0, 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := costs.Window([]ledger.Seen{
				{
					Account: account, At: at(20), Resources: []*inventory.Resource{r},
					Spans: map[inventory.Ref][]ledger.Span{r.Ref(): tc.spans},
					Rates: map[inventory.Ref][]ledger.Charge{
						r.Ref(): {{Meter: "compute", Category: ledger.Compute, ListCost: 730 * money.USD}},
					}}}, start, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Total; got.Wasted != tc.wasted*money.USD || got.UnknownSeconds != tc.gap*3600 {
				t.Errorf("wasted %s, %d hours unknown; want %d dollars and %d", got.Wasted,
					got.UnknownSeconds/3600, tc.wasted,
					tc.gap)
			}
		})
	}
}
