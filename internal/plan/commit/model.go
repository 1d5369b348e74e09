package commit

import (
	"cmp"
	"math"
	"slices"

	"github.com/curfew-dev/curfew/internal/money"
)

// variable is how much of an offer to buy.
type variable struct {
	offer Offer
	keys  []int
	// upper is the most of it that anything could use: machines, or dollars an hour at
	// on-demand prices.
	upper float64
	// unit is the units of one reserved machine in its pool, charged what one costs over the
	// window.
	unit    int64
	charged money.Amount
	// node is where in the tree a savings plan covers.
	node int
}

// level is a share of the upper bound in the unit of a line.
func (v variable) level(z float64) int64 {
	if v.offer.Kind == Reserved {
		return int64(math.Round(z * v.upper))
	}
	return int64(math.Round(z * v.upper * (1 - v.offer.Discount.Share()) * float64(money.USD)))
}

// node is a set of keys that savings plans cover. Sets are nested or apart: what a node
// leaves goes on to the node around it.
type node struct {
	keys   []int
	parent int
	vars   []int
	// fixed is the hourly coverage of existing plans, in dollars at on-demand prices.
	fixed []float64
}

// model is the cost of a group of keys as a convex function of what is bought, in shares
// of the upper bounds, and money in shares of what the group costs on demand.
type model struct {
	d     *demand
	vars  []variable
	nodes []node
	// home is the node that a key enters, −1 where no savings plan covers it; poolOf is the
	// pool of its size.
	home, poolOf []int
	pools        []sizePool
	// need is machines, less existing reserved ones of one size; rate is dollars.
	need, rate [][]float64
	// unit is the units of one machine, by key.
	unit  []float64
	scale float64
	a     []float64
	// exact is true if the function is what a replay costs. Otherwise it is less: savings plans
	// that cross cover more keys in it, existing ones give way to others, and reserved machines
	// cover the sizes first that cost the most a unit.
	exact bool
}

func newModel(d *demand, offers []Offer, held []line) *model {
	m := choose(d, offers, held)
	m.prune()
	m.grow(held)
	for _, v := range m.vars {
		if v.offer.Kind == Reserved {
			m.a = append(m.a, v.upper*float64(v.charged)/float64(money.USD)/m.scale)
		} else {
			m.a = append(m.a, v.upper*(1-v.offer.Discount.Share())*float64(d.hours)/m.scale)
		}
	}
	return m
}

// choose starts a model with the offers that can be part of a best plan for some demand: the
// cheapest reserved machine of each key, the smallest of the sizes of a family with equal unit
// cost, and the savings plans that no other one covers with at least the same discount.
func choose(d *demand, offers []Offer, held []line) *model {
	m := &model{d: d, scale: max(float64(d.onDemand)/float64(money.USD), 1e-9), exact: true}
	for k := range d.keys {
		need, rate := make([]float64, d.hours), make([]float64, d.hours)
		for t := range need {
			rate[t] = float64(d.rate[k][t]) / float64(money.USD)
			need[t] = float64(d.need[k][t]) / float64(Machine)
		}
		m.need, m.rate = append(m.need, need), append(m.rate, rate)
		m.home, m.poolOf, m.unit = append(m.home, -1), append(m.poolOf, -1), append(m.unit, float64(d.units[k]))
	}
	m.pooled(held)
	type size struct {
		key     string
		oneSize bool
	}
	var plans, reserved []variable
	at := map[size]int{}
	for _, o := range offers {
		keys := m.d.covered(o)
		if len(keys) == 0 {
			continue
		}
		if o.Kind == SavingsPlan {
			plans = append(plans, variable{offer: o, keys: keys})
			continue
		}
		one, err := o.charge(int64(m.d.hours))
		if err != nil {
			continue // more than any use costs
		}
		v := variable{offer: o, keys: keys, unit: o.units(), charged: one}
		if o.OneSize {
			v.unit = m.d.units[keys[0]]
		}
		i, ok := at[size{o.Key, o.OneSize}]
		if !ok {
			at[size{o.Key, o.OneSize}] = len(reserved)
			reserved = append(reserved, v)
		} else if cmp.Or(cmp.Compare(one, reserved[i].charged), gentler(o, reserved[i].offer)) < 0 {
			reserved[i] = v
		}
	}
	slices.SortStableFunc(reserved, func(a, b variable) int {
		return cmp.Or(cmp.Compare(slices.Min(a.keys), slices.Min(b.keys)), cmp.Compare(a.unit, b.unit))
	})
	m.vars = m.dominated(reserved)
	for i, p := range plans {
		if !slices.ContainsFunc(plans, func(q variable) bool { return better(q, p) }) &&
			!slices.ContainsFunc(plans[:i], func(q variable) bool { return !better(p, q) && same(p, q) }) {
			m.vars = append(m.vars, p)
		}
	}
	for i := range m.vars {
		v := &m.vars[i]
		if v.offer.Kind == Reserved {
			v.upper = m.mostOf(*v)
			continue
		}
		for t := range d.hours {
			sum := 0.0
			for _, k := range v.keys {
				sum += m.need[k][t] * m.rate[k][t]
			}
			v.upper = max(v.upper, sum)
		}
	}
	return m
}

