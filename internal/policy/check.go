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

// Caution is a warning about a valid policy that may not be intended.
type Caution struct {
	Policy string `json:"policy"`
	// Rule is the id of the check: "inference", "production", "untagged", "no-duration", "busy",
	// "disks", "unsupported", "refused", "persistent", "limits", "everything", "ungoverned".
	Rule string `json:"rule"`
	// File and Line are the position of the policy.
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// Check returns cautions about valid policies, in the order of the policies. g is the governance
// section of the configuration.
func Check(set *Set, g Governance) []Caution {
	var out []Caution
	for _, p := range set.Policies {
		for _, check := range checks {
			if p.IsFleet() && !check.ofFleets {
				continue
			}
			if message := check.find(p, g); message != "" {
				out = append(out, Caution{
					Policy: p.Name, File: p.File, Line: p.Line, Rule: check.rule, Message: message,
				})
			}
		}
	}
	return out
}

// checks are the checks of Check; find returns a message, or "".
var checks = []struct {
	rule string
	find func(*Policy, Governance) string
	// ofFleets is true for checks that also apply to fleet policies.
	ofFleets bool
}{
	{rule: "everything", find: func(p *Policy, _ Governance) string {
		if !p.Select.isEmpty() {
			return ""
		}
		return "it has no select, so it looks at every resource of every kind"
	}},
	{rule: "inference", find: func(p *Policy, _ Governance) string {
		return p.destructiveMatchText("resource.purpose", string(inventory.Inference))
	}},
	{rule: "production", find: func(p *Policy, _ Governance) string {
		return p.destructiveMatchText("resource.environment", inventory.Production)
	}},
	{rule: "untagged", find: func(p *Policy, _ Governance) string {
		if !p.Do.Verb.IsDestructive() ||
			p.canMatch("resource.environment", inventory.Production) || !p.canMatchUntagged() {
			return ""
		}
		return fmt.Sprintf("%s can match resources whose tags name no environment, and these may be production; "+
			"where: !resource.production leaves them out", p.Do.Verb)
	}},
	{rule: "persistent", find: func(p *Policy, _ Governance) string {
		if !p.Do.Verb.IsDestructive() || !p.canMatch("resource.lifetime", string(inventory.Persistent)) {
			return ""
		}
		return "it is not restricted to lifetime: ephemeral; persistent resources are never acted on by a policy"
	}},
	{rule: "no-duration", find: func(p *Policy, _ Governance) string {
		if !slices.Contains(endingVerbs, p.Do.Verb) || p.Do.EvenIfBusy || p.Do.EvenIfUnknown || p.Horizon() > 0 {
			return ""
		}
		return "it does not ask how long it has lasted (duty.lasting), so that a moment without work suffices"
	}},
	{rule: "busy", find: func(p *Policy, _ Governance) string {
		switch {
		case p.Do.EvenIfBusy:
			return "even_if_busy: it ends work that is not saved"
		case p.Do.EvenIfUnknown:
			return "even_if_unknown: it ends unmeasured machines, which may be at work"
		}
		return ""
	}},
	{rule: "disks", ofFleets: true, find: func(p *Policy, _ Governance) string {
		var scratch []string
		if p.Do.LosesInstanceStore() {
			scratch = append(scratch, "instance-store disks")
		}
		if p.Do.MayLoseDisk(true) {
			scratch = append(scratch, "root disks of machines that are terminated")
		}
		if len(scratch) == 0 {
			return ""
		}
		return "it declares scratch: what is on " + strings.Join(scratch, " and ") + " is lost"
	}},
	{rule: "unsupported", ofFleets: true, find: func(p *Policy, _ Governance) string {
		if kind, _ := p.Do.FleetResource(); kind == inventory.KindEndpoint && p.Do.Zero && !p.Do.IsCustomFleet() {
			return "an endpoint with machines of its own keeps one: without requests its size is 1"
		}
		if !slices.Contains(unsupportedVerbs, p.Do.Verb) {
			return ""
		}
		return fmt.Sprintf("no cloud carries out %s in this version", p.Do.Verb)
	}},
	{rule: "refused", find: func(p *Policy, _ Governance) string { return p.refusalReason() }},
	{rule: "limits", find: func(p *Policy, _ Governance) string {
		if p.Mode != Enforce || p.Limits.PerHour > 0 && p.Limits.Share > 0 && p.Limits.DollarsPerHour > 0 {
			return ""
		}
		d := DefaultLimits()
		return fmt.Sprintf(
			"it enforces without limits of its own; where it has none %d an hour, %.0f%% and %s an hour apply",
			d.PerHour, 100*d.Share, d.DollarsPerHour.Dollars())
	}},
	{rule: "ungoverned", find: func(p *Policy, g Governance) string {
		compute := len(p.Select.Kind) == 0 || slices.ContainsFunc(p.Select.Kind, func(k string) bool {
			return runsByItself(inventory.Kind(k))
		})
		if !p.Do.Verb.IsDestructive() || !compute || slices.ContainsFunc(g, func(e GovernanceEntry) bool {
			return e.Select.overlaps(&p.Select)
		}) {
			return ""
		}
		return "no entry of governance in curfew.yaml covers what it selects, so that it acts only on what carries " +
			"curfew:managed=true"
	}},
}

// endingVerbs end the work of a machine.
var endingVerbs = []Verb{Stop, Hibernate, Terminate}

// unsupportedVerbs are implemented by no cloud yet.
var unsupportedVerbs = []Verb{Checkpoint, Hibernate, Suspend}

// refusalReason returns why the ladder refuses every proposal of the policy (docs/safety.md), or
// "".
func (p *Policy) refusalReason() string {
	if p.Do.Verb == PutRetention {
		return "put-retention lets data expire, which is a deletion and needs an approval; no policy has one"
	}
	if inventory.DefaultTagMapping().AffectsPolicies(p.Do.Tags) {
		return "its tags decide what policies may do; no policy may write those"
	}
	return ""
}

// destructiveMatchText returns a message if a destructive policy can match resources with that
// value of a fact, or "".
func (p *Policy) destructiveMatchText(name, value string) string {
	if !p.Do.Verb.IsDestructive() || !p.canMatch(name, value) {
		return ""
	}
	return fmt.Sprintf("%s can match %s %q; exclude it, as in where: %s != %q",
		p.Do.Verb, strings.TrimPrefix(name, "resource."), value, name, value)
}

// canMatch reports whether the policy can be true or unknown if one fact has a value and all others
// are unknown.
func (p *Policy) canMatch(name, value string) bool {
	for i := range fields {
		if "resource."+fields[i].name != name {
			continue
		}
		if wanted := *fields[i].selected(&p.Select); len(wanted) > 0 && !fields[i].includes(wanted, value) {
			return false
		}
	}
	given := &activation{overrides: map[string]any{name: types.String(value)}}
	if name == "resource.environment" {
		given.overrides["resource.production"] = types.Bool(inventory.IsProduction(value))
	}
	for _, c := range []*condition{p.where, p.when} {
		if c != nil && c.eval(given) == usage.False {
			return false
		}
	}
	return true
}

// canMatchUntagged reports whether the policy can be true for a resource with known tags that name
// no environment.
func (p *Policy) canMatchUntagged() bool {
	if len(p.Select.Environment) > 0 {
		return false
	}
	for _, c := range []*condition{p.where, p.when} {
		if c != nil && outcomesWithoutEnvironment(c.ast.Expr())&canBeTrue == 0 {
			return false
		}
	}
	return true
}

// outcomes is a set of possible values of a condition: false, unknown and true.
type outcomes int

const (
	canBeFalse outcomes = 1 << iota
	canBeUnknown
	canBeTrue
	anyOutcome = canBeFalse | canBeUnknown | canBeTrue
)

// outcomesWithoutEnvironment returns the possible values of a part of a condition if the tags are
// known and name no environment: uses of the environment are unknown, has of it is false, and
// everything else is open.
func outcomesWithoutEnvironment(e ast.Expr) outcomes {
	if e.Kind() == ast.CallKind {
		args := e.AsCall().Args()
		switch e.AsCall().FunctionName() {
		case operators.LogicalNot:
			a := outcomesWithoutEnvironment(args[0])
			return a&canBeUnknown | a<<2&canBeTrue | a>>2&canBeFalse
		case operators.LogicalAnd:
			return combine(outcomesWithoutEnvironment(args[0]), outcomesWithoutEnvironment(args[1]),
				func(a, b outcomes) outcomes { return min(a, b) })
		case operators.LogicalOr:
			return combine(outcomesWithoutEnvironment(args[0]), outcomesWithoutEnvironment(args[1]),
				func(a, b outcomes) outcomes { return max(a, b) })
		case operators.Conditional:
			asked, out := outcomesWithoutEnvironment(args[0]), outcomes(0)
			if asked&canBeTrue != 0 {
				out |= outcomesWithoutEnvironment(args[1])
			}
			if asked&canBeFalse != 0 {
				out |= outcomesWithoutEnvironment(args[2])
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
	if f := presences[path(e)]; f != nil && isEnvironmentFact(f) {
		return canBeFalse
	}
	asked := false
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(x ast.Expr) {
		f := factIndex[path(x)]
		asked = asked || f != nil && isEnvironmentFact(f)
	}))
	if asked {
		return canBeUnknown
	}
	return anyOutcome
}

// isEnvironmentFact reports whether a fact comes from the environment tag.
func isEnvironmentFact(f *fact) bool {
	return f.name == "resource.environment" || f.name == "resource.production"
}

// combine returns the possible values of an operator over two parts.
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

// overlaps reports whether a resource can match both selections.
func (s *Select) overlaps(other *Select) bool {
	for i := range fields {
		a, b := *fields[i].selected(s), *fields[i].selected(other)
		inB := func(v string) bool { return fields[i].includes(b, v) }
		inA := func(v string) bool { return fields[i].includes(a, v) }
		if len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, inB) && !slices.ContainsFunc(b, inA) {
			return false
		}
	}
	for k, v := range s.Tags {
		if w, ok := other.Tags[k]; ok && v != w && v != anyTagValue && w != anyTagValue {
			return false
		}
	}
	return true
}
