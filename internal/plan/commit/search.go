package commit

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// tolerance is how close a plan must come to its bound, as a share of the cost on demand.
const tolerance = 1e-8

// purchase is an offer and how much of it is bought, as in a line.
type purchase struct {
	offer Offer
	level int64
	// starts is when it begins; zero is the end of the window.
	starts time.Time
}

// box is a part of the search: shares of the upper bounds, and what is proven of it.
type box struct {
	lo, hi []float64
	bound  float64
}

type boxes []box

func (b boxes) Len() int           { return len(b) }
func (b boxes) Less(i, j int) bool { return b[i].bound < b[j].bound }
func (b boxes) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }

// Push and Pop make a heap of boxes.
func (b *boxes) Push(x any) { *b = append(*b, x.(box)) }

// Pop takes the last one.
func (b *boxes) Pop() any {
	old := *b
	x := old[len(old)-1]
	*b = old[:len(old)-1]
	return x
}

// search finds the best purchases of one group of keys: cutting planes find the lowest
// point of the convex cost, branch and bound makes machines whole.
type search struct {
	m      *model
	held   []line
	master *master
	left   int
	open   boxes
	// best is the cheapest plan that was replayed, cost what it comes to, from which
	// center is its point. closed is the least bound of the boxes that are done with.
	best   []purchase
	cost   money.Amount
	center []float64
	closed float64
	// charged is the cost of existing commitments, which no choice changes.
	charged money.Amount
}

// solve returns the best purchases that it finds for a group of keys, what they come to,
// and how much less any others could.
func solve(d *demand, offers []Offer, held []line, effort int) (best []purchase, gap money.Amount, err error) {
	m := newModel(d, offers, held)
	if len(m.vars) == 0 {
		return nil, 0, nil
	}
	s := &search{m: m, held: held, left: effort, closed: math.Inf(1), center: make([]float64, len(m.vars))}
	for _, l := range held {
		c, err := l.charge()
		if err != nil {
			return nil, 0, err
		}
		s.charged += c // replay adds the same up, and says when it is out of range
	}
	if s.cost, err = s.replay(nil); err != nil {
		return nil, 0, err
	}
	if len(m.vars) == 1 && m.vars[0].alone() && !slices.ContainsFunc(held, func(l line) bool {
		return l.offer.Kind == SavingsPlan || len(l.keys) > 1
	}) {
		level := d.quantile(m.vars[0], held)
		return purchases(m.vars, []int64{level}), 0, nil
	}
	if err := s.run(); err != nil {
		return nil, 0, err
	}
	gap = s.gap()
	if !m.exact {
		if err := s.polish(); err != nil {
			return nil, 0, err
		}
		gap = s.gap()
	}
	return s.best, gap, s.round()
}

// alone reports whether reserved machines cover one key.
func (v variable) alone() bool { return v.offer.Kind == SavingsPlan || len(v.keys) == 1 }

// quantile returns the best level of a single offer, exactly: the least one of which one
// more would be used too seldom. No reserved machines cover several keys.
func (d *demand) quantile(v variable, held []line) int64 {
	left := func(k, t int) Quantity {
		need := d.need[k][t]
		for _, l := range held {
			if t < l.until && slices.Contains(l.keys, k) {
				need -= l.room() / Quantity(d.unitsOf(l.offer, k))
			}
		}
		return max(0, need)
	}
	if v.offer.Kind == Reserved {
		k := v.keys[0]
		charge, _ := v.offer.charge(int64(d.hours)) // in range, as it pays for itself
		covers := func(n int) Quantity {
			return line{offer: v.offer, level: int64(n)}.room() / Quantity(d.unitsOf(v.offer, k))
		}
		// The n-th machine saves no more than the one before.
		return int64(sort.Search(int(v.upper), func(n int) bool {
			var saved money.Amount
			for t := range d.hours {
				need := left(k, t)
				without, _ := cost(d.rate[k][t], max(0, need-covers(n)))
				with, _ := cost(d.rate[k][t], max(0, need-covers(n+1)))
				saved += without - with
			}
			return saved <= charge
		}))
	}
	use := make([]money.Amount, d.hours)
	for t := range use {
		for _, k := range v.keys {
			a, _ := cost(d.rate[k][t], left(k, t))
			use[t] += a
		}
	}
	slices.Sort(use)
	rest := fullDiscount - v.offer.Discount
	// A dollar more saves 1/(1 − d) dollars in each hour that uses it, and costs one in
	// all hours: at most (1 − d) of them may lie above the level.
	above := int(int64(d.hours) * int64(rest) / int64(fullDiscount))
	level := use[len(use)-1-above]
	c, _ := level.Mul(int64(rest), int64(fullDiscount))
	if capacity(int64(c), v.offer.Discount) < level {
		c++
	}
	return int64(c)
}

