package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Explain answers like [Policy.Evaluate], and explains each part. It is about ten times slower.
func (p *Policy) Explain(f *Facts) Outcome {
	if f.Stale || f.Resource == nil {
		return Outcome{
			Parts: []Part{{Name: "select", Text: p.Select.describe(), Why: "the inventory is too old to act on"}},
		}
	}
	if p.IsFleet() {
		return p.explainFleet(f)
	}
	e := evaluation{facts: f, resource: f.Resource, schedule: p.compiled}
	out := Outcome{Answer: usage.True, Next: p.Evaluate(f).Next}
	for _, part := range []func(*evaluation) (Part, bool){
		p.explainSelect, p.explainWhere, p.explainSchedule, p.explainWhen,
	} {
		if explained, given := part(&e); given {
			out.Parts = append(out.Parts, explained)
			out.Answer = usage.And(out.Answer, explained.Answer)
		}
		if out.Answer == usage.False {
			break
		}
	}
	return out
}

func (p *Policy) explainSelect(e *evaluation) (Part, bool) {
	part := Part{Name: "select", Text: p.Select.describe(), Answer: p.Select.match(e.resource)}
	var why []string
	for i := range fields {
		f := &fields[i]
		if len(*f.selected(&p.Select)) == 0 || f.match(&p.Select, e.resource) != part.Answer {
			continue
		}
		if got := f.value(e.resource); got != "" {
			why = append(why, f.name+" is "+got)
		} else {
			why = append(why, f.name+" is unknown")
		}
	}
	for _, k := range slices.Sorted(maps.Keys(p.Select.Tags)) {
		want := p.Select.Tags[k]
		got, ok := e.resource.Tags[k]
		switch matches := ok && (want == anyTagValue || got == want); {
		case e.resource.Tags == nil:
			why = append(why, "tags could not be read")
		case part.Answer == usage.Unknown || matches != (part.Answer == usage.True):
		case !ok:
			why = append(why, "tag "+k+" is absent")
		default:
			why = append(why, fmt.Sprintf("tag %s is %q", k, got))
		}
	}
	part.Why = strings.Join(slices.Compact(why), ", ")
	return part, true
}

// describe returns a selection as in a file.
func (s *Select) describe() string {
	var out []string
	for i := range fields {
		if wanted := *fields[i].selected(s); len(wanted) > 0 {
			out = append(out, fields[i].name+": "+strings.Join(wanted, " | "))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Tags)) {
		out = append(out, "tag "+k+": "+s.Tags[k])
	}
	if len(out) == 0 {
		return "everything"
	}
	return strings.Join(out, ", ")
}

func (p *Policy) explainWhere(e *evaluation) (Part, bool) {
	return explainCondition("where", p.Where, p.where, e)
}

func (p *Policy) explainWhen(e *evaluation) (Part, bool) {
	return explainCondition("when", p.When, p.when, e)
}

func (p *Policy) explainSchedule(e *evaluation) (Part, bool) {
	if p.Schedule == nil {
		return Part{}, false
	}
	part := Part{Name: "schedule"}
	part.Answer, _ = p.evalSchedule(e)
	if p.compiled == nil {
		return part, true
	}
	show := func(t time.Time) string { return t.In(p.compiled.location).Format("Mon 2 Jan 15:04") }
	var text []string
	part.Why = "it is " + show(e.facts.Now)
	if off := p.Schedule.Off; len(off) > 0 {
		text = append(text, "off "+strings.Join(off, ", "))
		if turn := p.compiled.nextChange(e.facts.Now); !turn.IsZero() {
			part.Why += ", " + map[bool]string{
				true: "off", false: "on",
			}[p.compiled.isOff(e.facts.Now)] + " until " + show(turn)
		}
	}
	if ticks := p.Schedule.At; len(ticks) > 0 {
		text = append(text, "at "+strings.Join(ticks, ", "))
		since, last := runningSince(e), p.compiled.lastTick(e.facts.Now)
		switch {
		case since.IsZero():
			part.Why += ", and its start is unknown"
		case since.Before(last):
			part.Why += ", and it has been running since before " + show(last)
		default:
			part.Why += ", and it has been running since " + show(since) + " only"
		}
	}
	part.Text = strings.Join(text, ", ") + " (" + p.compiled.location.String() + ")"
	return part, true
}

// trace is an evaluated condition with the value of each of its parts.
type trace struct {
	condition  *condition
	evaluation *evaluation
	state      interpreter.EvalState
}

func explainCondition(name, text string, c *condition, e *evaluation) (Part, bool) {
	if text == "" {
		return Part{}, false
	}
	part := Part{Name: name, Text: oneLine(text)}
	if c == nil {
		part.Why = "it was not compiled"
		return part, true
	}
	program, err := c.tracingProgram()
	if err != nil {
		part.Why = err.Error()
		return part, true
	}
	v, details, _ := program.Eval(&activation{evaluation: *e}) // an error is unknown, and is part of the trace
	t := &trace{condition: c, evaluation: e, state: details.State()}
	part.Answer = answerOf(v)
	part.Why = strings.Join(t.reasons(c.ast.Expr(), part.Answer), "; ")
	return part, true
}

// answerOf converts a CEL value. Anything but a boolean is unknown.
func answerOf(v ref.Val) usage.Tristate {
	if b, ok := v.(types.Bool); ok {
		return usage.FromBool(bool(b))
	}
	return usage.Unknown
}

