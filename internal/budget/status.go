package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Status is where a budget stands in the window of a time.
type Status struct {
	Budget Budget
	Window Window
	Balance
	// Unbounded is the resource time of which not even the most is known; it is in none of
	// them.
	Unbounded time.Duration
	State     State
	// Forecast is what the window's spend comes to at its end; unknown where too little
	// is known, and NoForecast says what.
	Forecast   inventory.Fact[Forecast]
	NoForecast string
	// Through is how far the ledger reaches; zero where it is empty.
	Through time.Time
}

// Balance is the money of a budget in a window. Used, Held, Left, and Unknown where the
// budget counts it, add up to its amount.
type Balance struct {
	// Used is what was charged.
	Used money.Amount `json:"used_usd"`
	// Held is what is reserved for work that was admitted, beyond its own charges.
	Held money.Amount `json:"held_usd"`
	// Unobserved is the part of Held of runs that are over and that the ledger has not
	// seen.
	Unobserved money.Amount `json:"unobserved_usd"`
	// Unknown is the most that unpriced charges can come to.
	Unknown money.Amount `json:"unknown_usd"`
	// Left is what may still be spent and held; negative where it is overdrawn.
	Left money.Amount `json:"left_usd"`
	// Hourly is what is being spent in an hour: measured over the last whole hour where
	// nothing is held, as estimated where it is.
	Hourly money.Amount `json:"hourly_usd"`
}

// Committed is what is spent and held, and what is unknown where that counts.
func (s Status) Committed() (money.Amount, error) {
	unknown := s.Unknown
	if !s.Budget.CountUnknown {
		unknown = 0
	}
	return money.Sum(s.Used, s.Held, unknown)
}

// status returns where the budget stands, and ErrOutside for a custom period that does not
// hold the time.
func (b Budget) status(ctx context.Context, on Reading, now time.Time) (Status, error) {
	w, err := b.Period.Window(now)
	if err != nil {
		return Status{}, fmt.Errorf("budget %s: %w", b.ID, err)
	}
	s := Status{Budget: b, Window: w}
	if err := s.count(ctx, on, now); err != nil {
		return Status{}, fmt.Errorf("budget %s: %w", b.ID, err)
	}
	f, err := s.foresee(ctx, on, now)
	switch {
	case errors.Is(err, ErrNoForecast):
		s.NoForecast = err.Error()
	case err != nil:
		return Status{}, fmt.Errorf("budget %s: %w", b.ID, err)
	default:
		s.Forecast = inventory.Known(f)
	}
	return s, nil
}

// count fills in everything but the forecast.
func (s *Status) count(ctx context.Context, on Reading, now time.Time) error {
	hour := lastHour(now)
	line := Line{Budget: s.Budget.ID, Match: s.Budget.Match, Window: s.Window}
	spent, err := on.Spent(ctx, line.Match, s.Window.From, s.Window.To)
	if err != nil {
		return err
	}
	lately, err := on.Spent(ctx, line.Match, hour.From, hour.To)
	if err != nil {
		return err
	}
	from := s.Window.From
	if hour.From.Before(from) {
		from = hour.From
	}
	holds, err := on.Holds(ctx, from, s.Window.To)
	if err != nil {
		return err
	}
	before := line.before(holds)
	earlier, err := on.Spent(ctx, line.Match, before.From, before.To)
	if err != nil {
		return err
	}
	s.Used, s.Unknown, s.Unbounded, s.Through = spent.Used, spent.Unknown, spent.Unbounded, spent.Through
	if s.Held, s.Unobserved, err = line.held(holds, account{spent, lately, earlier}, now); err != nil {
		return err
	}
	measured, held, err := line.burn(holds, lately, now)
	if err != nil {
		return err
	}
	if s.Hourly, err = measured.Add(held); err != nil {
		return err
	}
	limit, err := s.Budget.limit()
	if err != nil {
		return err
	}
	committed, err := s.Committed()
	if err != nil {
		return err
	}
	s.Left = limit - committed
	s.State, err = s.Budget.State(committed)
	return err
}

