package mig

import (
	"math/bits"
)

// program covers the demand of every class at minimum cost with divided GPUs. A GPU costs price, a
// kept placement earns gain, and leaving out costs the penalty of the class, which outweighs
// everything else.
type program struct {
	geos        []*geometry
	classes     []class
	kinds       []kind
	price, gain int64
	// limit bounds the counted GPUs; unlimited sets no bound.
	limit int
}

// class is a set of workloads with the same fitting profiles, which a plan need not distinguish.
type class struct {
	// fits are the useful profiles by geometry.
	fits []uint32
	// today reports that they run already.
	today bool
	// demand is their number, penalty the cost of leaving one out.
	demand  int
	penalty int64
	units   []unit
}

// unit is one workload process.
type unit struct {
	workload string
	// today is the index of its placement, -1 if it does not run yet.
	today int
}

// kind is a set of identical GPUs, including their placements of today.
type kind struct {
	geo int
	// stock is their number; unlimited means as many as needed.
	stock int
	// counted reports that a used GPU has a price and counts toward the limit.
	counted bool
	// fixed are the slices of placements that have to stay.
	fixed uint8
	// home are the placements that may stay.
	home []stay
	// free and staying hold, for every subset of home, as bits, the free slices and the number of
	// workloads that stay.
	free    []uint8
	staying []int64
	// ids names the GPUs; there are none yet of GPUs to come.
	ids []string
}

type stay struct {
	class  int
	slices uint8
}

const unlimited = -1

// newKind works out the subsets of what may stay.
func newKind(k kind, g *geometry) kind {
	k.free, k.staying = make([]uint8, 1<<len(k.home)), make([]int64, 1<<len(k.home))
	k.free[0] = g.full &^ k.fixed
	for kept := 1; kept < len(k.free); kept++ {
		rest := kept & (kept - 1)
		k.free[kept] = k.free[rest] &^ k.home[bits.TrailingZeros(uint(kept))].slices
		k.staying[kept] = k.staying[rest] + 1
	}
	return k
}

// column is one way to use a GPU of a kind.
type column struct {
	kind int
	// kept are the placements that stay, as bits of the kind's home.
	kept uint8
	// slots counts new instances by class, cover those and what stays.
	slots, cover []int
	cost         int64
}

func (p *program) column(k int, kept uint8, slots []int) column {
	c := column{kind: k, kept: kept, slots: slots, cover: append([]int(nil), slots...), cost: p.cost(k, kept)}
	for i, h := range p.kinds[k].home {
		if kept&(1<<i) != 0 {
			c.cover[h.class]++
		}
	}
	return c
}

// cost returns the cost of a GPU of a kind when some of its home stays.
func (p *program) cost(k int, kept uint8) int64 {
	c := -p.gain * p.kinds[k].staying[kept]
	if p.kinds[k].counted {
		c += p.price
	}
	return c
}

// supply is how many GPUs there are by kind, and after those the limit.
func (p *program) supply() []int {
	out := make([]int, 0, len(p.kinds)+1)
	for _, k := range p.kinds {
		out = append(out, k.stock)
	}
	return append(out, p.limit)
}

// open reports whether another GPU of a kind may be used.
func (p *program) open(k int, stock []int) bool {
	return stock[k] != 0 && (!p.kinds[k].counted || stock[len(p.kinds)] != 0)
}

// demand is how many there are of each class.
func (p *program) demand() []int {
	out := make([]int, len(p.classes))
	for c := range p.classes {
		out[c] = p.classes[c].demand
	}
	return out
}

// number is the type of class values: floating point while searching, whole numbers in proofs.
type number interface{ int64 | float64 }

// worth is the most value that fits into sets of free slices of a geometry, for
// given values of the classes. Sets are worked out as they are asked for: filling
// from the lowest slice up, a set leads to few others.
type worth[T number] struct {
	g      *geometry
	values []T
	// class is the most valued class that takes a profile, -1 for none.
	class [32]int16
	known [1 << maxMemorySlices]bool
	total [1 << maxMemorySlices]T
	// choice is the spot that takes the lowest free slice, by number in byLow; -1
	// leaves it free.
	choice [1 << maxMemorySlices]int8
}

func newWorth[T number](p *program, geo int, values []T) *worth[T] {
	w := &worth[T]{g: p.geos[geo]}
	w.reset(p, geo, values)
	return w
}

// reset starts again with other values.
func (w *worth[T]) reset(p *program, geo int, values []T) {
	w.values = values
	clear(w.known[:])
	for i := range w.class {
		w.class[i] = -1
	}
	for c, v := range values {
		for fits := p.classes[c].fits[geo]; fits != 0 && v > 0; fits &= fits - 1 {
			if i := bits.TrailingZeros32(fits); w.class[i] < 0 || v > values[w.class[i]] {
				w.class[i] = int16(c)
			}
		}
	}
}

// of returns the most value that fits into a set of free slices.
func (w *worth[T]) of(free uint8) T {
	if free == 0 || w.known[free] {
		return w.total[free]
	}
	best, choice := w.of(free&(free-1)), int8(-1)
	for i, s := range w.g.byLow[bits.TrailingZeros8(free)] {
		if c := w.class[s.profile]; c >= 0 && s.slices&^free == 0 {
			if v := w.values[c] + w.of(free&^s.slices); v > best {
				best, choice = v, int8(i)
			}
		}
	}
	w.known[free], w.total[free], w.choice[free] = true, best, choice
	return best
}

// lowest is how the lowest of some free slices is best filled: by a class in a spot,
// or not at all.
func (w *worth[T]) lowest(free uint8) (s spot, class int, ok bool) {
	w.of(free)
	i := w.choice[free]
	if i < 0 {
		return spot{slices: free & -free}, 0, false
	}
	s = w.g.byLow[bits.TrailingZeros8(free)][i]
	return s, int(w.class[s.profile]), true
}

// slots counts the classes of the best choice for a set of free slices.
func (w *worth[T]) slots(free uint8) []int {
	out := make([]int, len(w.values))
	for free != 0 {
		s, c, ok := w.lowest(free)
		if free &^= s.slices; ok {
			out[c]++
		}
	}
	return out
}

// most returns the highest value, less cost, of a way to use a GPU of a kind, and
// what stays in it; scale is the unit that values are in.
func most[T number](p *program, k int, values []T, w *worth[T], scale T) (T, uint8) {
	kd := &p.kinds[k]
	best, at := w.of(kd.free[0])-scale*T(p.cost(k, 0)), uint8(0)
	var sums [1 << maxMemorySlices]T
	for kept := 1; kept < len(kd.free); kept++ {
		sums[kept] = sums[kept&(kept-1)] + values[kd.home[bits.TrailingZeros(uint(kept))].class]
		if v := sums[kept] + w.of(kd.free[kept]) - scale*T(p.cost(k, uint8(kept))); v > best {
			best, at = v, uint8(kept)
		}
	}
	return best, at
}