func purchases(vars []variable, levels []int64) []purchase {
	var out []purchase
	for i, v := range vars {
		if levels[i] > 0 {
			out = append(out, purchase{offer: v.offer, level: levels[i]})
		}
	}
	return out
}

// lines puts purchases and what is held into the provider's order.
func (d *demand) lines(bought []purchase, held []line) []line {
	out := slices.Clone(held)
	for _, p := range bought {
		out = append(out, line{
			offer: p.offer, keys: d.covered(p.offer), level: p.level, until: d.hours, starts: p.starts,
		})
	}
	order(out)
	return out
}

func (s *search) replay(bought []purchase) (money.Amount, error) {
	out, err := s.m.d.replay(s.m.d.lines(bought, s.held), nil)
	if err != nil {
		return 0, fmt.Errorf("replay a plan: %w", err)
	}
	return out.cost, nil
}

// share is a cost without existing charges in the unit of the model.
func (s *search) share(cost money.Amount) float64 {
	return float64(cost-s.charged) / float64(money.USD) / s.m.scale
}

// gap is how far the best plan is above what is proven; 0 is within the tolerance.
func (s *search) gap() money.Amount {
	low := s.closed
	for _, b := range s.open {
		low = min(low, b.bound)
	}
	above := s.share(s.cost) - low
	if above <= tolerance {
		return 0
	}
	return money.Amount(math.Ceil(above * s.m.scale * float64(money.USD)))
}

func (s *search) run() error {
	n := len(s.m.vars)
	s.master = newMaster(s.m.a)
	root := box{make([]float64, n), make([]float64, n), 0}
	for k := range root.hi {
		root.hi[k] = 1
	}
	s.open = boxes{root}
	first := true
	for len(s.open) > 0 && s.left > 0 {
		b := heap.Pop(&s.open).(box)
		if b.bound >= s.share(s.cost)-tolerance {
			s.closed = min(s.closed, b.bound)
			break // no other box is lower
		}
		z, done, err := s.lower(&b)
		if err != nil {
			return err
		}
		if !done {
			heap.Push(&s.open, b)
			break
		}
		k := s.fraction(z)
		if k < 0 || b.bound >= s.share(s.cost)-tolerance {
			s.closed = min(s.closed, b.bound)
			continue
		}
		if first {
			first = false
			if err := s.dive(b, z); err != nil {
				return err
			}
		}
		unit := s.m.vars[k].upper
		down := box{b.lo, slices.Clone(b.hi), b.bound}
		up := box{slices.Clone(b.lo), b.hi, b.bound}
		down.hi[k], up.lo[k] = math.Floor(z[k]*unit)/unit, math.Ceil(z[k]*unit)/unit
		heap.Push(&s.open, down)
		heap.Push(&s.open, up)
	}
	return nil
}

// dive makes machines whole at once, for a first plan that bounds the search.
func (s *search) dive(b box, z []float64) error {
	b.lo, b.hi = slices.Clone(b.lo), slices.Clone(b.hi)
	for k, v := range s.m.vars {
		if v.offer.Kind == Reserved {
			whole := math.Round(z[k]*v.upper) / v.upper
			b.lo[k], b.hi[k] = whole, whole
		}
	}
	_, _, err := s.lower(&b)
	return err
}

