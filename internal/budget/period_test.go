package budget_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
)

func TestWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		p        budget.Period
		from, to string
	}{
		{"a month", budget.Period{}, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{
			"a month of a place", budget.Period{Every: budget.Monthly, Location: berlin}, "2026-10-31T23:00:00Z",
			"2026-11-30T23:00:00Z",
		},
		{"a week", budget.Period{Every: budget.Weekly}, "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{
			"a quarter in which clocks change", budget.Period{Every: budget.Quarterly, Location: berlin},
			"2026-09-30T22:00:00Z", "2026-12-31T23:00:00Z",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, err := tc.p.Window(now)
			if err != nil || w.From.Format(time.RFC3339) != tc.from || w.To.Format(time.RFC3339) != tc.to {
				t.Errorf("got %s to %s, %v; want %s to %s", w.From, w.To, err, tc.from, tc.to)
			}
		})
	}
}

// TestWindowsAreContiguous covers every time zone, including clock changes at midnight.
func TestWindowsAreContiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{
			"UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia",
		}).Draw(
			t, "zone")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		p := budget.Period{
			Every: rapid.SampledFrom([]budget.Every{"", budget.Weekly, budget.Quarterly}).Draw(t,
				"every"), Location: loc,
		}
		at := time.Unix(rapid.Int64Range(1e9, 2e9).Draw(t, "at"), 0)
		if rapid.Bool().Draw(t, "at a boundary") {
			w, err := p.Window(at)
			if err != nil {
				t.Fatal(err)
			}
			at = w.From.Add(time.Duration(rapid.IntRange(-3700, 3700).Draw(t, "offset")) * time.Second)
		}
		w, err := p.Window(at)
		if err != nil || at.Before(w.From) || !at.Before(w.To) {
			t.Fatalf("%s is not in %v, %v", at, w, err)
		}
		next, err := p.Window(w.To)
		if err != nil || !next.From.Equal(w.To) {
			t.Fatalf("after %v comes %v, %v", w, next, err)
		}
		last, err := p.Window(w.From.Add(-1))
		if err != nil || !last.To.Equal(w.From) {
			t.Fatalf("before %v comes %v, %v", w, last, err)
		}
	})
}

// TestWindowAmountsCoverHold checks that over any windows the full amount is held, never more than
// the amount in one window, and exactly once in total if its rate explains all of it.
func TestWindowAmountsCoverHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var err error
		d, _ := deskOf(`budgets: [{id: vision, team: vision, purpose: training, amount: 1000000000, period: weekly}]`)
		h := run("a", 0)
		h.Amount = amount(rapid.Int64Range(0, 1e15).Draw(t, "amount"))
		h.From = now.Add(time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "from")) * time.Second)
		h.Until = h.From.Add(time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "length")) * time.Second)
		h.Hourly = amount(rapid.Int64Range(0, 1e13).Draw(t, "hourly"))
		even := rapid.Bool().Draw(t, "even")
		if even && h.Until.After(h.From) {
			if h.Amount, err = h.Hourly.Mul(int64(h.Until.Sub(h.From)), int64(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		standings, err := d.Check(t.Context(), h, now)
		if err != nil {
			t.Fatal(err)
		}
		total := amount(0)
		for _, s := range standings {
			total += s.Asked
			if s.Asked > h.Amount {
				t.Fatalf("$%s of $%s in one window", s.Asked, h.Amount)
			}
		}
		rounding := amount(int64(len(standings)))
		if total < h.Amount-rounding || even && h.Until.After(h.From) && total > h.Amount+rounding {
			t.Fatalf("the parts of $%s in %d windows add up to $%s", h.Amount, len(standings), total)
		}
	})
}

func TestCovers(t *testing.T) {
	for _, tc := range []struct {
		name string
		m    budget.Match
		o    inventory.Owner
		p    inventory.Purpose
		want bool
	}{
		{"everything", budget.Match{}, inventory.Owner{}, "", true},
		{"the team, whatever its case", budget.Match{Team: "Vision"}, vision, "", true},
		{"another team", budget.Match{Team: "speech"}, vision, "", false},
		{"no owner", budget.Match{Team: "vision"}, inventory.Owner{}, "", false},
		{"the team and another user", budget.Match{Team: "vision", User: "bo"}, vision, "", false},
		{"the project", budget.Match{Project: "ranking"}, vision, inventory.Data, true},
		{"the environment", budget.Match{Environment: "production"}, vision, "", false},
		{
			"the purpose", budget.Match{Purposes: []inventory.Purpose{inventory.Data, inventory.Training}}, vision,
			inventory.Training, true,
		},
		{
			"another purpose", budget.Match{Purposes: []inventory.Purpose{inventory.Data}}, vision, inventory.Training,
			false,
		},
		{"an unknown purpose", budget.Match{Purposes: []inventory.Purpose{inventory.Data}}, vision, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.m.Covers(tc.o, tc.p); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
