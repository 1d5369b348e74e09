package mig

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// stay is the solution that moves nothing: today's GPUs are filled up, then new
// ones, each with the best that is left by how much of a GPU it needs.
func (p *program) stay() solution {
	rest, stock := p.demand(), p.supply()
	values := make([]float64, len(p.classes))
	var out solution
	use := func(k int, kept uint8) bool {
		kd := &p.kinds[k]
		g := p.geos[kd.geo]
		for c := range values {
			values[c] = 0
			if fits := p.classes[c].fits[kd.geo]; fits != 0 && rest[c] > 0 {
				// Larger ones first: a little more than in proportion to their slices.
				size := float64(g.Profiles[bits.TrailingZeros32(fits)].MemorySlices)
				values[c] = size * (1 + size/64)
			}
		}
		slots := newWorth(p, kd.geo, values).slots(kd.free[kept])
		col := p.column(k, kept, slots)
		if !slices.ContainsFunc(col.cover, func(n int) bool { return n > 0 }) {
			return false
		}
		// As often as it is filled with what is left, at least once.
		n := stock[k]
		if n == unlimited {
			n = math.MaxInt
		}
		for c, m := range slots {
			if m > 0 {
				n = min(n, max(1, rest[c]/m))
			}
		}
		if kept != 0 {
			n = 1
		}
		out.picks = append(out.picks, pick{col, n})
		out.cost += col.cost * int64(n)
		for c, m := range slots {
			rest[c] = max(0, rest[c]-m*n)
		}
		if stock[k] != unlimited {
			stock[k] -= n
		}
		return true
	}
	for k := range p.kinds {
		for _, h := range p.kinds[k].home {
			rest[h.class] -= stock[k]
		}
	}
	for k := range p.kinds {
		for n := stock[k]; n > 0 && len(p.kinds[k].home) > 0; n-- {
			use(k, uint8(len(p.kinds[k].free)-1))
		}
	}
	for k := range p.kinds {
		for stock[k] != 0 && len(p.kinds[k].home) == 0 && use(k, 0) {
		}
	}
	for c, n := range rest {
		out.cost += int64(n) * p.classes[c].penalty
	}
	return out
}

// dive rounds one relaxation after the other until the demand is covered.
func (s *search) dive(demand, stock []int) error {
	rest, left := slices.Clone(demand), slices.Clone(stock)
	var base solution
	for !covered(rest) {
		r, err := s.relax(s.ctx, rest, left, &s.work)
		if err != nil {
			return err
		}
		taken := len(base.picks)
		if base = s.floors(base, r, rest, left); len(base.picks) > taken {
			continue
		}
		if len(r.shares) == 0 {
			break
		}
		most := slices.MaxFunc(r.shares, func(a, b share) int { return cmp.Compare(a.amount, b.amount) })
		base = s.with(base, s.refill(most.column, rest, r.classes), 1, rest, left)
	}
	s.better(base, rest, left)
	return nil
}

// refill fills the slots of a column again, with what is left of each class: a
// relaxation may count on more of one than there is.
func (s *search) refill(c column, rest []int, values []float64) column {
	kd := &s.kinds[c.kind]
	free := kd.free[c.kept]
	left, worths, slots := slices.Clone(rest), slices.Clone(values), make([]int, len(rest))
	for i, h := range kd.home {
		if c.kept&(1<<i) != 0 {
			left[h.class]--
		}
	}
	for cl := range worths {
		// What is worth nothing now still fills a slice that would be empty.
		if worths[cl] = max(worths[cl], 1e-6); left[cl] <= 0 {
			worths[cl] = 0
		}
	}
	w := newWorth(s.program, kd.geo, worths)
	for free != 0 {
		sp, cl, ok := w.lowest(free)
		if free &^= sp.slices; !ok {
			continue
		}
		slots[cl]++
		if left[cl]--; left[cl] == 0 {
			worths[cl] = 0
			w = newWorth(s.program, kd.geo, worths)
		}
	}
	return s.column(c.kind, c.kept, slots)
}

// floors adds the whole parts of a relaxation.
func (s *search) floors(base solution, r *relaxation, rest, stock []int) solution {
	for _, sh := range r.shares {
		if n := int(sh.amount + 1e-6); n > 0 {
			base = s.with(base, sh.column, n, rest, stock)
		}
	}
	return base
}

// repair improves the best solution piece by piece: a few of its GPUs are emptied,
// together with some that are not in use, and filled again as well as they can be.
func (s *search) repair() error {
	const pieces, size = 2000, 5
	part := s.work.left / 100
	rng := rand.New(rand.NewPCG(1, 1)) // chance, and the same each time
	for range pieces {
		if s.best.cost <= s.lower || s.work.left <= 0 || len(s.best.picks) == 0 {
			break
		}
		var units []column
		for _, p := range s.best.picks {
			for range p.n {
				units = append(units, p.column)
			}
		}
		s.work.spend(int64(len(units) * 200))
		rng.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
		rest, stock := s.demand(), s.supply()
		var base solution
		for _, c := range units[min(size, len(units)):] {
			s.draw(c, 1, rest, stock)
			base.picks = append(base.picks, pick{c, 1})
			base.cost += c.cost
		}
		// Of the GPUs that are not in use only a few may come in.
		spare, used := 3, make([]int, len(s.kinds))
		for _, c := range units[:min(size, len(units))] {
			used[c.kind]++
		}
		for _, k := range rng.Perm(len(s.kinds)) {
			if stock[k] > used[k] {
				more := min(spare, stock[k]-used[k])
				spare -= more
				stock[k] = used[k] + more
			}
		}
		if err := s.within(part, rest, stock, base); err != nil {
			return err
		}
	}
	return nil
}
