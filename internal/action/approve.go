package action

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// NeedsApproval says whether a person's proposal needs a second person: whatever
// changes a resource that is not explicitly ephemeral, and every deletion, rules
// that let data expire among them. Writing tags does not.
func NeedsApproval(p Proposal) bool {
	switch p.Do.Verb {
	case policy.Notify, policy.Tag:
		return false
	case policy.Delete, policy.PutLifecycle, policy.PutRetention:
		return p.ByPerson || p.Resource.Lifetime != inventory.Ephemeral
	}
	return p.Resource.Lifetime != inventory.Ephemeral
}

// PlanHash returns the hash of what would be carried out: the resource, its identity
// and its gang, the action with its options, the calls, the class of evidence, what
// the resource costs an hour, and until when an approval of it holds. Whatever of
// these differs is another plan. To check an approval at a lower price, hash with
// the price that was approved.
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
	// A struct of texts always marshals, and with the fields in one order.
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
