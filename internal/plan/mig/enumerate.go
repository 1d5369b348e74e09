package mig

import "slices"

// Counts is the number of ways to divide a GPU. "+me" profiles are omitted, because they share the
// placements of the plain ones.
type Counts struct {
	Schema string `json:"schema"`
	GPU    string `json:"gpu"`
	// DoubleMemory reports that each instance gets twice the memory slices.
	DoubleMemory bool `json:"double_memory"`
	// PlacementSets counts sets of disjoint placements, Multisets the distinct multisets of their
	// profiles; both include the empty set.
	PlacementSets int `json:"placement_sets"`
	Multisets     int `json:"multisets"`
	// MaximalSets counts sets to which no placement can be added, MaximalMultisets their distinct
	// multisets, even if one contains another.
	MaximalSets      int `json:"maximal_sets"`
	MaximalMultisets int `json:"maximal_multisets"`
}

// Enumerate counts the divisions of a GPU by visiting each. It returns an error for an invalid
// model.
func Enumerate(m Model, doubleMemory bool) (Counts, error) {
	g, err := newGeometry(m)
	if err != nil {
		return Counts{}, err
	}
	c := Counts{Schema: Schema, GPU: m.Name, DoubleMemory: doubleMemory}
	all, maximal := map[string]bool{}, map[string]bool{}
	g.divisions(doubleMemory, func(multiset []byte, whole bool) {
		c.PlacementSets++
		all[string(multiset)] = true
		if whole {
			c.MaximalSets++
			maximal[string(multiset)] = true
		}
	})
	c.Multisets, c.MaximalMultisets = len(all), len(maximal)
	return c, nil
}

// divisions visits every set of disjoint placements with the number of each profile, and whether
// the set is maximal.
func (g *geometry) divisions(doubleMemory bool, visit func(multiset []byte, maximal bool)) {
	spots := slices.DeleteFunc(slices.Clone(g.spots), func(s spot) bool {
		p := g.Profiles[s.profile]
		return p.MediaEngines || (p.DoubleMemory && !doubleMemory)
	})
	multiset := make([]byte, len(g.Profiles))
	var add func(from int, used uint8)
	add = func(from int, used uint8) {
		visit(multiset, !slices.ContainsFunc(spots, func(s spot) bool { return s.slices&used == 0 }))
		for i, s := range spots[from:] {
			if s.slices&used == 0 {
				multiset[s.profile]++
				add(from+i+1, used|s.slices)
				multiset[s.profile]--
			}
		}
	}
	add(0, 0)
}
