package accountplan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/commit"
)

// Fix is the change that a current finding proposes for a resource.
type Fix struct {
	Resource inventory.Ref
	// Type is the machine type of the resource.
	Type   string
	Change change.Change
}

// FixesOf returns the fixes of findings of one audit.
func FixesOf(found []finding.Finding) []Fix {
	out := make([]Fix, len(found))
	for i, f := range found {
		out[i] = Fix{Resource: f.Resource.Ref(), Type: f.Resource.Type, Change: f.Fix.Change}
	}
	return out
}

// departure is the way in which fixing a finding removes a machine from the use that commitments
// cover.
type departure string

// The departures; the earlier one wins if a machine has several.
const (
	ends      departure = "to stop"
	toSpot    departure = "to move to spot"
	resized   departure = "to become another type or move"
	scheduled departure = "to run by a schedule"
)

var departures = []departure{ends, toSpot, resized, scheduled}

// Leaving holds the machines that findings remove from the use that commitments cover, by
// reference. A commitment to one of them would make its waste permanent.
type Leaving map[inventory.Ref]leaving

// leaving is one such machine; to is the price key of its machine afterwards, if any.
type leaving struct {
	how departure
	to  string
}

// NewLeaving returns the machines that fixes remove. Advice that names no machine and no target
// removes none.
func NewLeaving(fixes []Fix) Leaving {
	out := Leaving{}
	for _, f := range fixes {
		r, a := f.Resource, f.Change.Arguments
		if len(a.Members) > 0 { // a group or fleet that shrinks
			for _, id := range a.Members {
				member := r
				member.Kind, member.ID = inventory.KindInstance, id
				out.add(member, leaving{how: ends})
			}
			continue
		}
		if r.Kind != inventory.KindInstance {
			continue
		}
		switch f.Change.Verb {
		case change.Stop, change.Terminate, change.Scale, change.Delete:
			out.add(r, leaving{how: ends})
		case change.UseSpot:
			out.add(r, leaving{how: toSpot})
		case change.ChangeType:
			out.add(r, leaving{how: resized, to: commit.PriceKey(a.Type, r.Region)})
		case change.Move:
			out.add(r, leaving{how: resized, to: commit.PriceKey(f.Type, a.Region)})
		case change.Schedule:
			out.add(r, leaving{how: scheduled})
		}
	}
	return out
}

func (l Leaving) add(r inventory.Ref, how leaving) {
	if was, ok := l[r]; ok && slices.Index(departures, was.how) <= slices.Index(departures, how.how) {
		return
	}
	l[r] = how
}

// refs returns the references in the ledger's format.
func (l Leaving) refs() []string {
	out := make([]string, 0, len(l))
	for r := range l {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

// Billed returns a predicate for resources of a bill, by ID or ARN, that are leaving.
func (l Leaving) Billed() func(resource string) bool {
	ids := map[string]bool{}
	for r := range l {
		ids[r.ID] = true
	}
	return func(resource string) bool { return ids[resource[strings.LastIndexByte(resource, '/')+1:]] }
}

// String summarizes: "2 to stop, 1 to move to spot".
func (l Leaving) String() string {
	counts := map[departure]int{}
	for _, m := range l {
		counts[m.how]++
	}
	var parts []string
	for _, how := range departures {
		if n := counts[how]; n > 0 {
			parts = append(parts, plain.Decimal(float64(n), 0)+" "+string(how))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}
