package action

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Admission is an item to act on now: its new state, in phase Acting with the intent of its first
// step, and the input of the caps.
type Admission struct {
	Item   Item
	Hourly money.Amount // hourly cost of the resource
	// Due is since when the action is due; zero is now.
	Due time.Time
	// Approval is used up by the admission; nil if none is needed.
	Approval *Approval
	// Entries are recorded with the admission.
	Entries []Entry
}

// Approval is the approval that an item needs.
type Approval struct {
	// Request is the request in its used state ([approval.Request.Use]).
	Request approval.Request
	// Event is the use.
	Event approval.Event
}

// AdmissionResult is the result of an admission.
type AdmissionResult struct {
	// Item is the stored item, if it was admitted.
	Item Item
	// Deferred is the cap that holds the action back, so that nothing was written; nil if it was
	// admitted.
	Deferred *Deferral
}

// Batch is the actions of one source in one round.
type Batch struct {
	Account, Source string
	Round           int64
	// Now is by the store's clock, if it has one.
	Now    time.Time
	Limits policy.Limits
	// Selected is the number of machines that the policy selects.
	Selected   int
	Admissions []Admission
}

// Deferral is the cap that an action exceeds.
type Deferral struct {
	// Cap is "count", "share" or "dollars"; Limit and Requested are the allowed and the resulting
	// amount.
	Cap, Limit, Requested string
	// Never is set if the action alone exceeds the cap, so that it is never admitted.
	Never bool
}

// String describes the deferral.
func (d *Deferral) String() string {
	if d.Never {
		return d.Requested + " alone, over the cap of " + d.Limit + ": it is never carried out under these limits"
	}
	return "deferred: with the last hour it is " + d.Requested + ", over the cap of " + d.Limit
}

// overdueAfter is the delay after which no cheaper action precedes a deferred one. Admissions older
// than an hour do not count, so the action then has the caps for itself.
const overdueAfter = time.Hour

// admissionUnit is admitted as a whole: one machine, or the machines of one run.
type admissionUnit struct {
	members []int         // indices in the batch
	fleet   bool          // a fleet is resized, whose owner's bounds cap how far
	first   inventory.Ref // first of their resources
	hourly  money.Amount
	due     time.Time // due since; zero is now
}

// Defer returns the cap that defers each admission, nil if it is admitted. actions and hourly are
// the number and the hourly cost of the source's admissions in the last hour. The most expensive
// unit goes first, and runs as a whole; a single action is always allowed by count and share if the
// hour has none.
func (b Batch) Defer(actions int, hourly money.Amount) []*Deferral {
	out := make([]*Deferral, len(b.Admissions))
	var ahead *Deferral // the overdue unit that did not fit
	for _, j := range b.jobs() {
		over := b.over(j, 0, 0)
		if over != nil {
			over.Never = true
		} else if over = b.over(j, actions, hourly); over == nil && ahead != nil {
			over = &Deferral{
				Cap: ahead.Cap, Limit: ahead.Limit,
				Requested: ahead.Requested + " for what costs more and has waited longer",
			}
		}
		if over == nil {
			actions, hourly = actions+len(j.members), hourly+j.hourly
			continue
		}
		if !over.Never && ahead == nil && !j.due.IsZero() && b.Now.Sub(j.due) > overdueAfter {
			ahead = over
		}
		for _, i := range j.members {
			out[i] = over
		}
	}
	return out
}

// over returns the cap that a unit exceeds on top of the hour's admissions.
func (b Batch) over(j admissionUnit, actions int, hourly money.Amount) *Deferral {
	l := withDefaults(b.Limits)
	n := actions + len(j.members)
	share := int(math.Ceil(l.Share*float64(b.Selected) - 1e-9))
	within := strconv.Itoa(n) + " actions within an hour"
	switch {
	case j.fleet:
	case n > 1 && n > l.PerHour:
		return &Deferral{Cap: "count", Limit: strconv.Itoa(l.PerHour) + " an hour", Requested: within}
	case n > 1 && n > share:
		return &Deferral{
			Cap: "share", Limit: fmt.Sprintf("%d, which is %g%% of the %d selected", share, 100*l.Share, b.Selected),
			Requested: within,
		}
	}
	if sum, err := hourly.Add(j.hourly); err != nil || sum > l.DollarsPerHour {
		return &Deferral{
			Cap: "dollars", Limit: l.DollarsPerHour.Dollars() + " an hour",
			Requested: "resources that cost " + max(sum, j.hourly).Dollars() + " an hour",
		}
	}
	return nil
}

// jobs returns the units, the most expensive first, then the longest due, then by resource. The
// order does not depend on ids of earlier rounds, so that replays and processes defer the same.
func (b Batch) jobs() []admissionUnit {
	of := make([]int, len(b.Admissions)) // the unit of each admission
	at := make(map[inventory.Ref]int, len(b.Admissions))
	for i, a := range b.Admissions {
		of[i], at[a.Item.Ref] = i, i
	}
	for i, a := range b.Admissions {
		if !a.Item.Do.Verb.IsDestructive() {
			continue
		}
		for _, ref := range a.Item.Gang {
			if k, ok := at[ref]; ok && of[k] != of[i] {
				from, to := of[k], of[i]
				for x := range of {
					if of[x] == from {
						of[x] = to
					}
				}
			}
		}
	}
	place := map[int]int{}
	var out []admissionUnit
	for i, a := range b.Admissions {
		k, known := place[of[i]]
		if !known {
			k = len(out)
			place[of[i]], out = k, append(out, admissionUnit{first: a.Item.Ref, due: a.Due})
		}
		j := &out[k]
		j.members = append(j.members, i)
		j.fleet = j.fleet || a.Item.Do.IsFleet()
		if sum, err := j.hourly.Add(a.Hourly); err == nil {
			j.hourly = sum
		} else {
			j.hourly = math.MaxInt64
		}
		if a.Due.Before(j.due) {
			j.due = a.Due
		}
		if inventory.CompareRefs(a.Item.Ref, j.first) < 0 {
			j.first = a.Item.Ref
		}
	}
	slices.SortFunc(out, func(x, y admissionUnit) int {
		return cmp.Or(cmp.Compare(y.hourly, x.hourly), x.due.Compare(y.due), inventory.CompareRefs(x.first, y.first))
	})
	return out
}

// withDefaults replaces missing limits by the defaults.
func withDefaults(l policy.Limits) policy.Limits {
	d := policy.DefaultLimits()
	if l.PerHour <= 0 {
		l.PerHour = d.PerHour
	}
	if !(l.Share > 0) {
		l.Share = d.Share
	}
	if l.DollarsPerHour <= 0 {
		l.DollarsPerHour = d.DollarsPerHour
	}
	return l
}
