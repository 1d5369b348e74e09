package policy

import (
	"math"
	"slices"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/usage"
)

// condition is a compiled CEL condition.
type condition struct {
	text    string
	ast     *ast.AST
	program cel.Program
	// tracingProgram also records the value of every part of the condition.
	tracingProgram func() (cel.Program, error)
	// facts are the facts used, in the order of appearance.
	facts []*fact
	// figures are the GPU figures used.
	figures []duty.Figure
	// crossings are the comparisons of durations and times that change as time passes.
	crossings []crossing
	// timeDependent is set if time is used in another way as well.
	timeDependent bool
}

// activation passes facts to a condition. Unknown facts are CEL unknowns.
type activation struct {
	evaluation
	// overrides, if not nil, replaces the facts; other facts are unknown.
	overrides map[string]any
}

// unknown is the CEL value of every unknown fact.
var unknown = types.NewUnknown(0, types.NewAttributeTrail("fact"))

// ResolveName returns the value of a fact.
func (a *activation) ResolveName(name string) (any, bool) {
	if f, ok := presences[name]; ok {
		return a.tagPresence(f), true
	}
	if name == figuresName {
		if a.overrides != nil {
			return unknown, true
		}
		return figureMapper{noFigures, a}, true
	}
	if a.overrides != nil {
		f, isFact := factIndex[name]
		if !isFact {
			return unknown, false
		}
		if v, ok := a.overrides[f.name]; ok {
			return v, true
		}
		return unknown, true
	}
	f, ok := factIndex[name]
	if !ok {
		return nil, false
	}
	if v := f.read(&a.evaluation); v != nil {
		return v, true
	}
	return unknown, true
}

// tagPresence returns whether a tag gives a fact. With overrides, missing facts may be given.
func (a *activation) tagPresence(f *fact) any {
	answer := usage.Unknown
	if a.overrides == nil {
		answer = f.tagPresence(&a.evaluation)
	} else if _, ok := a.overrides[f.name]; ok {
		answer = usage.True
	}
	if v := celBool(answer); v != nil {
		return v
	}
	return unknown
}

// Parent returns nil: there is no outer scope.
func (a *activation) Parent() cel.Activation { return nil }

var activations = sync.Pool{New: func() any { return new(activation) }}

// answer evaluates the condition. An error gives unknown.
func (c *condition) answer(e evaluation) usage.Tristate {
	a := activations.Get().(*activation)
	a.evaluation = e
	out := c.eval(a)
	*a = activation{}
	activations.Put(a)
	return out
}

func (c *condition) eval(a *activation) usage.Tristate {
	v, _, err := c.program.Eval(a)
	b, ok := v.(types.Bool)
	if err != nil || !ok {
		return usage.Unknown
	}
	return usage.FromBool(bool(b))
}

// next returns the earliest later time at which the answer may change while only time passes; zero
// is never.
func (c *condition) next(e *evaluation) time.Time {
	var at time.Time
	for _, f := range c.facts {
		if f.nextChange != nil {
			at = sooner(at, f.nextChange(e), e.facts.Now)
		}
	}
	for _, f := range c.figures {
		at = sooner(at, e.facts.GPUs.Read(e.facts.Now, f, false).Next, e.facts.Now)
	}
	for i := range c.crossings {
		at = sooner(at, c.crossings[i].next(e), e.facts.Now)
	}
	if c.timeDependent {
		at = sooner(at, nextMinute(e.facts.Now), e.facts.Now)
	}
	return at
}

// sooner returns the earlier of two times, ignoring times that are not after now; zero is never.
func sooner(a, b, now time.Time) time.Time {
	if b.IsZero() || !b.After(now) || !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// nextMinute returns the start of the next minute, at which hours, days and dates change.
func nextMinute(now time.Time) time.Time { return now.Truncate(time.Minute).Add(time.Minute) }

// inspect finds the facts and figures used, and how time is used.
func (c *condition) inspect() {
	root := ast.NavigateAST(c.ast)
	ast.PreOrderVisit(c.ast.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if f := factIndex[path(e)]; f != nil && e.Kind() == ast.IdentKind && !slices.Contains(c.facts, f) {
			c.facts = append(c.facts, f)
		}
		if f, ok := figureOf(e); ok && !slices.Contains(c.figures, f) {
			c.figures = append(c.figures, f)
		}
	}))
	c.scan(root)
}

// scan collects the comparisons that are linear in time, and notes other uses of time.
func (c *condition) scan(e ast.NavigableExpr) {
	if x, ok := newCrossing(e); ok {
		if len(x.terms) > 0 {
			c.crossings = append(c.crossings, x)
		}
		return
	}
	if e.Kind() == ast.IdentKind {
		if f := factIndex[e.AsIdent()]; f != nil && f.slope != 0 {
			c.timeDependent = true
		}
	}
	for _, child := range e.Children() {
		c.scan(child)
	}
}

// crossing is a comparison of two sums of durations and times. Its left side minus its right side
// is the sum of terms and constantTerm.
type crossing struct {
	op           string
	terms        []term
	constantTerm time.Duration
}

// term is a fact, or a fixed time if fact is nil, with its sign.
type term struct {
	fact *fact
	at   time.Time
	sign int
}

