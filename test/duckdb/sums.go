package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/curfew-dev/curfew/internal/bill"
)

// Costs are the summed costs as decimal text.
type Costs struct {
	Billed, Effective, List string
}

// Group is the key of a sum.
type Group struct {
	Day, Resource, Service string
}

// Sums are the sums of a bill.
type Sums struct {
	Lines int64
	// Total has all digits of the bill.
	Total Costs
	// Groups have nano-dollar precision, within Parts of them, the number of separately rounded
	// values. If Parts is 0, they have all digits too.
	Groups []GroupSum
}

// GroupSum is the sum of a group.
type GroupSum struct {
	Group
	Costs
	Lines, Parts int64
}

// Agrees returns the difference of exact sums: in any digit of the totals, by more than rounding in
// groups, or in the set of groups.
func (s Sums) Agrees(other Sums) error {
	return s.differ(other, func(a, b string, parts int64) bool {
		x, errX := bill.ParseDecimal(a)
		y, errY := bill.ParseDecimal(b)
		d := x.Sub(y)
		if d.Sign() < 0 {
			d = d.Neg()
		}
		off, errOff := bill.NewDecimal64(parts, 9) // nano-dollars
		return errX == nil && errY == nil && errOff == nil &&
			(parts == 0 && d.Sign() == 0 || parts > 0 && d.Cmp(off) <= 0)
	})
}

// Near returns the difference of sums of binary numbers beyond their rounding errors.
func (s Sums) Near(other Sums) error {
	return s.differ(other, func(a, b string, parts int64) bool {
		x, errX := strconv.ParseFloat(a, 64)
		y, errY := strconv.ParseFloat(b, 64)
		return errX == nil && errY == nil && math.Abs(x-y) <= 1e-9*float64(parts)+1e-9*math.Abs(x)+1e-6
	})
}

func (s Sums) differ(other Sums, same func(a, b string, parts int64) bool) error {
	costs := func(what string, a, b Costs, parts int64) error {
		for _, c := range []struct{ name, a, b string }{
			{"BilledCost", a.Billed, b.Billed}, {"EffectiveCost", a.Effective, b.Effective},
			{"ListCost", a.List, b.List},
		} {
			if !same(c.a, c.b, parts) {
				return fmt.Errorf("%s of %s: %s and %s", c.name, what, c.a, c.b)
			}
		}
		return nil
	}
	if s.Lines != other.Lines || len(s.Groups) != len(other.Groups) {
		return fmt.Errorf("%d rows in %d groups, and %d in %d", s.Lines, len(s.Groups), other.Lines, len(other.Groups))
	}
	found := map[Group]GroupSum{}
	for _, g := range other.Groups {
		found[g.Group] = g
	}
	errs := []error{costs("the bill", s.Total, other.Total, 0)}
	for _, g := range s.Groups {
		o, ok := found[g.Group]
		if !ok || o.Lines != g.Lines {
			return fmt.Errorf("%v: %d rows and %d", g.Group, g.Lines, o.Lines)
		}
		errs = append(errs, costs(fmt.Sprint(g.Group), g.Costs, o.Costs, g.Parts))
	}
	return errors.Join(errs...)
}
