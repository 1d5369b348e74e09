package budget_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

var (
	now    = time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC)
	vision = inventory.Owner{Team: "vision", Project: "ranking", User: "ana"}
	speech = inventory.Owner{Team: "speech", User: "bo"}
)

func set(t testing.TB, src string) budget.Set {
	t.Helper()
	s, err := budget.Parse("budgets.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func desk(t testing.TB, src string) (budget.Desk, *budgettest.Store) {
	t.Helper()
	s := &budgettest.Store{}
	return budget.Desk{Store: s, Set: set(t, src)}, s
}

// run returns a ten-hour hold of team vision for training.
func run(key string, dollars int64) budget.Hold {
	return budget.Hold{Key: key, Kind: "job", Name: key, SpecHash: key, Owner: vision, Purpose: inventory.Training,
		Amount: money.Amount(dollars) * money.USD, From: now, Until: now.Add(10 * time.Hour)}
}

// live makes a live hold.
func live(t testing.TB, d budget.Desk, h budget.Hold, at time.Time) budget.Hold {
	t.Helper()
	h, err := d.Reserve(context.Background(), h, at)
	if err == nil {
		h, err = d.Admit(context.Background(), h, at)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func overdrawn(t testing.TB, err error, id string) *budget.Overdrawn {
	t.Helper()
	var over *budget.Overdrawn
	if !errors.As(err, &over) || over.Budget+over.Quota != id {
		t.Fatalf("got %v, want a refusal by %s", err, id)
	}
	return over
}

func status(t testing.TB, d budget.Desk, id string, at time.Time) budget.Status {
	t.Helper()
	all, err := d.Statuses(context.Background(), at)
	i := slices.IndexFunc(all, func(s budget.Status) bool { return s.Budget.ID == id })
	if err != nil || i < 0 {
		t.Fatalf("budget %s at %s: %v, of %d", id, at, err, len(all))
	}
	return all[i]
}

const one = `budgets: [{id: vision, team: vision, purpose: training, amount: 1000}]`

const nested = `
budgets:
  - {id: company, purpose: any, amount: 1000}
  - {id: vision, parent: company, team: vision, purpose: training, amount: 600}
  - {id: ana, parent: vision, user: ana, amount: 500}
  - {id: speech, parent: company, team: speech, purpose: training, amount: 600}
`

// TestNestedBudgetsCountOncePerLevel checks that spend and holds of a child count once against its
// parent, though both match, and that the children's amounts do not raise the parent's.
func TestNestedBudgetsCountOncePerLevel(t *testing.T) {
	d, s := desk(t, nested)
	s.Charge(budgettest.Charge{
		At: now.Add(-time.Hour), Owner: vision, Purpose: inventory.Training, Amount: 100 * money.USD,
	})
	live(t, d, run("a", 300), now)
	for id, left := range map[string]money.Amount{"company": 600, "vision": 200, "ana": 100, "speech": 600} {
		st := status(t, d, id, now)
		if want := left * money.USD; st.Left != want {
			t.Errorf("%s has $%s left ($%s used, $%s held), want $%s", id, st.Left, st.Used, st.Held, want)
		}
	}
	// Each level limits on its own: speech has 600, of which the company has 500 left.
	h := run("b", 600)
	h.Owner = speech
	live(t, d, func() budget.Hold { h := h; h.Key, h.Amount = "c", 200*money.USD; return h }(), now)
	_, err := d.Reserve(context.Background(), h, now)
	over := overdrawn(t, err, "company")
	if over.Used != 100*money.USD || over.Held != 500*money.USD || over.Limit != 1000*money.USD ||
		over.Asked != 600*money.USD {
		t.Errorf("the numbers are %+v", over)
	}
	if want := "budget company: $600.00 asked for, $400.00 of $1,000.00 is left ($100.00 spent, $500.00 held)"; over.Error() != want {
		t.Errorf("got %q, want %q", over, want)
	}
}

func TestPurposesAreSeparate(t *testing.T) {
	d, s := desk(t, `
budgets:
  - {id: vision, team: vision, amount: 1000, split: {training: 60%, evaluation: 40%}}
`)
	s.Charge(budgettest.Charge{
		At: now.Add(-time.Hour), Owner: vision, Purpose: inventory.Training, Amount: 600 * money.USD,
	})
	s.Charge(budgettest.Charge{
		At: now.Add(-time.Hour), Owner: vision, Purpose: inventory.Inference, Amount: 5000 * money.USD,
	})
	_, err := d.Reserve(context.Background(), run("t", 1), now)
	overdrawn(t, err, "vision/training")
	evaluation := run("e", 400)
	evaluation.Purpose = inventory.Evaluation
	if _, err := d.Reserve(context.Background(), evaluation, now); err != nil {
		t.Errorf("training's spend and inference's left evaluation nothing: %v", err)
	}
	for _, p := range []inventory.Purpose{inventory.PurposeUnknown, inventory.Inference, inventory.Data} {
		if got := d.Set.Covering(vision, p, now, now.Add(time.Hour)); len(got) != 0 {
			t.Errorf("%q draws on %s, which is split between others", p, got[0].ID)
		}
	}
}

// TestOwnChargesReduceHold charges a hold's machine: charges reduce the hold, and exceed it once it
// is used.
func TestOwnChargesReduceHold(t *testing.T) {
	d, s := desk(t, one)
	h := live(t, d, run("a", 400), now)
	for _, step := range []struct{ charge, left money.Amount }{{0, 600}, {150, 600}, {250, 600}, {100, 500}} {
		s.Charge(budgettest.Charge{
			At: now, Owner: vision, Purpose: inventory.Training, Hold: h.ID, Amount: step.charge * money.USD,
		})
		if got := status(t, d, "vision", now).Left; got != step.left*money.USD {
			t.Errorf("after another $%d: $%s left, want $%d", step.charge, got, step.left)
		}
	}
}

func TestHoldAfterItsEnd(t *testing.T) {
	ctx := context.Background()
	charge := func(id string, dollars int64) budgettest.Charge {
		return budgettest.Charge{
			At: now, Owner: vision, Purpose: inventory.Training, Hold: id, Amount: money.Amount(dollars) * money.USD,
		}
	}
	for _, tc := range []struct {
		name string
		do   func(d budget.Desk, s *budgettest.Store, h budget.Hold) error
		at   time.Duration
		left money.Amount
	}{
		{"released", func(d budget.Desk, _ *budgettest.Store, h budget.Hold) error {
			_, err := d.Release(ctx, h.ID, "ana", now)
			return err
		}, 0, 1000},
		{"settled and charged", func(d budget.Desk, s *budgettest.Store, h budget.Hold) error {
			s.Charge(charge(h.ID, 120))
			_, err := d.Settle(ctx, h.ID, 120*money.USD, "ana", now.Add(time.Hour))
			return err
		}, time.Hour, 880},
		{"settled before it is charged", func(d budget.Desk, s *budgettest.Store, h budget.Hold) error {
			s.Charge(charge(h.ID, 50))
			_, err := d.Settle(ctx, h.ID, 120*money.USD, "ana", now.Add(time.Hour))
			return err
		}, time.Hour, 880},
		{"settled, and the ledger never said so much", func(d budget.Desk, s *budgettest.Store, h budget.Hold) error {
			s.Charge(charge(h.ID, 50))
			_, err := d.Settle(ctx, h.ID, 120*money.USD, "ana", now.Add(time.Hour))
			return err
		}, time.Hour + budget.SettleFor, 950},
		{"running", func(budget.Desk, *budgettest.Store, budget.Hold) error { return nil }, 11*time.Hour - 1, 600},
		{"expired, charged and seen to its end", func(_ budget.Desk, s *budgettest.Store, h budget.Hold) error {
			s.Charge(charge(h.ID, 30), budgettest.Charge{At: now.Add(10 * time.Hour)})
			return nil
		}, 11 * time.Hour, 970},
		{"expired, charged and not seen to its end", func(_ budget.Desk, s *budgettest.Store, h budget.Hold) error {
			s.Charge(charge(h.ID, 30), budgettest.Charge{At: now.Add(9*time.Hour - 1)})
			return nil
		}, 11 * time.Hour, 600},
		{"expired and never charged", func(_ budget.Desk, s *budgettest.Store, _ budget.Hold) error {
			s.Charge(budgettest.Charge{At: now.Add(10 * time.Hour)})
			return nil
		}, 11 * time.Hour, 600},
		{
			"expired with an empty ledger, at the end of the month",
			func(budget.Desk, *budgettest.Store, budget.Hold) error {
				return nil
			}, 9 * 24 * time.Hour, 600},
		{"settled and never charged", func(d budget.Desk, _ *budgettest.Store, h budget.Hold) error {
			_, err := d.Settle(ctx, h.ID, 120*money.USD, "ana", now.Add(time.Hour))
			return err
		}, 2 * budget.SettleFor, 880},
		{"never charged, and released late", func(d budget.Desk, _ *budgettest.Store, h budget.Hold) error {
			_, err := d.Release(ctx, h.ID, "ana", now.Add(20*time.Hour))
			return err
		}, 20 * time.Hour, 1000},
		{"extended", func(d budget.Desk, _ *budgettest.Store, h budget.Hold) error {
			_, err := d.Extend(ctx, h.ID, 900*money.USD, now.Add(20*time.Hour), "ana", now)
			return err
		}, 12 * time.Hour, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, s := desk(t, one)
			h := live(t, d, run("a", 400), now)
			if err := tc.do(d, s, h); err != nil {
				t.Fatal(err)
			}
			if got := status(t, d, "vision", now.Add(tc.at)).Left; got != tc.left*money.USD {
				t.Errorf("$%s left, want $%d", got, tc.left)
			}
		})
	}
}

func TestEndedHoldStaysEnded(t *testing.T) {
	ctx := context.Background()
	d, _ := desk(t, one)
	h := live(t, d, run("a", 400), now)
	if _, err := d.Settle(ctx, h.ID, money.USD, "ana", now); err != nil {
		t.Fatal(err)
	}
	if again, err := d.Settle(ctx, h.ID, 2*money.USD, "ana", now); err != nil || again.Actual != money.USD {
		t.Errorf("settling twice gave %+v, %v; want the first", again, err)
	}
	if _, err := d.Release(ctx, h.ID, "ana", now); !errors.Is(err, budget.ErrConflict) {
		t.Errorf("a settled hold was released: %v", err)
	}
	if _, err := d.Extend(ctx, h.ID, 2*money.USD, now, "ana", now); err == nil {
		t.Error("a settled hold was extended")
	}
	if _, err := d.Settle(ctx, h.ID, -money.USD, "ana", now); err == nil {
		t.Error("a hold was settled at less than nothing")
	}
}

func TestRefusedExtensionChangesNothing(t *testing.T) {
	ctx := context.Background()
	d, s := desk(t, one)
	h := live(t, d, run("a", 400), now)
	live(t, d, run("b", 500), now)
	_, err := d.Extend(ctx, h.ID, 501*money.USD, h.Until, "ana", now)
	overdrawn(t, err, "vision")
	if kept, _ := s.Hold(ctx, h.ID); kept.Amount != h.Amount || kept.Version != h.Version {
		t.Errorf("the hold became %+v", kept)
	}
}

// TestReserveIsIdempotent checks that a key has one hold: a pending one of an earlier process is
// reused, and enlarged only if that fits.
func TestReserveIsIdempotent(t *testing.T) {
	ctx := context.Background()
	d, _ := desk(t, one)
	first, err := d.Reserve(ctx, run("a", 700), now)
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Reserve(ctx, run("a", 600), now.Add(time.Minute))
	if err != nil || again.ID != first.ID || again.Amount != 700*money.USD {
		t.Errorf("got %+v, %v, want the hold of the key", again, err)
	}
	larger, err := d.Reserve(ctx, run("a", 1000), now.Add(time.Minute))
	if err != nil || larger.ID != first.ID || larger.Amount != 1000*money.USD {
		t.Errorf("got %+v, %v, want the same hold of $1000", larger, err)
	}
	_, err = d.Reserve(ctx, run("a", 1001), now.Add(time.Minute))
	overdrawn(t, err, "vision")

	later := now.Add(time.Minute + budget.PendingFor)
	if got := status(t, d, "vision", later).Left; got != 1000*money.USD {
		t.Errorf("a hold that was not admitted blocks all but $%s", got)
	}
	live(t, d, run("b", 500), later)
	_, err = d.Admit(ctx, larger, later)
	overdrawn(t, err, "vision")
	revived, err := d.Reserve(ctx, run("a", 500), later)
	if err != nil || revived.ID != first.ID {
		t.Fatalf("got %+v, %v, want the hold taken up again", revived, err)
	}
	if _, err := d.Admit(ctx, larger, later); !errors.Is(err, budget.ErrConflict) {
		t.Errorf("the one who was late got %v, want a conflict", err)
	}
	admitted, err := d.Admit(ctx, revived, later)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Admit(ctx, admitted, later); !errors.Is(err, budget.ErrConflict) {
		t.Errorf("a live hold was admitted again: %v", err)
	}
}

// TestPastPeriodDoesNotBind checks that a run is not refused because the month in which it began
// was overspent.
func TestPastPeriodDoesNotBind(t *testing.T) {
	d, s := desk(t, one)
	at := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	h := run("a", 100)
	h.From, h.Until = at, at.Add(10*time.Hour)
	h = live(t, d, h, at)
	s.Charge(budgettest.Charge{At: at, Owner: vision, Purpose: inventory.Training, Amount: 2000 * money.USD})
	if _, err := d.Extend(context.Background(), h.ID, 200*money.USD, h.Until, "ana", at.Add(5*time.Hour)); err != nil {
		t.Error(err)
	}
}

// TestHoldAcrossPeriodsCountsInBoth checks that a ten-hour run starting four hours before the end
// of a month counts 4/10 and 6/10.
func TestHoldAcrossPeriodsCountsInBoth(t *testing.T) {
	ctx := context.Background()
	d, s := desk(t, one)
	at := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	h := run("a", 1000)
	h.From, h.Until, h.Hourly = at, at.Add(10*time.Hour), 100*money.USD
	h = live(t, d, h, at)
	if got := status(t, d, "vision", at).Held; got != 400*money.USD {
		t.Errorf("November holds $%s, want $400", got)
	}
	if got := status(t, d, "vision", at.Add(5*time.Hour)).Held; got != 600*money.USD {
		t.Errorf("December holds $%s, want $600", got)
	}
	if _, err := d.Release(ctx, h.ID, "ana", at); err != nil {
		t.Fatal(err)
	}
	// December is full already, though November is not.
	s.Charge(budgettest.Charge{
		At: at.Add(5 * time.Hour), Owner: vision, Purpose: inventory.Training, Amount: 500 * money.USD,
	})
	h.Key = "b"
	_, err := d.Reserve(ctx, h, at)
	if over := overdrawn(t, err, "vision"); over.Window.From.Month() != time.December || over.Asked != 600*money.USD {
		t.Errorf("refused by %+v", over)
	}
}

// TestAdmittedRunsFitEveryPeriod admits runs of any amount, rate and length, extends some, and
// spends as fast as each may within one month: in every month the budget must have held that
// amount.
func TestAdmittedRunsFitEveryPeriod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		s := &budgettest.Store{}
		parsed, err := budget.Parse("b", []byte(one))
		if err != nil {
			t.Fatal(err)
		}
		d := budget.Desk{Store: s, Set: parsed}
		hours := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(0, 4000).Draw(t, name)) * time.Hour
		}
		dollars := func(name string, most int) money.Amount {
			return money.Amount(rapid.IntRange(0, most).Draw(t, name)) * money.USD
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "runs") {
			h := run(fmt.Sprint(i), 0)
			h.From = now.Truncate(time.Hour)
			h.Amount, h.Hourly, h.Until = dollars("amount", 800), dollars("rate", 20), h.From.Add(hours("length"))
			if h, err = d.Reserve(ctx, h, now); err != nil {
				continue
			}
			if h, err = d.Admit(ctx, h, now); err == nil && rapid.Bool().Draw(t, "extend") {
				_, _ = d.Extend(ctx, h.ID, dollars("extended amount", 800),
					h.From.Add(hours("extended length")), "ana", now)
			}
		}
		holds, err := s.Holds(ctx, now, now.AddDate(1, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		for month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC); month.Before(
			now.AddDate(1, 0, 0)); month = month.AddDate(
			0, 1, 0) {
			var spent money.Amount
			for _, h := range holds {
				var most money.Amount // hourly, from the start of the month
				for at := h.From; at.Before(h.Until); at = at.Add(time.Hour) {
					if !at.Before(month) && at.Before(month.AddDate(0, 1, 0)) {
						most += h.Hourly
					}
				}
				spent += min(most, h.Amount)
			}
			if spent > 1000*money.USD {
				t.Fatalf("$%s can be spent in %s under $1000", spent, month.Month())
			}
		}
	})
}

