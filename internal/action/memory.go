package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Memory is a [Store] in the memory of one process: for dry runs, policy tests, demos and replays.
// It is safe for concurrent use.
type Memory struct {
	// DiscardClosed keeps neither closed items nor the audit log, which long replays do not read.
	// Set it before the first use.
	DiscardClosed bool

	mu       sync.Mutex
	items    map[string]*Item
	accounts map[string]*memoryAccount
	freeze   *Freeze
	keeps    map[inventory.Ref]Keep
	fuses    []Fuse   // the newest of each source, in order
	notices  []Notice // pending ones, oldest first
	entries  []Entry  // append only
}

// memoryAccount is the state of one account.
type memoryAccount struct {
	round int64
	last  Clock
	// open are the open items by resource; isUnderWay those that are by id.
	open     map[inventory.Ref][]*Item
	underWay map[string]*Item
	// earliestConfirmation is at most the earliest UpdatedAt of the warned items; zero if there are
	// none.
	earliestConfirmation time.Time
	// admitted are the admissions by source.
	admitted map[string]*admissions
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{items: map[string]*Item{}, accounts: map[string]*memoryAccount{}, keeps: map[inventory.Ref]Keep{}}
}

// enter locks the store unless ctx has ended; the caller unlocks.
func (m *Memory) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	return nil
}

// account returns the state of an account.
func (m *Memory) account(name string) *memoryAccount {
	a := m.accounts[name]
	if a == nil {
		a = &memoryAccount{
			open: map[inventory.Ref][]*Item{}, underWay: map[string]*Item{}, admitted: map[string]*admissions{},
		}
		m.accounts[name] = a
	}
	return a
}

// Now implements [Store]: a single process needs only its own clock.
func (m *Memory) Now(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }

// BeginRound implements [Store]. Rounds are numbered from 1 without gaps.
func (m *Memory) BeginRound(ctx context.Context, account string, c Clock) (int64, *Clock, error) {
	if err := m.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer m.mu.Unlock()
	a := m.account(account)
	var last *Clock
	if a.round > 0 {
		before := a.last
		last = &before
	}
	c.Wall = truncateTime(c.Wall)
	a.round, a.last = a.round+1, c
	return a.round, last, nil
}

// Items implements [Store].
func (m *Memory) Items(ctx context.Context, account string, q ItemQuery) ([]Item, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	a := m.account(account)
	var found []*Item
	if q.Refs == nil {
		for _, items := range a.open {
			found = append(found, items...)
		}
	} else {
		for _, ref := range q.Refs {
			found = append(found, a.open[ref]...)
		}
		for _, it := range a.underWay {
			found = append(found, it)
		}
		found = append(found, a.unconfirmed(q.UnconfirmedSince)...)
	}
	selected := q.Selects()
	found = slices.DeleteFunc(found, func(it *Item) bool { return !selected(*it) })
	slices.SortFunc(found, func(a, b *Item) int { return cmp.Compare(a.ID, b.ID) })
	found = slices.Compact(found)
	out := make([]Item, len(found))
	for i, it := range found {
		out[i] = it.clone()
	}
	return out, nil
}

// unconfirmed returns the warned items that were not confirmed since a time. It scans all open
// items only if there may be some.
func (a *memoryAccount) unconfirmed(since time.Time) []*Item {
	if a.earliestConfirmation.IsZero() || !a.earliestConfirmation.Before(since) {
		return nil
	}
	var out []*Item
	a.earliestConfirmation = time.Time{}
	for _, items := range a.open {
		for _, it := range items {
			a.recordConfirmed(it)
			if it.Phase == Warned && it.UpdatedAt.Before(since) {
				out = append(out, it)
			}
		}
	}
	return out
}

// recordConfirmed keeps the earliest UpdatedAt of the warned items.
func (a *memoryAccount) recordConfirmed(it *Item) {
	if it.Phase == Warned && !it.UpdatedAt.IsZero() &&
		(a.earliestConfirmation.IsZero() || it.UpdatedAt.Before(a.earliestConfirmation)) {
		a.earliestConfirmation = it.UpdatedAt
	}
}

// Item implements [Store].
func (m *Memory) Item(ctx context.Context, id string) (Item, error) {
	if err := m.enter(ctx); err != nil {
		return Item{}, err
	}
	defer m.mu.Unlock()
	if it := m.items[id]; it != nil {
		return it.clone(), nil
	}
	var found []*Item
	for _, it := range m.items {
		if id != "" && strings.HasPrefix(it.ID, id) {
			found = append(found, it)
		}
	}
	if len(found) != 1 {
		return Item{}, fmt.Errorf("read item %q: %w", id, ErrNotFound)
	}
	return found[0].clone(), nil
}

