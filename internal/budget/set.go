package budget

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Set is a validated set of budgets and quotas. The zero Set is empty.
type Set struct {
	budgets []Budget // by id, with inherited match
	quotas  []Quota  // by id
}

// FieldError is a mistake in a budget or quota.
type FieldError struct {
	// Quota reports that Index counts quotas, not budgets.
	Quota bool
	Index int
	// Key is the wrong key: "parent".
	Key     string
	Message string
}

// Error returns the message.
func (e *FieldError) Error() string { return e.Message }

// NewSet validates budgets and quotas and narrows each budget's match by its ancestors'. Its errors
// are *FieldError: missing or duplicate ids, unknown or cyclic parents, a child outside of its
// parent, missing purposes, or values out of range.
func NewSet(budgets []Budget, quotas []Quota) (Set, error) {
	index := map[string]int{}
	for i, b := range budgets {
		if err := b.check(); err != nil {
			err.Index = i
			return Set{}, err
		}
		if _, twice := index[b.ID]; twice {
			return Set{}, &FieldError{Index: i, Key: "id", Message: fmt.Sprintf("there are two budgets %q", b.ID)}
		}
		index[b.ID] = i
	}
	set := Set{}
	for i, b := range budgets {
		for up, seen := b, []string{b.ID}; up.Parent != ""; {
			p, ok := index[up.Parent]
			switch {
			case !ok:
				return Set{}, &FieldError{
					Index: i, Key: "parent",
					Message: fmt.Sprintf("budget %q: there is no budget %q to be a part of", up.ID, up.Parent),
				}
			case slices.Contains(seen, up.Parent):
				return Set{}, &FieldError{
					Index: i, Key: "parent",
					Message: fmt.Sprintf("budget %q is a part of itself: %s", b.ID,
						strings.Join(append(seen, up.Parent), " in ")),
				}
			}
			up = budgets[p]
			seen = append(seen, up.ID)
			var err error
			if b.Match, err = b.narrow(up.Match); err != nil {
				return Set{}, &FieldError{
					Index: i, Key: "parent", Message: fmt.Sprintf("budget %q is no part of %q: %s", b.ID, up.ID, err),
				}
			}
		}
		if len(b.Purposes) == 0 && !b.Shared {
			return Set{}, &FieldError{
				Index: i, Key: "id",
				Message: fmt.Sprintf("budget %q names no purpose, and purposes share nothing by default: "+
					"give purpose: training (or a list), split it, or say purpose: any", b.ID)}
		}
		b.Thresholds = b.Thresholds.withDefaults()
		set.budgets = append(set.budgets, b)
	}
	seen := map[string]bool{}
	for i, q := range quotas {
		if err := q.check(); err != nil {
			err.Index, err.Quota = i, true
			return Set{}, err
		}
		if seen[q.ID] {
			return Set{}, &FieldError{
				Quota: true, Index: i, Key: "id", Message: fmt.Sprintf("there are two quotas %q", q.ID),
			}
		}
		seen[q.ID] = true
		set.quotas = append(set.quotas, q)
	}
	slices.SortFunc(set.budgets, func(a, b Budget) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(set.quotas, func(a, b Quota) int { return cmp.Compare(a.ID, b.ID) })
	return set, nil
}

func (b Budget) check() *FieldError {
	mistake := func(key, format string, args ...any) *FieldError {
		return &FieldError{Key: key, Message: fmt.Sprintf(format, args...)}
	}
	t := b.Thresholds.withDefaults()
	switch {
	case strings.TrimSpace(b.ID) == "":
		return mistake("id", "a budget needs an id")
	case b.Amount < 0:
		return mistake("amount", "budget %q: an amount of %s is negative", b.ID, b.Amount.Exact())
	case b.PerHour < 0:
		return mistake("per_hour", "budget %q: %s an hour is negative", b.ID, b.PerHour.Exact())
	case b.Shared && len(b.Purposes) > 0:
		return mistake("purpose", "budget %q: it is either for all purposes or for some", b.ID)
	case t.Warn < 1 || t.Warn > t.Gate || t.Gate > t.Deny || t.Deny > maxPercent:
		return mistake("thresholds",
			"budget %q: thresholds rise from 1%% to %d%%: warn at %d%%, gate at %d%%, deny at %d%%",
			b.ID, maxPercent, t.Warn, t.Gate, t.Deny)
	case !slices.Contains([]Every{"", Monthly, Weekly, Quarterly, Custom}, b.Period.Every):
		return mistake("period", "budget %q: a period is monthly, weekly, quarterly, or has from and until; not %q",
			b.ID,
			b.Period.Every)
	case b.Period.Every == Custom && !b.Period.From.Before(b.Period.Until):
		return mistake("period", "budget %q: its period ends before it begins", b.ID)
	}
	if _, err := b.limit(); err != nil {
		return mistake("amount", "budget %q: %s", b.ID, err)
	}
	return nil
}

// maxPercent bounds thresholds: more than tenfold is a mistake.
const maxPercent = 1000

func (q Quota) check() *FieldError {
	mistake := func(key, format string, args ...any) *FieldError {
		return &FieldError{Key: key, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case strings.TrimSpace(q.ID) == "":
		return mistake("id", "a quota needs an id")
	case q.Machines == nil && len(q.GPUs) == 0:
		return mistake("id", "quota %q limits nothing: give gpus or machines", q.ID)
	case q.Machines != nil && *q.Machines < 0:
		return mistake("machines", "quota %q: %d machines are negative", q.ID, *q.Machines)
	}
	seen := map[string]bool{}
	for kind, n := range q.GPUs {
		folded := strings.ToLower(kind)
		if n < 0 || strings.TrimSpace(kind) == "" || seen[folded] {
			return mistake("gpus", "quota %q: gpus are types, each once, with a number of at least 0", q.ID)
		}
		seen[folded] = true
	}
	return nil
}

// narrow narrows a match by that of a parent.
func (m Match) narrow(parent Match) (Match, error) {
	for _, f := range []struct {
		name  string
		own   *string
		above string
	}{
		{"team", &m.Team, parent.Team}, {"project", &m.Project, parent.Project}, {"user", &m.User, parent.User},
		{"environment", &m.Environment, parent.Environment},
	} {
		switch {
		case *f.own == "":
			*f.own = f.above
		case f.above != "" && !strings.EqualFold(*f.own, f.above):
			return m, fmt.Errorf("its %s is %s, not %s", f.name, *f.own, f.above)
		}
	}
	if len(m.Purposes) == 0 {
		m.Purposes = parent.Purposes
	}
	for _, p := range m.Purposes {
		if len(parent.Purposes) > 0 && !slices.Contains(parent.Purposes, p) {
			return m, fmt.Errorf("%s is none of its purposes", p)
		}
	}
	return m, nil
}

// Budgets returns the budgets by id, with inherited matches and thresholds.
func (s Set) Budgets() []Budget { return slices.Clone(s.budgets) }

// Quotas returns the quotas by id.
func (s Set) Quotas() []Quota { return slices.Clone(s.quotas) }

// Budget returns the budget with an id.
func (s Set) Budget(id string) (Budget, bool) {
	i, ok := slices.BinarySearchFunc(s.budgets, id, func(b Budget, id string) int { return cmp.Compare(b.ID, id) })
	if !ok {
		return Budget{}, false
	}
	return s.budgets[i], true
}

// limit returns the maximum of spent and held amounts in a window.
func (b Budget) limit() (money.Amount, error) { return b.percentOf(b.Thresholds.withDefaults().Deny) }

// percentOf returns a percentage of the amount.
func (b Budget) percentOf(percent int) (money.Amount, error) {
	return b.Amount.Mul(int64(percent), 100)
}

// Covering returns the budgets that cover spend of an owner and purpose at some time in [from,
// until).
func (s Set) Covering(o inventory.Owner, p inventory.Purpose, from, until time.Time) []Budget {
	var out []Budget
	for _, b := range s.budgets {
		if b.Covers(o, p) && len(b.Period.Windows(from, until)) > 0 {
			out = append(out, b)
		}
	}
	return out
}

// MaxRun is the longest run that can be held for; it bounds the windows of a hold.
const MaxRun = 366 * 24 * time.Hour

// Reservation returns a hold with every line and quota that it has to fit in.
func (s Set) Reservation(h Hold, now time.Time) (Reservation, error) {
	switch {
	case h.Amount < 0 || h.Hourly < 0 || h.Machines < 0:
		return Reservation{}, errors.New("a hold reserves no negative amounts")
	case h.Until.Before(h.From) || h.ExpiresAt.Before(h.Until):
		return Reservation{}, errors.New("a hold ends after it begins and expires after it ends")
	case h.Until.Sub(h.From) > MaxRun:
		return Reservation{}, fmt.Errorf("a hold is for a run of at most %d days", MaxRun/(24*time.Hour))
	}
	for kind, n := range h.GPUs {
		if n < 0 {
			return Reservation{}, fmt.Errorf("a hold reserves no %d %s", n, kind)
		}
	}
	r := Reservation{Hold: h, Now: now}
	for _, b := range s.Covering(h.Owner, h.Purpose, h.From, h.Until) {
		limit, err := b.limit()
		if err != nil {
			return Reservation{}, fmt.Errorf("budget %s: %w", b.ID, err)
		}
		for _, w := range b.Period.Windows(h.From, h.Until) {
			if !w.To.After(now) {
				continue // a past window cannot be overdrawn by future spend
			}
			r.Lines = append(r.Lines, Line{
				Budget: b.ID, Match: b.Match, Window: w, Limit: limit, PerHour: b.PerHour,
				CountUnknown: b.CountUnknown,
			})
		}
	}
	for _, q := range s.quotas {
		if q.Covers(h.Owner, h.Purpose) {
			r.Quotas = append(r.Quotas, q)
		}
	}
	return r, nil
}
