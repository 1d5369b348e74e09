package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Status is the state of a budget in the window of a time.
type Status struct {
	Budget Budget
	Window Window
	Balance
	// Unbounded is the resource time without even an upper bound of its cost; it is in no amount.
	Unbounded time.Duration
	State     State
	// Forecast is the forecast spend at the window's end; if unknown, NoForecast explains why.
	Forecast   inventory.Fact[Forecast]
	NoForecast string
	// Through is the end of the ledger; zero if it is empty.
	Through time.Time
	// Daily is Used by 24 hours from the start of the window. Reserved is Held by hold, without
	// holds with nothing left. Both sum up exactly.
	Daily    []money.Amount
	Reserved []Reserved
}

// Reserved is the amount that a hold reserves beyond its own charges.
type Reserved struct {
	Hold   Hold
	Amount money.Amount
	// Unobserved reports that its run is over and was not seen by the ledger.
	Unobserved bool
}

// Balance is the money of a budget in a window. Used, Held and Left, plus Unknown if it counts, add
// up to the amount.
type Balance struct {
	// Used is the charged amount.
	Used money.Amount `json:"used_usd"`
	// Held is the amount that admitted work reserves beyond its own charges.
	Held money.Amount `json:"held_usd"`
	// Unobserved is the part of Held whose runs are over but not seen by the ledger.
	Unobserved money.Amount `json:"unobserved_usd"`
	// Unknown is the upper bound of unpriced charges.
	Unknown money.Amount `json:"unknown_usd"`
	// Left is the remaining amount; negative if overdrawn.
	Left money.Amount `json:"left_usd"`
	// Hourly is the current spend per hour: measured over the last full hour without holds, as
	// estimated with holds.
	Hourly money.Amount `json:"hourly_usd"`
}

// Committed returns what is spent and held, plus the unknown amount if it counts.
func (s Status) Committed() (money.Amount, error) {
	unknown := s.Unknown
	if !s.Budget.CountUnknown {
		unknown = 0
	}
	return money.Sum(s.Used, s.Held, unknown)
}

// status returns the status of the budget, or ErrOutside if a custom period does not contain the
// time.
func (b Budget) status(ctx context.Context, on Reading, now time.Time) (Status, error) {
	w, err := b.Period.Window(now)
	if err != nil {
		return Status{}, fmt.Errorf("budget %s: %w", b.ID, err)
	}
	s := Status{Budget: b, Window: w}
	if err := s.addSpend(ctx, on, now); err != nil {
		return Status{}, fmt.Errorf("budget %s: %w", b.ID, err)
	}
	f, err := s.forecast(ctx, on, now)
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

// addSpend fills in everything except the forecast.
func (s *Status) addSpend(ctx context.Context, on Reading, now time.Time) error {
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
	before := line.timeBefore(holds)
	earlier, err := on.Spent(ctx, line.Match, before.From, before.To)
	if err != nil {
		return err
	}
	s.Used, s.Unknown, s.Unbounded, s.Through = spent.Used, spent.Unknown, spent.Unbounded, spent.Through
	s.Daily = spent.Daily
	s.Reserved = line.reserved(holds, lineSpend{spent, lately, earlier}, now)
	if s.Held, s.Unobserved, err = sumReserved(s.Reserved); err != nil {
		return err
	}
	measured, held, err := line.hourlyRate(holds, lately, now)
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

// State returns the state of a budget with a committed amount.
func (b Budget) State(committed money.Amount) (State, error) {
	t := b.Thresholds.withDefaults()
	state := OK
	for _, step := range []struct {
		percent int
		state   State
	}{{t.Warn, Warn}, {t.Gate, Gate}, {t.Deny, Over}} {
		from, err := b.percentOf(step.percent)
		if err != nil {
			return "", fmt.Errorf("budget %s: %w", b.ID, err)
		}
		if committed >= from {
			state = step.state
		}
	}
	return state, nil
}

// forecast forecasts the spend to the end of the window.
func (s *Status) forecast(ctx context.Context, on Reading, now time.Time) (Forecast, error) {
	if s.Through.IsZero() {
		return Forecast{}, fmt.Errorf("%w: the ledger is empty", ErrNoForecast)
	}
	through := s.Through
	if through.After(now) {
		through = now.UTC().Truncate(time.Hour)
	}
	if lag := now.Sub(through); lag > maxLedgerLag {
		return Forecast{}, fmt.Errorf("%w: the ledger ends at %s, %d hours ago", ErrNoForecast,
			through.UTC().Format(time.RFC3339), lag/time.Hour)
	}
	if through.Before(s.Window.From) {
		through = s.Window.From // the window began after the ledger's end
	}
	today := through.UTC().Truncate(day)
	past, err := on.Spent(ctx, s.Budget.Match, today.Add(-monthlyHistoryDays*day), today)
	if err != nil {
		return Forecast{}, err
	}
	f, err := forecast(s.Used, past.Daily, through, s.Window.To)
	if err != nil {
		return Forecast{}, err
	}
	// Holds will be spent, and charges are final.
	committed, err := s.Used.Add(s.Held)
	f.Low, f.Median, f.High = max(f.Low, s.Used), max(f.Median, s.Used), max(f.High, committed)
	return f, err
}

// Statuses returns the statuses by id of all budgets whose period contains the time.
func (d Desk) Statuses(ctx context.Context, now time.Time) ([]Status, error) {
	return d.Set.Statuses(ctx, d.Store, now)
}

// Statuses returns the statuses of all budgets from a reading.
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

// Facts are the budget values available to policy conditions.
type Facts struct {
	// Budget is the budget in the worst state.
	Budget string
	State  State
	// UsedShare is spent and held over the amount, 0 and up. ForecastShare is the largest median
	// forecast over the amount; unknown if that of any budget is.
	UsedShare     float64
	ForecastShare inventory.Fact[float64]
}

// FactsOf summarizes the statuses of the budgets that cover an owner and purpose. It returns false
// if there is none: uncovered spend is unknown.
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

// shareOf returns a/b, or 1 if b is zero.
func shareOf(a, b money.Amount) float64 {
	if b == 0 {
		return 1
	}
	return money.Ratio(a, b)
}
