package backtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// charging gives a setting a ledger in memory that its rounds are charged to, and from which
// policies learn where budgets stand. It leaves the setting as it is where no policy asks,
// where it has books of its own, and where budgets stay unknown: without any, or with a
// resource that has no price.
func (a *Account) charging(s round.Setting, policies []*policy.Policy, budgets budget.Set) round.Setting {
	if s.Books != nil || !slices.ContainsFunc(policies, (*policy.Policy).UsesCharges) || len(budgets.Budgets()) == 0 ||
		a.unpriced(s.Prices) > 0 {
		return s
	}
	books := &ledger.Memory{}
	s.Books = ledger.Journal{Store: books}
	s.ChargeFacts = func(ctx context.Context, now time.Time) (func(*policy.Facts), error) {
		all, err := budgets.Statuses(ctx, budget.ReplayedLedger{Ledger: books}, now)
		if err != nil {
			return nil, fmt.Errorf("read where the budgets stand: %w", err)
		}
		return round.BudgetFacts(all), nil
	}
	return s
}

// Charged returns the setting of a round at the present time, with a ledger in memory to
// which rounds at earlier times are charged. Times before the first sample, and those that
// are not before the present, are left out. What policies do not ask for is not charged.
func (p *Present) Charged(ctx context.Context, s round.Setting, budgets budget.Set, rounds []time.Time) (round.Setting,
	error) {
	s = p.account.charging(s, s.Policies.Policies, budgets)
	if s.ChargeFacts == nil {
		return s, nil
	}
	var now time.Time
	past := s
	past.Clock = func() time.Time { return now }
	past.Policies, past.ChargeFacts, past.Ladder, past.AddFacts = nil, nil, nil, nil
	engine, first := round.New(past), p.account.first()
	for _, now = range slices.SortedFunc(slices.Values(rounds), time.Time.Compare) {
		if now.Before(first) || !now.Before(p.now()) {
			continue
		}
		r, err := engine.Round(ctx)
		if err != nil {
			return s, fmt.Errorf("charge for the trace at %s: %w", now.Format(time.RFC3339), err)
		}
		for _, err := range r.Unposted {
			return s, fmt.Errorf("charge for the trace at %s: %w", now.Format(time.RFC3339), err)
		}
	}
	return s, nil
}

// Rounds returns when rounds are made before the present: at the multiples of a cadence
// since the Unix epoch or, at 0, at every whole hour and when a resource comes.
func (p *Present) Rounds(every time.Duration) []time.Time {
	step := int64(cmp.Or(every, time.Hour))
	var out []time.Time
	for at := (p.account.first().UnixNano() + step - 1) / step * step; at < p.now().UnixNano(); at += step {
		out = append(out, time.Unix(0, at).UTC())
	}
	if every > 0 {
		return out
	}
	for _, r := range p.account.resources {
		out = append(out, instant(r.known))
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

// first returns when the first sample becomes known.
func (a *Account) first() time.Time {
	first := int64(never)
	for _, r := range a.resources {
		first = min(first, r.known)
	}
	return instant(first)
}
