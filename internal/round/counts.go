package round

import (
	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// PolicyCount counts the resources of one policy in a round by their results.
type PolicyCount struct {
	// Policy is the name of the policy.
	Policy string `json:"name"`
	// Selected counts the resources that select and where match, as the caps count them.
	Selected int `json:"selected"`
	// True counts the selected or possibly selected resources for which the policy is true.
	True int `json:"true"`
	// False counts those for which the policy is false.
	False int `json:"false"`
	// Unknown counts unknown answers by reason.
	Unknown map[string]int `json:"unknown"`
	// Refused counts refused actions by safety rule.
	Refused map[string]int `json:"refused"`
	// Deferred counts the actions that a cap or the fuse holds back for now.
	Deferred int `json:"deferred"`
	// OverCaps counts the actions that exceed a cap alone, so that they are never admitted.
	OverCaps int `json:"over_caps"`
	// Fuse is the blown fuse of the policy in any account, if any.
	Fuse *action.Fuse `json:"-"`
}

// counts returns the counts of every policy, in their order.
func (e *Engine) counts(r *Result) []PolicyCount {
	if e.Policies == nil {
		return nil
	}
	out := make([]PolicyCount, len(e.Policies.Policies))
	at := map[string]int{}
	for i, p := range e.Policies.Policies {
		out[i] = PolicyCount{Policy: p.Name, Unknown: map[string]int{}, Refused: map[string]int{}}
		at[p.Name] = i
	}
	for _, s := range e.listed {
		for i, p := range e.Policies.Policies {
			if i < len(s.answers) {
				out[i].add(p, &s.facts, s.answers[i].Tristate)
			}
		}
	}
	for _, rep := range r.Reports {
		for _, l := range rep.Lines {
			if i, ok := at[l.Source]; ok {
				out[i].addLine(l)
			}
		}
		for j := range rep.Fuses {
			if i, ok := at[rep.Fuses[j].Source]; ok {
				out[i].Fuse = &rep.Fuses[j]
			}
		}
	}
	return out
}

// add counts the policy's answer about a resource.
func (c *PolicyCount) add(p *policy.Policy, f *policy.Facts, a usage.Tristate) {
	selected := p.Selects(f)
	if selected == usage.True {
		c.Selected++
	}
	switch {
	case selected == usage.False:
	case a == usage.True:
		c.True++
	case a == usage.False:
		c.False++
	default:
		c.Unknown[policy.NormalizeReason(p.Explain(f).Why())]++
	}
}

// addLine counts the result of an action.
func (c *PolicyCount) addLine(l action.Line) {
	switch {
	case l.Result == action.ResultRefused:
		c.Refused[l.Rule]++
	case l.Result == action.ResultOverCap:
		c.OverCaps++
	case l.Cap != "":
		c.Deferred++
	}
}
