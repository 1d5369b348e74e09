package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

var errWindow = errors.New("a window ends at the time of the round, and begins before it")

// Window charges for the time from since to a round from the observations of that round alone, one
// Seen per account, and sums the charges by dimensions. It equals [Post] if the accounts were
// listed at since and at the round only; changes without a date from the provider are unknown. It
// substitutes for a stored ledger.
func Window(seen []Seen, since time.Time, by []Dimension) ([]Sum, error) {
	if len(seen) == 0 {
		return nil, nil
	}
	since, until := clean(since), clean(seen[0].At)
	var a accrual
	var sums sumsBy
	for i := range seen {
		if !clean(seen[i].At).Equal(until) || !since.Before(until) {
			return nil, errWindow
		}
		_, observations := Observe(seen[i])
		h := History{Rounds: []time.Time{since, until}, Observations: make([]Observation, 1)}
		for j := range observations {
			h.Observations[0] = observations[j]
			a.collect(&h, time.Time{}, endOfTime)
			if err := a.priced(func(e Entry, hours int) error { return sums.add(&e, hours, by) }); err != nil {
				return nil, err
			}
		}
	}
	return sums.list(since), nil
}

// sumsBy sums entries by values of dimensions.
type sumsBy struct {
	by   map[string]*Sum
	key  []byte
	last *Sum // the sum of the previous entry
	at   string
}

// add adds an entry that repeats for a number of hours.
func (s *sumsBy) add(e *Entry, hours int, by []Dimension) error {
	s.key = s.key[:0]
	for _, d := range by {
		s.key = append(append(s.key, e.Value(d)...), 0)
	}
	sum := s.last
	if sum == nil || s.at != string(s.key) {
		if sum = s.by[string(s.key)]; sum == nil {
			if s.by == nil {
				s.by = map[string]*Sum{}
			}
			sum = &Sum{Key: strings.Split(string(s.key[:len(s.key)-1]), "\x00")}
			s.by[string(s.key)] = sum
		}
		s.last, s.at = sum, string(s.key)
	}
	whole, err := e.times(int64(hours))
	if err != nil {
		return fmt.Errorf("add up %s: %w", e.Ref, err)
	}
	to := &sum.Sums
	if e.Gap != "" {
		to = &sum.Unknown
	}
	*to, err = to.Plus(whole)
	return err
}

func (s *sumsBy) list(period time.Time) []Sum {
	out := make([]Sum, 0, len(s.by))
	for _, sum := range s.by {
		sum.Period = period
		out = append(out, *sum)
	}
	slices.SortFunc(out, func(a, b Sum) int { return slices.Compare(a.Key, b.Key) })
	return out
}

// times returns the sums n times, or money.ErrOverflow.
func (s Sums) times(n int64) (Sums, error) {
	amount, err := s.Amount.Mul(n, 1)
	if err != nil {
		return s, err
	}
	most, err := s.AtMost.Mul(n, 1)
	return Sums{Seconds: s.Seconds * n, Amount: amount, AtMost: most, Unbounded: s.Unbounded * n}, err
}
