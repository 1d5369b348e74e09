package ledger

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Kind is the kind of an entry.
type Kind string

// The kinds of entries.
const (
	// Accrual charges for an hour without earlier entries from observations.
	Accrual Kind = "accrual"
	// Correction is the change of an hour's sum that later observations cause; its amount and
	// seconds may be negative.
	Correction Kind = "correction"
	// Reconciled makes a resource's day equal to the bill.
	Reconciled Kind = "reconciliation"
)

// ChargeCategory is FOCUS's ChargeCategory.
type ChargeCategory string

// The charge categories of FOCUS 1.2.
const (
	Usage      ChargeCategory = "Usage"
	Purchase   ChargeCategory = "Purchase"
	Tax        ChargeCategory = "Tax"
	Credit     ChargeCategory = "Credit"
	Adjustment ChargeCategory = "Adjustment"
)

// Pricing is FOCUS's PricingCategory.
type Pricing string

// The pricing categories of FOCUS 1.2.
const (
	Standard   Pricing = "Standard"  // list price
	Dynamic    Pricing = "Dynamic"   // spot
	Commitment Pricing = "Committed" // under a commitment
	Other      Pricing = "Other"
)

// Gap is the reason why time has no amount. The empty Gap is charged time.
type Gap string

// The gaps. None is charged; its maximum cost is shown separately.
const (
	// Unobserved is time between observations with unknown state.
	Unobserved Gap = "unobserved"
	// Gone is the time between the last observation of a resource and the first listing without it:
	// it ended somewhere in between.
	Gone Gap = "gone"
	// PriceUnseen is time in which the meter ran at an unobserved price.
	PriceUnseen Gap = "price not seen"
	// Unpriced is time in which the meter ran without a price in the book.
	Unpriced Gap = "no price"
)

// Line identifies the subject of an entry without its hour. Lines are comparable; entries with
// equal hour and line can be summed.
type Line struct {
	Ref inventory.Ref
	Attributes
	// Meter and Category are those of the meter. Service is FOCUS's ServiceName from a bill, and
	// empty in accruals.
	Meter    string
	Category Category
	Service  string
	// ChargeCategory and Pricing are FOCUS's.
	ChargeCategory ChargeCategory
	Pricing        Pricing
	// Duty is the name of the state of compute ("unknown" if not measured); empty for meters
	// without one.
	Duty string
	// Monthly is the list price for 730 hours, with its source and date.
	Monthly money.Amount
	Source  string
	AsOf    time.Time
	// Gap is the reason for a missing amount.
	Gap Gap
	// Why explains a gap or a reconciliation, such as why a meter has no price.
	Why string
}

// Sums are sums of entries.
type Sums struct {
	// Seconds is the charged time, or in a gap the unknown time.
	Seconds int64
	// Amount is the charge at list price; 0 in a gap.
	Amount money.Amount
	// AtMost is the upper bound of the cost of a gap. Unbounded is the time in seconds of a gap
	// without a bound, because a price is missing.
	AtMost    money.Amount
	Unbounded int64
}

// Entry is one line of the ledger. Entries are append-only.
type Entry struct {
	Kind Kind
	// Hour is the start of the hour, or of the day for a reconciliation (FOCUS's
	// ChargePeriodStart).
	Hour time.Time
	Line
	Sums
	// Round is the time of the round that caused the entry; for a correction, of the round with the
	// late or better observations. Zero for a reconciliation.
	Round time.Time
	// BillPeriod is the start of the billing period that a reconciliation refers to.
	BillPeriod time.Time
}

// Plus returns the sum, or money.ErrOverflow if it does not fit.
func (s Sums) Plus(o Sums) (Sums, error) {
	var err error
	if s.Amount, err = s.Amount.Add(o.Amount); err != nil {
		return s, err
	}
	if s.AtMost, err = s.AtMost.Add(o.AtMost); err != nil {
		return s, err
	}
	s.Seconds, s.Unbounded = s.Seconds+o.Seconds, s.Unbounded+o.Unbounded
	return s, nil
}

// negative returns the negated sums.
func (s Sums) negative() Sums {
	return Sums{Seconds: -s.Seconds, Amount: -s.Amount, AtMost: -s.AtMost, Unbounded: -s.Unbounded}
}
