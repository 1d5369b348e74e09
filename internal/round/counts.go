package round

import (
	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Count says what one policy came to in a round: of how many resources it spoke, and why
// nothing happened to them.
type Count struct {
	// Policy is the name of the policy.
	Policy string `json:"name"`
	// Selected is how many resources select and where hold for, as the caps count them.
	Selected int `json:"selected"`
	// True is how many of these, and of those that may be selected, the policy is true for.
	True int `json:"true"`
	// False is how many the policy is false for.
	False int `json:"false"`
	// Unknown are the reasons of unknown answers, with how many there are.
	Unknown map[string]int `json:"unknown"`
	// Refused are the rules that forbid what holds, with how many resources each.
	Refused map[string]int `json:"refused"`
	// Deferred is how many actions a cap, or the fuse, holds back for now.
	Deferred int `json:"deferred"`
	// OverCaps is how many actions are over a cap by themselves, so that they are never
	// admitted under these limits.
	OverCaps int `json:"over_caps"`
	// Fuse is the one that holds the policy back in any account; nil is none.
	Fuse *action.Fuse `json:"-"`
}

// counts adds up what each policy came to, in their order.
func (e *Engine) counts(r *Result) []Count {
	if e.Policies == nil {
		return nil
	}
	out := make([]Count, len(e.Policies.Policies))
	at := map[string]int{}
	for i, p := range e.Policies.Policies {
		out[i] = Count{Policy: p.Name, Unknown: map[string]int{}, Refused: map[string]int{}}
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
				out[i].line(l)
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

// add counts what the policy says of a resource.
func (c *Count) add(p *policy.Policy, f *policy.Facts, a usage.Tristate) {
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
		c.Unknown[policy.Reason(p.Explain(f).Why())]++
	}
}

// line counts what became of what holds.
func (c *Count) line(l action.Line) {
	switch {
	case l.Result == action.ResultRefused:
		c.Refused[l.Rule]++
	case l.Result == action.ResultOverCap:
		c.OverCaps++
	case l.Cap != "":
		c.Deferred++
	}
}