func TestHourlyLimit(t *testing.T) {
	ctx := context.Background()
	d, s := desk(t, `budgets: [{id: vision, team: vision, purpose: training, amount: 100000, per_hour: 100}]`)
	s.Charge(budgettest.Charge{
		At: now.Truncate(time.Hour).Add(-time.Hour), Owner: vision,
		Purpose: inventory.Training, Amount: 30 * money.USD,
	})
	h := run("a", 100)
	h.Hourly = 40 * money.USD
	first := live(t, d, h, now)
	s.Charge(budgettest.Charge{
		At: now.Truncate(time.Hour).Add(-time.Hour), Owner: vision, Purpose: inventory.Training, Hold: first.ID,
		Amount: 40 * money.USD,
	})
	if got := status(t, d, "vision", now).Hourly; got != 70*money.USD {
		t.Errorf("$%s an hour is spent, want $70: what a hold was charged is in its rate", got)
	}
	h.Key, h.Hourly = "b", 30*money.USD+1
	_, err := d.Reserve(ctx, h, now)
	if over := overdrawn(t, err, "vision"); !over.PerHour || over.Used != 30*money.USD || over.Held != 40*money.USD {
		t.Errorf("the numbers are %+v", over)
	}
	h.Hourly = 30 * money.USD
	live(t, d, h, now)
}

