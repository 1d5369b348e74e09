// Package actiontest has what the ladder stands on, with real state and none of the
// outside: a store that keeps every rule of its interface, a cloud with resources,
// protections, slow confirmations and one-shot faults, people who can be reached or
// not, and clocks that can be set. All of it can live in files, so that it survives
// the end of a process.
package actiontest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/intent/intenttest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Store is an [action.Store] in memory, or in a file.
type Store struct {
	state intenttest.State[storeState]
	// Clock is the store's own; nil if there is none.
	Clock func() time.Time
}

var _ action.Store = (*Store)(nil)

type storeState struct {
	Rounds   map[string]int64
	Clocks   map[string]action.Clock
	Items    map[string]action.Item
	Admitted []admitted
	Fuses    []action.Fuse
	Freeze   *action.Freeze
	Keeps    []action.Keep
	Entries  []action.Entry
	Notices  []action.Notice
}

// admitted records an admission, which the caps count.
type admitted struct {
	Account, Source string
	At              time.Time
	Hourly          money.Amount
}

// NewStore returns an empty store in memory.
func NewStore() *Store { return &Store{} }

// OpenStore returns the store that is kept in a file.
func OpenStore(path string) *Store { return &Store{state: intenttest.State[storeState]{Path: path}} }

// Now implements [action.Store].
func (s *Store) Now(context.Context) (now time.Time, common bool, err error) {
	if s.Clock == nil {
		return time.Time{}, false, nil
	}
	return s.Clock(), true, nil
}

// BeginRound implements [action.Store].
func (s *Store) BeginRound(ctx context.Context, account string, c action.Clock) (n int64, last *action.Clock,
	err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		if v.Rounds == nil {
			v.Rounds, v.Clocks = map[string]int64{}, map[string]action.Clock{}
		}
		if before, ok := v.Clocks[account]; ok {
			last = &before
		}
		v.Rounds[account]++
		n, v.Clocks[account] = v.Rounds[account], c
		return nil
	})
	return n, last, err
}

// Items implements [action.Store].
func (s *Store) Items(ctx context.Context, account string, q action.ItemQuery) (out []action.Item, err error) {
	selected := q.Selects()
	err = s.state.In(ctx, func(v *storeState) error {
		for _, it := range v.Items {
			if it.Account == account && selected(it) {
				out = append(out, it)
			}
		}
		slices.SortFunc(out, func(a, b action.Item) int { return cmp.Compare(a.ID, b.ID) })
		return nil
	})
	return out, err
}

// Item implements [action.Store].
func (s *Store) Item(ctx context.Context, id string) (out action.Item, err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		found := 0
		for _, it := range v.Items {
			if it.ID == id {
				out, found = it, 1
				break
			}
			if id != "" && strings.HasPrefix(it.ID, id) {
				out, found = it, found+1
			}
		}
		if found != 1 {
			return fmt.Errorf("%q: %w", id, action.ErrNotFound)
		}
		return nil
	})
	return out, err
}

