package budget_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestSpan checks that the span covers every hold that a check needs: of the last hour, of every
// window, and of the run.
func TestSpan(t *testing.T) {
	hour, month := now.Truncate(time.Hour).Add(-time.Hour), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name, src string
		expires   time.Time
		from, to  time.Time
	}{
		{"no budget", "", now.Add(11 * time.Hour), hour, now.Add(11 * time.Hour)},
		{"over already", "", now, hour, now.Add(1)},
		{"over before", "", now.Add(-time.Minute), hour, now.Add(1)},
		{"a month", one, now.Add(11 * time.Hour), month, month.AddDate(0, 1, 0)},
		{"past the month", one, now.AddDate(0, 1, 0), month, now.AddDate(0, 1, 0)},
		{
			"a window that begins now",
			`budgets: [{id: v, purpose: any, amount: 1, period: {from: 2026-11-21, until: 2026-11-22}}]`,
			now.Add(11 * time.Hour),
			time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)},
	} {
		h := run("a", 1)
		h.From, h.Until, h.ExpiresAt = now.Add(-2*time.Hour), now.Add(-time.Hour), tc.expires
		if tc.expires.After(now) {
			h.From, h.Until = now, now.Add(10*time.Hour)
		}
		r, err := set(t, tc.src).Reservation(h, now)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Span(); !got.From.Equal(tc.from) || !got.To.Equal(tc.to) {
			t.Errorf("%s: %s to %s, want %s to %s", tc.name, got.From, got.To, tc.from, tc.to)
		}
	}
}

// TestReadsTimeBeforeWindow checks that the time before a window is read since the day on which a counted
// hold began, and not at all without one.
func TestReadsTimeBeforeWindow(t *testing.T) {
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		change func(*budget.Hold)
		from   time.Time
	}{
		"in the window": {func(*budget.Hold) {}, month},
		"before it":     {func(h *budget.Hold) { h.From = month.Add(-30 * time.Hour) }, month.AddDate(0, 0, -2)},
		"given back":    {func(h *budget.Hold) { h.From, h.State = month.Add(-30*time.Hour), budget.Released }, month},
		"of others":     {func(h *budget.Hold) { h.From, h.Owner = month.Add(-30*time.Hour), speech }, month},
	} {
		h := run("a", 1)
		h.ExpiresAt = h.Until
		r, err := set(t, one).Reservation(h, now)
		if err != nil {
			t.Fatal(err)
		}
		other := run("b", 1)
		tc.change(&other)
		if reads := r.Reads([]budget.Hold{other}); len(reads) != 3 ||
			reads[2].Window != (budget.Window{From: tc.from, To: month}) {
			t.Errorf("%s: %+v, want from %s", name, reads, tc.from)
		}
	}
}

// TestHourlyLimitEndsWithWindow checks that an hourly limit ends with its window.
func TestHourlyLimitEndsWithWindow(t *testing.T) {
	for at, fits := range map[time.Time]bool{now.Add(-1): false, now: true} {
		h := run("a", 1)
		h.ExpiresAt, h.Hourly, h.State = h.Until, 2*money.USD, budget.Pending
		r, err := set(t,
			`budgets: [{id: vision, team: vision, purpose: training, amount: 1000, per_hour: 1}]`).Reservation(
			h, now)
		if err != nil {
			t.Fatal(err)
		}
		r.Now, r.Lines[0].Window.To = at, now
		if err := r.Check(nil, make([]budget.Spend, 3)); (err == nil) != fits {
			t.Errorf("at %s: %v", at, err)
		}
	}
}

// TestHoldOwnsCharge checks that a charge belongs to a hold unless it names another owner.
func TestHoldOwnsCharge(t *testing.T) {
	h := budget.Hold{Owner: vision}
	for _, tc := range []struct {
		charged inventory.Owner
		own     bool
	}{
		{vision, true}, {inventory.Owner{}, true}, {inventory.Owner{Team: "VISION"}, true},
		{inventory.Owner{Team: "vision", CostCenter: "7"}, true},
		{speech, false}, {inventory.Owner{Team: "vision", Project: "other"}, false},
		{inventory.Owner{User: "bo"}, false},
	} {
		if h.Owns(tc.charged) != tc.own {
			t.Errorf("%+v: want own %v", tc.charged, tc.own)
		}
	}
}

