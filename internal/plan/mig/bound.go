package mig

import "math"

// dual proves a lower bound in multiples of 1/scale: values are the worth of covering one more
// workload of a class; over is, by kind, the value that a GPU could hold beyond its cost, and after
// those the worth of one more GPU within the limit. By weak duality of the covering program, no
// solution costs less than the values of the demand less over for all the stock, provided over is 0
// if there is no limit.
type dual struct {
	scale        int64
	values, over []int64
	worths       []*worth[int64]
	total        int64
}

// bound returns the cost that the dual proves.
func (d *dual) bound() int64 { return ceil(d.total, d.scale) }

// maxDenominator far exceeds the denominators of optimal values, which are ratios of minors of
// matrices with a handful of entries up to seven.
const maxDenominator = 120

// proven returns the dual with the best bound near the dual values of a relaxation. The result is
// exact even if the relaxation is not. Optimal values are ratios of small numbers, so small common
// denominators are tried. A bound of target suffices.
func (p *program) proven(demand, stock []int, r *relaxation, target int64, w *work) *dual {
	y := make([]float64, len(r.classes))
	for c, v := range r.classes {
		if v > 0 { // and so a number
			y[c] = min(v, float64(p.classes[c].penalty))
		}
	}
	// If a GPU without limit would hold more than it costs, raise the worth of the limit or lower
	// all values.
	place, shrink := 0.0, 1.0
	if r.limit < 0 {
		place = -r.limit
	}
	worths := make([]*worth[float64], len(p.geos))
	for k := range p.kinds {
		kd := &p.kinds[k]
		if stock[k] != unlimited || !p.open(k, stock) {
			continue
		}
		if worths[kd.geo] == nil {
			worths[kd.geo] = newWorth(p, kd.geo, y)
		}
		// A kind without limit counts: it is GPUs to come.
		if most := worths[kd.geo].of(kd.free[0]); stock[len(p.kinds)] != unlimited {
			place = max(place, most-float64(p.price))
		} else {
			shrink = max(shrink, most/float64(p.price))
		}
	}
	best, _ := p.dual(demand, stock, make([]int64, len(y)), 0, 1)
	for scale := int64(1); scale <= maxDenominator && best.bound() < target; scale++ {
		near := scale == maxDenominator || nearWhole(place*float64(scale))
		whole := make([]int64, len(y))
		for c, v := range y {
			v = v / shrink * float64(scale)
			near = near && (scale == maxDenominator || nearWhole(v))
			whole[c] = min(int64(v+1e-6), p.classes[c].penalty*scale)
		}
		if !near {
			continue
		}
		w.spend(int64(len(p.kinds)*500 + 5000))
		if d, ok := p.dual(demand, stock, whole, int64(math.Ceil(place*float64(scale)-1e-6)), scale); ok &&
			d.bound() > best.bound() {
			best = d
		}
	}
	return best
}

func nearWhole(v float64) bool { return math.Abs(v-math.Round(v)) < 1e-5 }

// dual computes the bound of integral values; ok is false if a GPU without limit would hold more
// than it costs.
func (p *program) dual(demand, stock []int, values []int64, place, scale int64) (d *dual, ok bool) {
	n := len(p.kinds)
	d = &dual{scale: scale, values: values, over: make([]int64, n+1), worths: make([]*worth[int64], len(p.geos))}
	for c, v := range values {
		d.total += v * int64(demand[c])
	}
	if stock[n] != unlimited {
		d.over[n] = place
		d.total -= place * int64(stock[n])
	}
	for k := range p.kinds {
		kd := &p.kinds[k]
		if d.worths[kd.geo] == nil {
			d.worths[kd.geo] = newWorth(p, kd.geo, values)
		}
		if !p.open(k, stock) {
			continue
		}
		over, _ := most(p, k, values, d.worths[kd.geo], scale)
		if kd.counted {
			over -= d.over[n]
		}
		if over > 0 && stock[k] == unlimited {
			return d, false
		}
		d.over[k] = max(0, over)
		d.total -= d.over[k] * int64(max(0, stock[k]))
	}
	return d, true
}

// ceil divides, rounding up.
func ceil(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
