// Package price is the book of what machines and services cost: facts about
// accelerators and machine types, and prices that each carry their source and
// date. A price it does not hold is an error, never zero.
//
// The book that ships in the binary is read by [Embedded]. New prices enter it
// only through [Book.Update], which quarantines what is implausible, and the
// user's own prices lie in an overlay file read by [Book.Load].
package price

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// ErrUnpriced is wrapped by every look-up of a price that the book does not hold.
var ErrUnpriced = errors.New("no price")

// Price is the price of one unit.
type Price struct {
	// Unit is the priced unit: "hour", "GiB-month", "request", "GiB".
	Unit   string
	Rate   money.Rate // dollars a unit; of the first tier where there are several
	Source string
	AsOf   time.Time // a date
	// Tiers are the rates of larger quantities, in rising order. The provider
	// counts the quantity over the account and region, so the first rate is an
	// upper bound for one resource.
	Tiers []Tier
}

// Tier is the rate of what exceeds a quantity.
type Tier struct {
	// Above is the quantity, in units, up to which the rate before it holds.
	Above int64
	Rate  money.Rate
}

// Hourly returns the price of a unit as an amount, for machines an hour's price.
func (p Price) Hourly() (money.Amount, error) { return p.Rate.Times(1) }

// Cost returns what n/d units cost, each tier for its own part of the quantity;
// d must be positive and n not negative. Every tier is rounded half to even to the
// nano-dollar. It returns money.ErrOverflow where the result does not fit.
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