// Save implements [Store].
func (m *Memory) Save(ctx context.Context, it Item, entries ...Entry) (Item, error) {
	if err := m.enter(ctx); err != nil {
		return Item{}, err
	}
	defer m.mu.Unlock()
	return m.write(it, entries)
}

// write stores an item and its entries.
func (m *Memory) write(it Item, entries []Entry) (Item, error) {
	kept, err := m.storableEntries(entries)
	if err == nil {
		it, _, err = m.put(it)
	}
	if err != nil {
		return Item{}, fmt.Errorf("save item %s: %w", it.ID, err)
	}
	m.record(kept)
	return it, nil
}

// SaveKept implements [Store].
func (m *Memory) SaveKept(ctx context.Context, it Item, k Keep, entries ...Entry) (Item, error) {
	if err := m.enter(ctx); err != nil {
		return Item{}, err
	}
	defer m.mu.Unlock()
	k, keep := k.storable()
	saved, err := m.write(it, append(slices.Clone(entries), keep))
	if err == nil {
		m.keeps[k.Ref] = k
	}
	return saved, err
}

// SaveOwing implements [Store].
func (m *Memory) SaveOwing(ctx context.Context, it Item, notices []Notice, entries ...Entry) (Item, error) {
	if err := m.enter(ctx); err != nil {
		return Item{}, err
	}
	defer m.mu.Unlock()
	owed, err := storableNotices(notices)
	if err != nil {
		return Item{}, err
	}
	saved, err := m.write(it, entries)
	if err == nil {
		m.notices = append(m.notices, owed...)
	}
	return saved, err
}