func TestUnknownSpendCounts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		key   string
		fits  bool
		state budget.State
	}{{"shown", "", true, budget.OK}, {"counted", ", count_unknown: true", false, budget.Over}} {
		t.Run(tc.name, func(t *testing.T) {
			d, s := desk(t, `budgets: [{id: vision, team: vision, purpose: training, amount: 1000`+tc.key+`}]`)
			s.Charge(budgettest.Charge{
				At: now, Owner: vision, Purpose: inventory.Training, Amount: 1000 * money.USD, Unpriced: true,
			})
			st := status(t, d, "vision", now)
			if st.Unknown != 1000*money.USD || st.Used != 0 || st.State != tc.state {
				t.Errorf("unknown $%s, used $%s, %s; want $1000, $0, %s", st.Unknown, st.Used, st.State, tc.state)
			}
			if _, err := d.Reserve(context.Background(), run("a", 1), now); (err == nil) != tc.fits {
				t.Errorf("reserving gave %v", err)
			}
		})
	}
}

func TestQuotas(t *testing.T) {
	ctx := context.Background()
	d, _ := desk(t, `
quotas:
  - {id: h100, gpus: {H100: 16}}
  - {id: vision, team: Vision, machines: 3}
`)
	h := run("a", 10)
	h.GPUs, h.Machines = map[string]int{"h100": 8}, 2
	first := live(t, d, h, now)
	h.Key = "b"
	_, err := d.Reserve(ctx, h, now)
	if over := overdrawn(t, err, "vision"); over.Error() != "quota vision: 2 machines asked for, 2 of 3 are reserved" {
		t.Errorf("got %q", over)
	}
	h.Owner, h.GPUs = speech, map[string]int{"H100": 9}
	_, err = d.Reserve(ctx, h, now)
	if over := overdrawn(t, err, "h100"); over.Error() != "quota h100: 9 H100 asked for, 8 of 16 are reserved" {
		t.Errorf("got %q", over)
	}
	h.GPUs = map[string]int{"H100-NVL": 4, "h100-80gb": 5, "H1000": 99, "GH100": 99}
	_, err = d.Reserve(ctx, h, now)
	if over := overdrawn(t, err, "h100"); over.AskedCapacity != 9 {
		t.Errorf("of H100-NVL, h100-80gb, H1000 and GH100 %d are H100, want 9", over.AskedCapacity)
	}
	h.Key, h.GPUs, h.Machines = "c", nil, 9
	live(t, d, h, now) // of another team
	h.Key, h.Owner, h.Machines = "d", vision, 1
	if _, err := d.Reserve(ctx, h, now); err != nil {
		t.Errorf("another team's machines count against the quota: %v", err)
	}
	h.Key, h.Owner, h.GPUs = "b", speech, map[string]int{"H100": 9}
	if _, err := d.Settle(ctx, first.ID, money.USD, "ana", now); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reserve(ctx, h, now); err != nil {
		t.Errorf("a run that is over holds GPUs: %v", err)
	}
}

