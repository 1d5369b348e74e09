package round

import (
	"fmt"
	"iter"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/money"
)

// Categories that only a bill has.
const (
	CategoryEgress = "egress" // data transfer, NAT
	CategoryOther  = "other"
)

// Bill is a provider's bill to compare with an audit.
type Bill struct {
	finding.Bill
	Parts []bill.Part
	// Unused is the part of compute that the bill itself shows as unused: reserved capacity and
	// parts of commitments.
	Unused money.Amount
}

// billDays is the part of a bill that represents the current cost of an account.
const billDays = 30

// NewBill reads a bill's newest thirty days for an audit. A part of a day counts as a day.
func NewBill(all iter.Seq[bill.Row], cloud, source string) (*Bill, error) {
	b := &Bill{Bill: finding.Bill{Cloud: cloud, Source: source}}
	for r := range all {
		if end := r.Day.AddDate(0, 0, 1); end.After(b.To) {
			b.To = end
		}
	}
	b.From = b.To
	rows := func(yield func(bill.Row) bool) {
		for r := range all {
			if !r.Day.Before(b.To.AddDate(0, 0, -billDays)) && !yield(r) {
				return
			}
		}
	}
	for r := range rows {
		if r.Day.Before(b.From) {
			b.From = r.Day
		}
	}
	var err error
	if b.Parts, err = bill.Categories(effective(rows)); err != nil {
		return nil, err
	}
	for r := range effective(rows) {
		if r.Category == bill.Compute && r.Unused() {
			if b.Unused, err = b.Unused.Add(r.Cost.Billed); err != nil {
				return nil, fmt.Errorf("add up unused capacity: %w", err)
			}
		}
	}
	if b.Flows, err = bill.EgressFlows(rows); err != nil {
		return nil, err
	}
	b.Commitments, err = bill.CommitmentUse(rows)
	return b, err
}

// effective yields rows at their effective cost if the bill has one, so that upfront payments count
// over their term.
func effective(rows iter.Seq[bill.Row]) iter.Seq[bill.Row] {
	return func(yield func(bill.Row) bool) {
		for r := range rows {
			if !r.Unknown.Has(bill.EffectiveCost) {
				r.Cost.Billed = r.Cost.Effective
			}
			if !yield(r) {
				return
			}
		}
	}
}

// Billing is a bill's totals at effective cost per month of 730 hours.
type Billing struct {
	From, To time.Time
	Source   string
	Total    money.Amount
	// ByCategory adds up to Total: storage, idle, active, unknown, egress, overhead, other. Compute
	// that the bill itself shows as unused is idle; the rest is divided like the audited machines'
	// compute, at list price.
	ByCategory map[string]money.Amount
}

// billing scales a bill to a month and divides its compute by the duty of the machines.
func billing(b *Bill, t Totals) (*Billing, error) {
	hours := int64(b.To.Sub(b.From) / time.Hour)
	if hours <= 0 {
		return nil, nil
	}
	out := &Billing{From: b.From, To: b.To, Source: b.Source, ByCategory: map[string]money.Amount{}}
	var ad adder
	into := func(category string, v money.Amount) {
		total := out.ByCategory[category]
		ad.add(&total, v)
		out.ByCategory[category] = total
		ad.add(&out.Total, v)
	}
	for _, p := range b.Parts {
		month, err := p.Billed.Mul(money.HoursPerMonth, hours)
		if err != nil {
			return nil, fmt.Errorf("bring the bill to a month: %w", err)
		}
		switch p.Category {
		case bill.Compute:
			unused, err := b.Unused.Mul(money.HoursPerMonth, hours)
			if err != nil {
				return nil, fmt.Errorf("bring unused capacity to a month: %w", err)
			}
			into(CategoryIdle, unused)
			if month, err = month.Add(-unused); err != nil {
				return nil, fmt.Errorf("take unused capacity out of the bill's compute: %w", err)
			}
			states := []string{CategoryIdle, CategoryActive, CategoryUnknown}
			weights := make([]int64, len(states))
			for i, s := range states {
				weights[i] = int64(max(0, t.ByCategory[s]))
			}
			if weights[0]+weights[1]+weights[2] == 0 {
				weights[2] = 1 // nothing runs that has a duty
			}
			divided, err := money.Split(month, weights)
			if err != nil {
				return nil, fmt.Errorf("divide the bill's compute: %w", err)
			}
			for i, s := range states {
				into(s, divided[i])
			}
		case bill.Storage:
			into(CategoryStorage, month)
		case bill.Egress:
			into(CategoryEgress, month)
		case bill.Overhead:
			into(CategoryOverhead, month)
		default:
			into(CategoryOther, month)
		}
	}
	return out, ad.err
}