func TestRefusalMessages(t *testing.T) {
	o := budget.Overdrawn{
		Budget: "b", Limit: 10 * money.USD, Used: money.USD, Held: 2 * money.USD, Asked: 8 * money.USD,
	}
	for want, change := range map[string]func(*budget.Overdrawn){
		"budget b: $8.00 asked for, $7.00 of $10.00 is left ($1.00 spent, $2.00 held)": func(
			*budget.Overdrawn) {
		},
		"budget b: $8.00 an hour asked for, $7.00 of $10.00 is left ($1.00 spent, $2.00 held)": func(
			o *budget.Overdrawn) {
			o.PerHour = true
		},
		"budget b: $8.00 asked for, $4.00 of $10.00 is left ($1.00 spent, at most $3.00 unpriced, $2.00 held)": func(
			o *budget.Overdrawn) {
			o.Unknown = 3 * money.USD
		},
		"($1.00 spent, $2.00 held, of that $1.00 by runs that are over and were never charged: settle their holds, or": func(
			o *budget.Overdrawn) {
			o.Unobserved = money.USD
		},
	} {
		o := o
		change(&o)
		if !strings.Contains(o.Error(), want) {
			t.Errorf("got %q, want %q", o.Error(), want)
		}
	}
	s := budget.Standing{Used: 1, Held: 2, Unknown: 4}
	for counts, want := range map[bool]money.Amount{false: 3, true: 7} {
		s.CountUnknown = counts
		if got, err := s.Committed(); err != nil || got != want {
			t.Errorf("committed is %d, %v; want %d", got, err, want)
		}
	}
}

