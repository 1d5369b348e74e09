package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/parser"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/plain"
)

// figuresName is the variable behind figures about GPUs: a map from each as a number. No
// condition can spell it.
const figuresName = "@gpu"

// figureRoot is the first word of their names.
const figureRoot = "gpu"

// FigureInfo is a figure about GPUs that conditions can ask for, for people.
type FigureInfo struct {
	// Name is the quantity's, and Calls are its forms, such as gpu.util.mean("30m").
	Name  string
	Calls []string
	// Doc says what it is, Unit its unit, and Worst which GPU is the worst one.
	Doc, Unit, Worst string
}

// Figures returns every figure about GPUs that conditions can ask for.
func Figures() []FigureInfo {
	var out []FigureInfo
	for _, q := range duty.Quantities() {
		f := FigureInfo{Name: q.Name, Doc: q.Doc, Unit: q.Unit, Worst: q.Worst}
		for _, worst := range []bool{false, true} {
			for _, s := range q.Statistics {
				if !worst || q.Worst != "" {
					f.Calls = append(f.Calls,
						call(duty.Figure{Quantity: q.Quantity, Statistic: s, Worst: worst, Window: 30 * time.Minute}))
				}
			}
		}
		out = append(out, f)
	}
	return out
}

// call writes a figure as conditions ask for it.
func call(f duty.Figure) string {
	return fmt.Sprintf("%s(%q)", f.Name(), plain.ExactDuration(f.Window))
}

// figureMacros make gpu.util.mean("30m") a look into the figures about GPUs.
func figureMacros() []cel.Macro {
	var names []string
	for _, q := range duty.Quantities() {
		for _, s := range q.Statistics {
			if !slices.Contains(names, s.String()) {
				names = append(names, s.String())
			}
		}
	}
	var out []cel.Macro
	for _, name := range names {
		out = append(out,
			cel.ReceiverMacro(name, 1, func(eh parser.ExprHelper, target ast.Expr, args []ast.Expr) (ast.Expr,
				*common.Error) {
				of := path(target)
				if root, _, _ := strings.Cut(of, "."); root != figureRoot {
					return nil, nil
				}
				f, why := figureNamed(of, name)
				if why != "" {
					return nil, eh.NewError(target.ID(), why)
				}
				if f.Window, why = windowOf(args[0]); why != "" {
					return nil, eh.NewError(args[0].ID(),
						call(duty.Figure{
							Quantity: f.Quantity, Statistic: f.Statistic, Worst: f.Worst, Window: 30 * time.Minute,
						})+": "+
							why)
				}
				return eh.NewCall(operators.Index, eh.NewIdent(figuresName), eh.NewLiteral(types.Int(keyOf(f)))), nil
			}))
	}
	return out
}

// figureNamed returns the figure with a name, less its window, or why there is none.
func figureNamed(of, statistic string) (duty.Figure, string) {
	name, worst := strings.CutSuffix(of, ".worst")
	all := duty.Quantities()
	i := slices.IndexFunc(all, func(q duty.QuantityInfo) bool { return q.Name == name })
	if i < 0 {
		return duty.Figure{}, noFigure(of)
	}
	s := slices.IndexFunc(all[i].Statistics, func(s duty.Statistic) bool { return s.String() == statistic })
	switch {
	case s < 0:
		return duty.Figure{}, of + " has no " + statistic + "; there is " + strings.Join(Figures()[i].Calls, ", ")
	case worst && all[i].Worst == "":
		return duty.Figure{}, "there is no worst of " + name + "; there is " + strings.Join(Figures()[i].Calls, ", ")
	}
	return duty.Figure{Quantity: all[i].Quantity, Statistic: all[i].Statistics[s], Worst: worst}, ""
}

// noFigure says which figures there are in the place of a name that is none.
func noFigure(name string) string {
	var names []string
	for _, q := range duty.Quantities() {
		if names = append(names, q.Name); strings.TrimSuffix(name, ".worst") == q.Name {
			return name + " is asked for over a window, as in " + Figures()[q.Quantity].Calls[0]
		}
	}
	return fmt.Sprintf("%s is no figure about GPUs; there are %s%s", name, strings.Join(names, ", "),
		document.DidYouMean(name, names))
}

// windowOf reads the window of a figure, or says what is wrong with it.
func windowOf(e ast.Expr) (time.Duration, string) {
	if e.Kind() != ast.LiteralKind {
		return 0, "the window is written out"
	}
	s, ok := e.AsLiteral().(types.String)
	if !ok {
		return 0, "the window is written out"
	}
	switch d, err := plain.ParseDuration(string(s)); {
	case err != nil:
		return 0, err.Error()
	case d < duty.ShortestWindow || d > duty.LongestWindow || d%time.Second != 0:
		return 0, fmt.Sprintf("a window is %s to %s, in whole seconds", plain.ExactDuration(duty.ShortestWindow),
			plain.ExactDuration(duty.LongestWindow))
	default:
		return d, ""
	}
}

// keyOf returns a figure as a number.
func keyOf(f duty.Figure) int64 {
	key := int64(f.Quantity)<<48 | int64(f.Statistic)<<40 | int64(f.Window/time.Second)
	if f.Worst {
		key |= 1 << 32
	}
	return key
}

// figureAt returns the figure of a number that keyOf returned.
func figureAt(key int64) duty.Figure {
	return duty.Figure{
		Quantity: duty.Quantity(key >> 48), Statistic: duty.Statistic(key >> 40 & 0xff), Worst: key>>32&1 == 1,
		Window: time.Duration(key&(1<<32-1)) * time.Second}
}

// figureOf returns the figure that an expression asks for.
func figureOf(e ast.Expr) (duty.Figure, bool) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index ||
		path(e.AsCall().Args()[0]) != figuresName {
		return duty.Figure{}, false
	}
	key, ok := e.AsCall().Args()[1].AsLiteral().(types.Int)
	return figureAt(int64(key)), ok
}

// gauged is the figures of a resource as CEL looks into them.
type gauged struct {
	traits.Mapper
	a *activation
}

var noFigures = types.DefaultTypeAdapter.NativeToValue(map[int64]float64{}).(traits.Mapper)

// Find returns a figure.
func (g gauged) Find(key ref.Val) (ref.Val, bool) {
	k, ok := key.(types.Int)
	if !ok {
		return nil, false
	}
	f := g.a.f
	if r := f.GPUs.Read(f.Now, figureAt(int64(k)), false); r.Known {
		return types.Double(r.Value), true
	}
	return unknown, true
}

// Figures returns the figures about GPUs that the conditions ask for.
func (p *Policy) Figures() []duty.Figure {
	var out []duty.Figure
	for _, c := range []*condition{p.where, p.when} {
		if c != nil {
			out = append(out, c.figures...)
		}
	}
	return out
}

// Watch returns what has to be kept of the samples of GPUs for the policies; nil for nothing.
func (s *Set) Watch() *duty.Watch {
	var all []duty.Figure
	for _, p := range s.Policies {
		all = append(all, p.Figures()...)
	}
	return duty.NewWatch(all)
}

// AsksFigures says whether the conditions ask for figures about GPUs.
func (p *Policy) AsksFigures() bool {
	return p.where != nil && len(p.where.figures) > 0 || p.when != nil && len(p.when.figures) > 0
}
