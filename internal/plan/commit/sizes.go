package commit

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/price"
)

// pool is keys that reserved machines cover together: the sizes of one family in one region,
// or a single key.
type pool struct{ family, rest string }

// sizeOf returns the pool of a key, and the units of one of its machines: quarters of AWS's
// normalization factor, or 1 where the key is alone ([price.SizeFlexible]).
func sizeOf(key string) (pool, int64) {
	machineType, region, _ := strings.Cut(key, "/")
	if units := price.SizeFactor(machineType); units > 0 && price.SizeFlexible(machineType) {
		return pool{price.Family(machineType), region}, units
	}
	return pool{"", key}, 1
}

// flexibleKey reports whether reserved machines of a key may cover other sizes too.
func flexibleKey(key string) bool {
	p, _ := sizeOf(key)
	return p.family != ""
}

// covered lists the keys that an offer covers, by index: those of a savings plan in their
// order, those of reserved machines from the smallest size to the largest, as AWS applies them.
func (d *demand) covered(o Offer) []int {
	if o.Kind == SavingsPlan || o.OneSize {
		return d.matching(o.Key)
	}
	var out []int
	own, _ := sizeOf(o.Key)
	for k, p := range d.pools {
		if p == own {
			out = append(out, k)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(d.units[a], d.units[b]) })
	return out
}

// units is the units of one reserved machine of an offer.
func (o Offer) units() int64 {
	if o.OneSize {
		return 1
	}
	_, units := sizeOf(o.Key)
	return units
}

// unitsOf returns the units that an offer gives for one machine of a key that it covers.
func (d *demand) unitsOf(o Offer, k int) int64 {
	if o.OneSize {
		return 1
	}
	return d.units[k]
}

// room returns the hourly coverage of a line of reserved machines, in millionths of a unit.
func (l line) room() Quantity { return Quantity(l.level*l.offer.units()) * Machine }

// flexible names the reserved machines that cover several keys.
func (d *demand) flexible(lines []line) []string {
	var names []string
	for _, l := range lines {
		if l.offer.Kind == Reserved && len(l.keys) > 1 && !slices.Contains(names, l.offer.Key) {
			names = append(names, l.offer.Key)
		}
	}
	return names
}

// sizePool is a pool in a model.
type sizePool struct {
	// keys are those of the pool from the smallest size on, order the same by dollars a
	// unit in the hour that was looked at last.
	keys, order []int
	vars        []int
	// held is the hourly coverage of existing reserved machines of any size, in units; nil if there
	// are none.
	held []float64
}

// slope is dollars an hour for a unit of a key.
func (m *model) slope(k, t int) float64 { return m.rate[k][t] / m.unit[k] }

// pooled lays out the pools of a model, with what is held of them.
func (m *model) pooled(held []line) {
	at := map[pool]int{}
	for k, p := range m.d.pools {
		i, ok := at[p]
		if !ok {
			i = len(m.pools)
			at[p], m.pools = i, append(m.pools, sizePool{})
		}
		m.pools[i].keys = append(m.pools[i].keys, k)
	}
	for i := range m.pools {
		p := &m.pools[i]
		slices.SortStableFunc(p.keys, func(a, b int) int { return cmp.Compare(m.d.units[a], m.d.units[b]) })
		p.order = slices.Clone(p.keys)
		for _, k := range p.keys {
			m.poolOf[k] = i
		}
	}
	for _, l := range held {
		if l.offer.Kind != Reserved || len(l.keys) == 0 {
			continue
		}
		if l.offer.OneSize {
			for _, k := range l.keys {
				for t := range l.until {
					m.need[k][t] = max(0, m.need[k][t]-float64(l.level))
				}
			}
			continue
		}
		p := &m.pools[m.poolOf[l.keys[0]]]
		if p.held == nil {
			p.held = make([]float64, m.d.hours)
		}
		for t := range l.until {
			p.held[t] += float64(l.level * l.offer.units())
		}
	}
}

// remaining is the units of a pool that run in an hour and that nothing held covers, and the
// most dollars that one of them costs.
func (m *model) remaining(p *sizePool, t int) (units, slope float64) {
	for _, k := range p.keys {
		if need := m.need[k][t]; need > 0 {
			units, slope = units+need*m.unit[k], max(slope, m.slope(k, t))
		}
	}
	if p.held != nil {
		units -= p.held[t]
	}
	return max(0, units), slope
}

// mostOf is the most machines of a reserved offer that anything could use.
func (m *model) mostOf(v variable) float64 {
	if v.offer.OneSize {
		return math.Ceil(slices.Max(m.need[v.keys[0]]))
	}
	most, p := 0.0, &m.pools[m.poolOf[v.keys[0]]]
	for t := range m.d.hours {
		units, _ := m.remaining(p, t)
		most = max(most, units)
	}
	return math.Ceil(most / float64(v.unit))
}

// dominated drops reserved offers of several sizes of one family that a smaller one makes
// needless: it divides them, and a unit of it costs no more.
func (m *model) dominated(vars []variable) []variable {
	out := slices.Clone(vars)
	return slices.DeleteFunc(out, func(v variable) bool {
		return slices.ContainsFunc(vars, func(w variable) bool {
			itself := v.offer.Key == w.offer.Key && !v.offer.OneSize
			apart := m.poolOf[v.keys[0]] != m.poolOf[w.keys[0]] || v.unit%w.unit != 0
			if w.offer.OneSize || itself || apart {
				return false
			}
			one, err := w.charged.Mul(v.unit, w.unit)
			return err == nil && one <= v.charged
		})
	})
}

// sizesAgree reports whether a pool's smallest sizes cost the most dollars a unit in every hour, so
// that the provider's order of sizes is the one that covers the most.
func (m *model) sizesAgree(p *sizePool) bool {
	const tie = 1 + 1e-9
	for t := range m.d.hours {
		least := 0.0
		for i, k := range p.keys {
			if m.need[k][t] == 0 {
				continue
			}
			slope := m.slope(k, t)
			if i > 0 && least > 0 && slope > least*tie {
				return false
			}
			least = slope
		}
	}
	return true
}

// widened returns a set of keys with the whole pool of each that reserved machines cover: a
// savings plan that covers more can only cost less, so that the bound still holds.
func (m *model) widened(set []int) []int {
	out := slices.Clone(set)
	for _, k := range set {
		if p := &m.pools[m.poolOf[k]]; len(p.vars) > 0 || p.held != nil {
			out = append(out, p.keys...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
