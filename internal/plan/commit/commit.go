// Package commit finds how much of a fleet's steady use to commit to: reserved machines and savings
// plans, chosen by replaying every hour of recorded use in the order in which the provider applies
// them, with a proven bound on the cost of any other choice.
//
// A plan covers the period ahead, which begins at the end of the window and repeats its use:
// purchases are charged for every hour of a period as long as the window, with upfront payments
// spread over the term. For a single savings plan with discount d, the best commitment is the
// d-quantile of use at plan rates; for one machine at a share p of the on-demand price it is the (1
// − p)-quantile of demand, since one more pays off if it is used in more than p of the hours.
// Several offers share the same use and are chosen together by cutting planes under branch and
// bound.
package commit

import (
	"cmp"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Schema names the JSON form of a [Report].
const Schema = "curfew.plan.commit/v1"

// Quantity counts machines in millionths, so that fractions add up exactly.
type Quantity int64

// Machine is one machine.
const Machine Quantity = 1_000_000

// maxMachines bounds quantities: more is a mistake in the file.
const maxMachines = 1_000_000

// Usage is the use of one key in one hour.
type Usage struct {
	// Hour is its start, a full hour in UTC.
	Hour time.Time
	// Key identifies a price: a machine type in a region.
	Key string
	// Quantity counts running machines. Idle of them did nothing and are subtracted first, because
	// a commitment would lock in the waste.
	Quantity, Idle Quantity
	// Leaving of them will not run in the period ahead, because findings stop, replace or move them
	// to spot. They are subtracted too.
	Leaving Quantity
	// OnDemand is the positive hourly price of one machine in dollars.
	OnDemand money.Amount
}

// Kind is the kind of a commitment.
type Kind string

// The kinds.
const (
	// Reserved commits to machines of one key, or for some families also to other sizes.
	Reserved Kind = "reserved"
	// SavingsPlan commits to dollars per hour at plan rates, for all keys that match a pattern.
	SavingsPlan Kind = "savings-plan"
)

// Payment is the payment option of a commitment.
type Payment string

// The payment options.
const (
	NoUpfront      Payment = "no-upfront"
	PartialUpfront Payment = "partial-upfront"
	AllUpfront     Payment = "all-upfront"
)

// Discount is a share of the on-demand price in billionths, between 0 and 1 exclusive.
type Discount int64

// fullDiscount is 100%.
const fullDiscount Discount = 1_000_000_000

// Share returns the discount as a number between 0 and 1.
func (d Discount) Share() float64 { return float64(d) / float64(fullDiscount) }

// Offer is a commitment that can be bought in any number.
type Offer struct {
	// Key is the key of reserved machines, or the pattern of a savings plan, in which * matches any
	// text.
	Key  string
	Kind Kind
	// TermMonths is the term in months of 730 hours.
	TermMonths int64
	Payment    Payment
	// Hourly is the charge for each reserved machine in every hour, Upfront the single payment for
	// each. Both are 0 for a savings plan.
	Hourly, Upfront money.Amount
	// Discount is the discount of a savings plan on the on-demand price; 0 for reserved machines.
	Discount Discount
	// OneSize reports that reserved machines cover only their own size: those of one zone, of
	// another platform than Linux/UNIX or with dedicated tenancy. Others cover all sizes of
	// families for which AWS says so ([price.SizeFlexible]).
	OneSize bool
}

// Existing is a commitment bought before the window.
type Existing struct {
	Offer
	// Machines counts reserved machines; DollarsPerHour is the commitment of a savings plan.
	Machines       int64
	DollarsPerHour money.Amount
	// Expires is its end: hours that start then or later are not covered. See [State].
	Expires time.Time
}

// Options configure a plan; the zero value is the usual one.
type Options struct {
	// Drop is an additional drop in demand to evaluate, 0 to 1; 0 means none.
	Drop float64
	// MinHours is the number of hours with data required for advice; 0 means 1,440, a negative
	// value none.
	MinHours int
	// Leave returns the risk that work leaves the machine type of a key; nil ignores it.
	Leave func(key string) Leaving
	// Soon is how long after the window existing commitments count as expiring; 0 means 90 days.
	Soon time.Duration
	// Effort bounds the search of each group of keys, in evaluations of the whole window; 0 means
	// 1,500. A report of a limited search states the distance to the bound.
	Effort int
}

// minHistory returns the number of hours with data that advice needs.
func (o Options) minHistory() int { return cmp.Or(o.MinHours, minHours) }

// defaultEffort is the default bound of a search.
const defaultEffort = 1500

// minUtilization is the share of a commitment that must be used for advice: the threshold below
// which practitioners prefer on-demand.
const minUtilization = 0.6
