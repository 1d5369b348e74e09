package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
	"cel.dev/cel-go/parser"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

// maxCondition is the maximum length of a condition in characters, which bounds the work of the
// compiler.
const maxCondition = 10_000

// environment is the CEL environment of every condition.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.StdLib(), cel.ClearMacros(),
		cel.Macros(cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro, cel.MapMacro,
			cel.MapFilterMacro, cel.FilterMacro,
			cel.GlobalMacro("has", 1, expandHas, cel.MacroDocs("whether a tag is there, or a fact is known"),
				cel.MacroExamples("has(resource.tags.team)",
					`has(resource.tags["cost-center"])`, "has(resource.team)")),
			cel.GlobalMacro("duration", 1, expandDuration,
				cel.MacroDocs("a duration, in w, d, h, m, s, ms, us and ns"),
				cel.MacroExamples(`duration("7d")`, `duration("1h30m")`))),
		cel.Macros(figureMacros()...), cel.Variable(figuresName, cel.MapType(cel.IntType, cel.DoubleType)),
		cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true), cel.EnableMacroCallTracking(),
		cel.ParserExpressionSizeLimit(maxCondition), cel.ParserRecursionLimit(100),
		cel.ASTValidators(cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals(),
			cel.ValidateComprehensionNestingLimit(2)),
	}
	for _, f := range facts {
		options = append(options, cel.Variable(f.name, f.typ))
		if f.tagged {
			options = append(options, cel.Variable(f.presence(), cel.BoolType))
		}
	}
	return cel.NewCustomEnv(options...)
})

// expandHas expands has(resource.tags.team) and has(resource.tags["team"]) to the presence of a
// tag, has(resource.team) to whether a tag gives the team, and has(fact) to true if any other fact
// is known. All are unknown if their operand is.
func expandHas(eh parser.ExprHelper, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	arg := args[0]
	if f, isFact := factIndex[path(arg)]; isFact {
		if f.tagged {
			return eh.NewIdent(f.presence()), nil
		}
		return eh.NewCall(operators.Equals, arg, eh.Copy(arg)), nil
	}
	if _, ok := figureOf(arg); ok {
		return eh.NewCall(operators.Equals, arg, eh.Copy(arg)), nil
	}
	switch arg.Kind() {
	case ast.SelectKind:
		s := arg.AsSelect()
		return eh.NewPresenceTest(s.Operand(), s.FieldName()), nil
	case ast.CallKind:
		if c := arg.AsCall(); c.FunctionName() == operators.Index {
			return eh.NewCall(operators.In, c.Args()[1], c.Args()[0]), nil
		}
	}
	return nil, eh.NewError(arg.ID(), "has asks for a tag, as in has(resource.tags.team), or for a fact")
}

// expandDuration checks the text of a duration and accepts days and weeks.
func expandDuration(eh parser.ExprHelper, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	if args[0].Kind() != ast.LiteralKind {
		return nil, nil
	}
	s, ok := args[0].AsLiteral().(types.String)
	if !ok {
		return nil, nil
	}
	d, err := plain.ParseDuration(string(s))
	if err != nil {
		return nil, eh.NewError(args[0].ID(), err.Error())
	}
	return eh.NewCall("duration", eh.NewLiteral(types.String(d.String()))), nil
}

// finite turns an arithmetic result that is not finite into an error, which is unknown: CEL
// evaluates NaN != 1.0 to true.
type finite struct{ interpreter.InterpretableCall }

// Exec evaluates the call.
func (f finite) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := f.InterpretableCall.Exec(frame)
	if d, ok := v.(types.Double); ok && (math.IsNaN(float64(d)) || math.IsInf(float64(d), 0)) {
		return types.NewErr("%v is not a finite number", float64(d))
	}
	return v
}

// decorateFinite wraps calls whose result may not be finite.
func decorateFinite(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	c, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	switch c.Function() {
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Negate, "double":
		return finite{c}, nil
	}
	return i, nil
}

// fault is an error in the text of a condition.
type fault struct {
	// line counts from 1, column from 0, in characters of the condition.
	line, column int
	message      string
}

