package mig

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// solution is a way to cover the demand.
type solution struct {
	picks []pick
	// left counts by class what is left out.
	left []int
	cost int64
}

// pick is a column used n times.
type pick struct {
	column
	n int
}

// work bounds the time of a search in a measure that is the same on every machine.
type work struct{ left int64 }

func (w *work) spend(n int64) bool {
	w.left -= n
	return w.left > 0
}

// search looks for the cheapest solution.
type search struct {
	*program
	ctx   context.Context
	work  work
	best  solution
	lower int64
	// hardest orders classes by how little they fit into.
	hardest []int
	// harder are, by class, those that fit only where it does, and into less; it is empty if
	// placements of today are at stake.
	harder [][]int
	// seen are the costs at which a remainder was reached.
	seen map[string]int64
	// whole is true if no branch was cut off for want of work.
	whole bool
}

// Limits of a search beyond its work: they bound memory.
const (
	maxColumns = 4_000   // ways to go on from one node
	maxSeen    = 200_000 // remainders remembered
)

// outcome is a solution and what is known of others.
type outcome struct {
	solution
	// lower bounds the cost of any solution.
	lower int64
	// exhausted is true if all were looked at: there is no cheaper one, even where the
	// bound is lower.
	exhausted bool
}

// proven reports whether no solution is cheaper.
func (o outcome) proven() bool { return o.cost <= o.lower || o.exhausted }

// solve returns the best solution found, no worse than the one to start from.
func (p *program) solve(ctx context.Context, start solution, effort int64) (outcome, error) {
	s := &search{program: p, ctx: ctx, work: work{effort}, best: start, lower: math.MinInt64}
	s.order()
	demand, stock := p.demand(), p.supply()
	r, err := p.relax(ctx, demand, stock, &s.work)
	if err != nil {
		return outcome{}, err
	}
	s.lower = p.proven(demand, stock, r, hope(r), &s.work).bound()
	if err := s.dive(demand, stock); err != nil {
		return outcome{}, err
	}
	// Most of a large program is settled by the whole parts of its relaxation. The rest is
	// searched first, and then everything.
	rest, left := slices.Clone(demand), slices.Clone(stock)
	base := s.floors(solution{}, r, rest, left)
	if err := s.within(effort/16, rest, left, base); err != nil {
		return outcome{}, err
	}
	if s.best.cost > s.lower {
		s.whole = true
		if err := s.within(effort/3, demand, stock, solution{}); err != nil {
			return outcome{}, err
		}
	}
	if !s.whole {
		if err := s.repair(); err != nil {
			return outcome{}, err
		}
	}
	s.best.left = uncovered(demand, s.best.picks)
	return outcome{s.best, s.lower, s.whole}, nil
}

// within branches from base with a part of the work.
func (s *search) within(part int64, rest, stock []int, base solution) error {
	whole := s.work
	s.work.left = min(s.work.left, part)
	before := s.work.left
	s.seen = map[string]int64{}
	err := s.branch(rest, stock, base)
	whole.spend(before - s.work.left)
	s.work = whole
	return err
}

// order sorts classes by how little they fit into.
func (s *search) order() {
	width := func(c int) (n int) {
		for g, fits := range s.classes[c].fits {
			for _, sp := range s.geos[g].spots {
				if fits&(1<<sp.profile) != 0 {
					n++
				}
			}
		}
		return n
	}
	for c := range s.classes {
		s.hardest = append(s.hardest, c)
	}
	slices.SortStableFunc(s.hardest, func(a, b int) int { return cmp.Compare(width(a), width(b)) })
	s.harder = make([][]int, len(s.classes))
	if slices.ContainsFunc(s.kinds, func(k kind) bool { return len(k.home) > 0 }) {
		return
	}
	for a := range s.classes {
		for b := range s.classes {
			if s.easier(a, b) && !s.easier(b, a) {
				s.harder[a] = append(s.harder[a], b)
			}
		}
	}
}

// easier reports whether whatever can take class b can take class a.
func (s *search) easier(a, b int) bool {
	for i, g := range s.geos {
		for _, within := range g.within {
			if within&s.classes[b].fits[i] != 0 && within&s.classes[a].fits[i] == 0 {
				return false
			}
		}
	}
	return true
}

// uncovered counts by class what picks leave out.
func uncovered(demand []int, picks []pick) []int {
	rest := slices.Clone(demand)
	for _, p := range picks {
		take(rest, p.cover, p.n)
	}
	return rest
}

func take(rest, cover []int, n int) {
	for c, m := range cover {
		rest[c] = max(0, rest[c]-m*n)
	}
}

// better keeps a solution that is complete but for what it leaves out.
func (s *search) better(base solution, rest, stock []int) {
	// What stays beyond the demand may still earn something.
	for k := range s.kinds {
		if all := uint8(len(s.kinds[k].free) - 1); stock[k] > 0 && !s.kinds[k].counted && s.cost(k, all) < 0 {
			rest, stock = slices.Clone(rest), slices.Clone(stock)
			base = s.with(base, s.column(k, all, make([]int, len(s.classes))), stock[k], rest, stock)
		}
	}
	for c, n := range rest {
		base.cost += int64(n) * s.classes[c].penalty
	}
	if base.cost < s.best.cost {
		s.best = solution{picks: slices.Clone(base.picks), cost: base.cost}
	}
}

// with adds a column to a solution and takes it from what is left.
func (s *search) with(base solution, c column, n int, rest, stock []int) solution {
	s.draw(c, n, rest, stock)
	return solution{picks: append(slices.Clip(base.picks), pick{c, n}), cost: base.cost + c.cost*int64(n)}
}