// TestConcurrentHoldsRespectBudget reserves concurrently.
func TestConcurrentHoldsRespectBudget(t *testing.T) {
	d, s := desk(t, nested)
	s.Charge(budgettest.Charge{
		At: now.Add(-time.Hour), Owner: vision, Purpose: inventory.Training, Amount: 100 * money.USD,
	})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			h := run(fmt.Sprint(i), 70)
			if i%2 == 1 {
				h.Owner = speech
			}
			if h, err := d.Reserve(context.Background(), h, now); err == nil {
				_, _ = d.Admit(context.Background(), h, now)
			}
		})
	}
	wg.Wait()
	for _, st := range must(d.Statuses(context.Background(), now))(t) {
		if st.Left < 0 {
			t.Errorf("%s is overdrawn: $%s left", st.Budget.ID, st.Left)
		}
	}
	if st := status(t, d, "company", now); st.Left >= 70*money.USD {
		t.Errorf("$%s of the company is left: a hold that fits was refused", st.Left)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestRandomOperationsRespectBudget reserves, admits, charges, extends, settles and releases at
// random: charges within holds must never exceed a budget.
func TestRandomOperationsRespectBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		s := &budgettest.Store{}
		parsed, err := budget.Parse("b", []byte(nested))
		if err != nil {
			t.Fatal(err)
		}
		d := budget.Desk{Store: s, Set: parsed}
		var ids []string
		charged := map[string]money.Amount{}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			at := now.Add(time.Duration(i) * time.Minute)
			pick := func() (budget.Hold, bool) {
				if len(ids) == 0 {
					return budget.Hold{}, false
				}
				h, err := s.Hold(ctx, rapid.SampledFrom(ids).Draw(t, "id"))
				return h, err == nil
			}
			dollars := money.Amount(rapid.IntRange(0, 400).Draw(t, "dollars")) * money.USD
			switch h, ok := pick(); rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				h := run(fmt.Sprint(i), 0)
				h.Amount, h.From, h.Until = dollars, at, at.Add(10*time.Hour)
				h.Owner = rapid.SampledFrom([]inventory.Owner{vision, speech, {Team: "VISION"}, {}}).Draw(t, "owner")
				if h, err := d.Reserve(ctx, h, at); err == nil {
					ids = append(ids, h.ID)
				}
			case 2:
				if ok {
					_, _ = d.Admit(ctx, h, at)
				}
			case 3:
				if ok && h.At(at) == budget.Live && charged[h.ID]+dollars <= h.Amount {
					charged[h.ID] += dollars
					s.Charge(budgettest.Charge{
						At: at, Owner: h.Owner, Purpose: h.Purpose, Hold: h.ID, Amount: dollars,
					})
				}
			case 4:
				if ok && dollars >= charged[h.ID] {
					_, _ = d.Extend(ctx, h.ID, dollars, at.Add(12*time.Hour), "ana", at)
				}
			case 5:
				if ok && charged[h.ID] == 0 && h.State != budget.Settled {
					_, _ = d.Release(ctx, h.ID, "ana", at)
				} else if ok {
					_, _ = d.Settle(ctx, h.ID, charged[h.ID], "ana", at)
				}
			}
			all, err := d.Statuses(ctx, at)
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range all {
				if st.Left < 0 {
					t.Fatalf("%s is overdrawn: $%s left", st.Budget.ID, st.Left)
				}
			}
		}
	})
}
