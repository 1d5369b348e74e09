package ledger

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Kind says what an entry is.
type Kind string

// The kinds of entries.
const (
	// Accrual is the charge of observations for an hour without an entry.
	Accrual Kind = "accrual"
	// Correction is the difference that later observations make to what an hour's
	// entries came to; its amount and seconds may be negative.
	Correction Kind = "correction"
	// Reconciled brings a resource's day to what the bill says.
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

// Gap is why time has no amount. The empty Gap is time that is charged.
type Gap string

// The gaps. None of them is charged; their cost at most is shown separately.
const (
	// Unobserved is time between observations that nothing is known of.
	Unobserved Gap = "unobserved"
	// Gone is time after the last observation of a resource that was not there any
	// more at the next look: it ended somewhere in it.
	Gone Gap = "gone"
	// PriceUnseen is time in which the meter ran at an unobserved price.
	PriceUnseen Gap = "price not seen"
	// Unpriced is time in which the meter ran and the price book has no price.
	Unpriced Gap = "no price"
)

// Line identifies the subject of an entry, except its hour. Lines can be compared: entries of one
// hour and line add up.
type Line struct {
	Ref inventory.Ref
	Attributes
	// Meter and Category are those of the meter; Service is FOCUS's ServiceName where
	// a bill says it, empty in accruals.
	Meter    string
	Category Category
	Service  string
	// ChargeCategory and Pricing are FOCUS's.
	ChargeCategory ChargeCategory
	Pricing        Pricing
	// Duty is the state's name for compute ("unknown" where nothing was measured), and
	// empty for meters that have none.
	Duty string
	// Monthly is the list price of 730 hours, with its source and date.
	Monthly money.Amount
	Source  string
	AsOf    time.Time
	// Gap says why there is no amount.
	Gap Gap
	// Why explains a gap or a reconciliation: the reason why a meter has no price.
	Why string
}

// Sums are sums of entries.
type Sums struct {
	// Seconds are those that are charged, or in a gap those that are not known.
	Seconds int64
	// Amount is the charge at list price; 0 in a gap.
	Amount money.Amount
	// AtMost is the upper bound of the cost of a gap. Unbounded are the seconds of a gap whose cost
	// has no bound, because a price is missing.
	AtMost    money.Amount
	Unbounded int64
}

// Entry is one line of the ledger. Entries are only ever added.
type Entry struct {
	Kind Kind
	// Hour is the start of the hour, or of the day for a reconciliation (FOCUS's
	// ChargePeriodStart).
	Hour time.Time
	Line
	Sums
	// Round is the time of the round that brought the entry: of a correction the one
	// whose observations came late or were better. Zero for a reconciliation.
	Round time.Time
	// BillPeriod is the start of the billing period that a reconciliation refers to.
	BillPeriod time.Time
}

// Plus adds up; it returns money.ErrOverflow where the result does not fit.
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

// negative returns the sums with the other sign.
func (s Sums) negative() Sums {
	return Sums{Seconds: -s.Seconds, Amount: -s.Amount, AtMost: -s.AtMost, Unbounded: -s.Unbounded}
}