// draw takes n GPUs used in one way from what is left.
func (s *search) draw(c column, n int, rest, stock []int) {
	take(rest, c.cover, n)
	if stock[c.kind] != unlimited {
		stock[c.kind] -= n
	}
	if l := len(s.kinds); s.kinds[c.kind].counted && stock[l] != unlimited {
		stock[l] -= n
	}
}

// branch looks at all solutions that begin with base, and cuts off those that the
// relaxation proves to be no better than the best so far.
func (s *search) branch(rest, stock []int, base solution) error {
	if s.best.cost <= s.lower {
		return nil
	}
	if covered(rest) {
		s.better(base, rest, stock)
		return nil
	}
	key := s.key(rest, stock)
	if cost, ok := s.seen[key]; ok && cost <= base.cost {
		return nil
	}
	if !s.work.spend(20_000) {
		s.whole = false
		return nil
	}
	if len(s.seen) < maxSeen {
		s.seen[key] = base.cost
	}
	r, err := s.relax(s.ctx, rest, stock, &s.work)
	if err != nil {
		return err
	}
	if s.work.left <= 0 {
		s.whole = false
	}
	none, left := slices.Clone(rest), slices.Clone(stock)
	if whole := s.floors(base, r, none, left); covered(none) {
		s.better(whole, none, left)
	}
	d := s.proven(rest, stock, r, min(hope(r), s.best.cost-base.cost), &s.work)
	if base.cost+d.bound() >= s.best.cost {
		return nil
	}
	c := s.hardest[slices.IndexFunc(s.hardest, func(c int) bool { return rest[c] > 0 })]
	for _, w := range s.ways(c, rest, stock, d, base.cost) {
		if s.gap(d, base.cost) < w.over {
			break
		}
		next, left := slices.Clone(rest), slices.Clone(stock)
		if err := s.branch(next, left, s.with(base, w.column, 1, next, left)); err != nil {
			return err
		}
	}
	if s.gap(d, base.cost) < s.classes[c].penalty*d.scale-d.values[c] {
		return nil
	}
	next := slices.Clone(rest)
	next[c]--
	return s.branch(next, stock, solution{picks: base.picks, cost: base.cost + s.classes[c].penalty})
}

// gap is how much over its dual, in the dual's units, a solution may be that is
// still better than the best.
func (s *search) gap(d *dual, base int64) int64 { return (s.best.cost-1-base)*d.scale - d.total }

// hope is the bound that a relaxation promises, to be proven.
func hope(r *relaxation) int64 { return int64(math.Ceil(r.value - 1e-6)) }

func covered(rest []int) bool {
	return !slices.ContainsFunc(rest, func(n int) bool { return n > 0 })
}

// way is a column with what it costs over the dual, in the dual's units.
type way struct {
	column
	over int64
}

// ways lists the columns that cover a class and could lead to something better, the
// most promising first. Columns that come to the same are listed once.
func (s *search) ways(class int, rest, stock []int, d *dual, base int64) []way {
	var out []way
	gap := s.gap(d, base)
	seen := map[string]bool{}
	left, slots := slices.Clone(rest), make([]int, len(rest))
	for k := range s.kinds {
		kd := &s.kinds[k]
		if !s.open(k, stock) {
			continue
		}
		g, worth := s.geos[kd.geo], d.worths[kd.geo]
		for kept := range kd.free {
			over := s.cost(k, uint8(kept))*d.scale + d.over[k]
			if kd.counted {
				over += d.over[len(s.kinds)]
			}
			copy(left, rest)
			for i, h := range kd.home {
				if kept&(1<<i) != 0 && left[h.class] > 0 {
					over -= d.values[h.class]
					left[h.class]--
				}
			}
			var fill func(free uint8, over int64)
			fill = func(free uint8, over int64) {
				if !s.work.spend(400) || len(out) == maxColumns {
					s.whole = false
					return
				}
				if over-worth.of(free) > gap {
					return
				}
				if free == 0 {
					s.work.spend(1000)
					key := s.key(left, []int{k, int(kd.staying[kept])})
					if left[class] < rest[class] && !seen[key] {
						seen[key] = true
						out = append(out, way{s.column(k, uint8(kept), slices.Clone(slots)), over})
					}
					return
				}
				low := bits.TrailingZeros8(free)
				for _, sp := range g.byLow[low] {
					if sp.slices&^free != 0 {
						continue
					}
					for c := range s.classes {
						if left[c] <= 0 || s.classes[c].fits[kd.geo]&(1<<sp.profile) == 0 ||
							s.passed(c, left, kd.geo, sp.profile) {
							continue
						}
						left[c]--
						slots[c]++
						fill(free&^sp.slices, over-d.values[c])
						left[c]++
						slots[c]--
					}
				}
				fill(free&(free-1), over)
			}
			fill(kd.free[kept], over)
		}
	}
	slices.SortStableFunc(out, func(a, b way) int { return cmp.Compare(a.over, b.over) })
	return out
}

// passed reports whether a harder class could take a place: giving it that one is never
// worse, as whatever place it would have had serves the other.
func (s *search) passed(c int, left []int, geo, profile int) bool {
	return slices.ContainsFunc(s.harder[c], func(h int) bool {
		return left[h] > 0 && s.classes[h].fits[geo]&(1<<profile) != 0
	})
}

func (s *search) key(rest, stock []int) string {
	b := make([]byte, 0, 2*(len(rest)+len(stock)))
	for _, n := range rest {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for _, n := range stock {
		b = binary.AppendUvarint(b, uint64(n+1))
	}
	return string(b)
}
