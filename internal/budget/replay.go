package budget

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// ReplayedLedger implements Reading with an in-memory ledger and no holds.
type ReplayedLedger struct{ Ledger *ledger.Memory }

var _ Reading = ReplayedLedger{}

// Spent implements [Spending].
func (r ReplayedLedger) Spent(_ context.Context, m Match, from, to time.Time) (Spend, error) {
	if !from.Before(to) {
		return Spend{}, nil
	}
	const day = 24 * time.Hour
	out := Spend{Daily: make([]money.Amount, (to.Sub(from)+day-1)/day)}
	for e := range r.Ledger.Entries(time.Time{}, to) {
		if end := e.Hour.Add(time.Hour); end.After(out.Through) {
			out.Through = end
		}
		if e.Hour.Before(from) || !m.Covers(e.Owner, e.Purpose) {
			continue
		}
		to, amount := &out.Used, e.Amount
		if e.Gap != "" {
			to, amount = &out.Unknown, e.AtMost
			out.Unbounded += time.Duration(e.Unbounded) * time.Second
		}
		var err error
		if *to, err = to.Add(amount); err != nil {
			return Spend{}, err
		}
		if e.Gap == "" {
			d := &out.Daily[e.Hour.Sub(from)/day]
			*d += amount // at most Used, so it cannot overflow
		}
	}
	return out, nil
}

// Holds implements [Reading].
func (r ReplayedLedger) Holds(context.Context, time.Time, time.Time) ([]Hold, error) { return nil, nil }
