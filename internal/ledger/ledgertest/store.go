// Package ledgertest has an in-memory store of ledgers for tests.
package ledgertest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
)

// Store keeps ledgers in memory. It is safe for concurrent use.
type Store struct {
	// Before, if set, is called at the start of every writing method with the method's name; its
	// error is returned instead.
	Before func(method string) error
	// Clock is the store's clock; nil returns a time after all rounds.
	Clock func() time.Time

	mu       sync.Mutex
	accounts map[ledger.Account]*account
}

type account struct {
	version int64
	rounds  map[time.Time]*ledger.PendingRound
	pending map[time.Time]bool
	seen    map[inventory.Ref][]ledger.Observation // in time order
	entries []ledger.Entry
	byRef   map[inventory.Ref][]int
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{accounts: map[ledger.Account]*account{}} }

var _ ledger.Store = (*Store)(nil)

func (s *Store) of(a ledger.Account) *account {
	if s.accounts[a] == nil {
		s.accounts[a] = &account{rounds: map[time.Time]*ledger.PendingRound{}, pending: map[time.Time]bool{},
			seen: map[inventory.Ref][]ledger.Observation{}, byRef: map[inventory.Ref][]int{}}
	}
	return s.accounts[a]
}

func (s *Store) before(method string) error {
	if s.Before != nil {
		return s.Before(method)
	}
	return nil
}

// Now implements [ledger.Store].
func (s *Store) Now(context.Context) (time.Time, error) {
	if s.Clock == nil {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), nil
	}
	return s.Clock(), nil
}

