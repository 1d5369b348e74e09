package budget_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

func BenchmarkCheck(b *testing.B) {
	parsed, err := budget.Parse("b", []byte(nested))
	if err != nil {
		b.Fatal(err)
	}
	r, err := parsed.Reservation(func() budget.Hold { h := run("a", 1); h.ExpiresAt = h.Until; return h }(), now)
	if err != nil {
		b.Fatal(err)
	}
	holds := make([]budget.Hold, 5000)
	for i := range holds {
		holds[i] = run(fmt.Sprint(i), 0)
		holds[i].ID, holds[i].State, holds[i].ExpiresAt = fmt.Sprint(i), budget.Live, now.Add(time.Hour)
	}
	spent := make([]budget.Spend, len(r.Reads(holds)))
	for b.Loop() {
		if err := r.Check(holds, spent); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOnlyLiveHoldsCoverMachines checks that a machine tagged with a hold counts toward the
// hourly limit unless that hold is live, has the rate for it, and belongs to the machine's owner.
func TestOnlyLiveHoldsCoverMachines(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		end    func(d budget.Desk, id string) error
		owner  inventory.Owner
		hold   inventory.Owner
		charge money.Amount
		want   money.Amount // dollars an hour of the team vision
	}{
		{"live", nil, vision, vision, 40, 40},
		{"live, and not yet charged", nil, vision, vision, 0, 40},
		{"beyond its rate", nil, vision, vision, 800, 800},
		{"released", func(d budget.Desk, id string) error {
			_, err := d.Release(ctx, id, "ana", now)
			return err
		}, vision, vision, 800, 800},
		{"settled", func(d budget.Desk, id string) error {
			_, err := d.Settle(ctx, id, 100*money.USD, "ana", now)
			return err
		}, vision, vision, 800, 800},
		{"another team's hold", nil, vision, speech, 30, 30},
		{"another user's", nil, inventory.Owner{Team: "vision", User: "bo"}, vision, 30, 70},
		{"whoever has no name", nil, inventory.Owner{}, vision, 40, 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, s := desk(t,
				`budgets: [{id: vision, team: vision, purpose: training, amount: 100000, per_hour: 10000}]`)
			h := run("a", 1000)
			h.Hourly, h.Owner = 40*money.USD, tc.hold
			h = live(t, d, h, now)
			s.Charge(budgettest.Charge{
				At: now.Truncate(time.Hour).Add(-time.Hour), Owner: tc.owner, Purpose: inventory.Training, Hold: h.ID,
				Amount: tc.charge * money.USD,
			})
			if tc.end != nil {
				if err := tc.end(d, h.ID); err != nil {
					t.Fatal(err)
				}
			}
			if got := status(t, d, "vision", now).Hourly; got != tc.want*money.USD {
				t.Errorf("$%s an hour, want $%d", got, tc.want)
			}
		})
	}
}

// TestReleasedHoldTagCountsPerHour covers an $800/h machine tagged with a released hold.
func TestReleasedHoldTagCountsPerHour(t *testing.T) {
	ctx := context.Background()
	d, s := desk(t, `budgets: [{id: vision, team: vision, purpose: training, amount: 100000, per_hour: 100}]`)
	h := run("a", 100)
	h.Hourly = 10 * money.USD
	dead := live(t, d, h, now)
	if _, err := d.Release(ctx, dead.ID, "ana", now); err != nil {
		t.Fatal(err)
	}
	s.Charge(budgettest.Charge{
		At: now.Truncate(time.Hour).Add(-time.Hour), Owner: vision, Purpose: inventory.Training, Hold: dead.ID,
		Amount: 800 * money.USD,
	})
	h.Key = "b"
	_, err := d.Reserve(ctx, h, now)
	if over := overdrawn(t, err, "vision"); !over.PerHour || over.Used != 800*money.USD {
		t.Errorf("refused by %+v", over)
	}
}

