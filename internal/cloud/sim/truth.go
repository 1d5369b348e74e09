package sim

import (
	"slices"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Planted is what is known to be true of one resource, because it was made so.
type Planted struct {
	Ref inventory.Ref
	// Rules are the rules that must find something about it, as long as they run.
	// Others may find something too.
	Rules []string
	// Honest says that nothing is wasted here: no finding about it may carry waste.
	// Advice (spot, a newer generation, an overrun that is at work) may still be
	// given, also by Rules.
	Honest bool
	// Note says why.
	Note string
}

// Truth returns what is known of every resource, in the order of their identities,
// for the account as it was laid out: observed at Options.Now over the default
// window.
func (c *Cloud) Truth() []Planted {
	entries := layout(c.options.Seed, c.options.Now).entries
	out := make([]Planted, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.planted)
	}
	slices.SortFunc(out, func(a, b Planted) int { return inventory.CompareRefs(a.Ref, b.Ref) })
	return out
}

// honest is a resource that wastes nothing.
func honest(note string, advice ...string) Planted {
	return Planted{Honest: true, Note: note, Rules: advice}
}

// waste is a resource that the rules must find.
func waste(note string, rules ...string) Planted {
	return Planted{Note: note, Rules: rules}
}
