package round

import (
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// PricedResource is a resource with its hourly cost.
type PricedResource struct {
	Resource *inventory.Resource
	Hourly   inventory.Fact[money.Amount]
}

// PolicyReach counts what a policy could act on in an account, if every selected resource met its
// condition.
type PolicyReach struct {
	Policy   string `json:"name"`
	Selected int    `json:"selected"`
	// Unknown counts resources with an unknown fact in the policy's select.
	Unknown  int `json:"unknown"`
	CouldAct int `json:"could_act"`
	// Refused counts selected resources by the safety rule that refuses the action.
	Refused map[string]int `json:"refused"`
}

// PolicyReaches evaluates every policy for the resources listed at a time. Machines count as idle
// and measured, so that only facts about the account refuse an action.
func PolicyReaches(set *policy.Set, listed []PricedResource, at time.Time, g policy.Governance,
	now time.Time) []PolicyReach {
	out := make([]PolicyReach, 0, len(set.Policies))
	for _, p := range set.Policies {
		n := PolicyReach{Policy: p.Name, Refused: map[string]int{}}
		for _, r := range listed {
			switch p.Selects(&policy.Facts{Now: at, Resource: r.Resource, Hourly: r.Hourly}) {
			case usage.Unknown:
				n.Unknown++
			case usage.True:
				n.Selected++
				if rule := refusedBy(p, r, g, now); rule != "" {
					n.Refused[rule]++
				} else {
					n.CouldAct++
				}
			}
		}
		out = append(out, n)
	}
	return out
}

// refusedBy returns the rule that refuses the action of a policy, or "".
func refusedBy(p *policy.Policy, listed PricedResource, g policy.Governance, now time.Time) string {
	r := listed.Resource
	do := ResolveAction(p.Do, r, g)
	if r.Kind.Traits().Compute && do.Verb == policy.Stop && r.State != inventory.StateRunning {
		return "state"
	}
	q := action.Proposal{
		Source: p.Name, Resource: r, Do: do, Mode: policy.Enforce, Governed: g.Governs(r), Hourly: listed.Hourly,
		Condition: usage.True, ReadAt: now,
		Class: p.EvidenceClass(), Duty: &duty.Verdict{
			State: duty.Idle, Since: r.CreatedAt, Until: now, Expires: now.Add(time.Hour),
		}}
	if p.Warn != nil {
		q.Grace = p.Warn.Grace
	}
	if refusal := action.Refuse(q, action.Item{}, now, nil); refusal != nil {
		return refusal.Rule
	}
	return ""
}