// compile compiles a condition. schedule is set if the policy has one.
func compile(text string, schedule bool) (*condition, *fault) {
	env, err := environment()
	if err != nil {
		return nil, &fault{1, 0, err.Error()}
	}
	parsed, issues := env.Parse(text)
	if f := firstIssue(issues); f != nil {
		return nil, f
	}
	if f := checkNames(parsed.NativeRep(), schedule); f != nil {
		return nil, f
	}
	checked, issues := env.Check(parsed)
	if f := firstIssue(issues); f != nil {
		return nil, f
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) {
		return nil, &fault{1, 0, "a condition is true or false; this is of type " + cel.FormatCELType(t)}
	}
	a := checked.NativeRep()
	if f := checkValues(a); f != nil {
		return nil, f
	}
	canonicalizeValues(a)
	c := &condition{text: text, ast: a, program: nil}
	c.program, err = env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(decorateFinite))
	if err != nil {
		return nil, &fault{1, 0, err.Error()}
	}
	c.tracingProgram = sync.OnceValues(func() (cel.Program, error) {
		return env.Program(checked, cel.EvalOptions(cel.OptExhaustiveEval), cel.CustomDecoratorV2(decorateFinite))
	})
	c.inspect()
	return c, nil
}

// firstIssue returns the compiler's first error by position.
func firstIssue(issues *cel.Issues) *fault {
	if issues.Err() == nil {
		return nil
	}
	errs := issues.Errors()
	if len(errs) == 0 {
		return &fault{1, 0, issues.Err().Error()}
	}
	first := slices.MinFunc(errs, func(a, b *cel.Error) int {
		if d := a.Location.Line() - b.Location.Line(); d != 0 {
			return d
		}
		return a.Location.Column() - b.Location.Column()
	})
	return &fault{max(1, first.Location.Line()), max(0, first.Location.Column()), plainMessage(first.Message)}
}

// overload matches the compiler's message for an operator that does not fit its operands.
var overload = lazyregexp.New(`^found no matching overload for '(!?[@_]*)([^_']+?)_*' applied to '([^']*)'$`)

// plainMessage rewrites the compiler's messages in plain words.
func plainMessage(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if m := overload.FindStringSubmatch(message); m != nil {
		operands := m[3]
		if inner, ok := strings.CutPrefix(operands, "("); ok {
			operands = strings.TrimSuffix(inner, ")")
		}
		return fmt.Sprintf("%s does not apply to %s", m[2], strings.ReplaceAll(operands, ", ", " and "))
	}
	if name, ok := strings.CutPrefix(message, "undeclared reference to '"); ok {
		name, _, _ = strings.Cut(name, "'")
		return fmt.Sprintf("%s is neither a fact nor a function; facts begin with %s%s", name,
			strings.Join(roots, ", "),
			document.DidYouMean(name, roots))
	}
	if strings.Contains(message, "'<EOF>'") {
		return "the condition ends where more is expected"
	}
	message, _, _ = strings.Cut(strings.TrimPrefix(message, "Syntax error: "), " expecting ")
	return message
}

// factNames are the names of all facts.
func factNames() []string {
	out := make([]string, 0, len(facts))
	for _, f := range facts {
		out = append(out, f.name)
	}
	return out
}

// roots are the first parts of fact names.
var roots = func() []string {
	var out []string
	for _, f := range facts {
		root, _, _ := strings.Cut(f.name, ".")
		if !slices.Contains(out, root) {
			out = append(out, root)
		}
	}
	return out
}()

// path returns "a.b.c" for a selection of names, and "" for anything else.
func path(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.SelectKind:
		if operand := path(e.AsSelect().Operand()); operand != "" {
			return operand + "." + e.AsSelect().FieldName()
		}
	}
	return ""
}

