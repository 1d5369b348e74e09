package mig

import "slices"

// Counts says in how many ways a GPU can be divided. "+me" profiles are left out:
// they share the placements of their plain ones.
type Counts struct {
	Schema string `json:"schema"`
	GPU    string `json:"gpu"`
	// DoubleMemory says whether each instance gets twice the memory slices.
	DoubleMemory bool `json:"double_memory"`
	// PlacementSets counts sets of placements that do not overlap, Multisets the
	// distinct multisets of profiles among them; the empty set counts in both.
	PlacementSets int `json:"placement_sets"`
	Multisets     int `json:"multisets"`
	// MaximalSets counts the sets to which nothing can be added with their placements
	// fixed, MaximalMultisets their distinct multisets, even where one contains
	// another.
	MaximalSets      int `json:"maximal_sets"`
	MaximalMultisets int `json:"maximal_multisets"`
}

// Enumerate counts the divisions of a GPU exactly, by visiting each. It returns an
// error for a model that no GPU can be.
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

// divisions visits every set of placements that do not overlap, with how many of
// each profile are in it and whether nothing can be added.
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