// All returns every item that there ever was.
func (s *Store) All() (out []action.Item) {
	_ = s.state.Do(func(v *storeState) error {
		for _, it := range v.Items {
			out = append(out, it)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b action.Item) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// put writes an item on the condition of its version.
func (v *storeState) put(it action.Item) (action.Item, error) {
	if v.Items[it.ID].Version != it.Version {
		return it, action.ErrConflict
	}
	for _, other := range v.Items {
		if it.Phase.IsOpen() && other.Phase.IsOpen() && other.ID != it.ID &&
			other.Account == it.Account && other.Ref == it.Ref && other.Source == it.Source {
			return it, action.ErrConflict
		}
	}
	if v.Items == nil {
		v.Items = map[string]action.Item{}
	}
	it.Version++
	v.Items[it.ID] = it
	return it, nil
}

func (v *storeState) record(entries []action.Entry) {
	for _, e := range entries {
		e.ID = int64(len(v.Entries) + 1)
		v.Entries = append(v.Entries, e)
	}
}

// Save implements [action.Store].
func (s *Store) Save(ctx context.Context, it action.Item, entries ...action.Entry) (out action.Item, err error) {
	err = s.state.In(ctx, func(v *storeState) (err error) {
		out, err = v.put(it)
		v.record(entries)
		return err
	})
	return out, err
}

// SaveKept implements [action.Store].
func (s *Store) SaveKept(ctx context.Context, it action.Item, k action.Keep, entries ...action.Entry) (out action.Item,
	err error) {
	err = s.state.In(ctx, func(v *storeState) (err error) {
		if out, err = v.put(it); err != nil {
			return err
		}
		v.record(entries)
		v.keep(k)
		return nil
	})
	return out, err
}

// SaveOwing implements [action.Store].
func (s *Store) SaveOwing(ctx context.Context, it action.Item, notices []action.Notice, entries ...action.Entry) (
	out action.Item, err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		if out, err = v.put(it); err != nil {
			return err
		}
		v.Notices = append(v.Notices, notices...)
		v.record(entries)
		return nil
	})
	return out, err
}

// ClaimNotice implements [action.Store].
func (s *Store) ClaimNotice(ctx context.Context, account string, now, until time.Time) (out *action.Notice,
	err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		due := func(n action.Notice) bool { return n.Account == account && n.ClosedAt.IsZero() && !n.DueAt.After(now) }
		if i := slices.IndexFunc(v.Notices, due); i >= 0 {
			v.Notices[i].Attempts++
			v.Notices[i].DueAt = until
			n := v.Notices[i]
			out = &n
		}
		return nil
	})
	return out, err
}

// PutNotice implements [action.Store].
func (s *Store) PutNotice(ctx context.Context, n action.Notice, entries ...action.Entry) error {
	return s.state.In(ctx, func(v *storeState) error {
		i := slices.IndexFunc(v.Notices, func(o action.Notice) bool { return o.ID == n.ID })
		if i < 0 || v.Notices[i].Attempts != n.Attempts {
			return action.ErrConflict
		}
		v.Notices[i] = n
		v.record(entries)
		return nil
	})
}

// Owed implements [action.Store].
func (s *Store) Owed(ctx context.Context) (out []action.Notice, err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		out = slices.DeleteFunc(slices.Clone(v.Notices), func(n action.Notice) bool { return !n.ClosedAt.IsZero() })
		return nil
	})
	return out, err
}

// Admit implements [action.Store].
func (s *Store) Admit(ctx context.Context, b action.Batch) (out []action.AdmissionResult, err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		if v.Freeze != nil {
			return action.ErrFrozen
		}
		if f := v.fuse(b.Account, b.Source); f != nil && f.IsBlown() {
			return action.ErrFuse
		}
		n, hourly := 0, money.Amount(0)
		for _, a := range v.Admitted {
			if a.Account == b.Account && a.Source == b.Source && a.At.After(b.Now.Add(-time.Hour)) {
				n, hourly = n+1, hourly+a.Hourly
			}
		}
		for i, d := range b.Defer(n, hourly) {
			a := b.Admissions[i]
			if d != nil {
				out = append(out, action.AdmissionResult{Deferred: d})
				continue
			}
			it, err := v.put(a.Item)
			if err != nil {
				return err
			}
			out = append(out, action.AdmissionResult{Item: it})
			v.Admitted = append(v.Admitted, admitted{b.Account, b.Source, b.Now, a.Hourly})
			v.record(a.Entries)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// fuse returns the newest fuse of a source in an account.
func (v *storeState) fuse(account, source string) *action.Fuse {
	i := slices.IndexFunc(v.Fuses, func(f action.Fuse) bool { return f.Account == account && f.Source == source })
	if i < 0 {
		return nil
	}
	return &v.Fuses[i]
}

// Blow implements [action.Store].
func (s *Store) Blow(ctx context.Context, f action.Fuse, notices ...action.Notice) error {
	return s.state.In(ctx, func(v *storeState) error {
		switch old := v.fuse(f.Account, f.Source); {
		case old == nil:
			v.Fuses = append(v.Fuses, f)
		case old.IsBlown():
			return nil
		default:
			*old = f
		}
		v.Notices = append(v.Notices, notices...)
		_, e := f.StorableBlown()
		v.record([]action.Entry{e})
		return nil
	})
}

// Confirm implements [action.Store].
func (s *Store) Confirm(ctx context.Context, f action.Fuse) error {
	return s.state.In(ctx, func(v *storeState) error {
		old := v.fuse(f.Account, f.Source)
		if old == nil || !old.IsBlown() {
			return action.ErrConflict
		}
		*old = f
		_, e := f.StorableConfirmed()
		v.record([]action.Entry{e})
		return nil
	})
}

// Fuses implements [action.Store].
func (s *Store) Fuses(ctx context.Context) (out []action.Fuse, err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		out = slices.Clone(v.Fuses)
		return nil
	})
	return out, err
}

