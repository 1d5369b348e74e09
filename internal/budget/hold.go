package budget

import (
	"maps"
	"math"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// HoldState is the state of a hold.
type HoldState string

// The states.
const (
	// Pending is reserved while its admission is being decided, and counts briefly.
	Pending HoldState = "pending"
	// Live is admitted; the work runs or is about to.
	Live HoldState = "live"
	// Settled is over; its actual cost counts until the ledger has charged it.
	Settled HoldState = "settled"
	// Released was released unused.
	Released HoldState = "released"
	// Expired follows Pending and Live by time: no capacity is held any more. It is never stored.
	Expired HoldState = "expired"
	// Unobserved is Expired while the ledger has not seen the run's cost: its money stays held. It
	// is never stored.
	Unobserved HoldState = "unobserved"
)

// Hold is money and capacity reserved for admitted work.
type Hold struct {
	ID string
	// Key is unique and makes reserving idempotent.
	Key string
	// Kind, Name and SpecHash identify the admitted work.
	Kind, Name, SpecHash string
	Owner                inventory.Owner
	Purpose              inventory.Purpose
	// Amount is the maximum total cost, Hourly the cost per hour of running.
	Amount, Hourly money.Amount
	// GPUs counts accelerators by type, Machines the machines with them.
	GPUs     map[string]int
	Machines int
	// From and Until bound the run, during which Amount can be spent at Hourly. If they are equal,
	// all of it is due at From.
	From, Until time.Time
	// ExpiresAt is the end of an unsettled hold's capacity, and of its money once the ledger has
	// observed the run. It is not before Until.
	ExpiresAt time.Time
	State     HoldState
	// Approval is the id of the used approval; may be empty.
	Approval string
	// Run is the caller's key of the run; may be empty.
	Run string
	// AskedBy is the requester of the work.
	AskedBy string
	// Actual is the actual cost of a settled hold.
	Actual               money.Amount
	CreatedAt, UpdatedAt time.Time
	// Version is the version for conditional writes.
	Version int64
}

// At returns the state at a time.
func (h Hold) At(now time.Time) HoldState {
	if (h.State == Pending || h.State == Live) && !now.Before(h.ExpiresAt) {
		return Expired
	}
	return h.State
}

// holdsCapacity reports whether capacity is held at a time.
func (h Hold) holdsCapacity(now time.Time) bool { s := h.At(now); return s == Pending || s == Live }

// countedAmount returns the total amount that counts at a time, including the hold's own charges.
// Time alone never reduces it; an observed run does.
func (h Hold) countedAmount(now time.Time, observed bool) money.Amount {
	over := !now.Before(h.ExpiresAt)
	switch {
	case h.State == Pending && !over, h.State == Live && !(over && observed):
		return h.Amount
	case h.State == Settled && !(over && observed):
		return h.Actual
	}
	return 0
}

// observed reports whether the ledger has seen the whole run: it reaches past the end and has
// charged some of it.
func (h Hold) observed(through time.Time, charged bool) bool {
	return charged && !through.Before(h.Until)
}

// isUnobserved reports whether a hold counts only because its run is unobserved.
func (h Hold) isUnobserved(now time.Time, observed bool) bool {
	return h.countedAmount(now, observed) > h.countedAmount(now, true)
}

// amountIn returns the maximum part of an amount that can be spent in a window: the hourly rate
// times its hours, plus the part beyond the rate, which may be due at any time. The sum over
// windows may exceed the amount, because each budget must be able to pay.
func (h Hold) amountIn(amount money.Amount, w Window) money.Amount {
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
	anytime := max(0, amount-h.amountOver(h.Until.Sub(h.From)))
	return anytime + min(amount-anytime, h.amountOver(until.Sub(from)))
}

// amountOver returns the hourly rate times a duration, saturated.
func (h Hold) amountOver(d time.Duration) money.Amount {
	sum, err := h.Hourly.Mul(int64(d), int64(time.Hour))
	if err != nil {
		return math.MaxInt64
	}
	return sum
}

// Owns reports whether a charge under the hold is its own: the owners must not differ. A tag alone
// does not let one owner spend another's reservation.
func (h Hold) Owns(o inventory.Owner) bool {
	for _, f := range [...][2]string{{h.Owner.Team, o.Team}, {h.Owner.Project, o.Project}, {h.Owner.User, o.User},
		{h.Owner.Environment, o.Environment}, {h.Owner.CostCenter, o.CostCenter}} {
		if f[0] != "" && f[1] != "" && !strings.EqualFold(f[0], f[1]) {
			return false
		}
	}
	return true
}

// covers reports whether a hold reserves at least as much as another, for the same work.
func (h Hold) covers(other Hold) bool {
	return h.SpecHash == other.SpecHash && h.Amount >= other.Amount && h.Hourly >= other.Hourly &&
		h.Machines >= other.Machines && maps.Equal(h.GPUs, other.GPUs)
}
