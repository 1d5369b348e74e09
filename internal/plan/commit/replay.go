package commit

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// line is a commitment in a replay.
type line struct {
	offer Offer
	// keys are the covered keys: one key where it is reserved.
	keys []int
	// level is whole machines of reserved ones, nano-dollars an hour of a savings plan.
	level int64
	// until is the number of hours it is in force.
	until int
	// existing is the commitment that it is, nil of a new one; starts is when a new one begins.
	existing *Existing
	starts   time.Time
}

// outcome is the result of a replay.
type outcome struct {
	// cost is charges and the rest on demand, rest only that, covered what commitments
	// cover at on-demand prices.
	cost, rest, covered money.Amount
	lines               []tally
}

// tally is the use of one line.
type tally struct {
	charge, covered money.Amount
	// used is millionths of machine-hours in units of size, or nano-dollars at on-demand prices, by month
	// of 730 hours; held is what could have been used. They make shares, no money.
	used, held []float64
}

// capacity is the hourly coverage of a savings plan of a level at on-demand prices.
func capacity(level int64, d Discount) money.Amount {
	hi, lo := bits.Mul64(uint64(level), uint64(fullDiscount))
	left := uint64(fullDiscount - d)
	if hi >= left {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, left)
	return money.Amount(min(q, 1<<63-1))
}

// order puts lines into the provider's order of application: reserved machines first, those
// that cover one size before those that cover a family, and those that expire first before
// others; then savings plans, the highest discount first,
// of equal ones the narrower first.
func order(lines []line) {
	slices.SortStableFunc(lines, func(a, b line) int {
		if a.offer.Kind != b.offer.Kind {
			return cmp.Compare(a.offer.Kind, b.offer.Kind) // reserved, savings-plan
		}
		if a.offer.Kind == Reserved {
			switch {
			case a.offer.OneSize == b.offer.OneSize:
				return cmp.Compare(a.until, b.until)
			case a.offer.OneSize:
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.offer.Discount, a.offer.Discount), cmp.Compare(len(a.keys), len(b.keys)))
	})
}

// replay applies lines, which are in order, to every hour of demand. Within an hour a
// savings plan covers what is cheapest first, as AWS applies equal percentages.
// After each hour, each is told what every line took and what is left of every key, at
// on-demand prices; nil reports nothing.
func (d *demand) replay(lines []line, each func(t int, took, left []money.Amount)) (outcome, error) {
	out := outcome{lines: make([]tally, len(lines))}
	months := (d.hours + money.HoursPerMonth - 1) / money.HoursPerMonth
	for i, l := range lines {
		t := &out.lines[i]
		t.used, t.held = make([]float64, months), make([]float64, months)
		var err error
		if t.charge, err = l.charge(); err != nil {
			return out, err
		}
		if out.cost, err = out.cost.Add(t.charge); err != nil {
			return out, fmt.Errorf("add up charges: %w", err)
		}
	}
	rooms := make([]Quantity, len(lines))
	for i, l := range lines {
		if l.offer.Kind == Reserved {
			rooms[i] = l.room()
		}
	}
	left, took := make([]money.Amount, len(d.keys)), make([]money.Amount, len(lines))
	need := make([]Quantity, len(d.keys))
	hour := 0
	cheapest := func(a, b int) int { return cmp.Or(cmp.Compare(d.rate[a][hour], d.rate[b][hour]), cmp.Compare(a, b)) }
	for t := range d.hours {
		hour = t
		for k := range need {
			need[k] = d.need[k][t]
			left[k], _ = cost(d.rate[k][t], need[k]) // in range, as it was added up before
		}
		clear(took)
		for i, l := range lines {
			if t >= l.until {
				continue
			}
			used, held := 0.0, 0.0
			if l.offer.Kind == Reserved {
				room := rooms[i]
				held = float64(room)
				for _, k := range l.keys { // from the smallest size on
					units := Quantity(d.unitsOf(l.offer, k))
					take := min(need[k], room/units)
					need[k] -= take
					room -= take * units
					used += float64(take * units)
					rest, _ := cost(d.rate[k][t], need[k])
					took[i] += left[k] - rest
					left[k] = rest
				}
			} else {
				room := capacity(l.level, l.offer.Discount)
				if !slices.IsSortedFunc(l.keys, cheapest) {
					slices.SortFunc(l.keys, cheapest)
				}
				for _, k := range l.keys {
					take := min(left[k], room-took[i])
					left[k] -= take
					took[i] += take
				}
				used, held = float64(took[i]), float64(room)
			}
			y, month := &out.lines[i], t/money.HoursPerMonth
			y.used[month] += used
			y.held[month] += held
			y.covered += took[i]
		}
		for _, a := range left {
			out.rest += a
		}
		if each != nil {
			each(t, took, left)
		}
	}
	for _, y := range out.lines {
		out.covered += y.covered
	}
	var err error
	out.cost, err = out.cost.Add(out.rest)
	return out, err
}

// charge returns the cost of a line, used or not.
func (l line) charge() (money.Amount, error) {
	if l.offer.Kind == SavingsPlan {
		return money.Amount(l.level).Mul(int64(l.until), 1)
	}
	one, err := l.offer.charge(int64(l.until))
	if err != nil {
		return 0, err
	}
	return one.Mul(l.level, 1)
}

// utilization is the share of a tally that is used, and that of its lowest month; a last
// month that is not whole counts only where it is the only one.
func (y tally) utilization(hours int) (mean, lowest float64) {
	var used, held float64
	lowest = 1
	for m := range y.used {
		used, held = used+y.used[m], held+y.held[m]
		if whole := (m+1)*money.HoursPerMonth <= hours; y.held[m] > 0 && (whole || m == 0) {
			lowest = min(lowest, y.used[m]/y.held[m])
		}
	}
	if held == 0 {
		return 0, 0
	}
	return used / held, lowest
}