// Record implements [ledger.Store].
func (s *Store) Record(_ context.Context, r ledger.Round, observations []ledger.Observation) error {
	if err := s.before("Record"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(r.Account)
	added := false
	have := a.rounds[r.At]
	if have == nil {
		r.Complete = slices.Clone(r.Complete)
		have, added = &ledger.PendingRound{Round: r}, true
		a.rounds[r.At] = have
	}
	for _, p := range r.Complete {
		if !slices.Contains(have.Complete, p) {
			have.Complete, added = append(have.Complete, p), true
		}
	}
	for _, o := range observations {
		seen := a.seen[o.Ref]
		i, found := slices.BinarySearchFunc(seen, o.At, func(x ledger.Observation, at time.Time) int {
			return x.At.Compare(at)
		})
		if !found {
			a.seen[o.Ref], added = slices.Insert(seen, i, o), true
		}
	}
	if added {
		a.version++
		have.Mark, a.pending[r.At] = a.version, true
	}
	return nil
}

// Pending returns the rounds that are not posted.
func (s *Store) Pending(_ context.Context, a ledger.Account) ([]ledger.PendingRound, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ledger.PendingRound
	for at, yes := range s.of(a).pending {
		if yes {
			out = append(out, *s.of(a).rounds[at])
		}
	}
	slices.SortFunc(out, func(x, y ledger.PendingRound) int { return x.At.Compare(y.At) })
	return out, nil
}

// Settle marks a round as posted.
func (s *Store) Settle(_ context.Context, r ledger.PendingRound) error {
	if err := s.before("Settle"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.of(r.Account); a.rounds[r.At] != nil && a.rounds[r.At].Mark == r.Mark {
		delete(a.pending, r.At)
	}
	return nil
}

// listings returns the times at which a part was listed completely, in order.
func (a *account) listings(p ledger.Part) []time.Time {
	var out []time.Time
	for at, r := range a.rounds {
		if slices.Contains(r.Complete, p) {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

// around returns the last of sorted times before t and the first after it; zero if none.
func around(times []time.Time, t time.Time) (before, after time.Time) {
	i, found := slices.BinarySearchFunc(times, t, time.Time.Compare)
	if i > 0 {
		before = times[i-1]
	}
	if found {
		i++
	}
	if i < len(times) {
		after = times[i]
	}
	return before, after
}

// Touched implements [ledger.Store].
func (s *Store) Touched(_ context.Context, r ledger.Round) ([]ledger.Touch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(r.Account)
	settled := func(times []time.Time) []time.Time {
		return slices.DeleteFunc(slices.Clone(times), func(at time.Time) bool { return a.pending[at] })
	}
	oldest, newest := r.At, r.At
	for at, pending := range a.pending {
		if pending && at.Before(oldest) {
			oldest = at
		}
		if pending && at.After(newest) {
			newest = at
		}
	}
	listings := map[ledger.Part][]time.Time{}
	var out []ledger.Touch
	for _, ref := range slices.SortedFunc(maps.Keys(a.seen), inventory.CompareRefs) {
		part := ledger.Part{Region: ref.Region, Kind: ref.Kind}
		if _, ok := listings[part]; !ok {
			listings[part] = settled(a.listings(part))
		}
		times := make([]time.Time, len(a.seen[ref]))
		for i, o := range a.seen[ref] {
			times[i] = o.At
		}
		listedBefore, listedAfter := around(listings[part], r.At)
		seenBefore, seenAfter := around(times, r.At)
		_, observed := slices.BinarySearchFunc(times, r.At, time.Time.Compare)
		complete := slices.Contains(a.rounds[r.At].Complete, part)
		near := (!seenBefore.IsZero() && !seenBefore.Before(listedBefore)) ||
			(!seenAfter.IsZero() && (listedAfter.IsZero() || !seenAfter.After(listedAfter)))
		if !observed && !(complete && near) {
			continue
		}
		t := ledger.Touch{Ref: ref}
		if t.From, t.To = around(settled(times), r.At); t.From.IsZero() {
			t.From = slices.MinFunc([]time.Time{cmp.Or(listedBefore, r.At), oldest}, time.Time.Compare)
		}
		if t.To.IsZero() {
			t.To = slices.MaxFunc([]time.Time{cmp.Or(listedAfter, r.At), newest}, time.Time.Compare)
		}
		out = append(out, t)
	}
	return out, nil
}

// Histories implements [ledger.Store].
func (s *Store) Histories(_ context.Context, id ledger.Account, refs []inventory.Ref, from,
	to time.Time) ([]ledger.History, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(id)
	listings := map[ledger.Part][]time.Time{}
	out := make([]ledger.History, 0, len(refs))
	for _, ref := range refs {
		h := ledger.History{Ref: ref}
		seen := a.seen[ref]
		first, _ := slices.BinarySearchFunc(seen, from, func(o ledger.Observation, t time.Time) int {
			return o.At.Compare(t)
		})
		last, _ := slices.BinarySearchFunc(seen, to, func(o ledger.Observation, t time.Time) int {
			return o.At.Compare(t)
		})
		h.Observations = slices.Clone(seen[max(0, first-1):min(len(seen), last+1)])
		if n := len(h.Observations); n > 0 {
			part := ledger.Part{Region: ref.Region, Kind: ref.Kind}
			if _, ok := listings[part]; !ok {
				listings[part] = a.listings(part)
			}
			all := listings[part]
			begin, _ := slices.BinarySearchFunc(all, h.Observations[0].At, time.Time.Compare)
			end, _ := slices.BinarySearchFunc(all, h.Observations[n-1].At.Add(1), time.Time.Compare)
			h.Rounds = all[max(0, begin-1):min(len(all), end+1)]
		}
		for _, i := range a.byRef[ref] {
			if e := a.entries[i]; e.Kind != ledger.Reconciled && !e.Hour.Before(from) && e.Hour.Before(to) {
				h.Posted = append(h.Posted, e)
			}
		}
		out = append(out, h)
	}
	return out, a.version, nil
}

// Append adds entries at a version.
func (s *Store) Append(_ context.Context, id ledger.Account, version int64, entries []ledger.Entry) (int64, error) {
	if err := s.before("Append"); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(id)
	if a.version != version {
		return 0, ledger.ErrConflict
	}
	for _, e := range entries {
		a.byRef[e.Ref] = append(a.byRef[e.Ref], len(a.entries))
		a.entries = append(a.entries, e)
	}
	if len(entries) > 0 {
		a.version++
	}
	return a.version, nil
}

// Version returns an account's version.
func (s *Store) Version(_ context.Context, id ledger.Account) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(id).version, nil
}

// All returns every entry of an account in the order of appending.
func (s *Store) All(id ledger.Account) []ledger.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.of(id).entries)
}

// Sums adds up entries.
func (s *Store) Sums(_ context.Context, q ledger.SumQuery) ([]ledger.Sum, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := map[string]*ledger.Sum{}
	for _, a := range s.accounts {
		for i := range a.entries {
			e := &a.entries[i]
			if e.Hour.Before(q.Since) || !e.Hour.Before(q.Until) || !q.Filter.Matches(&e.Line) || q.Accrued &&
				e.Kind == ledger.Reconciled {
				continue
			}
			sum := ledger.Sum{Period: q.Granularity.Start(e.Hour, q.Since), Key: make([]string, len(q.By))}
			for j, d := range q.By {
				sum.Key[j] = e.Value(d)
			}
			id := sum.Period.Format(time.RFC3339) + "\x00" + strings.Join(sum.Key, "\x00")
			if by[id] == nil {
				by[id] = &sum
			}
			add(by[id], e)
		}
	}
	out := make([]ledger.Sum, 0, len(by))
	for _, id := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[id])
	}
	return out, nil
}