// storableNotices returns notices in storable form, or an error for any of them.
func storableNotices(notices []Notice) ([]Notice, error) {
	out := make([]Notice, len(notices))
	for i, n := range notices {
		var err error
		if out[i], err = n.Storable(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ClaimNotice implements [Store].
func (m *Memory) ClaimNotice(ctx context.Context, account string, now, until time.Time) (*Notice, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var first *Notice
	for i := range m.notices {
		n := &m.notices[i]
		if n.Account == account && !n.DueAt.After(now) && (first == nil || n.DueAt.Before(first.DueAt)) {
			first = n
		}
	}
	if first == nil {
		return nil, nil
	}
	first.Attempts, first.DueAt = first.Attempts+1, truncateTime(until)
	claimed := *first
	claimed.Briefing = claimed.Briefing.clone()
	return &claimed, nil
}

// PutNotice implements [Store]. A closed notice is deleted.
func (m *Memory) PutNotice(ctx context.Context, n Notice, entries ...Entry) error {
	n, err := n.Storable()
	if err != nil {
		return err
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	kept, err := m.storableEntries(entries)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(m.notices, func(o Notice) bool { return o.ID == n.ID })
	if i < 0 || m.notices[i].Attempts != n.Attempts {
		return ErrConflict
	}
	if m.notices[i] = n; !n.ClosedAt.IsZero() {
		m.notices = slices.Delete(m.notices, i, i+1)
	}
	m.record(kept)
	return nil
}

// Owed implements [Store].
func (m *Memory) Owed(ctx context.Context) ([]Notice, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	out := slices.Clone(m.notices)
	for i := range out {
		out[i].Briefing = out[i].Briefing.clone()
	}
	return out, nil
}

// storable returns a keep in storable form, and its audit entry.
func (k Keep) storable() (Keep, Entry) {
	k.Until, k.At, k.Reason = truncateTime(k.Until), truncateTime(k.At), storable(k.Reason)
	return k, Entry{
		At: k.At, Account: k.Ref.Cloud + "/" + k.Ref.Account, Actor: k.By, What: EventKeep, Resource: k.Ref.String(),
		Because: k.Reason,
		Outcome: "until " + k.Until.Format(time.RFC3339)}
}

// put writes an item if its version matches, and returns it as stored, with a function that reverts
// it.
func (m *Memory) put(it Item) (Item, func(), error) {
	it, err := it.Storable()
	if err != nil {
		return it, nil, err
	}
	old, version := m.items[it.ID], int64(0)
	if old != nil {
		version = old.Version
	}
	if it.Version != version {
		return it, nil, ErrConflict
	}
	if it.Phase.IsOpen() {
		for _, other := range m.account(it.Account).open[it.Ref] {
			if other.Source == it.Source && other.ID != it.ID {
				return it, nil, ErrConflict
			}
		}
	}
	it.Version++
	now := it
	m.replace(old, &now)
	return it.clone(), func() { m.replace(&now, old) }, nil
}

// replace replaces one state of an item by another; nil if there is none.
func (m *Memory) replace(old, now *Item) {
	if old != nil {
		delete(m.items, old.ID)
		if a := m.account(old.Account); old.Phase.IsOpen() {
			delete(a.underWay, old.ID)
			rest := slices.DeleteFunc(a.open[old.Ref], func(it *Item) bool { return it == old })
			if a.open[old.Ref] = rest; len(rest) == 0 {
				delete(a.open, old.Ref)
			}
		}
	}
	if now == nil || (m.DiscardClosed && !now.Phase.IsOpen()) {
		return
	}
	m.items[now.ID] = now
	if a := m.account(now.Account); now.Phase.IsOpen() {
		a.open[now.Ref] = append(a.open[now.Ref], now)
		if a.recordConfirmed(now); now.Phase.isUnderWay() {
			a.underWay[now.ID] = now
		}
	}
}

// Admit implements [Store].
func (m *Memory) Admit(ctx context.Context, b Batch) ([]AdmissionResult, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	out, err := m.admit(b)
	if err != nil {
		return nil, fmt.Errorf("admit actions of %s: %w", b.Source, err)
	}
	return out, nil
}

func (m *Memory) admit(b Batch) ([]AdmissionResult, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if f := m.freeze; f != nil {
		return nil, fmt.Errorf("%w by %s since %s: %s", ErrFrozen, f.By, f.At.Format(time.RFC3339), f.Reason)
	}
	if f := m.fuse(b.Account, b.Source); f != nil && f.IsBlown() {
		return nil, ErrFuse
	}
	before := m.account(b.Account).admitted[b.Source]
	if before == nil {
		before = &admissions{}
		m.account(b.Account).admitted[b.Source] = before
	}
	n, sum, err := before.countAfter(truncateTime(b.Now.Add(-time.Hour)))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(b.Admissions, func(a Admission) bool { return a.Approval != nil }) {
		return nil, errors.New("a state in memory keeps no approvals")
	}
	out := make([]AdmissionResult, len(b.Admissions))
	var entries []Entry
	var undo []func()
	for i, d := range b.Defer(n, sum) {
		if out[i].Deferred = d; d != nil {
			continue
		}
		it, back, err := m.put(b.Admissions[i].Item)
		var kept []Entry
		if err == nil {
			undo = append(undo, back)
			kept, err = m.storableEntries(b.Admissions[i].Entries)
		}
		if err != nil {
			for _, back := range slices.Backward(undo) {
				back()
			}
			return nil, fmt.Errorf("item %s: %w", b.Admissions[i].Item.ID, err)
		}
		out[i].Item, entries = it, append(entries, kept...)
	}
	for i, adm := range b.Admissions {
		if out[i].Deferred == nil {
			before.add(truncateTime(b.Now), adm.Hourly)
		}
	}
	m.record(entries)
	return out, nil
}

// fuse returns the newest fuse of a source in an account; nil without one.
func (m *Memory) fuse(account, source string) *Fuse {
	for i := range m.fuses {
		if m.fuses[i].Account == account && m.fuses[i].Source == source {
			return &m.fuses[i]
		}
	}
	return nil
}

// Blow implements [Store].
func (m *Memory) Blow(ctx context.Context, f Fuse, notices ...Notice) error {
	f, e := f.StorableBlown()
	owed, err := storableNotices(notices)
	if err != nil {
		return err
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	recorded, err := m.storableEntries([]Entry{e})
	if err != nil {
		return err
	}
	switch old := m.fuse(f.Account, f.Source); {
	case old != nil && old.IsBlown():
		return nil
	case old != nil:
		*old = f
	default:
		m.fuses = append(m.fuses, f)
		slices.SortFunc(m.fuses, func(a, b Fuse) int {
			return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Source, b.Source))
		})
	}
	m.notices = append(m.notices, owed...)
	m.record(recorded)
	return nil
}

// Confirm implements [Store].
func (m *Memory) Confirm(ctx context.Context, f Fuse) error {
	f, e := f.StorableConfirmed()
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	kept, err := m.storableEntries([]Entry{e})
	if err != nil {
		return err
	}
	old := m.fuse(f.Account, f.Source)
	if old == nil || !old.IsBlown() || !old.At.Equal(f.At) {
		return ErrConflict
	}
	old.ConfirmedAt, old.By, old.Reason, old.Until = f.ConfirmedAt, f.By, f.Reason, f.Until
	m.record(kept)
	return nil
}

// Fuses implements [Store].
func (m *Memory) Fuses(ctx context.Context) ([]Fuse, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	out := slices.Clone(m.fuses)
	for i := range out {
		out[i].Items = slices.Clone(out[i].Items)
	}
	return out, nil
}

// admissions are the admissions of a source, in time order. The sum moves with the queried time, so
// that a batch costs only what it adds.
type admissions struct {
	all   []admitted
	first int // index of the first admission after the last queried time
	sum   money.Amount
}

type admitted struct {
	at     time.Time
	hourly money.Amount
}

// countAfter returns the number and the hourly cost of admissions after a time.
func (a *admissions) countAfter(t time.Time) (int, money.Amount, error) {
	for a.first < len(a.all) && !a.all[a.first].at.After(t) {
		a.sum -= a.all[a.first].hourly
		a.first++
	}
	for a.first > 0 && a.all[a.first-1].at.After(t) { // a clock was set back
		sum, err := a.sum.Add(a.all[a.first-1].hourly)
		if err != nil {
			return 0, 0, err
		}
		a.first, a.sum = a.first-1, sum
	}
	return len(a.all) - a.first, a.sum, nil
}

// add adds an admission after the last queried time; the caps keep the sum in range.
func (a *admissions) add(at time.Time, hourly money.Amount) {
	i := sort.Search(len(a.all), func(i int) bool { return a.all[i].at.After(at) })
	a.all = slices.Insert(a.all, i, admitted{at, hourly})
	a.sum += hourly
}

// Freeze implements [Store].
func (m *Memory) Freeze(ctx context.Context, f Freeze) error {
	f.At, f.Reason = truncateTime(f.At), storable(f.Reason)
	return m.change(ctx, Entry{At: f.At, Actor: f.By, What: EventFreeze, Because: f.Reason}, func() { m.freeze = &f })
}

// Unfreeze implements [Store].
func (m *Memory) Unfreeze(ctx context.Context, by, reason string, at time.Time) error {
	return m.change(ctx, Entry{At: at, Actor: by, What: EventUnfreeze, Because: reason}, func() { m.freeze = nil })
}

// change makes a change together with its entry.
func (m *Memory) change(ctx context.Context, e Entry, change func()) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	kept, err := m.storableEntries([]Entry{e})
	if err != nil {
		return err
	}
	change()
	m.record(kept)
	return nil
}

// Frozen implements [Store].
func (m *Memory) Frozen(ctx context.Context) (*Freeze, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if m.freeze == nil {
		return nil, nil
	}
	f := *m.freeze
	return &f, nil
}

// PutKeep implements [Store].
func (m *Memory) PutKeep(ctx context.Context, k Keep) error {
	if k.Until.IsZero() {
		return errors.New("keep a resource: the end is missing")
	}
	k, e := k.storable()
	return m.change(ctx, e, func() { m.keeps[k.Ref] = k })
}

// Keeps implements [Store].
func (m *Memory) Keeps(ctx context.Context, at time.Time) ([]Keep, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var out []Keep
	for _, k := range m.keeps {
		if k.Until.After(truncateTime(at)) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b Keep) int { return inventory.CompareRefs(a.Ref, b.Ref) })
	return out, nil
}

// Record implements [Store].
func (m *Memory) Record(ctx context.Context, entries ...Entry) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	kept, err := m.storableEntries(entries)
	if err == nil {
		m.record(kept)
	}
	return err
}

// storableEntries returns entries in storable form, or an error for any of them.
func (m *Memory) storableEntries(entries []Entry) ([]Entry, error) {
	var out []Entry
	for _, e := range entries {
		if m.DiscardClosed && !e.At.IsZero() {
			continue
		}
		kept, err := e.Storable()
		if err != nil {
			return nil, err
		}
		out = append(out, kept)
	}
	return out, nil
}

// record appends to the audit log.
func (m *Memory) record(kept []Entry) {
	for _, e := range kept {
		e.ID = int64(len(m.entries) + 1)
		m.entries = append(m.entries, e)
	}
}

// Entries implements [Store].
func (m *Memory) Entries(ctx context.Context, q Query, visit func(Entry) error) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	all := m.entries
	m.mu.Unlock()
	var matching []int
	for i := range all {
		if q.Matches(all[i]) {
			matching = append(matching, i)
		}
	}
	if q.Limit > 0 && len(matching) > q.Limit {
		matching = matching[len(matching)-q.Limit:]
	}
	for _, i := range matching {
		e := all[i]
		e.Evidence = slices.Clone(e.Evidence)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}
