// Package money holds amounts and rates as integers, so that every total adds
// up to the last nano-dollar.
//
// An [Amount] is nano-US-dollars, a [Rate] is pico-US-dollars for one unit: a
// second, a GiB-month, a request. Products of the two are computed in 128 bits
// and rounded once, half to even. Nothing here is a float.
package money

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Amount is an amount of money in nano-US-dollars (1e-9 USD). Its range is
// about ±9.2 billion dollars.
type Amount int64

// Units of Amount.
const (
	NanoUSD Amount = 1
	Cent           = 10_000_000 * NanoUSD
	USD            = 100 * Cent
)

// Rate is a price for one unit in pico-US-dollars (1e-12 USD). The unit (a second, a GiB-month, a
// request) is documented where the rate is stored.
type Rate int64

// Units of Rate.
const (
	PicoUSD    Rate = 1
	USDPerUnit      = 1_000_000_000_000 * PicoUSD
)

// picoPerNano is the number of pico-dollars in a nano-dollar.
const picoPerNano = 1000

// HoursPerMonth is the number of hours in the month of monthly costs: 730, as in the providers' own
// calculators.
const HoursPerMonth = 730

// Month is HoursPerMonth as a duration.
const Month = HoursPerMonth * time.Hour

// ErrOverflow is returned when a result does not fit an Amount or a Rate.
var ErrOverflow = errors.New("amount of money out of range")

// Times returns the cost of n units, rounded half to even to the nano-dollar.
func (r Rate) Times(n int64) (Amount, error) {
	v, ok := mulDiv(int64(r), n, picoPerNano)
	if !ok {
		return 0, fmt.Errorf("%d units at %s: %w", n, r, ErrOverflow)
	}
	return Amount(v), nil
}

// For returns the cost of n/d units, rounded half to even to the nano-dollar; d must be positive.
// It prices fractions of a unit exactly: bytes at a GiB-month rate are r.For(bytes, 1<<30).
func (r Rate) For(n, d int64) (Amount, error) {
	if d <= 0 || d > math.MaxInt64/picoPerNano {
		return 0, fmt.Errorf("%d/%d units at %s: the divisor is out of range", n, d, r)
	}
	v, ok := mulDiv(int64(r), n, d*picoPerNano)
	if !ok {
		return 0, fmt.Errorf("%d/%d units at %s: %w", n, d, r, ErrOverflow)
	}
	return Amount(v), nil
}

// Mul returns a × n/d, rounded half to even; d must be positive.
func (a Amount) Mul(n, d int64) (Amount, error) {
	if d <= 0 {
		return 0, fmt.Errorf("%s × %d/%d: the divisor must be positive", a, n, d)
	}
	v, ok := mulDiv(int64(a), n, d)
	if !ok {
		return 0, fmt.Errorf("%s × %d/%d: %w", a, n, d, ErrOverflow)
	}
	return Amount(v), nil
}

// Monthly returns the cost of a month of 730 hours at this hourly price.
func (a Amount) Monthly() (Amount, error) { return a.Mul(HoursPerMonth, 1) }

// Rate returns the amount as the price of one unit.
func (a Amount) Rate() (Rate, error) { return mulDivRate(int64(a), picoPerNano, 1) }

// Add returns a + b.
func (a Amount) Add(b Amount) (Amount, error) {
	s := a + b
	if (b > 0 && s < a) || (b < 0 && s > a) {
		return 0, fmt.Errorf("%s + %s: %w", a, b, ErrOverflow)
	}
	return s, nil
}

// Sum returns the total of amounts.
func Sum(amounts ...Amount) (Amount, error) {
	var total Amount
	for _, a := range amounts {
		t, err := total.Add(a)
		if err != nil {
			return 0, err
		}
		total = t
	}
	return total, nil
}

// Ratio returns a/b as a float, for shares and charts; 0 when b is 0.
func Ratio(a, b Amount) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func mulDivRate(a, n, d int64) (Rate, error) {
	v, ok := mulDiv(a, n, d)
	if !ok {
		return 0, ErrOverflow
	}
	return Rate(v), nil
}

// mulDiv returns a×b/c in 128 bits, rounded half to even, and reports whether the result fits an
// int64. c must be positive.
func mulDiv(a, b, c int64) (int64, bool) {
	neg := (a < 0) != (b < 0)
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	uc := uint64(c)
	if hi >= uc {
		return 0, false
	}
	q, r := bits.Div64(hi, lo, uc)
	if twice := r << 1; r > math.MaxInt64 || twice > uc || (twice == uc && q&1 == 1) {
		q++
	}
	if neg {
		if q > 1<<63 {
			return 0, false
		}
		return -int64(q), true
	}
	if q > math.MaxInt64 {
		return 0, false
	}
	return int64(q), true
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return uint64(-(v + 1)) + 1
	}
	return uint64(v)
}
