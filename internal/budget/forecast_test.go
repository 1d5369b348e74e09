package budget_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

func amount(n int64) money.Amount { return money.Amount(n) }

func deskOf(src string) (budget.Desk, *budgettest.Store) {
	s, err := budget.Parse("b", []byte(src))
	if err != nil {
		panic(err)
	}
	store := &budgettest.Store{}
	return budget.Desk{Store: store, Set: s}, store
}

// spend charges one amount at noon of each day before the 21st, the newest last, and nothing in the
// last hour of the ledger, which ends at noon of the 21st.
func spend(s *budgettest.Store, days int, of func(day int) money.Amount) {
	end := now.Truncate(time.Hour)
	s.Charge(budgettest.Charge{At: end.Add(-time.Hour)})
	for i := range days {
		s.Charge(budgettest.Charge{
			At: end.Add(-time.Duration(days-i)*24*time.Hour + time.Hour), Owner: vision, Purpose: inventory.Training,
			Amount: of(i),
		})
	}
}

func TestForecast(t *testing.T) {
	flat := func(int) money.Amount { return 10 * money.USD }
	// Saturdays: those of November, half of the 21st, and the 28th.
	weekdays := func(i int) money.Amount {
		if (i-56)%7 == 0 {
			return 70 * money.USD
		}
		return 0
	}
	for _, tc := range []struct {
		name         string
		days         int
		of           func(int) money.Amount
		at           time.Time
		says         string
		low, high    float64
		weekdaysTold bool
	}{
		{name: "an empty ledger", says: "no forecast: the ledger is empty", at: now.AddDate(-1, 0, 0)},
		{
			name: "six days after the first", days: 7, of: flat, at: now,
			says: "6 whole days of spend are known, it takes 7",
		},
		{name: "a flat rate", days: 56, of: flat, at: now, low: 295, high: 305, weekdaysTold: true},
		{name: "a flat rate of ten days", days: 10, of: flat, at: now, low: 190, high: 205},
		{name: "one day a week", days: 56, of: weekdays, at: now, low: 244, high: 246, weekdaysTold: true},
		{name: "a ledger that is behind", days: 56, of: flat, at: now.Add(49 * time.Hour), says: "hours ago"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, s := desk(t, one)
			spend(s, tc.days, tc.of)
			st := status(t, d, "vision", tc.at)
			f, ok := st.Forecast.Get()
			if tc.says != "" {
				if ok || !strings.Contains(st.NoForecast, tc.says) {
					t.Errorf("got %+v, %q; want %q", f, st.NoForecast, tc.says)
				}
				return
			}
			if !ok || float64(f.Low) < tc.low*float64(money.USD) || float64(f.High) > tc.high*float64(money.USD) ||
				f.Low > f.Median || f.Median > f.High || f.Weekdays != tc.weekdaysTold {
				t.Errorf("got %+v (used $%s), %q; want within %v and %v", f, st.Used, st.NoForecast, tc.low, tc.high)
			}
		})
	}
}

// TestForecastIsDeterministic checks to the cent that equal histories give equal forecasts.
func TestForecastIsDeterministic(t *testing.T) {
	d, s := desk(t, one)
	spend(s, 30, func(i int) money.Amount { return money.Amount(i*i*7919%100_003) * money.Cent })
	f, ok := status(t, d, "vision", now).Forecast.Get()
	if got := []string{f.Low.Cents(), f.Median.Cents(), f.High.Cents()}; !ok ||
		!slices.Equal(got, []string{"16202.44", "17238.80", "18425.05"}) {
		t.Errorf("got %v", got)
	}
}

// TestForecastRangeCoversOutcome generates pasts and outcomes from one distribution: the range from
// the 5th to the 95th percentile must cover about nine in ten.
func TestForecastRangeCoversOutcome(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	day := func() money.Amount { return money.Amount(random.ExpFloat64() * 100 * float64(money.USD)) }
	for _, past := range []int{12, 55} {
		hits, trials := 0, 200
		for range trials {
			d, s := deskOf(one)
			spend(s, past+1, func(int) money.Amount { return day() })
			st := status(t, d, "vision", now)
			f, ok := st.Forecast.Get()
			if !ok {
				t.Fatal(st.NoForecast)
			}
			total := st.Used
			for range 9 { // the rest of November is nine and a half days
				total += day()
			}
			if total += day() / 2; total >= f.Low && total <= f.High {
				hits++
			}
		}
		if hits < trials*80/100 || hits == trials {
			t.Errorf("from %d days, %d of %d futures were in the range, want about 90%%", past, hits, trials)
		}
	}
}

func TestForecastIncludesHolds(t *testing.T) {
	d, s := desk(t, one)
	spend(s, 56, func(int) money.Amount { return money.USD })
	live(t, d, run("a", 500), now)
	f, ok := status(t, d, "vision", now).Forecast.Get()
	if !ok || f.High < 500*money.USD {
		t.Errorf("got %+v: the range leaves out what is held", f)
	}
}

func TestFacts(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		used   int64
		state  budget.State
		budget string
		share  float64
	}{
		{"nothing spent", 0, budget.OK, "ana", 0},
		{"some", 300, budget.OK, "ana", 0.6},
		{"warned", 400, budget.Warn, "ana", 0.8},
		{"gated", 450, budget.Gate, "ana", 0.9},
		{"over", 500, budget.Over, "ana", 1},
		{"two over", 700, budget.Over, "ana", 1.4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, s := desk(t, nested)
			s.Charge(budgettest.Charge{
				At: now.Add(-time.Hour), Owner: vision, Purpose: inventory.Training,
				Amount: money.Amount(tc.used) * money.USD,
			})
			all := must(d.Statuses(ctx, now))(t)
			f, ok, err := budget.FactsOf(all, vision, inventory.Training)
			if err != nil || !ok || f.State != tc.state || f.Budget != tc.budget || f.UsedShare != tc.share {
				t.Errorf("got %+v, %v, %v", f, ok, err)
			}
			if f.ForecastShare.Known() {
				t.Error("a forecast was made up")
			}
		})
	}
	d, s := desk(t,
		`budgets: [{id: a, purpose: any, amount: 1000}, {id: b, purpose: any, amount: 500}, {id: c, purpose: any, amount: 800}]`)
	s.Charge(budgettest.Charge{
		At: now.Add(-time.Hour), Owner: vision, Purpose: inventory.Training, Amount: 100 * money.USD,
	})
	if f, _, err := budget.FactsOf(must(d.Statuses(ctx, now))(t), vision, inventory.Training); err != nil ||
		f.Budget != "b" || f.UsedShare != 0.2 {
		t.Errorf("of budgets in one state the fullest counts: %+v, %v", f, err)
	}
	d, _ = desk(t, one)
	if f, ok, err := budget.FactsOf(must(d.Statuses(ctx, now))(t), speech, inventory.Training); ok || err != nil {
		t.Errorf("what no budget covers has facts: %+v, %v", f, err)
	}
}

func BenchmarkStatus(b *testing.B) {
	d, s := deskOf(one)
	spend(s, 56, func(i int) money.Amount { return money.Amount(i%7+1) * money.USD })
	for b.Loop() {
		if all, err := d.Statuses(context.Background(), now); err != nil || !all[0].Forecast.Known() {
			b.Fatal(err)
		}
	}
}
