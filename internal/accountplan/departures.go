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

// departure is how a machine leaves the use that commitments cover when a finding is fixed.
type departure string

// The departures, the one that counts first of a machine with several.
const (
	ends      departure = "to stop"
	toSpot    departure = "to move to spot"
	resized   departure = "to become another type or move"
	scheduled departure = "to run by a schedule"
)

var departures = []departure{ends, toSpot, resized, scheduled}

// Leaving are the machines that findings take out of the use that commitments cover, by their
// references. A commitment to one of them makes its waste permanent.
type Leaving map[inventory.Ref]leaving

// leaving is one of them; to is the price key of its machine afterwards, where it has one.
type leaving struct {
	how departure
	to  string
}

// NewLeaving reads fixes. Advice that names no machine and no target leaves machines as they are.
func NewLeaving(fixes []Fix) Leaving {
	out := Leaving{}
	for _, f := range fixes {
		r, a := f.Resource, f.Change.Arguments
		if len(a.Members) > 0 { // of a group or a fleet that shrinks
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

// refs are the references as the ledger has them.
func (l Leaving) refs() []string {
	out := make([]string, 0, len(l))
	for r := range l {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

// Billed returns whether the resource of a bill, by its id or ARN, is one of them.
func (l Leaving) Billed() func(resource string) bool {
	ids := map[string]bool{}
	for r := range l {
		ids[r.ID] = true
	}
	return func(resource string) bool { return ids[resource[strings.LastIndexByte(resource, '/')+1:]] }
}

// String counts them: "2 to stop, 1 to move to spot".
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
