package mig

import (
	"context"
	"math"
)

// relaxation is the program with parts of GPUs allowed, solved.
type relaxation struct {
	value float64
	// classes are the dual values: what one more of a class costs.
	classes []float64
	// limit is the effect of one more GPU within the limit, 0 or less.
	limit float64
	// shares are the columns used and how much of each.
	shares []share
}

type share struct {
	column
	amount float64
}

// basic is a column of the basis: coefficients by row, and what it stands for.
type basic struct {
	rows   []int
	values []float64
	cost   float64
	// class is the class that is left out, where left is true; way a column otherwise, nil for
	// slack.
	left  bool
	class int
	way   *column
}

// maxRows bounds the memory of a relaxation, whose inverse is a square. A program
// with more classes and kinds is filled up as it stands and not proven.
const maxRows = 1500

// relax solves the relaxation by the revised simplex method. Columns come from
// pricing, exactly: the most valued filling of a GPU is a walk along its slices. It ends early,
// with a worse solution that is still one, when its share of the work is spent.
func (p *program) relax(ctx context.Context, demand, stock []int, work *work) (*relaxation, error) {
	var rows []int // class of a row, then kind
	row := make([]int, len(p.classes))
	for c := range p.classes {
		row[c] = -1
		if demand[c] > 0 {
			row[c] = len(rows)
			rows = append(rows, c)
		}
	}
	covers := len(rows)
	limit := make([]int, len(stock)) // row of a kind, and of the limit; -1 for none
	for k := range stock {
		limit[k] = -1
		if stock[k] > 0 && (k == len(p.kinds) || p.open(k, stock)) {
			limit[k] = len(rows)
			rows = append(rows, k)
		}
	}
	m := len(rows)
	r := &relaxation{classes: make([]float64, len(p.classes))}
	if m > maxRows {
		return r, nil
	}
	worths := make([]*worth[float64], len(p.geos))
	s := &simplex{
		inverse: make([][]float64, m), amounts: make([]float64, m), basis: make([]basic, m), duals: make([]float64, m),
	}
	sides := make([]float64, m)
	for i := range m {
		s.inverse[i] = make([]float64, m)
		s.inverse[i][i] = 1
		if s.basis[i] = (basic{rows: []int{i}, values: []float64{1}}); i < covers {
			s.basis[i].left, s.basis[i].class, s.basis[i].cost = true, rows[i], float64(p.classes[rows[i]].penalty)
			sides[i] = float64(demand[rows[i]])
		} else {
			sides[i] = float64(stock[rows[i]])
		}
		// Sides that are a little off keep the method from going in circles; they are
		// put right at the end.
		_, part := math.Modf(float64(i+1) * math.Phi)
		s.amounts[i] = sides[i] + 1e-6*(1+part)
	}
	const tolerance = 1e-8
	for steps := 0; steps < 200+40*m && work.spend(int64(m*m*2+len(p.kinds)*500+5000)); steps++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.price()
		for c := range p.classes {
			if r.classes[c] = 0; row[c] >= 0 {
				r.classes[c] = s.duals[row[c]]
			}
		}
		entering, gain := basic{}, tolerance
		for i, d := range s.duals {
			switch {
			case i < covers && -d > gain: // cover more than is asked
				entering, gain = basic{rows: []int{i}, values: []float64{-1}}, -d
			case i < covers && d-float64(p.classes[rows[i]].penalty) > gain:
				c := rows[i]
				entering = basic{
					rows: []int{i}, values: []float64{1}, left: true, class: c, cost: float64(p.classes[c].penalty),
				}
				gain = d - entering.cost
			case i >= covers && d > gain: // leave one unused
				entering, gain = basic{rows: []int{i}, values: []float64{1}}, d
			}
		}
		if c, ok := p.enter(r.classes, s.duals, limit, stock, worths, &gain); ok {
			entering = basic{cost: float64(c.cost), way: &c}
			for cl, n := range c.cover {
				if n > 0 && row[cl] >= 0 {
					entering.rows, entering.values = append(entering.rows, row[cl]), append(
						entering.values, float64(n))
				}
			}
			for _, l := range p.limits(c.kind, limit) {
				if l >= 0 {
					entering.rows, entering.values = append(entering.rows, l), append(entering.values, 1)
				}
			}
		}
		if gain <= tolerance || !s.pivot(entering) {
			break
		}
	}
	s.price()
	for c := range p.classes {
		if row[c] >= 0 {
			r.classes[c] = max(0, s.duals[row[c]])
		}
	}
	if l := limit[len(p.kinds)]; l >= 0 {
		r.limit = min(0, s.duals[l])
	}
	for i, b := range s.basis {
		var amount float64
		for j, v := range s.inverse[i] {
			amount += v * sides[j]
		}
		r.value += b.cost * amount
		if amount > 1e-7 && b.way != nil {
			r.shares = append(r.shares, share{*b.way, amount})
		}
	}
	return r, nil
}