// State returns the state of a budget of which an amount is spent and held.
func (b Budget) State(committed money.Amount) (State, error) {
	t := b.Thresholds.orDefault()
	state := OK
	for _, step := range []struct {
		percent int
		state   State
	}{{t.Warn, Warn}, {t.Gate, Gate}, {t.Deny, Over}} {
		from, err := b.share(step.percent)
		if err != nil {
			return "", fmt.Errorf("budget %s: %w", b.ID, err)
		}
		if committed >= from {
			state = step.state
		}
	}
	return state, nil
}

// foresee forecasts a status to the end of its window.
func (s *Status) foresee(ctx context.Context, on Reading, now time.Time) (Forecast, error) {
	if s.Through.IsZero() {
		return Forecast{}, fmt.Errorf("%w: the ledger is empty", ErrNoForecast)
	}
	through := s.Through
	if through.After(now) {
		through = now.UTC().Truncate(time.Hour)
	}
	if lag := now.Sub(through); lag > ledgerMayLag {
		return Forecast{}, fmt.Errorf("%w: the ledger ends at %s, %d hours ago", ErrNoForecast,
			through.UTC().Format(time.RFC3339), lag/time.Hour)
	}
	if through.Before(s.Window.From) {
		through = s.Window.From // a window that began after the ledger's end
	}
	today := through.UTC().Truncate(day)
	past, err := on.Spent(ctx, s.Budget.Match, today.Add(-history*day), today)
	if err != nil {
		return Forecast{}, err
	}
	f, err := forecast(s.Used, past.Daily, through, s.Window.To)
	if err != nil {
		return Forecast{}, err
	}
	// What is held is meant to be spent, and what was charged is not undone.
	committed, err := s.Used.Add(s.Held)
	f.Low, f.Median, f.High = max(f.Low, s.Used), max(f.Median, s.Used), max(f.High, committed)
	return f, err
}

// Statuses returns where every budget of the set stands whose period holds the time, in
// the order of their ids.
func (d Desk) Statuses(ctx context.Context, now time.Time) ([]Status, error) {
	return d.Set.Statuses(ctx, d.Store, now)
}

// Statuses returns where every budget of the set stands by what was read.
func (s Set) Statuses(ctx context.Context, on Reading, now time.Time) ([]Status, error) {
	var out []Status
	for _, b := range s.budgets {
		s, err := b.status(ctx, on, now)
		if errors.Is(err, ErrOutside) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Facts are what conditions of policies may ask of the budgets that an owner spends from.
type Facts struct {
	// Budget is the one that stands worst, and State its state.
	Budget string
	State  State
	// UsedShare is spent and held over the amount, 0 and up; ForecastShare the median
	// forecast over it, of the budget where it is largest; unknown where that of any
	// budget is.
	UsedShare     float64
	ForecastShare inventory.Fact[float64]
}

// FactsOf sums up the statuses of budgets that spend of that owner and purpose counts
// against. It returns false where there is none: what no budget covers is unknown.
func FactsOf(all []Status, o inventory.Owner, p inventory.Purpose) (Facts, bool, error) {
	var f Facts
	found, known, most := false, true, 0.0
	for _, s := range all {
		if !s.Budget.Covers(o, p) {
			continue
		}
		committed, err := s.Committed()
		if err != nil {
			return Facts{}, false, err
		}
		share := shareOf(committed, s.Budget.Amount)
		if !found || s.State.level() > f.State.level() || s.State == f.State && share > f.UsedShare {
			f.Budget, f.State, f.UsedShare = s.Budget.ID, s.State, share
		}
		found = true
		fc, ok := s.Forecast.Get()
		known = known && ok
		most = max(most, shareOf(fc.Median, s.Budget.Amount))
	}
	if found && known {
		f.ForecastShare = inventory.Known(most)
	}
	return f, found, nil
}

// shareOf is a/b; what is spent of nothing is all of it.
func shareOf(a, b money.Amount) float64 {
	if b == 0 {
		return 1
	}
	return money.Ratio(a, b)
}
