package budget

import (
	"maps"
	"math"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// HoldState is where a hold stands.
type HoldState string

// The states.
const (
	// Pending is reserved while its admission is decided. It counts, for a short time.
	Pending HoldState = "pending"
	// Live is admitted; the work runs or is about to.
	Live HoldState = "live"
	// Settled is over; what it came to counts until the ledger has charged that much.
	Settled HoldState = "settled"
	// Released was given back unused.
	Released HoldState = "released"
	// Expired is what Pending and Live become by themselves: no capacity is held any more.
	// It is never stored.
	Expired HoldState = "expired"
	// Unobserved is what Expired is while the ledger has not seen what the run cost. Its
	// money stays held until it is settled or observed. It is never stored.
	Unobserved HoldState = "unobserved"
)

// Hold is money and capacity reserved for work that was admitted.
type Hold struct {
	ID string
	// Key makes reserving idempotent: there is at most one hold of a key.
	Key string
	// Kind, Name and SpecHash say what it was admitted for.
	Kind, Name, SpecHash string
	Owner                inventory.Owner
	Purpose              inventory.Purpose
	// Amount is the most it may cost in all, Hourly what it costs an hour while it runs.
	Amount, Hourly money.Amount
	// GPUs are accelerators by type, Machines how many machines they are in.
	GPUs     map[string]int
	Machines int
	// From and Until bound the run, in which Amount can be spent at Hourly. Equal: all of
	// it falls at From.
	From, Until time.Time
	// ExpiresAt is when a hold that was neither settled nor released holds no more capacity,
	// and no more money either once the ledger has observed its run. Not before Until.
	ExpiresAt time.Time
	State     HoldState
	// Approval is the id of the approval that was used up for it; may be empty.
	Approval string
	// Run is the key that the caller gave the run; may be empty.
	Run string
	// AskedBy is whom it was admitted for.
	AskedBy string
	// Actual is what it came to, once Settled.
	Actual               money.Amount
	CreatedAt, UpdatedAt time.Time
	// Version counts changes, for conditional writes.
	Version int64
}

// At returns the state at a time.
func (h Hold) At(now time.Time) HoldState {
	if (h.State == Pending || h.State == Live) && !now.Before(h.ExpiresAt) {
		return Expired
	}
	return h.State
}

// open says whether capacity is held at a time.
func (h Hold) open(now time.Time) bool { s := h.At(now); return s == Pending || s == Live }

// amount is what counts in all at a time, before the hold's own charges are taken off.
// The clock alone takes nothing off what was admitted: it does once the run was observed.
func (h Hold) amount(now time.Time, observed bool) money.Amount {
	over := !now.Before(h.ExpiresAt)
	switch {
	case h.State == Pending && !over, h.State == Live && !(over && observed):
		return h.Amount
	case h.State == Settled && !(over && observed):
		return h.Actual
	}
	return 0
}

// observed says whether the ledger has seen a run whole: it reaches past the run's end,
// and some of what it charged is the hold's.
func (h Hold) observed(through time.Time, charged bool) bool {
	return charged && !through.Before(h.Until)
}

// missed says whether a hold counts only because its run is unobserved.
func (h Hold) missed(now time.Time, observed bool) bool {
	return h.amount(now, observed) > h.amount(now, true)
}

// part is the most of an amount that can be spent in a window: the hourly rate times the
// hours in the window, and what the rate does not explain, which can fall due at any
// time. The parts of several windows can add up to more than the amount, because the
// budget of each has to pay for what can be spent in it.
func (h Hold) part(amount money.Amount, w Window) money.Amount {
	from, until := h.From, h.Until
	if w.From.After(from) {
		from = w.From
	}
	if w.To.Before(until) {
		until = w.To
	}
	if until.Before(from) || !from.Before(w.To) || from.Equal(until) && h.From.Before(h.Until) {
		return 0
	}
	anytime := max(0, amount-h.rate(h.Until.Sub(h.From)))
	return anytime + min(amount-anytime, h.rate(until.Sub(from)))
}

// rate is what the hourly rate comes to over a time, at most the largest amount.
func (h Hold) rate(d time.Duration) money.Amount {
	sum, err := h.Hourly.Mul(int64(d), int64(time.Hour))
	if err != nil {
		return math.MaxInt64
	}
	return sum
}

// Owns says whether a charge under the hold is the hold's own: its owner does not differ
// from the hold's. A tag alone does not let one owner spend what another reserved.
func (h Hold) Owns(o inventory.Owner) bool {
	for _, f := range [...][2]string{{h.Owner.Team, o.Team}, {h.Owner.Project, o.Project}, {h.Owner.User, o.User},
		{h.Owner.Environment, o.Environment}, {h.Owner.CostCenter, o.CostCenter}} {
		if f[0] != "" && f[1] != "" && !strings.EqualFold(f[0], f[1]) {
			return false
		}
	}
	return true
}

// fits says whether a hold reserves at least what another would, for the same.
func (h Hold) fits(other Hold) bool {
	return h.SpecHash == other.SpecHash && h.Amount >= other.Amount && h.Hourly >= other.Hourly &&
		h.Machines >= other.Machines && maps.Equal(h.GPUs, other.GPUs)
}
