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

// Admission is an item that is to be acted on now: its new state, in phase Acting with
// the intent of its first step, and what the caps go by.
type Admission struct {
	Item   Item
	Hourly money.Amount // what the resource costs an hour
	// Due is since when it is due; zero is since now.
	Due time.Time
	// Approval is used up when it is admitted; nil: it needs none.
	Approval *Approval
	// Entries are recorded when it is admitted.
	Entries []Entry
}

// Approval is the approval that an item needs.
type Approval struct {
	// Request is the request as it is used up ([approval.Request.Use]).
	Request approval.Request
	// Event is who uses it.
	Event approval.Event
}

// Admitted is what became of an admission.
type Admitted struct {
	// Item is as it is kept now, where it was admitted.
	Item Item
	// Deferred says which cap holds it back, so that nothing of it was written; nil where
	// it was admitted.
	Deferred *Deferral
}

// Batch is what one source wants to act on in one round.
type Batch struct {
	Account, Source string
	Round           int64
	// Now is by the store's clock where it has one.
	Now    time.Time
	Limits policy.Limits
	// Selected is how many machines the policy selects.
	Selected   int
	Admissions []Admission
}

// Deferral says which cap an action is over.
type Deferral struct {
	// Cap is "count", "share" or "dollars"; Limit and Want are what is allowed and what it
	// would come to.
	Cap, Limit, Want string
	// Never says that it is over the cap by itself, so that no later hour admits it.
	Never bool
}

// String says what has to happen first.
func (d *Deferral) String() string {
	if d.Never {
		return d.Want + " alone, over the cap of " + d.Limit + ": it is never carried out under these limits"
	}
	return "deferred: with the last hour it is " + d.Want + ", over the cap of " + d.Limit
}

// overdue is after how long nothing cheaper goes before an action that the caps defer.
// What was admitted an hour ago counts no more, so that it then has the caps for itself.
const overdue = time.Hour

// job is what is admitted as a whole: one machine, or the machines of one run.
type job struct {
	members []int         // of the batch
	first   inventory.Ref // of theirs
	hourly  money.Amount
	due     time.Time // since when; zero is since now
}

// Defer returns for each admission which cap defers it, nil where it is admitted. In the
// last hour its source was admitted so many actions, on resources that cost so much an
// hour. The most expensive goes first and runs as a whole, up to what the hour leaves; a single
// action is always allowed by count and share while the hour holds none.
func (b Batch) Defer(actions int, hourly money.Amount) []*Deferral {
	out := make([]*Deferral, len(b.Admissions))
	var ahead *Deferral // of what was overdue and did not fit
	for _, j := range b.jobs() {
		over := b.over(j, 0, 0)
		if over != nil {
			over.Never = true
		} else if over = b.over(j, actions, hourly); over == nil && ahead != nil {
			over = &Deferral{
				Cap: ahead.Cap, Limit: ahead.Limit, Want: ahead.Want + " for what costs more and has waited longer",
			}
		}
		if over == nil {
			actions, hourly = actions+len(j.members), hourly+j.hourly
			continue
		}
		if !over.Never && ahead == nil && !j.due.IsZero() && b.Now.Sub(j.due) > overdue {
			ahead = over
		}
		for _, i := range j.members {
			out[i] = over
		}
	}
	return out
}

// over returns the cap that a job exceeds, added to what the hour already holds.
func (b Batch) over(j job, actions int, hourly money.Amount) *Deferral {
	l := withDefaults(b.Limits)
	n := actions + len(j.members)
	share := int(math.Ceil(l.Share*float64(b.Selected) - 1e-9))
	within := strconv.Itoa(n) + " actions within an hour"
	switch {
	case n > 1 && n > l.PerHour:
		return &Deferral{Cap: "count", Limit: strconv.Itoa(l.PerHour) + " an hour", Want: within}
	case n > 1 && n > share:
		return &Deferral{
			Cap: "share", Limit: fmt.Sprintf("%d, which is %g%% of the %d selected", share, 100*l.Share, b.Selected),
			Want: within,
		}
	}
	if sum, err := hourly.Add(j.hourly); err != nil || sum > l.DollarsPerHour {
		return &Deferral{
			Cap: "dollars", Limit: l.DollarsPerHour.Dollars() + " an hour",
			Want: "resources that cost " + max(sum, j.hourly).Dollars() + " an hour",
		}
	}
	return nil
}

// jobs returns what is admitted as a whole, the most expensive first, of equals what is due
// for longest, and of those the first resource. That goes by nothing that the rounds before
// left, such as ids, so that a replay and processes defer the same.
func (b Batch) jobs() []job {
	of := make([]int, len(b.Admissions)) // the job of each
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
	var out []job
	for i, a := range b.Admissions {
		k, known := place[of[i]]
		if !known {
			k = len(out)
			place[of[i]], out = k, append(out, job{first: a.Item.Ref, due: a.Due})
		}
		j := &out[k]
		j.members = append(j.members, i)
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
	slices.SortFunc(out, func(x, y job) int {
		return cmp.Or(cmp.Compare(y.hourly, x.hourly), x.due.Compare(y.due), inventory.CompareRefs(x.first, y.first))
	})
	return out
}

// withDefaults completes limits: what a policy does not bound has the default bound.
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
