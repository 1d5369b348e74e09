package sim

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// RequiredTags are the tags that each resource of the account should have: those that its teams
// forget are planted for tag-missing.
var RequiredTags = []string{"team", "project", "environment", "cost-center"}

// Planted is the known truth about one resource.
type Planted struct {
	Ref inventory.Ref
	// Rules are the rules that must find something about it, as long as they run.
	// Others may find something too.
	Rules []string
	// Honest is true if nothing is wasted here: no finding about it may carry waste.
	// Advice (spot, a newer generation, an overrun that is at work) may still be
	// given, also by Rules.
	Honest bool
	// Note is the reason.
	Note string
}

// Truth returns the planted truth of every resource, in the order of their identities, for the
// account as laid out: observed at Options.Now over the default window.
func (c *Cloud) Truth() []Planted {
	entries := layout(c.options.Seed, c.options.Now).entries
	out := make([]Planted, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.planted)
	}
	slices.SortFunc(out, func(a, b Planted) int { return inventory.CompareRefs(a.Ref, b.Ref) })
	return out
}

// Work is the activity that a machine was given over a time.
type Work struct {
	// Worked and Rested add up to the time in which it ran as it was laid out.
	Worked, Rested time.Duration
}

// Work returns what every machine, notebook, endpoint and training job of the account was
// made to do in [from, to), by five minutes. What was done to them does not change it: a
// machine that was stopped has the work that it would have done.
func (c *Cloud) Work(from, to time.Time) map[inventory.Ref]Work {
	out := map[inventory.Ref]Work{}
	for _, e := range layout(c.options.Seed, c.options.Now).entries {
		if e.model == nil || !e.resource.Kind.Traits().Compute {
			continue
		}
		var w Work
		for at := from.UTC(); at.Before(to); at = at.Add(sampling) {
			switch s, runs := e.at(at); {
			case !runs:
			case s.Works:
				w.Worked += sampling
			default:
				w.Rested += sampling
			}
		}
		out[e.resource.Ref()] = w
	}
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

// Stretch is a time without a break.
type Stretch struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Worked returns when every machine, notebook, endpoint and training job of the account was
// made to work in [from, to), by five minutes; a machine that never was has no stretch. What
// was done to them does not change it.
func (c *Cloud) Worked(from, to time.Time) map[inventory.Ref][]Stretch {
	out := map[inventory.Ref][]Stretch{}
	for _, e := range layout(c.options.Seed, c.options.Now).entries {
		if e.model == nil || !e.resource.Kind.Traits().Compute {
			continue
		}
		worked := []Stretch{}
		for at := from.UTC(); at.Before(to); at = at.Add(sampling) {
			if s, runs := e.at(at); !runs || !s.Works {
				continue
			}
			if n := len(worked); n > 0 && worked[n-1].To.Equal(at) {
				worked[n-1].To = at.Add(sampling)
			} else {
				worked = append(worked, Stretch{at, at.Add(sampling)})
			}
		}
		out[e.resource.Ref()] = worked
	}
	return out
}
