package ledger

import (
	"context"
	"slices"
	"time"
)

// SparinglyPosted posts prepared observations.
func SparinglyPosted(p *Sparing, r Round, observations []Observation) error {
	return p.post(context.Background(), r, observations)
}

// Accrue derives the charges of one resource from all of its observations: an entry for each hour
// and line. Observations may come in any order and repeat; rounds are the times at which its part
// of the account was listed completely.
//
// Known stretches are charged at the observed rates; each hour of a meter at one rate is rounded
// once, and its parts by duty sum to it. An amount that does not fit is money.ErrOverflow.
func Accrue(rounds []time.Time, observations []Observation) ([]Entry, error) {
	h := History{Rounds: slices.Clone(rounds), Observations: slices.Clone(observations)}
	slices.SortFunc(h.Rounds, time.Time.Compare)
	slices.SortStableFunc(h.Observations, func(a, b Observation) int { return a.At.Compare(b.At) })
	h.Observations = slices.CompactFunc(h.Observations, func(a, b Observation) bool { return a.At.Equal(b.At) })
	return h.accrue(time.Time{}, endOfTime)
}

// accrue derives the entries with Hour in [from, to).
func (h *History) accrue(from, to time.Time) ([]Entry, error) {
	var a accrual
	return a.derive(nil, h, from, to)
}