// TestForeignChargesDoNotReduceHold checks that the company's budget still holds vision's
// reservation if speech runs a machine tagged with vision's hold.
func TestForeignChargesDoNotReduceHold(t *testing.T) {
	d, s := desk(t, nested)
	h := live(t, d, run("a", 300), now)
	s.Charge(budgettest.Charge{
		At: now, Owner: speech, Purpose: inventory.Training, Hold: h.ID, Amount: 200 * money.USD,
	})
	for id, left := range map[string]money.Amount{"company": 500, "vision": 300, "speech": 400} {
		if got := status(t, d, id, now).Left; got != left*money.USD {
			t.Errorf("%s has $%s left, want $%d", id, got, left)
		}
	}
}

// TestRunIsObservedAcrossPeriods checks that a run started in November and charged only
// there is not held in December once the ledger reaches past its end, and that while it runs,
// December holds at most the rest.
func TestRunIsObservedAcrossPeriods(t *testing.T) {
	d, s := desk(t, one)
	at := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	h := run("a", 90)
	h.From, h.Until, h.Hourly = at, at.Add(24*time.Hour), 9*money.USD
	h = live(t, d, h, at)
	s.Charge(budgettest.Charge{At: at, Owner: vision, Purpose: inventory.Training, Hold: h.ID, Amount: 36 * money.USD})
	december := at.Add(5 * time.Hour)
	if got := status(t, d, "vision", december).Held; got != 54*money.USD {
		t.Errorf("December holds $%s of what is left, want $54", got)
	}
	other := run("b", 1)
	other.From, other.Until = december, december.Add(time.Hour)
	if r, err := d.Check(context.Background(), other, december); err != nil || r[0].Held != 54*money.USD {
		t.Errorf("a launch sees %+v, %v", r, err)
	}
	late := h.ExpiresAt.Add(time.Hour)
	missed := func(want bool) {
		t.Helper()
		all, err := d.Unobserved(context.Background(), []budget.Hold{h}, late)
		st := status(t, d, "vision", late)
		if err != nil || all[h.ID] != want || (st.Held == 54*money.USD && st.Unobserved == st.Held) != want ||
			(st.Held == 0) == want {
			t.Errorf("unobserved %v (%v), $%s held, $%s of it unobserved; want %v", all, err,
				st.Held, st.Unobserved, want)
		}
	}
	missed(true)
	s.Charge(budgettest.Charge{At: h.Until.Add(-time.Hour)})
	missed(false)
}

// TestReportsUnobservedHolds checks that the report names amounts held for lack of observation.
func TestReportsUnobservedHolds(t *testing.T) {
	d, _ := desk(t, one)
	h := live(t, d, run("a", 400), now)
	at := h.ExpiresAt
	if missed := must(d.Unobserved(context.Background(), []budget.Hold{h}, at.Add(-1)))(t); len(missed) != 0 {
		t.Errorf("what runs is unobserved: %v", missed)
	}
	r := view.NewBudgets(must(d.Statuses(context.Background(), at))(t), at)
	if len(r.CoverageNotes) == 0 ||
		!strings.Contains(r.CoverageNotes[0], "vision: $400.00 is reserved by runs that ended without a charge") ||
		!strings.Contains(strings.Join(r.Changes, " "), "settle the unobserved reservations") {
		t.Errorf("got %q, %q", r.CoverageNotes, r.Changes)
	}
	_, err := d.Reserve(context.Background(), run("b", 700), at)
	if over := overdrawn(t, err, "vision"); over.Unobserved != 400*money.USD {
		t.Errorf("refused by %+v", over)
	}
}

