package mig

import (
	"cmp"
	"slices"
)

// spot is a legal placement, with its slices as a bit set.
type spot struct {
	profile, start int
	slices         uint8
}

// geometry is a model's placements prepared for search.
type geometry struct {
	Model
	spots []spot
	// byLow holds the spots by lowest slice.
	byLow [maxMemorySlices][]spot
	full  uint8
	// within[q] are the profiles, as bits, that fit into every placement of profile q.
	within []uint32
	// room is the most of each profile that fits into a set of free slices.
	room [][]int8
}

func newGeometry(m Model) (*geometry, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	g := &geometry{Model: m, full: uint8(1<<m.MemorySlices - 1), within: make([]uint32, len(m.Profiles))}
	for i, p := range m.Profiles {
		for _, start := range p.Starts {
			s := spot{i, start, uint8((1<<p.MemorySlices - 1) << start)}
			g.spots = append(g.spots, s)
			g.byLow[start] = append(g.byLow[start], s)
		}
	}
	slices.SortStableFunc(g.spots, func(a, b spot) int { return cmp.Compare(a.start, b.start) })
	for q := range m.Profiles {
		for p := range m.Profiles {
			if p == q || g.inside(p, q) {
				g.within[q] |= 1 << p
			}
		}
	}
	g.room = make([][]int8, 1<<m.MemorySlices)
	for free := range g.room {
		g.room[free] = g.most(uint8(free))
	}
	return g, nil
}

// most counts how many instances of each profile alone fit into a set of free slices. All
// placements of a profile have one size, so taking the earliest first is optimal.
func (g *geometry) most(free uint8) []int8 {
	out := make([]int8, len(g.Profiles))
	for i, p := range g.Profiles {
		left := free
		for _, s := range g.spots {
			if s.profile == i && s.slices&^left == 0 && (out[i] == 0 || !p.MediaEngines) {
				left &^= s.slices
				out[i]++
			}
		}
	}
	return out
}

// inside reports whether every placement of q contains one of p.
func (g *geometry) inside(p, q int) bool {
	for _, outer := range g.spots {
		if outer.profile != q {
			continue
		}
		held := false
		for _, inner := range g.spots {
			held = held || (inner.profile == p && inner.slices&^outer.slices == 0)
		}
		if !held {
			return false
		}
	}
	return true
}

// spot returns the placement of a profile at a start.
func (g *geometry) spot(profile, start int) (spot, bool) {
	for _, s := range g.spots {
		if s.profile == profile && s.start == start {
			return s, true
		}
	}
	return spot{}, false
}

// slim drops profiles that contain another usable one, because a larger profile is never of use. Of
// two that contain each other the first stays.
func (g *geometry) slim(profiles uint32) uint32 {
	var out uint32
	for q := range g.Profiles {
		wasteful := false
		for p := range g.Profiles {
			inside := p != q && profiles&(1<<p) != 0 && g.within[q]&(1<<p) != 0
			wasteful = wasteful || (inside && (p < q || g.within[p]&(1<<q) == 0))
		}
		if profiles&(1<<q) != 0 && !wasteful {
			out |= 1 << q
		}
	}
	return out
}

// fitting returns as bits the profiles with at least a memory and compute. It includes no media
// engines, and double memory only if allowed.
func (g *geometry) fitting(gib float64, slices int, double bool) uint32 {
	var out uint32
	for i, p := range g.Profiles {
		if !p.MediaEngines && (double || !p.DoubleMemory) && p.ComputeSlices >= slices && g.atLeastGiB(i) >= gib {
			out |= 1 << i
		}
	}
	return out
}