func add(s *ledger.Sum, e *ledger.Entry) {
	to := &s.Sums
	if e.Gap != "" {
		to = &s.Unknown
	}
	to.Seconds += e.Seconds
	to.Amount += e.Amount
	to.AtMost += e.AtMost
	to.Unbounded += e.Unbounded
}

// ResourceDays implements [ledger.Store].
func (s *Store) ResourceDays(_ context.Context, id ledger.Account, from, to time.Time) ([]ledger.ResourceDay, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type key struct {
		day  time.Time
		line ledger.Line
	}
	var out []ledger.ResourceDay
	at := map[key]int{}
	for _, e := range s.of(id).entries {
		if e.Hour.Before(from) || !e.Hour.Before(to) {
			continue
		}
		day := ledger.ResourceDay{Ref: e.Ref, Day: e.Hour.Truncate(24 * time.Hour), Category: e.Category, Duty: e.Duty,
			Service: e.Service, Pricing: e.Pricing, Attributes: e.Attributes}
		k := key{day.Day, day.Line()}
		i, ok := at[k]
		if !ok {
			i, at[k] = len(out), len(out)
			out = append(out, day)
		}
		d := &out[i]
		switch {
		case e.Kind == ledger.Reconciled:
			d.Reconciled += e.Amount
		case e.Gap == ledger.Unpriced:
			d.UnpricedSeconds += e.Seconds
		case e.Gap != "":
			d.Unknown.Seconds += e.Seconds
			d.Unknown.AtMost += e.AtMost
			d.Unknown.Unbounded += e.Unbounded
		default:
			d.Accrued += e.Amount
		}
	}
	slices.SortFunc(out, ledger.CompareResourceDays)
	return out, nil
}

// Entries returns the entries of a resource.
func (s *Store) Entries(_ context.Context, ref inventory.Ref, from, to time.Time) ([]ledger.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(ledger.Account{Cloud: ref.Cloud, ID: ref.Account})
	var out []ledger.Entry
	for _, i := range a.byRef[ref] {
		if e := a.entries[i]; !e.Hour.Before(from) && e.Hour.Before(to) {
			out = append(out, e)
		}
	}
	return out, nil
}

// Rounds returns the rounds of an account.
func (s *Store) Rounds(_ context.Context, id ledger.Account, from, to time.Time) ([]ledger.Round, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ledger.Round
	for at, r := range s.of(id).rounds {
		if !at.Before(from) && at.Before(to) {
			out = append(out, r.Round)
		}
	}
	slices.SortFunc(out, func(x, y ledger.Round) int { return x.At.Compare(y.At) })
	return out, nil
}

// Reach implements [ledger.Store].
func (s *Store) Reach(_ context.Context, id ledger.Account) ([]ledger.Reach, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := map[ledger.Part]ledger.Reach{}
	for at, r := range s.of(id).rounds {
		for _, p := range r.Complete {
			x, ok := by[p]
			if !ok {
				x = ledger.Reach{Part: p, First: at, Last: at}
			}
			if at.Before(x.First) {
				x.First = at
			}
			if at.After(x.Last) {
				x.Last = at
			}
			by[p] = x
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b ledger.Reach) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Kind, b.Kind))
	}), nil
}

// Accounts returns every account.
func (s *Store) Accounts(context.Context) ([]ledger.Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.accounts), func(a, b ledger.Account) int {
		return cmp.Or(cmp.Compare(a.Cloud, b.Cloud), cmp.Compare(a.ID, b.ID))
	}), nil
}
