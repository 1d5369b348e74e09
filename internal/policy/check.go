package policy

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Caution is something about a valid policy that may not be meant.
type Caution struct {
	Policy string `json:"policy"`
	// Rule names what is looked for: "inference", "production", "untagged", "no-duration", "busy",
	// "disks", "unsupported", "refused", "persistent", "limits", "everything", "ungoverned".
	Rule string `json:"rule"`
	// File and Line are where the policy begins.
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// Check returns what about valid policies may not be meant, in the order of the
// policies. g is the governance section of the configuration.
func Check(set *Set, g Governance) []Caution {
	var out []Caution
	for _, p := range set.Policies {
		for _, check := range checks {
			if message := check.find(p, g); message != "" {
				out = append(out, Caution{
					Policy: p.Name, File: p.File, Line: p.Line, Rule: check.rule, Message: message,
				})
			}
		}
	}
	return out
}

// checks are what Check looks for; find returns a message, or nothing.
var checks = []struct {
	rule string
	find func(*Policy, Governance) string
}{
	{"everything", func(p *Policy, _ Governance) string {
		if !p.Select.isEmpty() {
			return ""
		}
		return "it has no select, so it looks at every resource of every kind"
	}},
	{"inference", func(p *Policy, _ Governance) string {
		return p.mayEnd("resource.purpose", string(inventory.Inference))
	}},
	{"production", func(p *Policy, _ Governance) string {
		return p.mayEnd("resource.environment", inventory.Production)
	}},
	{"untagged", func(p *Policy, _ Governance) string {
		if !p.Do.Verb.Destructive() ||
			p.canMatch("resource.environment", inventory.Production) || !p.canMatchUntagged() {
			return ""
		}
		return fmt.Sprintf("%s can match resources whose tags name no environment, and these may be production; "+
			"where: !resource.production leaves them out", p.Do.Verb)
	}},
	{"persistent", func(p *Policy, _ Governance) string {
		if !p.Do.Verb.Destructive() || !p.canMatch("resource.lifetime", string(inventory.Persistent)) {
			return ""
		}
		return "it is not restricted to lifetime: ephemeral; persistent resources are never acted on by a policy"
	}},
	{"no-duration", func(p *Policy, _ Governance) string {
		if !slices.Contains(ending, p.Do.Verb) || p.Do.EvenIfBusy || p.Do.EvenIfUnknown || p.Horizon() > 0 {
			return ""
		}
		return "it does not ask how long it has lasted (duty.lasting), so that a moment without work suffices"
	}},
	{"busy", func(p *Policy, _ Governance) string {
		switch {
		case p.Do.EvenIfBusy:
			return "even_if_busy: it ends work that is not saved"
		case p.Do.EvenIfUnknown:
			return "even_if_unknown: it ends unmeasured machines, which may be at work"
		}
		return ""
	}},
	{"disks", func(p *Policy, _ Governance) string {
		var scratch []string
		if p.Do.LosesInstanceStore() {
			scratch = append(scratch, "instance-store disks")
		}
		if p.Do.Losable(true) {
			scratch = append(scratch, "root disks of machines that are terminated")
		}
		if len(scratch) == 0 {
			return ""
		}
		return "it declares scratch: what is on " + strings.Join(scratch, " and ") + " is lost"
	}},
	{"unsupported", func(p *Policy, _ Governance) string {
		if !slices.Contains(unsupported, p.Do.Verb) {
			return ""
		}
		return fmt.Sprintf("no cloud carries out %s in this version", p.Do.Verb)
	}},
	{"refused", func(p *Policy, _ Governance) string { return p.refused() }},
	{"limits", func(p *Policy, _ Governance) string {
		if p.Mode != Enforce || p.Limits.PerHour > 0 && p.Limits.Share > 0 && p.Limits.DollarsPerHour > 0 {
			return ""
		}
		d := DefaultLimits()
		return fmt.Sprintf(
			"it enforces without limits of its own; where it has none %d an hour, %.0f%% and %s an hour apply",
			d.PerHour, 100*d.Share, d.DollarsPerHour.Dollars())
	}},
	{"ungoverned", func(p *Policy, g Governance) string {
		compute := len(p.Select.Kind) == 0 || slices.ContainsFunc(p.Select.Kind, func(k string) bool {
			return computes(inventory.Kind(k))
		})
		if !p.Do.Verb.Destructive() || !compute || slices.ContainsFunc(g, func(e Governed) bool {
			return e.Select.overlaps(&p.Select)
		}) {
			return ""
		}
		return "no entry of governance in curfew.yaml covers what it selects, so that it acts only on what carries " +
			"curfew:managed=true"
	}},
}

// ending are the verbs that end what a machine does.
var ending = []Verb{Stop, Hibernate, Terminate}

// unsupported are the verbs that no cloud carries out yet.
var unsupported = []Verb{Checkpoint, Hibernate, Suspend}

// refused says why the ladder refuses whatever the policy proposes (docs/safety.md).
func (p *Policy) refused() string {
	if p.Do.Verb == PutRetention {
		return "put-retention lets data expire, which is a deletion and needs an approval; no policy has one"
	}
	if inventory.DefaultTagMapping().AffectsPolicies(p.Do.Tags) {
		return "its tags decide what policies may do; no policy may write those"
	}
	return ""
}

// mayEnd says that a destructive policy can match resources of which one fact has a
// value.
func (p *Policy) mayEnd(name, value string) string {
	if !p.Do.Verb.Destructive() || !p.canMatch(name, value) {
		return ""
	}
	return fmt.Sprintf("%s can match %s %q; exclude it, as in where: %s != %q",
		p.Do.Verb, strings.TrimPrefix(name, "resource."), value, name, value)
}

// canMatch says whether the policy can be anything but false where one fact has a value
// and all others are unknown.
func (p *Policy) canMatch(name, value string) bool {
	for i := range fields {
		if "resource."+fields[i].name != name {
			continue
		}
		if wanted := *fields[i].wanted(&p.Select); len(wanted) > 0 && !fields[i].includes(wanted, value) {
			return false
		}
	}
	given := &activation{given: map[string]any{name: types.String(value)}}
	if name == "resource.environment" {
		given.given["resource.production"] = types.Bool(inventory.IsProduction(value))
	}
	for _, c := range []*condition{p.where, p.when} {
		if c != nil && c.eval(given) == usage.False {
			return false
		}
	}
	return true
}

// canMatchUntagged says whether the policy can be true for a resource whose tags were read and
// name no environment.
func (p *Policy) canMatchUntagged() bool {
	if len(p.Select.Environment) > 0 {
		return false
	}
	for _, c := range []*condition{p.where, p.when} {
		if c != nil && untagged(c.ast.Expr())&canBeTrue == 0 {
			return false
		}
	}
	return true
}

// outcomes are what a condition can be: false, unknown and true.
type outcomes int

const (
	canBeFalse outcomes = 1 << iota
	canBeUnknown
	canBeTrue
	anyOutcome = canBeFalse | canBeUnknown | canBeTrue
)

// untagged returns what a part of a condition can be where tags were read and name no
// environment: what asks for the environment is unknown, has of it is false, and everything else is
// open.
func untagged(e ast.Expr) outcomes {
	if e.Kind() == ast.CallKind {
		args := e.AsCall().Args()
		switch e.AsCall().FunctionName() {
		case operators.LogicalNot:
			a := untagged(args[0])
			return a&canBeUnknown | a<<2&canBeTrue | a>>2&canBeFalse
		case operators.LogicalAnd:
			return combine(untagged(args[0]), untagged(args[1]), func(a, b outcomes) outcomes { return min(a, b) })
		case operators.LogicalOr:
			return combine(untagged(args[0]), untagged(args[1]), func(a, b outcomes) outcomes { return max(a, b) })
		case operators.Conditional:
			asked, out := untagged(args[0]), outcomes(0)
			if asked&canBeTrue != 0 {
				out |= untagged(args[1])
			}
			if asked&canBeFalse != 0 {
				out |= untagged(args[2])
			}
			return out | asked&canBeUnknown
		}
	}
	if e.Kind() == ast.LiteralKind {
		if e.AsLiteral() == types.True {
			return canBeTrue
		}
		return canBeFalse
	}
	if f := presences[path(e)]; f != nil && ofEnvironment(f) {
		return canBeFalse
	}
	asked := false
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(x ast.Expr) {
		f := factIndex[path(x)]
		asked = asked || f != nil && ofEnvironment(f)
	}))
	if asked {
		return canBeUnknown
	}
	return anyOutcome
}

// ofEnvironment says whether a fact is read of the tag of the environment.
func ofEnvironment(f *fact) bool {
	return f.name == "resource.environment" || f.name == "resource.production"
}

// combine returns what two parts can be together.
func combine(a, b outcomes, of func(a, b outcomes) outcomes) (out outcomes) {
	for x := canBeFalse; x <= canBeTrue; x <<= 1 {
		for y := canBeFalse; y <= canBeTrue; y <<= 1 {
			if a&x != 0 && b&y != 0 {
				out |= of(x, y)
			}
		}
	}
	return out
}

// overlaps says whether a resource can match both selections.
func (s *Select) overlaps(other *Select) bool {
	for i := range fields {
		a, b := *fields[i].wanted(s), *fields[i].wanted(other)
		inB := func(v string) bool { return fields[i].includes(b, v) }
		inA := func(v string) bool { return fields[i].includes(a, v) }
		if len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, inB) && !slices.ContainsFunc(b, inA) {
			return false
		}
	}
	for k, v := range s.Tags {
		if w, ok := other.Tags[k]; ok && v != w && v != anyValue && w != anyValue {
			return false
		}
	}
	return true
}