// prune drops what does not pay: reserved machines of which even the first one is used
// too seldom, and all that has nothing to cover.
func (m *model) prune() {
	m.vars = slices.DeleteFunc(m.vars, func(v variable) bool {
		if v.offer.Kind == SavingsPlan {
			return v.upper == 0
		}
		first, p := 0.0, &m.pools[m.poolOf[v.keys[0]]]
		for t := range m.d.hours {
			units, slope := m.remaining(p, t)
			first += slope * min(units, float64(v.unit))
		}
		return float64(v.charged)/float64(money.USD) >= first
	})
	for i, v := range m.vars {
		if v.offer.Kind == Reserved {
			p := &m.pools[m.poolOf[v.keys[0]]]
			p.vars = append(p.vars, i)
			m.exact = m.exact && (len(p.keys) == 1 || !v.offer.OneSize)
		}
	}
	for i := range m.pools {
		if p := &m.pools[i]; len(p.keys) > 1 && (len(p.vars) > 0 || p.held != nil) {
			m.exact = m.exact && m.sizesAgree(p)
		}
	}
}

// gentler orders offers that cost the same: the one that binds shorter, then the one with
// less upfront.
func gentler(a, b Offer) int {
	return cmp.Or(cmp.Compare(a.TermMonths, b.TermMonths), cmp.Compare(a.Upfront, b.Upfront))
}

// better reports whether a savings plan does all that another does and more, or binds less.
func better(q, p variable) bool {
	if q.offer.Discount < p.offer.Discount || !within(p.keys, q.keys) {
		return false
	}
	return q.offer.Discount > p.offer.Discount || len(q.keys) > len(p.keys) || gentler(q.offer, p.offer) < 0
}

// same reports whether two savings plans cover the same at the same discount.
func same(p, q variable) bool {
	return p.offer.Discount == q.offer.Discount && slices.Equal(p.keys, q.keys)
}

// within reports whether sorted keys are all among others.
func within(keys, others []int) bool {
	for _, k := range keys {
		if _, ok := slices.BinarySearch(others, k); !ok {
			return false
		}
	}
	return true
}

// grow makes the tree. Sets that cross are widened to what they cover together: a
// savings plan that covers more can only cost less, so that the bound still holds.
func (m *model) grow(held []line) {
	var sets [][]int
	for _, v := range m.vars {
		if v.offer.Kind == SavingsPlan {
			sets = append(sets, v.keys)
		}
	}
	var existing []line
	for _, l := range held {
		if l.offer.Kind == SavingsPlan {
			keys := m.d.matching(l.offer.Key)
			existing, sets = append(existing, line{
				offer: l.offer, keys: keys, level: l.level, until: l.until,
			}), append(sets,
				keys)
		}
	}
	// The tree applies narrower plans first. So does the provider, unless a wider one that
	// exists has the higher discount.
	all := slices.Clone(existing)
	for _, v := range m.vars {
		if v.offer.Kind == SavingsPlan {
			all = append(all, line{offer: v.offer, keys: v.keys})
		}
	}
	for _, p := range all {
		m.exact = m.exact && !slices.ContainsFunc(all, func(q line) bool {
			return len(p.keys) < len(q.keys) && p.offer.Discount < q.offer.Discount && within(p.keys, q.keys)
		})
	}
	for i, set := range sets {
		sets[i] = m.widened(set)
		m.exact = m.exact && len(sets[i]) == len(set)
	}
	sets, crossed := nested(sets)
	m.exact = m.exact && !crossed
	for _, keys := range sets {
		n := node{keys: keys, parent: -1, fixed: make([]float64, m.d.hours)}
		for _, k := range keys {
			if m.home[k] < 0 {
				m.home[k] = len(m.nodes)
			}
		}
		for i := range m.nodes {
			if m.nodes[i].parent < 0 && within(m.nodes[i].keys, keys) {
				m.nodes[i].parent = len(m.nodes)
			}
		}
		m.nodes = append(m.nodes, n)
	}
	around := func(keys []int) int {
		return slices.IndexFunc(m.nodes, func(n node) bool { return within(keys, n.keys) })
	}
	for i := range m.vars {
		if v := &m.vars[i]; v.offer.Kind == SavingsPlan {
			v.node = around(v.keys)
			m.nodes[v.node].vars = append(m.nodes[v.node].vars, i)
		}
	}
	for _, e := range existing {
		n := m.nodes[around(e.keys)]
		for t := range e.until {
			n.fixed[t] += float64(capacity(e.level, e.offer.Discount)) / float64(money.USD)
		}
	}
}

