// Package budgettest has an in-memory store of holds that follows every rule of its interface, with
// a ledger of charges and faults before and after each call.
package budgettest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Charge is a line of the ledger.
type Charge struct {
	At      time.Time
	Owner   inventory.Owner
	Purpose inventory.Purpose
	Hold    string
	Amount  money.Amount
	// Unpriced is true if Amount is an upper bound. Unbounded is the time without even an upper
	// bound.
	Unpriced  bool
	Unbounded time.Duration
}

// Store is a budget.Store in memory. Its zero value is empty.
type Store struct {
	// Fault is called before every read ("read"), and before and after every write with its name.
	// The call returns its error; a fault after a write does not undo it. Nil injects none.
	Fault func(point string) error

	mu      sync.Mutex
	holds   map[string]budget.Hold
	charges []Charge
}

// Charge adds charges to the ledger.
func (s *Store) Charge(charges ...Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charges = append(s.charges, charges...)
}

// Spent sums charges.
func (s *Store) Spent(_ context.Context, m budget.Match, from, to time.Time) (budget.Spend, error) {
	if err := s.fault("read"); err != nil {
		return budget.Spend{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spent(m, from, to), nil
}

func (s *Store) spent(m budget.Match, from, to time.Time) budget.Spend {
	out := budget.Spend{ByHold: map[string]money.Amount{}}
	if !from.Before(to) {
		return budget.Spend{}
	}
	out.Daily = make([]money.Amount, (to.Sub(from)+24*time.Hour-1)/(24*time.Hour))
	for _, c := range s.charges {
		if end := c.At.Add(time.Hour); c.At.Before(to) && end.After(out.Through) {
			out.Through = end
		}
		owner, purpose, own := c.Owner, c.Purpose, c.Hold != ""
		if h, ok := s.holds[c.Hold]; ok {
			own = own && h.Owns(c.Owner)
			owner = inventory.Owner{
				Team: cmp.Or(owner.Team, h.Owner.Team), Project: cmp.Or(owner.Project, h.Owner.Project),
				User:        cmp.Or(owner.User, h.Owner.User),
				Environment: cmp.Or(owner.Environment, h.Owner.Environment),
				CostCenter:  cmp.Or(owner.CostCenter, h.Owner.CostCenter)}
			purpose = cmp.Or(purpose, h.Purpose)
		}
		if c.At.Before(from) || !c.At.Before(to) || !m.Covers(owner, purpose) {
			continue
		}
		if c.Unpriced {
			out.Unknown, out.Unbounded = out.Unknown+c.Amount, out.Unbounded+c.Unbounded
			continue
		}
		out.Used += c.Amount
		out.Daily[c.At.Sub(from)/(24*time.Hour)] += c.Amount
		if own {
			out.ByHold[c.Hold] += c.Amount
		}
	}
	return out
}

// Reserve writes a hold that fits.
func (s *Store) Reserve(_ context.Context, r budget.Reservation) (budget.Hold, error) {
	return s.write("reserve", func() (budget.Hold, error) {
		h := r.Hold
		if err := s.expected(h); err != nil {
			return budget.Hold{}, err
		}
		if other, ok := s.keyed(h.Key); ok && h.Version == 0 {
			return other, nil
		} else if ok && other.ID != h.ID {
			return budget.Hold{}, budget.ErrConflict
		}
		span := r.Span()
		var spent []budget.Spend
		holds := s.within(span.From, span.To)
		for _, q := range r.Reads(holds) {
			spent = append(spent, s.spent(q.Match, q.From, q.To))
		}
		if err := r.Check(holds, spent); err != nil {
			return budget.Hold{}, fmt.Errorf("reserve hold %s: %w", h.ID, err)
		}
		return s.put(h), nil
	})
}

// PutHold writes a stored hold.
func (s *Store) PutHold(_ context.Context, h budget.Hold, _ budget.Event) (budget.Hold, error) {
	return s.write("put", func() (budget.Hold, error) {
		if err := s.expected(h); err != nil || h.Version == 0 {
			return budget.Hold{}, cmp.Or(err, budget.ErrConflict)
		}
		if other, ok := s.keyed(h.Key); ok && other.ID != h.ID {
			return budget.Hold{}, budget.ErrConflict
		}
		return s.put(h), nil
	})
}

// Hold returns a hold by its ID or a unique prefix.
func (s *Store) Hold(_ context.Context, id string) (budget.Hold, error) {
	if err := s.fault("read"); err != nil {
		return budget.Hold{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.holds[id]; ok {
		return h, nil
	}
	var found []budget.Hold
	for _, h := range s.holds {
		if id != "" && strings.HasPrefix(h.ID, id) {
			found = append(found, h)
		}
	}
	if len(found) != 1 {
		return budget.Hold{}, budget.ErrNotFound
	}
	return found[0], nil
}

// Keyed returns the hold with a key.
func (s *Store) Keyed(_ context.Context, key string) (budget.Hold, error) {
	if err := s.fault("read"); err != nil {
		return budget.Hold{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.keyed(key); ok {
		return h, nil
	}
	return budget.Hold{}, budget.ErrNotFound
}

// Holds returns the holds that overlap a time span.
func (s *Store) Holds(_ context.Context, from, to time.Time) ([]budget.Hold, error) {
	if err := s.fault("read"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.within(from, to), nil
}

func (s *Store) write(point string, do func() (budget.Hold, error)) (budget.Hold, error) {
	if err := s.fault("before " + point); err != nil {
		return budget.Hold{}, err
	}
	s.mu.Lock()
	h, err := do()
	s.mu.Unlock()
	return h, errors.Join(err, s.fault("after "+point))
}

func (s *Store) fault(point string) error {
	if s.Fault == nil {
		return nil
	}
	return s.Fault(point)
}

// expected reports whether a hold is stored with the version it was read with.
func (s *Store) expected(h budget.Hold) error {
	old, ok := s.holds[h.ID]
	switch {
	case h.ID == "" || h.Key == "":
		return errors.New("a hold needs an id and a key")
	case !ok && h.Version != 0:
		return budget.ErrNotFound
	case old.Version != h.Version:
		return budget.ErrConflict
	}
	return nil
}

func (s *Store) put(h budget.Hold) budget.Hold {
	if s.holds == nil {
		s.holds = map[string]budget.Hold{}
	}
	h.Version++
	s.holds[h.ID] = h
	return h
}

func (s *Store) keyed(key string) (budget.Hold, bool) {
	for _, h := range s.holds {
		if h.Key == key {
			return h, true
		}
	}
	return budget.Hold{}, false
}

func (s *Store) within(from, to time.Time) []budget.Hold {
	var out []budget.Hold
	for _, h := range s.holds {
		if h.From.Before(to) && h.ExpiresAt.After(from) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b budget.Hold) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
