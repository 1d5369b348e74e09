// Package commit finds how much of a fleet's steady use to commit to: reserved machines
// and savings plans, chosen by replaying every hour of recorded use in the order in
// which the provider applies them, with a proven bound on what any other choice costs.
//
// A plan is for the period ahead, which begins where the window ends and in which its use
// repeats: what is bought is charged for every hour of a period as long as the window, what is
// paid upfront spread over the term. Of one savings plan with
// discount d the best commitment is then the d-quantile of use at plan rates, and of one
// machine at a share p of the on-demand price the (1 − p)-quantile of demand: one more
// pays while it is used in more than p of the hours. Several offers share the same use,
// and are chosen together by cutting planes under branch and bound.
package commit

import (
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Schema names the shape of a [Report] in JSON.
const Schema = "curfew.plan.commit/v1"

// Quantity is machines in millionths, so that fractions of a machine add up exactly.
type Quantity int64

// Machine is one whole machine.
const Machine Quantity = 1_000_000

// maxMachines bounds quantities: more is a mistake in the file.
const maxMachines = 1_000_000

// Usage is the use of one key in one hour.
type Usage struct {
	// Hour is when it starts, a full hour in UTC.
	Hour time.Time
	// Key is what is priced alike: a machine type in a region.
	Key string
	// Quantity is machines that ran. Idle is how many of them did nothing: they come
	// off before anything is committed to, for a commitment on waste locks it in.
	Quantity, Idle Quantity
	// Leaving is how many of them are no use of the period ahead: findings stop them, move them
	// to spot or replace them. They come off too.
	Leaving Quantity
	// OnDemand is dollars for one machine for the hour, over 0.
	OnDemand money.Amount
}

// Kind is what sort of commitment an offer is.
type Kind string

// The kinds.
const (
	// Reserved is whole machines of one key, which for some families cover other sizes too.
	Reserved Kind = "reserved"
	// SavingsPlan is dollars an hour at plan rates, on every key that a pattern matches.
	SavingsPlan Kind = "savings-plan"
)

// Payment is when a commitment is paid.
type Payment string

// The payments.
const (
	NoUpfront      Payment = "no-upfront"
	PartialUpfront Payment = "partial-upfront"
	AllUpfront     Payment = "all-upfront"
)

// Discount is a share of the on-demand price in billionths, between 0 and 1 exclusive.
type Discount int64

// wholeDiscount is everything.
const wholeDiscount Discount = 1_000_000_000

// Share returns the discount as a number between 0 and 1.
func (d Discount) Share() float64 { return float64(d) / float64(wholeDiscount) }

// Offer is a commitment that can be bought, in any number.
type Offer struct {
	// Key is the key of reserved machines; of a savings plan it is a pattern in which
	// * stands for any text.
	Key  string
	Kind Kind
	// TermMonths is how long it binds, in months of 730 hours.
	TermMonths int64
	Payment    Payment
	// Hourly is charged for each reserved machine in every hour, used or not; Upfront
	// is paid for each once. Both are 0 for a savings plan.
	Hourly, Upfront money.Amount
	// Discount is what a savings plan takes off the on-demand price; 0 for reserved
	// machines.
	Discount Discount
	// OneSize says that reserved machines cover their own size only: those of one zone, of
	// another platform than Linux/UNIX or with dedicated tenancy. Others cover each size of a
	// family for which AWS says so ([price.SizeFlexible]).
	OneSize bool
}

// Existing is a commitment that was bought before the window.
type Existing struct {
	Offer
	// Machines is how many are reserved, DollarsPerHour what a savings plan commits to.
	Machines       int64
	DollarsPerHour money.Amount
	// Expires is when it ends: hours that start then or later are not covered. See [State].
	Expires time.Time
}

// Options are choices of a plan; the zero value is the usual one.
type Options struct {
	// Drop is one more drop in demand to evaluate, 0 to 1; 0 is none.
	Drop float64
	// MinHours is how many hours with a row advice needs; 0 is 1,440, below 0 is none. What
	// is computed does not depend on it.
	MinHours int
	// Leave says how likely work is to leave the type of a key; nil weighs no such risk.
	Leave func(key string) Leaving
	// Soon is within what time of the window's end existing commitments count as expiring;
	// 0 is 90 days.
	Soon time.Duration
	// Effort bounds the search of each group of keys, in evaluations of the whole
	// window; 0 is 1,500. Where it ends the search, the report says how far the bound is.
	Effort int
}

// effort is the usual bound of a search.
const effort = 1500

// leastUtilization is the share of a commitment that must be used for it to be advised:
// the practitioners' threshold below which on-demand is the safer choice.
const leastUtilization = 0.6
