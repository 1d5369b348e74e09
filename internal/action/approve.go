package action

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// NeedsApproval reports whether a proposal needs the approval of a second person: every change of a
// resource that is not explicitly ephemeral, and every deletion, including rules that let data
// expire. Writing tags and resizing a fleet between its owner's bounds do not.
func NeedsApproval(p Proposal) bool {
	switch p.Do.Verb {
	case policy.Scale:
		if p.resizesFleet() {
			return false
		}
	case policy.Notify, policy.Tag:
		return false
	case policy.Delete, policy.PutLifecycle, policy.PutRetention:
		return p.ByPerson || p.Resource.Lifetime != inventory.Ephemeral
	}
	return p.Resource.Lifetime != inventory.Ephemeral
}

// PlanHash returns the hash of a plan: the resource, its identity and gang, the action with its
// options, the calls, the class of evidence, the hourly cost of the resource, and the expiry of an
// approval. Any difference is another plan. To check an approval at a lower price, hash with the
// approved price.
func PlanHash(p Proposal, steps []Step, expiry time.Time) string {
	type call struct{ Name, Params string }
	calls := make([]call, len(steps))
	for i, s := range steps {
		calls[i] = call{s.Name, s.Params}
	}
	gang := make([]string, len(p.Gang))
	for i, ref := range p.Gang {
		gang[i] = ref.String()
	}
	amount := "unknown"
	if v, ok := p.Hourly.Get(); ok {
		amount = v.String()
	}
	// A struct of strings always marshals, with its fields in a fixed order.
	doc, _ := json.Marshal(struct {
		Resource, Identity string
		Gang               []string
		Source             string
		Do                 policy.Do
		Calls              []call
		Class, Amount      string
		Expiry             string
	}{
		p.Resource.Ref().String(), Identity(p.Resource), gang, p.Source, p.Do, calls, p.Class, amount,
		expiry.UTC().Format(time.RFC3339Nano),
	})
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:])
}