// checkNames finds the first name under one of the roots that is not a fact.
func checkNames(a *ast.AST, schedule bool) *fault {
	var found *fault
	report := func(e ast.Expr, format string, args ...any) {
		for e.Kind() == ast.SelectKind {
			e = e.AsSelect().Operand()
		}
		at := a.SourceInfo().GetStartLocation(e.ID())
		f := &fault{at.Line(), at.Column(), fmt.Sprintf(format, args...)}
		if found == nil || f.line < found.line || f.line == found.line && f.column < found.column {
			found = f
		}
	}
	var visit func(e ast.NavigableExpr)
	visit = func(e ast.NavigableExpr) {
		name := path(e)
		if c := e.AsCall(); e.Kind() == ast.CallKind && c.IsMemberFunction() {
			if of := path(c.Target()); strings.HasPrefix(of, figureRoot+".") {
				_, why := figureNamed(of, c.FunctionName())
				report(e, "%s", why)
				return
			}
		}
		if name == "" {
			for _, child := range e.Children() {
				visit(child)
			}
			return
		}
		root, _, _ := strings.Cut(name, ".")
		if root == figureRoot {
			report(e, "%s", unknownFigureText(name))
		}
		for prefix := name; slices.Contains(roots, root); {
			f, ok := factIndex[prefix]
			if ok && f.scheduled && !schedule {
				report(e, "%s: the policy has no schedule", f.name)
			}
			cut := strings.LastIndexByte(prefix, '.')
			if ok {
				break
			}
			if cut < 0 {
				report(e, "%s is not a fact; %s has %s%s", name, root, strings.Join(factsUnder(root), ", "),
					document.DidYouMean(name, factNames()))
				break
			}
			prefix = prefix[:cut]
		}
	}
	visit(ast.NavigateAST(a))
	return found
}

// factsUnder lists the rest of the fact names under a root.
func factsUnder(root string) []string {
	var out []string
	for _, f := range facts {
		if rest, ok := strings.CutPrefix(f.name, root+"."); ok {
			out = append(out, rest)
		}
	}
	return out
}

// checkValues finds the first comparison of a fact with an impossible value: a typing error that
// would be always false, or worse, always true.
func checkValues(a *ast.AST) *fault {
	var found *fault
	visitValues(a, func(f *fact, _, literal ast.Expr, s string) {
		if found != nil {
			return
		}
		if why := f.impossibleValueReason(s); why != "" {
			at := a.SourceInfo().GetStartLocation(literal.ID())
			found = &fault{at.Line(), at.Column(), why}
		}
	})
	return found
}

// canonicalizeValues converts compared values to the canonical form of their facts: a policy with
// "prod" means production in any spelling of the tag. If a value stands for a class, the fact is
// compared by its class.
func canonicalizeValues(a *ast.AST) {
	factory := ast.NewExprFactory()
	classed := map[ast.Expr]string{}
	visitValues(a, func(f *fact, expr, literal ast.Expr, s string) {
		if f.canonical != nil {
			literal.SetKindCase(factory.NewLiteral(literal.ID(), types.String(f.canonical(s))))
		}
		if f.classes != nil && f.classes(s) {
			classed[expr] = f.class
		}
	})
	for expr, class := range classed {
		expr.SetKindCase(factory.NewIdent(expr.ID(), class))
		a.SetReference(expr.ID(), ast.NewIdentReference(class, nil))
	}
}

// visitValues visits the texts that facts are compared with; expr is the expression of the fact.
func visitValues(a *ast.AST, visit func(f *fact, expr, literal ast.Expr, s string)) {
	check := func(expr, literal ast.Expr) {
		f := factIndex[path(expr)]
		if f == nil || literal.Kind() != ast.LiteralKind {
			return
		}
		if s, ok := literal.AsLiteral().(types.String); ok {
			visit(f, expr, literal, string(s))
		}
	}
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		c := e.AsCall()
		switch c.FunctionName() {
		case operators.Equals, operators.NotEquals:
			check(c.Args()[0], c.Args()[1])
			check(c.Args()[1], c.Args()[0])
		case operators.In:
			if list := c.Args()[1]; list.Kind() == ast.ListKind {
				for _, element := range list.AsList().Elements() {
					check(c.Args()[0], element)
				}
			}
		}
	}))
}

// impossibleValueReason returns why a fact can never have a value, or "".
func (f *fact) impossibleValueReason(value string) string {
	switch {
	case value == "" && f.typ.IsExactType(cel.StringType):
		return fmt.Sprintf("%s is never empty; where it is not known, has(%s) is unknown", f.name, f.name)
	case f.values != nil && value == "unknown":
		return fmt.Sprintf("%s is never %q: an unknown fact makes the condition unknown, and only true acts", f.name,
			value)
	case f.values != nil && !slices.Contains(f.values, value):
		return fmt.Sprintf("%s is never %q; it is %s", f.name, value, document.OneOf(f.values))
	case f.lowerCase && value != strings.ToLower(value):
		return fmt.Sprintf("%s is never %q; its letters are small: %q", f.name, value, strings.ToLower(value))
	}
	return ""
}
