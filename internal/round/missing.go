package round

import (
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// Missing is why a request has no finding any more.
type Missing string

// The reasons. The zero Missing is that it was not read.
const (
	// Unread: the resource, or what its finding rests on, could not be read.
	Unread Missing = "unread"
	// Gone: the provider lists its kind there, and not the resource.
	Gone Missing = "gone"
	// Changed: the resource is there, everything was read, and the finding does not hold.
	Changed Missing = "changed"
)

// Missing says why a request among r.Gone has no finding, in words for people. What could
// not be read is never taken for gone, nor for changed.
func (r *Result) Missing(q Request) (Missing, string) {
	ref := q.Resource
	key := ref.Account + "/" + ref.Region + "/" + string(ref.Kind)
	switch {
	case !slices.Contains(r.Accounts, ref.Account):
		return Unread, "account " + ref.Account + " was not read: neither the credentials nor a role reach it"
	case ref.Region != "" && !r.read(ref):
		return Unread, "region " + ref.Region + " of account " + ref.Account + " was not read"
	case r.Unread[key]:
		return Unread, "the list of kind " + string(ref.Kind) + " in " + ref.Region + " could not be read" + r.blind()
	}
	i := slices.IndexFunc(r.Resources, func(x *inventory.Resource) bool { return x.Ref() == ref })
	if i < 0 {
		return Gone, "the provider no longer has this resource"
	}
	if blind := r.blind(); blind != "" {
		return Unread, "what the finding rests on could not be read" + blind
	}
	now := fmt.Sprintf("the resource is there (%s), and the finding no longer holds", state(r.Resources[i]))
	v, judged := r.Verdicts[ref]
	if judged && v.State == duty.Unknown {
		return Unread, "what the resource does is not known: " + v.Why
	}
	if judged {
		now += ": " + v.State.String() + ", " + v.Why
	}
	return Changed, now
}

func state(r *inventory.Resource) string {
	if r.State == inventory.StateUnknown {
		return "its state is not known"
	}
	return string(r.State)
}

// blind lists what could not be read, to follow a sentence.
func (r *Result) blind() string {
	var all []string
	for _, b := range r.BlindSpots {
		all = append(all, b.What+" ("+b.Why+")")
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}