// TestEndedHoldFreesCapacity checks that machines, GPUs and hourly dollars are held from the
// reservation until any end of the hold.
func TestEndedHoldFreesCapacity(t *testing.T) {
	ctx := context.Background()
	const limits = `
budgets: [{id: vision, team: vision, purpose: training, amount: 100000, per_hour: 40}]
quotas: [{id: one, gpus: {H100: 8}, machines: 1}]`
	for _, tc := range []struct {
		name string
		end  func(d budget.Desk, h budget.Hold) error
		at   time.Duration
		fits bool
	}{
		{"pending", nil, 0, false},
		{"pending, until its admission is given up", nil, budget.PendingFor - 1, false},
		{"pending no longer", nil, budget.PendingFor, true},
		{"live", func(d budget.Desk, h budget.Hold) error {
			_, err := d.Admit(ctx, h, now)
			return err
		}, 11*time.Hour - 1, false},
		{"live, and expired", func(d budget.Desk, h budget.Hold) error {
			_, err := d.Admit(ctx, h, now)
			return err
		}, 11 * time.Hour, true},
		{"released", func(d budget.Desk, h budget.Hold) error {
			_, err := d.Release(ctx, h.ID, "ana", now)
			return err
		}, 0, true},
		{"settled", func(d budget.Desk, h budget.Hold) error {
			if _, err := d.Admit(ctx, h, now); err != nil {
				return err
			}
			_, err := d.Settle(ctx, h.ID, 5*money.USD, "ana", now)
			return err
		}, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, limited := range []string{"vision", "one"} {
				d, _ := desk(t, limits)
				h := run("a", 10)
				h.Hourly, h.Machines, h.GPUs = 40*money.USD, 1, map[string]int{"H100": 8}
				h = must(d.Reserve(ctx, h, now))(t)
				if tc.end != nil {
					if err := tc.end(d, h); err != nil {
						t.Fatal(err)
					}
				}
				next := run("b", 10)
				next.From, next.Until = now.Add(tc.at), now.Add(tc.at+time.Hour)
				if limited == "vision" {
					next.Hourly = 1
				} else {
					next.Machines, next.GPUs = 1, map[string]int{"H100": 1}
				}
				_, err := d.Reserve(ctx, next, now.Add(tc.at))
				switch {
				case tc.fits && err != nil:
					t.Error(err)
				case !tc.fits:
					overdrawn(t, err, limited)
				}
			}
		})
	}
}

// TestHourlyLimitAppliesInWindow checks that hourly limits apply now, and that a future window
// limits nothing.
func TestHourlyLimitAppliesInWindow(t *testing.T) {
	d, _ := desk(t,
		`budgets: [{id: sprint, team: vision, purpose: training, amount: 1000, per_hour: 5, period: {from: 2026-11-22, until: 2026-12-01}}]`)
	h := run("a", 10) // on the 21st, until the 22nd at 12:30
	h.Until, h.Hourly = now.Add(24*time.Hour), 40*money.USD
	if _, err := d.Reserve(context.Background(), h, now); err != nil {
		t.Errorf("a window that begins tomorrow limits the dollars of today: %v", err)
	}
	h.Key = "b"
	for at, fits := range map[time.Time]bool{
		time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC): true,
		time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC):    false,
		time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC):   false,
	} {
		d, _ := desk(t,
			`budgets: [{id: sprint, team: vision, purpose: training, amount: 1000, per_hour: 5, period: {from: 2026-11-22, until: 2026-12-01}}]`)
		h.From, h.Until = at, at.Add(24*time.Hour)
		if _, err := d.Reserve(context.Background(), h, at); (err == nil) != fits {
			t.Errorf("at %s: %v", at, err)
		}
	}
}

// TestMeasuresLastFullHour checks that only charges of the last full hour are measured.
func TestMeasuresLastFullHour(t *testing.T) {
	d, s := desk(t, one)
	for hour, dollars := range map[int]money.Amount{-2: 1000, -1: 7, 0: 500} {
		s.Charge(budgettest.Charge{
			At: now.Truncate(time.Hour).Add(time.Duration(hour) * time.Hour), Owner: vision,
			Purpose: inventory.Training,
			Amount:  dollars * money.USD,
		})
	}
	if got := status(t, d, "vision", now).Hourly; got != 7*money.USD {
		t.Errorf("$%s an hour, want $7", got)
	}
}
