package round

import (
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// MissingReason is the reason why a request has no finding any more.
type MissingReason string

// The reasons. The zero MissingReason means that it was not determined.
const (
	// Unread: the resource, or the data of its finding, could not be read.
	Unread MissingReason = "unread"
	// Gone: its kind was listed, without the resource.
	Gone MissingReason = "gone"
	// Changed: the resource exists, everything was read, and the finding does not hold.
	Changed MissingReason = "changed"
)

// MissingReason returns why a request of r.GoneRequests has no finding, with a text for people.
// Unread data is never taken for gone or changed.
func (r *Result) MissingReason(q Request) (MissingReason, string) {
	ref := q.Resource
	key := ref.Account + "/" + ref.Region + "/" + string(ref.Kind)
	switch {
	case !slices.Contains(r.Accounts, ref.Account):
		return Unread, "account " + ref.Account + " was not read: neither the credentials nor a role reach it"
	case ref.Region != "" && !r.wasRead(ref):
		return Unread, "region " + ref.Region + " of account " + ref.Account + " was not read"
	case r.Unread[key]:
		return Unread, "the list of kind " + string(ref.Kind) + " in " + ref.Region +
			" could not be read" + r.blindSpotText()
	}
	i := slices.IndexFunc(r.Resources, func(x *inventory.Resource) bool { return x.Ref() == ref })
	if i < 0 {
		return Gone, "the provider no longer has this resource"
	}
	if blind := r.blindSpotText(); blind != "" {
		return Unread, "what the finding rests on could not be read" + blind
	}
	now := fmt.Sprintf("the resource is there (%s), and the finding no longer holds", stateText(r.Resources[i]))
	v, judged := r.Verdicts[ref]
	if judged && v.State == duty.Unknown {
		return Unread, "what the resource does is not known: " + v.Why
	}
	if judged {
		now += ": " + v.State.String() + ", " + v.Why
	}
	return Changed, now
}

func stateText(r *inventory.Resource) string {
	if r.State == inventory.StateUnknown {
		return "its state is not known"
	}
	return string(r.State)
}

// blindSpotText lists the blind spots, to continue a sentence.
func (r *Result) blindSpotText() string {
	var all []string
	for _, b := range r.BlindSpots {
		all = append(all, b.What+" ("+b.Why+")")
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}