// Freeze implements [action.Store].
func (s *Store) Freeze(ctx context.Context, f action.Freeze) error {
	return s.state.In(ctx, func(v *storeState) error {
		v.Freeze = &f
		v.record([]action.Entry{{At: f.At, Actor: f.By, What: "freeze", Because: f.Reason}})
		return nil
	})
}

// Unfreeze implements [action.Store].
func (s *Store) Unfreeze(ctx context.Context, by, reason string, at time.Time) error {
	return s.state.In(ctx, func(v *storeState) error {
		v.Freeze = nil
		v.record([]action.Entry{{At: at, Actor: by, What: "unfreeze", Because: reason}})
		return nil
	})
}

// Frozen implements [action.Store].
func (s *Store) Frozen(ctx context.Context) (out *action.Freeze, err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		out = v.Freeze
		return nil
	})
	return out, err
}

// PutKeep implements [action.Store].
func (s *Store) PutKeep(ctx context.Context, k action.Keep) error {
	return s.state.In(ctx, func(v *storeState) error {
		v.keep(k)
		return nil
	})
}

func (v *storeState) keep(k action.Keep) {
	v.Keeps = append(slices.DeleteFunc(v.Keeps, func(old action.Keep) bool { return old.Ref == k.Ref }), k)
	v.record([]action.Entry{
		{At: k.At, Account: k.Ref.Cloud + "/" + k.Ref.Account, Actor: k.By, What: "keep", Resource: k.Ref.String(),
			Because: k.Reason, Outcome: "until " + k.Until.UTC().Format(time.RFC3339)}})
}

// Keeps implements [action.Store].
func (s *Store) Keeps(ctx context.Context, at time.Time) (out []action.Keep, err error) {
	err = s.state.In(ctx, func(v *storeState) error {
		for _, k := range v.Keeps {
			if at.Before(k.Until) {
				out = append(out, k)
			}
		}
		slices.SortFunc(out, func(a, b action.Keep) int { return inventory.CompareRefs(a.Ref, b.Ref) })
		return nil
	})
	return out, err
}

// Record implements [action.Store].
func (s *Store) Record(ctx context.Context, entries ...action.Entry) error {
	return s.state.In(ctx, func(v *storeState) error {
		v.record(entries)
		return nil
	})
}

// Entries implements [action.Store].
func (s *Store) Entries(ctx context.Context, q action.Query, visit func(action.Entry) error) error {
	var all []action.Entry
	err := s.state.In(ctx, func(v *storeState) error {
		all = v.Entries
		return nil
	})
	n := 0
	for _, e := range all {
		switch {
		case err != nil || (q.Limit > 0 && n == q.Limit):
			return err
		case !q.Matches(e):
			continue
		}
		n++
		err = visit(e)
	}
	return err
}