// enter prices all ways to use a GPU and returns the one that gains the most, if
// more than gain.
func (p *program) enter(classes, duals []float64, limit, stock []int, worths []*worth[float64], gain *float64) (column,
	bool) {
	for geo := range worths {
		if worths[geo] == nil {
			worths[geo] = newWorth(p, geo, classes)
		} else {
			worths[geo].reset(p, geo, classes)
		}
	}
	at, kept := -1, uint8(0)
	for k := range p.kinds {
		kd := &p.kinds[k]
		if !p.open(k, stock) {
			continue
		}
		v, subset := most(p, k, classes, worths[kd.geo], 1)
		for _, l := range p.limits(k, limit) {
			if l >= 0 {
				v += duals[l]
			}
		}
		if v > *gain {
			*gain, at, kept = v, k, subset
		}
	}
	if at < 0 {
		return column{}, false
	}
	kd := &p.kinds[at]
	return p.column(at, kept, worths[kd.geo].slots(kd.free[kept])), true
}

// limits are the rows that bound a kind, its stock and the limit; -1 where nothing
// does.
func (p *program) limits(k int, limit []int) [2]int {
	out := [2]int{limit[k], -1}
	if p.kinds[k].counted {
		out[1] = limit[len(p.kinds)]
	}
	return out
}

// simplex is the state of the revised simplex method with an explicit inverse.
type simplex struct {
	inverse [][]float64
	amounts []float64
	basis   []basic
	duals   []float64
}

// price works out the duals.
func (s *simplex) price() {
	clear(s.duals)
	for i, b := range s.basis {
		if b.cost == 0 {
			continue
		}
		for j, v := range s.inverse[i] {
			s.duals[j] += b.cost * v
		}
	}
}

// pivot takes a column into the basis; false if it would be without bound, which rounding alone can
// bring about.
func (s *simplex) pivot(in basic) bool {
	const small = 1e-9
	direction := make([]float64, len(s.basis))
	out, ratio := -1, math.Inf(1)
	for i := range s.basis {
		for j, r := range in.rows {
			direction[i] += s.inverse[i][r] * in.values[j]
		}
		if direction[i] <= small {
			continue
		}
		// Of equal ratios the larger pivot is the steadier.
		if q := max(0, s.amounts[i]) / direction[i]; q < ratio-small ||
			(q < ratio+small && direction[i] > direction[out]) {
			out, ratio = i, q
		}
	}
	if out < 0 {
		return false
	}
	pivot := s.inverse[out]
	for j := range pivot {
		pivot[j] /= direction[out]
	}
	for i, d := range direction {
		if i == out {
			continue
		}
		s.amounts[i] = max(0, s.amounts[i]-d*ratio)
		if d == 0 {
			continue
		}
		for j, v := range pivot {
			s.inverse[i][j] -= d * v
		}
	}
	s.amounts[out], s.basis[out] = ratio, in
	return true
}
