// Package price is the book of prices of machines and services: facts about accelerators and
// machine types, and prices with source and date. A missing price is an error, never zero.
//
// [Embedded] returns the book in the binary. New prices enter only through [Book.Update], which
// quarantines implausible ones, and the user's prices are in an overlay file read by [Book.Load].
package price

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// ErrUnpriced is wrapped by every look-up of a price that is missing in the book.
var ErrUnpriced = errors.New("no price")

// Price is the price of one unit.
type Price struct {
	// Unit is the priced unit: "hour", "GiB-month", "request", "GiB".
	Unit   string
	Rate   money.Rate // dollars per unit, in the first tier
	Source string
	AsOf   time.Time // a date
	// Tiers are the rates of larger quantities, ascending. The provider counts the quantity over
	// the account and region, so the first rate is an upper bound for one resource.
	Tiers []Tier
}

// Tier is the rate above a quantity.
type Tier struct {
	// Above is the quantity, in units, up to which the previous rate applies.
	Above int64
	Rate  money.Rate
}

// Hourly returns the price of a unit as an amount; for machines, of an hour.
func (p Price) Hourly() (money.Amount, error) { return p.Rate.Times(1) }

// Cost returns the cost of n/d units, with each tier applied to its part of the quantity; d must be
// positive and n not negative. Every tier is rounded half to even to the nano-dollar. It returns
// money.ErrOverflow if the result does not fit.
func (p Price) Cost(n, d int64) (money.Amount, error) {
	if n < 0 {
		return 0, fmt.Errorf("%d/%d %s: a quantity is not negative", n, d, p.Unit)
	}
	if len(p.Tiers) == 0 {
		return p.Rate.For(n, d)
	}
	if d <= 0 {
		return 0, fmt.Errorf("%d/%d %s: the divisor must be positive", n, d, p.Unit)
	}
	var total money.Amount
	rate, from := p.Rate, int64(0) // from is in parts of 1/d
	for i := 0; ; i++ {
		to := n
		if i < len(p.Tiers) && p.Tiers[i].Above <= math.MaxInt64/d {
			to = min(n, p.Tiers[i].Above*d)
		}
		part, err := rate.For(to-from, d)
		if err != nil {
			return 0, err
		}
		if total, err = total.Add(part); err != nil {
			return 0, err
		}
		if to == n || i == len(p.Tiers) {
			return total, nil
		}
		rate, from = p.Tiers[i].Rate, to
	}
}