// newCrossing parses a comparison; ok is false for other expressions and nonlinear comparisons.
func newCrossing(e ast.Expr) (x crossing, ok bool) {
	if e.Kind() != ast.CallKind {
		return crossing{}, false
	}
	call := e.AsCall()
	switch call.FunctionName() {
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.Equals,
		operators.NotEquals:
		x.op = call.FunctionName()
		return x, x.add(call.Args()[0], 1) && x.add(call.Args()[1], -1)
	}
	return crossing{}, false
}

// add adds a side to the difference, and reports whether it is a sum of times and durations.
func (x *crossing) add(e ast.Expr, sign int) bool {
	switch e.Kind() {
	case ast.IdentKind:
		f := factIndex[e.AsIdent()]
		if f == nil || !(f.typ.IsExactType(cel.DurationType) || f.typ.IsExactType(cel.TimestampType)) {
			return false
		}
		x.terms = append(x.terms, term{fact: f, sign: sign})
		return true
	case ast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Add:
			return x.add(call.Args()[0], sign) && x.add(call.Args()[1], sign)
		case operators.Subtract:
			return x.add(call.Args()[0], sign) && x.add(call.Args()[1], -sign)
		case operators.Negate:
			return x.add(call.Args()[0], -sign)
		case "duration", "timestamp":
			return x.addConstant(call, sign)
		}
	}
	return false
}

// addConstant adds duration("…") or timestamp("…").
func (x *crossing) addConstant(call ast.CallExpr, sign int) bool {
	if call.Args()[0].Kind() != ast.LiteralKind {
		return false
	}
	s, ok := call.Args()[0].AsLiteral().(types.String)
	if !ok {
		return false
	}
	switch v := s.ConvertToType(conversions[call.FunctionName()]).(type) {
	case types.Duration:
		sum, ok := sumOf(x.constantTerm, v.Duration*time.Duration(sign))
		x.constantTerm = sum
		return ok
	case types.Timestamp:
		x.terms = append(x.terms, term{at: v.Time, sign: sign})
		return true
	}
	return false
}

var conversions = map[string]*types.Type{"duration": types.DurationType, "timestamp": types.TimestampType}

// sumOf adds two durations and reports whether the sum fits.
func sumOf(a, b time.Duration) (time.Duration, bool) {
	sum := a + b
	return sum, (b >= 0) == (sum >= a)
}

// next returns the earliest later time at which the comparison's result may change; zero is never.
func (x *crossing) next(e *evaluation) time.Time {
	now, difference, slope := e.facts.Now, x.constantTerm, 0
	var limit time.Time // end of the first term that stops growing
	endless := false    // another term grows without end
	for _, t := range x.terms {
		var v time.Duration
		if t.fact == nil {
			v = t.at.Sub(now)
		} else {
			switch read := t.fact.read(e).(type) {
			case types.Duration:
				v = read.Duration
			case types.Timestamp:
				v = read.Sub(now)
			default:
				return time.Time{} // unknown until the fact changes
			}
			end, growing := t.fact.growth(e)
			if growing {
				slope += t.sign * t.fact.slope
				limit, endless = sooner(limit, end, now), endless || end.IsZero()
			}
		}
		var ok bool
		if difference, ok = sumOf(difference, v*time.Duration(t.sign)); !ok || v == math.MinInt64 {
			return nextMinute(now)
		}
	}
	at := x.changesAt(difference, slope, now)
	if !limit.IsZero() && (at.IsZero() || at.After(limit)) {
		if endless {
			return limit
		}
		return time.Time{}
	}
	return at
}

// growth reports whether a fact grows or shrinks now, and until when; zero is never.
func (f *fact) growth(e *evaluation) (end time.Time, growing bool) {
	if f.slope == 0 || f.growthEnd == nil {
		return time.Time{}, f.slope != 0
	}
	end = f.growthEnd(e)
	return end, end.IsZero() || end.After(e.facts.Now)
}

// changesAt returns when a difference that grows by slope per nanosecond changes the result; zero
// is never.
func (x *crossing) changesAt(difference time.Duration, slope int, now time.Time) time.Time {
	if slope < 0 {
		return x.swapSides().changesAt(-difference, -slope, now)
	}
	if slope == 0 || difference > 0 {
		return time.Time{}
	}
	wait := -difference / time.Duration(slope)
	if rounded := wait*time.Duration(slope) != -difference; rounded {
		wait++ // zero is crossed between two nanoseconds
		if x.isTrue(-1) != x.isTrue(1) {
			return now.Add(wait)
		}
		return time.Time{}
	}
	switch {
	case difference < 0 && x.isTrue(-1) != x.isTrue(0):
		return now.Add(wait)
	case x.isTrue(0) != x.isTrue(1):
		return now.Add(wait + 1)
	}
	return time.Time{}
}

// isTrue reports whether the comparison is true for a difference of that sign.
func (x *crossing) isTrue(sign int) bool {
	switch x.op {
	case operators.Less:
		return sign < 0
	case operators.LessEquals:
		return sign <= 0
	case operators.Greater:
		return sign > 0
	case operators.GreaterEquals:
		return sign >= 0
	case operators.Equals:
		return sign == 0
	}
	return sign != 0
}

// swapSides returns the comparison with its sides exchanged.
func (x *crossing) swapSides() *crossing {
	op := map[string]string{
		operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals,
		operators.Greater: operators.Less, operators.GreaterEquals: operators.LessEquals,
	}[x.op]
	if op == "" {
		op = x.op
	}
	return &crossing{op: op}
}
