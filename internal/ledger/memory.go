package ledger

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

var errOrder = errors.New("a ledger in memory takes rounds in order of time")

// Memory is an in-memory [Poster] for replays, whose rounds come in time order. For each resource
// it keeps only the data that the next round may change, and of the rest the sums that
// [Memory.Entries] yields. The zero value is empty. It is not safe for concurrent use.
type Memory struct {
	accounts map[Account]*memory
	sums     map[time.Time]map[Line]Sums
}

// memory is the part of one account.
type memory struct {
	version int64
	newest  Round
	pending []PendingRound // at most the newest round
	listed  map[Part][]time.Time
	recent  map[inventory.Ref]*recent
}

// recent holds the current data of one resource: its observations since the hour of the last but
// one, the observation before them, and the entries of those hours.
type recent struct {
	observations []Observation
	posted       []Entry
}

var _ Poster = (*Memory)(nil)

func (m *Memory) account(a Account) *memory {
	of := m.accounts[a]
	if of == nil {
		of = &memory{listed: map[Part][]time.Time{}, recent: map[inventory.Ref]*recent{}}
		if m.accounts == nil {
			m.accounts, m.sums = map[Account]*memory{}, map[time.Time]map[Line]Sums{}
		}
		m.accounts[a] = of
	}
	return of
}

// Now implements [Poster]: the time of a replay is never behind its rounds.
func (m *Memory) Now(context.Context) (time.Time, error) { return endOfTime, nil }

// Record implements [Poster]. Observations older than the known ones of a resource or completely
// listed part are refused.
func (m *Memory) Record(_ context.Context, r Round, observations []Observation) error {
	a := m.account(r.Account)
	added := !r.At.Equal(a.newest.At)
	if added {
		a.newest = Round{Account: r.Account, At: r.At, Source: r.Source}
	}
	for _, p := range r.Complete {
		all := a.listed[p]
		if n := len(all); n > 0 && r.At.Before(all[n-1]) {
			return errOrder
		} else if n == 0 || all[n-1].Before(r.At) {
			a.listed[p], a.newest.Complete, added = append(all, r.At), append(a.newest.Complete, p), true
		}
	}
	for i := range observations {
		o := &observations[i]
		h := a.recent[o.Ref]
		if h == nil {
			h = &recent{}
			a.recent[o.Ref] = h
		}
		if n := len(h.observations); n > 0 && o.At.Before(h.observations[n-1].At) {
			return errOrder
		} else if n == 0 || h.observations[n-1].At.Before(o.At) {
			h.forget()
			h.observations, added = append(h.observations, *o), true
		}
	}
	if added {
		a.version++
		a.pending = []PendingRound{{Round: a.newest, Mark: a.version}}
	}
	return nil
}

// forget drops data that no later round reads.
func (h *recent) forget() {
	n := len(h.observations)
	if n == 0 {
		return
	}
	hour := h.observations[n-1].At.Truncate(time.Hour)
	first, _ := slices.BinarySearchFunc(h.observations, hour, func(o Observation, t time.Time) int {
		return o.At.Compare(t)
	})
	h.observations = slices.Delete(h.observations, 0, max(0, first-1))
	h.posted = slices.DeleteFunc(h.posted, func(e Entry) bool { return e.Hour.Before(hour) })
}

// Pending implements [Poster].
func (m *Memory) Pending(_ context.Context, a Account) ([]PendingRound, error) {
	return slices.Clone(m.account(a).pending), nil
}

// Settle implements [Poster].
func (m *Memory) Settle(_ context.Context, r PendingRound) error {
	a := m.account(r.Account)
	a.pending = slices.DeleteFunc(a.pending, func(p PendingRound) bool { return p.At.Equal(r.At) && p.Mark == r.Mark })
	return nil
}

// Touched implements [Poster].
func (m *Memory) Touched(_ context.Context, r Round) ([]Touch, error) {
	a := m.account(r.Account)
	before := map[Part]time.Time{} // the previous listing of its parts
	for _, p := range r.Complete {
		before[p] = time.Time{}
		if all := a.listed[p]; len(all) > 1 {
			before[p] = all[len(all)-2]
		}
	}
	var out []Touch
	for ref, h := range a.recent {
		n := len(h.observations)
		t := Touch{Ref: ref, From: h.observations[n-1].At, To: r.At}
		listed, complete := before[Part{ref.Region, ref.Kind}]
		if t.From.Equal(r.At) {
			switch {
			case n > 1:
				t.From = h.observations[n-2].At
			case !complete:
				listed = a.before(Part{ref.Region, ref.Kind}, r.At)
				fallthrough
			default:
				if t.From = r.At; !listed.IsZero() {
					t.From = listed
				}
			}
		} else if !complete || t.From.Before(listed) {
			continue
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(x, y Touch) int { return inventory.CompareRefs(x.Ref, y.Ref) })
	return out, nil
}

// before returns the last listing of a part before a time; zero if none.
func (a *memory) before(p Part, t time.Time) time.Time {
	all := a.listed[p]
	if i, _ := slices.BinarySearchFunc(all, t, time.Time.Compare); i > 0 {
		return all[i-1]
	}
	return time.Time{}
}

// Histories implements [Poster].
func (m *Memory) Histories(_ context.Context, id Account, refs []inventory.Ref, from, to time.Time) ([]History, int64,
	error) {
	a := m.account(id)
	out := make([]History, len(refs))
	for i, ref := range refs {
		kept := a.recent[ref]
		h := History{Ref: ref, Observations: kept.observations}
		for _, e := range kept.posted {
			if !e.Hour.Before(from) && e.Hour.Before(to) {
				h.Posted = append(h.Posted, e)
			}
		}
		all, n := a.listed[Part{ref.Region, ref.Kind}], len(kept.observations)
		first, _ := slices.BinarySearchFunc(all, kept.observations[0].At, time.Time.Compare)
		last, _ := slices.BinarySearchFunc(all, kept.observations[n-1].At.Add(1), time.Time.Compare)
		h.Rounds = all[max(0, first-1):min(len(all), last+1)]
		out[i] = h
	}
	return out, a.version, nil
}

// Append implements [Poster].
func (m *Memory) Append(_ context.Context, id Account, version int64, entries []Entry) (int64, error) {
	a := m.account(id)
	if a.version != version {
		return 0, ErrConflict
	}
	for i := range entries {
		e := &entries[i]
		kept := a.recent[e.Ref]
		kept.posted = append(kept.posted, *e)
		hour := m.sums[e.Hour]
		if hour == nil {
			hour = map[Line]Sums{}
			m.sums[e.Hour] = hour
		}
		of := Line{
			Attributes: Attributes{Owner: e.Owner, Purpose: e.Purpose, Hold: e.Hold},
			Category:   e.Category, Duty: e.Duty,
			Gap: e.Gap,
		}
		sum, err := hour[of].Plus(e.Sums)
		if err != nil {
			return 0, err
		}
		hour[of] = sum
	}
	if len(entries) > 0 {
		a.version++
	}
	return a.version, nil
}

// Entries yields the charges in [from, to), summed by hour, owner, purpose, hold, category, duty
// and gap, in no particular order.
func (m *Memory) Entries(from, to time.Time) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for hour, of := range m.sums {
			if hour.Before(from) || !hour.Before(to) {
				continue
			}
			for line, sums := range of {
				if !yield(Entry{Kind: Accrual, Hour: hour, Line: line, Sums: sums}) {
					return
				}
			}
		}
	}
}