// nested returns sets of sorted keys, the smaller ones first, each once, and none that
// crosses another; and whether any had to be widened.
func nested(sets [][]int) (out [][]int, crossed bool) {
	out = slices.Clone(sets)
	for again := true; again; {
		again = false
		for i := range out {
			for j := range i {
				a, b := out[i], out[j]
				apart := !slices.ContainsFunc(a, func(k int) bool { _, ok := slices.BinarySearch(b, k); return ok })
				if apart || within(a, b) || within(b, a) {
					continue
				}
				both := slices.Concat(a, b)
				slices.Sort(both)
				both = slices.Compact(both)
				out[i], out[j], again, crossed = both, both, true, true
			}
		}
	}
	slices.SortStableFunc(out, func(a, b []int) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b))
	})
	return slices.CompactFunc(out, slices.Equal), crossed
}

// rest returns the on-demand remainder when shares z of the upper bounds are bought, and a plane
// that touches it there.
func (m *model) rest(z []float64) (float64, cut) {
	g := make([]float64, len(z))
	flow, alive := make([]float64, len(m.nodes)), make([]bool, len(m.nodes))
	size := make([]float64, len(m.nodes))
	bought := make([]float64, len(m.pools)) // units
	for i, v := range m.vars {
		if v.offer.Kind == SavingsPlan {
			size[v.node] += z[i] * v.upper
		} else {
			bought[m.poolOf[v.keys[0]]] += z[i] * v.upper * float64(v.unit)
		}
	}
	// used is the key of each pool that a unit more would cover, −1 where it would be unused.
	used := make([]int, len(m.pools))
	total := 0.0
	for t := range m.d.hours {
		clear(flow)
		for i := range m.pools {
			p := &m.pools[i]
			units := bought[i]
			if p.held != nil {
				units += p.held[t]
			}
			used[i] = -1
			for _, k := range m.dearestFirst(p, t) {
				need := m.need[k][t]
				if units > 0 {
					covered := min(need, units/m.unit[k])
					units -= covered * m.unit[k]
					need -= covered
				}
				if need <= 0 {
					continue
				}
				if used[i] < 0 {
					used[i] = k
				}
				if home := m.home[k]; home >= 0 {
					flow[home] += need * m.rate[k][t]
				} else {
					total += need * m.rate[k][t]
				}
			}
		}
		for n := range m.nodes {
			if flow[n] -= size[n] + m.nodes[n].fixed[t]; flow[n] <= 0 {
				flow[n] = 0
			} else if up := m.nodes[n].parent; up >= 0 {
				flow[up] += flow[n]
			} else {
				total += flow[n]
			}
		}
		for n := len(m.nodes) - 1; n >= 0; n-- {
			up := m.nodes[n].parent
			alive[n] = flow[n] > 0 && (up < 0 || alive[up])
			if alive[n] {
				for _, i := range m.nodes[n].vars {
					g[i] -= m.vars[i].upper
				}
			}
		}
		for i, k := range used {
			if k >= 0 && (m.home[k] < 0 || alive[m.home[k]]) {
				for _, v := range m.pools[i].vars {
					g[v] -= m.vars[v].upper * float64(m.vars[v].unit) * m.slope(k, t)
				}
			}
		}
	}
	c := cut{beta: total / m.scale, g: g}
	for i := range g {
		g[i] /= m.scale
		c.beta -= g[i] * z[i]
	}
	return total / m.scale, c
}

// dearestFirst returns the keys of a pool, those first that cost the most dollars a unit.
func (m *model) dearestFirst(p *sizePool, t int) []int {
	if len(p.keys) == 1 {
		return p.keys
	}
	dearest := func(a, b int) int { return cmp.Compare(m.slope(b, t), m.slope(a, t)) }
	if !slices.IsSortedFunc(p.order, dearest) {
		slices.SortStableFunc(p.order, dearest)
	}
	return p.order
}

// cost is rest with what is charged for z.
func (m *model) cost(z []float64, rest float64) float64 {
	for i, a := range m.a {
		rest += a * z[i]
	}
	return rest
}
