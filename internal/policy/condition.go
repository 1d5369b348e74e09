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
	// traced also keeps the value of every part of the condition.
	traced func() (cel.Program, error)
	// facts are those that it asks for, in the order of appearance.
	facts []*fact
	// figures are those about GPUs that it asks for.
	figures []duty.Figure
	// crossings are its comparisons of spans and times that change as time goes on.
	crossings []crossing
	// opaque says that time enters in some other way as well.
	opaque bool
}

// activation hands facts to a condition. What is not known is CEL's own unknown.
type activation struct {
	evaluation
	// given replaces the facts where it is not nil; a fact that it does not hold is
	// unknown.
	given map[string]any
}

// unknown stands for every fact that is not known.
var unknown = types.NewUnknown(0, types.NewAttributeTrail("fact"))

// ResolveName returns a fact.
func (a *activation) ResolveName(name string) (any, bool) {
	if f, ok := presences[name]; ok {
		return a.said(f), true
	}
	if name == figuresName {
		if a.given != nil {
			return unknown, true
		}
		return gauged{noFigures, a}, true
	}
	if a.given != nil {
		f, isFact := factIndex[name]
		if !isFact {
			return unknown, false
		}
		if v, ok := a.given[f.name]; ok {
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

// said is whether a tag says a fact. Of given facts, those that are missing may be said.
func (a *activation) said(f *fact) any {
	answer := usage.Unknown
	if a.given == nil {
		answer = f.said(&a.evaluation)
	} else if _, ok := a.given[f.name]; ok {
		answer = usage.True
	}
	if v := truth(answer); v != nil {
		return v
	}
	return unknown
}

// Parent returns nil: there is no wider scope.
func (a *activation) Parent() cel.Activation { return nil }

var activations = sync.Pool{New: func() any { return new(activation) }}

// answer evaluates the condition. An error is unknown.
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

// next returns the earliest later time at which the answer may be another while no
// fact changes but by time; zero is never.
func (c *condition) next(e *evaluation) time.Time {
	var at time.Time
	for _, f := range c.facts {
		if f.turns != nil {
			at = sooner(at, f.turns(e), e.f.Now)
		}
	}
	for _, f := range c.figures {
		at = sooner(at, e.f.GPUs.Read(e.f.Now, f, false).Next, e.f.Now)
	}
	for i := range c.crossings {
		at = sooner(at, c.crossings[i].next(e), e.f.Now)
	}
	if c.opaque {
		at = sooner(at, nextMinute(e.f.Now), e.f.Now)
	}
	return at
}

// sooner returns the earlier of two times, of those after now; zero is never.
func sooner(a, b, now time.Time) time.Time {
	if b.IsZero() || !b.After(now) || !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// nextMinute returns the start of the next minute, where hours, days and dates turn.
func nextMinute(now time.Time) time.Time { return now.Truncate(time.Minute).Add(time.Minute) }

// inspect finds the facts, and how time enters.
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

// scan collects the comparisons that are linear in time, and notes any other way in
// which time enters.
func (c *condition) scan(e ast.NavigableExpr) {
	if x, ok := newCrossing(e); ok {
		if len(x.terms) > 0 {
			c.crossings = append(c.crossings, x)
		}
		return
	}
	if e.Kind() == ast.IdentKind {
		if f := factIndex[e.AsIdent()]; f != nil && f.slope != 0 {
			c.opaque = true
		}
	}
	for _, child := range e.Children() {
		c.scan(child)
	}
}

// crossing is a comparison of two sums of spans and times. Its left side less its
// right is the sum of terms and rest.
type crossing struct {
	op    string
	terms []term
	rest  time.Duration
}

// term is a fact, or a fixed time where fact is nil, added or subtracted.
type term struct {
	fact *fact
	at   time.Time
	sign int
}

// newCrossing reads a comparison; ok is false for what is none, or is not linear.
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

// add adds a side to the difference, and says whether it is a sum of times and spans.
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
			return x.constant(call, sign)
		}
	}
	return false
}

// constant adds duration("…") or timestamp("…").
func (x *crossing) constant(call ast.CallExpr, sign int) bool {
	if call.Args()[0].Kind() != ast.LiteralKind {
		return false
	}
	s, ok := call.Args()[0].AsLiteral().(types.String)
	if !ok {
		return false
	}
	switch v := s.ConvertToType(conversions[call.FunctionName()]).(type) {
	case types.Duration:
		sum, ok := sumOf(x.rest, v.Duration*time.Duration(sign))
		x.rest = sum
		return ok
	case types.Timestamp:
		x.terms = append(x.terms, term{at: v.Time, sign: sign})
		return true
	}
	return false
}

var conversions = map[string]*types.Type{"duration": types.DurationType, "timestamp": types.TimestampType}

// sumOf adds two spans and says whether the sum fits.
func sumOf(a, b time.Duration) (time.Duration, bool) {
	sum := a + b
	return sum, (b >= 0) == (sum >= a)
}

// next returns the earliest later time at which the comparison may come out
// differently; zero is never.
func (x *crossing) next(e *evaluation) time.Time {
	now, difference, slope := e.f.Now, x.rest, 0
	var limit time.Time // the first term that stops growing
	endless := false    // another one goes on then
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
				return time.Time{} // unknown until the fact turns
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
	at := x.turns(difference, slope, now)
	if !limit.IsZero() && (at.IsZero() || at.After(limit)) {
		if endless {
			return limit
		}
		return time.Time{}
	}
	return at
}

// growth says whether a fact grows or shrinks now, and until when; zero is never.
func (f *fact) growth(e *evaluation) (end time.Time, growing bool) {
	if f.slope == 0 || f.ends == nil {
		return time.Time{}, f.slope != 0
	}
	end = f.ends(e)
	return end, end.IsZero() || end.After(e.f.Now)
}

// turns returns when a difference that grows by slope a nanosecond makes the comparison
// come out differently; zero is never.
func (x *crossing) turns(difference time.Duration, slope int, now time.Time) time.Time {
	if slope < 0 {
		return x.mirror().turns(-difference, -slope, now)
	}
	if slope == 0 || difference > 0 {
		return time.Time{}
	}
	wait := -difference / time.Duration(slope)
	if rounded := wait*time.Duration(slope) != -difference; rounded {
		wait++ // zero is passed between two nanoseconds
		if x.holds(-1) != x.holds(1) {
			return now.Add(wait)
		}
		return time.Time{}
	}
	switch {
	case difference < 0 && x.holds(-1) != x.holds(0):
		return now.Add(wait)
	case x.holds(0) != x.holds(1):
		return now.Add(wait + 1)
	}
	return time.Time{}
}

// holds says whether the comparison is true for a difference of that sign.
func (x *crossing) holds(sign int) bool {
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

// mirror is the comparison with its sides exchanged.
func (x *crossing) mirror() *crossing {
	op := map[string]string{
		operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals,
		operators.Greater: operators.Less, operators.GreaterEquals: operators.LessEquals,
	}[x.op]
	if op == "" {
		op = x.op
	}
	return &crossing{op: op}
}
