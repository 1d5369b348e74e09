package commit

// cut is a plane below a convex function: rest(z) ≥ beta + g·z.
type cut struct {
	beta float64
	g    []float64
}

// at is the height of the plane over a point.
func (c cut) at(z []float64) float64 {
	v := c.beta
	for k, g := range c.g {
		v += g * z[k]
	}
	return v
}

// master is the linear program that cutting planes pose: the least a·z + η with η above
// every cut and z within a box. It is solved by the simplex method on its dual, where a
// cut is a column and a box only weights: both may change and the basis stays feasible.
//
//	most Σ λβ + Σ lo·ν − Σ hi·µ   where   Σ λ(−g) + ν − µ = a,   Σ λ = 1,   λ, µ, ν ≥ 0
//
// The columns are ν, µ and then λ; the first cut is η ≥ 0.
type master struct {
	a     []float64
	cuts  []cut
	rows  [][]float64
	right []float64
	basis []int
}

// Tolerances of the simplex method on numbers that are scaled to about 1.
const (
	pivotLeast   = 1e-9
	gainLeast    = 1e-11
	pivotsAtMost = 2000
)

func newMaster(a []float64) *master {
	n := len(a)
	m := &master{a: a, cuts: []cut{{g: make([]float64, n)}}}
	for r := range n + 1 {
		row := make([]float64, 2*n+1)
		if r < n {
			row[r], row[n+r] = 1, -1
			m.right, m.basis = append(m.right, a[r]), append(m.basis, r)
		} else {
			row[2*n] = 1
			m.right, m.basis = append(m.right, 1), append(m.basis, 2*n)
		}
		m.rows = append(m.rows, row)
	}
	return m
}

// add appends a cut. The inverse of the basis stands in the columns that began as the
// identity: ν and the first cut.
func (m *master) add(c cut) {
	n := len(m.a)
	m.cuts = append(m.cuts, c)
	for r, row := range m.rows {
		v := row[2*n]
		for k, g := range c.g {
			v -= g * row[k]
		}
		m.rows[r] = append(row, v)
	}
}

// solve returns the lowest point of the cuts in a box, and a bound that holds however
// exact the arithmetic was: any weights of the cuts make one.
func (m *master) solve(lo, hi []float64) (z []float64, bound float64) {
	n := len(m.a)
	weight := func(j int) float64 {
		switch {
		case j < n:
			return lo[j]
		case j < 2*n:
			return -hi[j-n]
		}
		return m.cuts[j-2*n].beta
	}
	gain := make([]float64, len(m.rows[0]))
	for j := range gain {
		gain[j] = weight(j)
	}
	for r, b := range m.basis {
		if w := weight(b); w != 0 {
			for j, v := range m.rows[r] {
				gain[j] -= w * v
			}
		}
	}
	for step := range pivotsAtMost {
		in := m.entering(gain, step > pivotsAtMost/2)
		if in < 0 {
			break
		}
		out := m.leaving(in)
		if out < 0 {
			break // only rounding makes the dual of a bounded program unbounded
		}
		m.pivot(out, in, gain)
	}
	z = make([]float64, n)
	for k := range z {
		z[k] = min(max(lo[k]-gain[k], lo[k]), hi[k])
	}
	return z, m.bound(lo, hi)
}

// entering picks the column that gains most, or the first one where that may go round
// in circles.
func (m *master) entering(gain []float64, first bool) int {
	in, most := -1, gainLeast
	for j, g := range gain {
		if g > most {
			in, most = j, g
			if first {
				break
			}
		}
	}
	return in
}

func (m *master) leaving(in int) int {
	out, least := -1, 0.0
	for r, row := range m.rows {
		if row[in] <= pivotLeast {
			continue
		}
		ratio := m.right[r] / row[in]
		if out < 0 || ratio < least || ratio == least && m.basis[r] < m.basis[out] {
			out, least = r, ratio
		}
	}
	return out
}

func (m *master) pivot(out, in int, gain []float64) {
	row := m.rows[out]
	by := 1 / row[in]
	for j := range row {
		row[j] *= by
	}
	row[in] = 1
	m.right[out] *= by
	m.basis[out] = in
	clear := func(other []float64) float64 {
		f := other[in]
		if f != 0 {
			for j, v := range row {
				other[j] -= f * v
			}
			other[in] = 0
		}
		return f
	}
	for r := range m.rows {
		if r != out {
			m.right[r] = max(0, m.right[r]-clear(m.rows[r])*m.right[out])
		}
	}
	clear(gain)
}

// bound returns the bound that the weights of the cuts prove: the lowest value in the box of the
// plane that they make together.
func (m *master) bound(lo, hi []float64) float64 {
	n := len(m.a)
	total, beta := 0.0, 0.0
	slope := make([]float64, n)
	for r, b := range m.basis {
		if b < 2*n || m.right[r] <= 0 {
			continue
		}
		w := m.right[r]
		total += w
		beta += w * m.cuts[b-2*n].beta
		for k, g := range m.cuts[b-2*n].g {
			slope[k] += w * g
		}
	}
	if total == 0 {
		total = 1 // no cut weighs: the first one does, η ≥ 0
	}
	v := beta / total
	for k := range slope {
		s := m.a[k] + slope[k]/total
		v += min(s*lo[k], s*hi[k])
	}
	return v
}