// fraction is the variable that is farthest from whole, −1 where all are whole.
func (s *search) fraction(z []float64) int {
	which, most := -1, 1e-7
	for k, v := range s.m.vars {
		if v.offer.Kind == Reserved {
			if off := math.Abs(z[k]*v.upper - math.Round(z[k]*v.upper)); off > most {
				which, most = k, off
			}
		}
	}
	return which
}

// lower finds the lowest point of a box, until the box is known to hold nothing better
// than the best plan, or the effort is spent. It raises the bound of the box.
func (s *search) lower(b *box) (z []float64, done bool, err error) {
	// Halfway to the best point so far, cuts are deeper than at the corners of the cuts
	// before.
	center, least := make([]float64, len(s.m.vars)), math.Inf(1)
	for k := range center {
		center[k] = min(max(s.center[k], b.lo[k]), b.hi[k])
	}
	for s.left > 0 {
		var bound float64
		z, bound = s.master.solve(b.lo, b.hi)
		b.bound = max(b.bound, bound)
		if b.bound >= s.share(s.cost)-tolerance {
			return z, true, nil
		}
		height := s.height(z)
		between := make([]float64, len(z))
		for k := range z {
			between[k] = (z[k] + center[k]) / 2
		}
		s.left--
		rest, c := s.m.rest(between)
		s.master.add(c)
		if cost := s.m.cost(between, rest); cost < least {
			center, least = between, cost
		}
		if c.at(z) > height+tolerance/4 && s.left > 0 {
			continue
		}
		s.left--
		rest, c = s.m.rest(z)
		s.master.add(c)
		cost := s.m.cost(z, rest)
		if s.fraction(z) < 0 && cost < s.share(s.cost) { // a replay costs no less than the model
			if err := s.try(z); err != nil {
				return nil, false, err
			}
		}
		if cost-b.bound <= tolerance/2 {
			return z, true, s.try(z) // with machines made whole
		}
	}
	return z, false, s.try(center)
}

// height is the highest cut over a point.
func (s *search) height(z []float64) float64 {
	v := 0.0
	for _, c := range s.master.cuts {
		v = max(v, c.at(z))
	}
	return v
}

// try replays the plan of a point, its machines made whole, and keeps it if it is the cheapest so far.
func (s *search) try(z []float64) error {
	levels := make([]int64, len(z))
	for i, v := range s.m.vars {
		levels[i] = v.level(z[i])
	}
	bought := purchases(s.m.vars, levels)
	cost, err := s.replay(bought)
	if err == nil && cost < s.cost {
		s.best, s.cost, s.center = bought, cost, slices.Clone(z)
	}
	return err
}

// polish looks around the best plan for a cheaper one, one offer at a time in ever
// smaller steps: where savings plans cross, the lowest point of the model need not be
// the best plan.
func (s *search) polish() error {
	for step := 0.5; step > 1e-4; step /= 2 {
		for k, v := range s.m.vars {
			by := step
			if v.offer.Kind == Reserved {
				by = max(by, 1/v.upper)
			}
			for _, to := range []float64{0, s.center[k] - by, s.center[k] + by} {
				z := slices.Clone(s.center)
				if z[k] = min(max(to, 0), 1); v.offer.Kind == Reserved {
					z[k] = math.Round(z[k]*v.upper) / v.upper
				}
				if err := s.try(z); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// round gives savings plans the fewest digits that cost no more: corners of the cost are
// found to about nine.
func (s *search) round() error {
	for i, p := range s.best {
		if p.offer.Kind != SavingsPlan {
			continue
		}
		for unit := int64(money.Cent); unit > 1; unit /= 10 {
			to := (p.level + unit/2) / unit * unit
			was := s.best[i].level
			s.best[i].level = to
			cost, err := s.replay(s.best)
			if err != nil {
				return err
			}
			if cost <= s.cost {
				s.cost = cost
				break
			}
			s.best[i].level = was
		}
	}
	s.best = slices.DeleteFunc(s.best, func(p purchase) bool { return p.level == 0 })
	return nil
}