// TestOverflowIsAnError checks that overflow never makes a budget look free.
func TestOverflowIsAnError(t *testing.T) {
	huge := func(id string, change func(*budget.Hold)) budget.Hold {
		h := run(id, 0)
		h.ID, h.State, h.ExpiresAt = id, budget.Live, now.Add(11*time.Hour)
		change(&h)
		return h
	}
	amount := func(h *budget.Hold) { h.Amount = math.MaxInt64 }
	hourly := func(h *budget.Hold) { h.Hourly = math.MaxInt64 }
	for _, tc := range []struct {
		name   string
		change func(*budget.Hold)
		own    func(*budget.Hold)
	}{
		{"held", amount, func(*budget.Hold) {}}, {"asked", func(*budget.Hold) {}, amount},
		{"an hour", hourly, func(*budget.Hold) {}}, {"an hour more", func(*budget.Hold) {}, hourly},
	} {
		d := set(t,
			`budgets: [{id: vision, team: vision, purpose: training, amount: 9000000000, per_hour: 9000000000}]`)
		r, err := d.Reservation(huge("own", func(h *budget.Hold) { h.Amount = 1; h.Hourly = 1; tc.own(h) }), now)
		if err != nil {
			t.Fatal(err)
		}
		holds := []budget.Hold{huge("a", tc.change), huge("b", tc.change)}
		spent := make([]budget.Spend, len(r.Reads(holds)))
		for i := range spent {
			spent[i].Used = 2
		}
		if err := r.Check(holds, spent); err == nil || errors.As(err, new(*budget.Overdrawn)) && tc.name == "held" {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err := r.Check(holds, spent[1:]); err == nil || !strings.Contains(err.Error(), "answers of the ledger") {
			t.Errorf("with an answer less: %v", err)
		}
	}
}

// TestZeroReservationIsAdmitted checks that a budget or quota that is already exceeded admits a
// reservation that adds nothing.
func TestZeroReservationIsAdmitted(t *testing.T) {
	d, s := desk(t, `
budgets: [{id: vision, team: vision, purpose: training, amount: 10, per_hour: 1}]
quotas: [{id: q, machines: 0, gpus: {H100: 1}}]`)
	s.Charge(budgettest.Charge{
		At: now.Truncate(time.Hour).Add(-time.Hour), Owner: vision, Purpose: inventory.Training,
		Amount: 100 * money.USD,
	})
	live(t, budget.Desk{Store: s}, func() budget.Hold {
		h := run("a", 0)
		h.Machines, h.GPUs = 3, map[string]int{"H100": 9}
		return h
	}(), now)
	if _, err := d.Reserve(context.Background(), run("b", 0), now); err != nil {
		t.Error(err)
	}
}

// TestStoreErrorsReserveNothing lets the store fail once at any read or write.
func TestStoreErrorsReserveNothing(t *testing.T) {
	ctx, broken := context.Background(), errors.New("broken")
	for name, do := range map[string]func(d budget.Desk, id string) error{
		"look": func(d budget.Desk, _ string) error { _, err := d.Check(ctx, run("b", 1), now); return err },
		"extend": func(d budget.Desk, id string) error {
			_, err := d.Extend(ctx, id, money.USD, now, "ana", now)
			return err
		},
		"settle":     func(d budget.Desk, id string) error { _, err := d.Settle(ctx, id, 0, "ana", now); return err },
		"release":    func(d budget.Desk, id string) error { _, err := d.Release(ctx, id, "ana", now); return err },
		"status":     func(d budget.Desk, _ string) error { _, err := d.Statuses(ctx, now); return err },
		"unobserved": func(d budget.Desk, _ string) error { _, err := d.Unobserved(ctx, nil, now); return err },
	} {
		for kill := 1; ; kill++ {
			d, s := desk(t, one)
			for ago := range 10 { // enough to forecast from
				s.Charge(budgettest.Charge{
					At:      now.Add(-time.Duration(ago) * 24 * time.Hour).Truncate(time.Hour).Add(-time.Hour),
					Owner:   vision,
					Purpose: inventory.Training, Amount: money.USD,
				})
			}
			id := live(t, d, run("a", 400), now).ID
			points := 0
			s.Fault = func(string) error {
				if points++; points == kill {
					return broken
				}
				return nil
			}
			err := do(d, id)
			if points < kill {
				if err != nil || kill == 1 {
					t.Errorf("%s with %d points to fail at: %v", name, kill-1, err)
				}
				break
			}
			if !errors.Is(err, broken) {
				t.Errorf("%s failed at point %d: %v", name, kill, err)
			}
		}
	}
}

func TestHoldIDs(t *testing.T) {
	ctx := context.Background()
	d, _ := desk(t, one)
	d.Random = bytes.NewReader([]byte("abcdef"))
	if h, err := d.Reserve(ctx, run("a", 1), now); err != nil || h.ID != "616263646566" {
		t.Errorf("got %q, %v", h.ID, err)
	}
	if h, err := d.Reserve(ctx, run("b", 1), now); err == nil {
		t.Errorf("without an id: %+v", h)
	}
	d.Random = nil
	if h, err := d.Reserve(ctx, run("", 1), now); err == nil {
		t.Errorf("without a key: %+v", h)
	}
	for n, fits := range map[int]bool{-1: false, 0: true} {
		h := run("d", 1)
		h.GPUs = map[string]int{"H100": n}
		if _, err := d.Reserve(ctx, h, now); (err == nil) != fits {
			t.Errorf("with %d GPUs: %v", n, err)
		}
	}
	backwards := run("c", 1)
	backwards.Until = now.Add(-1)
	if h, err := d.Reserve(ctx, backwards, now); err == nil {
		t.Errorf("a run that ends before it begins: %+v", h)
	}
}

// TestRunEnd checks that extending never shortens a run, and that settling keeps the actual end.
func TestRunEnd(t *testing.T) {
	ctx := context.Background()
	for by, want := range map[time.Duration]time.Duration{
		5 * time.Hour: 10 * time.Hour, 10 * time.Hour: 10 * time.Hour, 20 * time.Hour: 20 * time.Hour,
	} {
		d, _ := desk(t, one)
		h := live(t, d, run("a", 400), now)
		if got := must(d.Extend(ctx, h.ID, h.Amount, now.Add(by), "ana", now))(t).Until.Sub(now); got != want {
			t.Errorf("extended to %s: it ends after %s, want %s", by, got, want)
		}
	}
	for at, want := range map[time.Duration]time.Duration{
		-time.Hour: 0, 3 * time.Hour: 3 * time.Hour, 30 * time.Hour: 10 * time.Hour,
	} {
		d, _ := desk(t, one)
		h := live(t, d, run("a", 400), now)
		if got := must(d.Settle(ctx, h.ID, 0, "ana", now.Add(at)))(t); got.State != budget.Settled ||
			got.Until.Sub(now) != want || !got.ExpiresAt.Equal(now.Add(at+budget.SettleFor)) {
			t.Errorf("settled after %s: %+v, want its end after %s", at, got, want)
		}
	}
	d, s := desk(t, one)
	h := live(t, d, run("a", 400), now)
	s.Charge(budgettest.Charge{At: h.Until})
	if missed := must(d.Unobserved(ctx, []budget.Hold{h}, h.ExpiresAt))(t); !missed[h.ID] {
		t.Error("a run that was never charged is observed")
	}
}
