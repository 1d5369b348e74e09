package commit

import (
	"fmt"
	"math"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// minHours is how much history advice needs: 60 days, the longest look-back of AWS's own
// recommendations.
const minHours = 1440

// Leaving is how likely work is to leave a machine type for another one.
type Leaving struct {
	// PerYear is the rate: of machines of the type, a share of 1 − e^(−PerYear) is left
	// within a year. It is not below 0.
	PerYear float64
	// Why is the source of the rate.
	Why string
}

// Risk is the value of a commitment when work leaves its type at a steady rate before the term
// ends. After that it is paid and not used.
type Risk struct {
	// LeavePerYear is the share of work that leaves the type in a year.
	LeavePerYear float64 `json:"leave_per_year"`
	Why          string  `json:"why"`
	// UsedShare is the share of the term for which the type is expected to be used:
	// (1 − e^(−rT)) / rT.
	UsedShare float64 `json:"expected_used_share"`
	// PaysFromMonths is for how many months of the term it has to be used, as in the window, to
	// cost no more than on demand; null if the whole term does not do.
	PaysFromMonths *float64 `json:"pays_from_months"`
	// SavingUSD is the expected saving over the whole term, below 0 a loss.
	SavingUSD money.Amount `json:"expected_saving_usd"`
}

// yearly is the expected saving in a year of a term.
func (r *Risk) yearly(termMonths int64) (money.Amount, error) {
	v, err := r.SavingUSD.Mul(12, termMonths)
	if err != nil {
		return 0, fmt.Errorf("scale an expected saving to a year: %w", err)
	}
	return v, nil
}

// risk weighs that the types that a commitment covers are left. A savings plan that covers
// several follows the work between them: the type that is left least counts.
func (d *demand) risk(l line, y tally, leave func(key string) Leaving) (*Risk, error) {
	if leave == nil || l.existing != nil || len(l.keys) == 0 {
		return nil, nil
	}
	at := leave(d.keys[l.keys[0]])
	for _, k := range l.keys[1:] {
		if other := leave(d.keys[k]); other.PerYear < at.PerYear {
			at = other
		}
	}
	if len(l.keys) > 1 {
		at.Why += fmt.Sprintf("; the lowest rate of its %d keys", len(l.keys))
	}
	r := &Risk{LeavePerYear: at.PerYear, Why: at.Why, UsedShare: 1}
	if rt := at.PerYear * float64(l.offer.TermMonths) / 12; rt > 1e-9 {
		r.UsedShare = -math.Expm1(-rt) / rt
	}
	if months := money.Ratio(y.charge, y.covered) * float64(l.offer.TermMonths); y.covered > 0 &&
		months <= float64(l.offer.TermMonths) {
		r.PaysFromMonths = &months
	}
	term := l.offer.TermMonths * money.HoursPerMonth
	covered, err := y.covered.Mul(term, int64(d.hours))
	if err == nil {
		covered, err = covered.Mul(int64(math.Round(r.UsedShare*1e6)), 1e6)
	}
	charged, errCharge := y.charge.Mul(term, int64(d.hours))
	if err != nil || errCharge != nil {
		return nil, fmt.Errorf("weigh a commitment to %s over its term: %w", l.offer.Key, money.ErrOverflow)
	}
	r.SavingUSD = covered - charged // both are positive
	return r, nil
}

// history is for how many hours anything is recorded of the keys of a line.
func (d *demand) history(l line) int {
	n := 0
	for t := range d.hours {
		for _, k := range l.keys {
			if d.rate[k][t] > 0 {
				n++
				break
			}
		}
	}
	return n
}

// against lists reasons against a commitment other than its use: too little history, and types that
// are left before it pays.
func (c *Commitment) against(least int) string {
	switch {
	case c.HistoryHours < least:
		return fmt.Sprintf("%s hours of history; a recommendation needs %s", money.Thousands(int64(c.HistoryHours)),
			money.Thousands(int64(least)))
	case c.Risk != nil && c.Risk.SavingUSD <= 0:
		return fmt.Sprintf("expected use is %s of its %s months (%s): expected loss %s",
			plain.Share(c.Risk.UsedShare, 1),
			plain.Number(float64(c.TermMonths), 0), c.Risk.Why, (-c.Risk.SavingUSD).Dollars())
	}
	return ""
}