// value returns the value of a part of the condition.
func (t *trace) value(e ast.Expr) ref.Val {
	if e.Kind() == ast.LiteralKind {
		return e.AsLiteral()
	}
	v, _ := t.state.Value(e.ID())
	return v
}

// reasons returns what decided the answer of a part of the condition.
func (t *trace) reasons(e ast.Expr, answer usage.Tristate) []string {
	if e.Kind() == ast.CallKind {
		args := e.AsCall().Args()
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd:
			return t.decidingReasons(args, answer, usage.True)
		case operators.LogicalOr:
			return t.decidingReasons(args, answer, usage.False)
		case operators.LogicalNot:
			return t.reasons(args[0], answer.Not())
		}
	}
	return t.explainComparison(e, answer)
}

// decidingReasons joins the operands with the answer. One is enough, except for the answer that
// needs all.
func (t *trace) decidingReasons(args []ast.Expr, answer, all usage.Tristate) []string {
	var out []string
	for _, arg := range args {
		if answerOf(t.value(arg)) != answer {
			continue
		}
		out = append(out, t.reasons(arg, answer)...)
		if answer != all && answer != usage.Unknown {
			break
		}
	}
	return out
}

// explainComparison describes the facts of a comparison.
func (t *trace) explainComparison(e ast.Expr, answer usage.Tristate) []string {
	known, missing := t.describeFacts(e)
	switch {
	case (answer == usage.True || factIndex[path(e)] != nil && answer == usage.False) && len(known) > 0:
		return []string{strings.Join(known, ", ")}
	case answer == usage.Unknown && len(missing) > 0:
		return []string{strings.Join(missing, ", ")}
	}
	text, err := cel.ExprToString(e, t.condition.ast.SourceInfo())
	if err != nil {
		text = t.condition.text
	}
	text = strings.ReplaceAll(text, classPrefix, "")
	out := oneLine(text) + " is " + answer.String()
	if failed, ok := t.value(e).(*types.Err); ok && answer == usage.Unknown {
		out += ": " + oneLine(failed.Error())
	} else if known = append(known, missing...); len(known) > 0 {
		out += ": " + strings.Join(known, ", ")
	}
	return []string{out}
}

// describeFacts describes the known facts in an expression, and why the others are unknown.
func (t *trace) describeFacts(e ast.Expr) (known, missing []string) {
	add := func(list *[]string, s string) {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	var visit func(n ast.NavigableExpr)
	visit = func(n ast.NavigableExpr) {
		if key, ok := t.tag(n); ok && t.evaluation.resource.Tags != nil {
			if v, there := t.evaluation.resource.Tags[key]; there {
				add(&known, fmt.Sprintf("tag %s is %q", key, v))
			} else {
				add(&missing, "tag "+key+" is absent")
			}
			return
		}
		if f, ok := figureOf(n); ok {
			if r := t.evaluation.facts.GPUs.Read(t.evaluation.facts.Now, f, true); r.Known {
				add(&known, figureCall(f)+" is "+formatValue(types.Double(r.Value)))
			} else {
				add(&missing, figureCall(f)+" is unknown: "+r.Why)
			}
			return
		}
		f, asked := presences[path(n)]
		if asked && f.tagPresence(t.evaluation) == usage.False {
			add(&known, "no tag says "+f.name)
			return
		}
		if f == nil {
			f = factIndex[path(n)]
		}
		if f != nil && n.Kind() == ast.IdentKind {
			if of := factIndex[f.shownAs]; of != nil && f.read(t.evaluation) != nil {
				f = of
			}
			if v := f.read(t.evaluation); v != nil {
				add(&known, f.name+" is "+formatValue(v))
			} else {
				add(&missing, f.name+" is unknown: "+f.unknownReason(t.evaluation))
			}
		}
		for _, child := range n.Children() {
			visit(child)
		}
	}
	visit(ast.NavigateExpr(t.condition.ast, e))
	return known, missing
}

// tag returns the key of resource.tags.key, resource.tags["key"] and has of them.
func (t *trace) tag(e ast.Expr) (key string, ok bool) {
	const tags = "resource.tags"
	if e.Kind() == ast.SelectKind && path(e.AsSelect().Operand()) == tags {
		return e.AsSelect().FieldName(), true
	}
	if e.Kind() != ast.CallKind {
		return "", false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.Index:
		key, ok = t.literal(args[1])
		return key, ok && path(args[0]) == tags
	case operators.In:
		key, ok = t.literal(args[0])
		return key, ok && path(args[1]) == tags
	}
	return "", false
}

// literal returns a text literal of the condition.
func (t *trace) literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// unknownReason returns why a fact is unknown.
func (f *fact) unknownReason(e *evaluation) string {
	if strings.HasPrefix(f.name, "duty.") {
		switch {
		case e.facts.Duty == nil:
			return "its duty is not judged"
		case currentVerdict(e) == nil && e.facts.Duty.State != "":
			return "its newest sample is too old"
		case e.facts.Duty.Why != "":
			return e.facts.Duty.Why
		}
	}
	return f.unknown
}

// formatValue formats a value for people.
func formatValue(v ref.Val) string {
	switch v := v.(type) {
	case types.String:
		return strconv.Quote(string(v))
	case types.Duration:
		return plain.ExactDuration(v.Truncate(time.Second))
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339)
	case types.Double:
		return strconv.FormatFloat(float64(v), 'g', 6, 64)
	case types.Bool, types.Int:
		return fmt.Sprint(v.Value())
	}
	return "known"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
