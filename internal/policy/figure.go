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

// figuresName is the variable behind GPU figures: a map from figureKey to a number. Conditions
// cannot spell it.
const figuresName = "@gpu"

// figureRoot is the first part of figure names.
const figureRoot = "gpu"

// FigureInfo documents a GPU figure of conditions.
type FigureInfo struct {
	// Name is the quantity's name, and Calls its forms, such as gpu.util.mean("30m").
	Name  string
	Calls []string
	// Doc describes the figure, Unit is its unit, and Worst how the worst GPU is chosen.
	Doc, Unit, Worst string
}

// Figures returns all GPU figures of conditions.
func Figures() []FigureInfo {
	var out []FigureInfo
	for _, q := range duty.Quantities() {
		f := FigureInfo{Name: q.Name, Doc: q.Doc, Unit: q.Unit, Worst: q.Worst}
		for _, worst := range []bool{false, true} {
			for _, s := range q.Statistics {
				if !worst || q.Worst != "" {
					f.Calls = append(f.Calls,
						figureCall(duty.Figure{
							Quantity: q.Quantity, Statistic: s, Worst: worst, Window: 30 * time.Minute,
						}))
				}
			}
		}
		out = append(out, f)
	}
	return out
}

// figureCall returns a figure as written in conditions.
func figureCall(f duty.Figure) string {
	return fmt.Sprintf("%s(%q)", f.Name(), plain.ExactDuration(f.Window))
}

// figureMacros expand gpu.util.mean("30m") to a lookup in the figures.
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
				if f.Window, why = parseWindow(args[0]); why != "" {
					return nil, eh.NewError(args[0].ID(),
						figureCall(duty.Figure{
							Quantity: f.Quantity, Statistic: f.Statistic, Worst: f.Worst, Window: 30 * time.Minute,
						})+": "+
							why)
				}
				return eh.NewCall(operators.Index, eh.NewIdent(figuresName),
					eh.NewLiteral(types.Int(figureKey(f)))), nil
			}))
	}
	return out
}

// figureNamed returns the figure with a name, without its window, or why there is none.
func figureNamed(of, statistic string) (duty.Figure, string) {
	name, worst := strings.CutSuffix(of, ".worst")
	all := duty.Quantities()
	i := slices.IndexFunc(all, func(q duty.QuantityInfo) bool { return q.Name == name })
	if i < 0 {
		return duty.Figure{}, unknownFigureText(of)
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

// unknownFigureText lists the figures for a name that is not one.
func unknownFigureText(name string) string {
	var names []string
	for _, q := range duty.Quantities() {
		if names = append(names, q.Name); strings.TrimSuffix(name, ".worst") == q.Name {
			return name + " is asked for over a window, as in " + Figures()[q.Quantity].Calls[0]
		}
	}
	return fmt.Sprintf("%s is no figure about GPUs; there are %s%s", name, strings.Join(names, ", "),
		document.DidYouMean(name, names))
}

// parseWindow parses the window of a figure, or returns what is wrong with it.
func parseWindow(e ast.Expr) (time.Duration, string) {
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

// figureKey encodes a figure as a number.
func figureKey(f duty.Figure) int64 {
	key := int64(f.Quantity)<<48 | int64(f.Statistic)<<40 | int64(f.Window/time.Second)
	if f.Worst {
		key |= 1 << 32
	}
	return key
}

// figureFromKey decodes a number from figureKey.
func figureFromKey(key int64) duty.Figure {
	return duty.Figure{
		Quantity: duty.Quantity(key >> 48), Statistic: duty.Statistic(key >> 40 & 0xff), Worst: key>>32&1 == 1,
		Window: time.Duration(key&(1<<32-1)) * time.Second}
}

// figureOf returns the figure of a lookup expression.
func figureOf(e ast.Expr) (duty.Figure, bool) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index ||
		path(e.AsCall().Args()[0]) != figuresName {
		return duty.Figure{}, false
	}
	key, ok := e.AsCall().Args()[1].AsLiteral().(types.Int)
	return figureFromKey(int64(key)), ok
}

// figureMapper computes the figures of a resource for CEL.
type figureMapper struct {
	traits.Mapper
	a *activation
}

var noFigures = types.DefaultTypeAdapter.NativeToValue(map[int64]float64{}).(traits.Mapper)

// Find returns the value of a figure.
func (g figureMapper) Find(key ref.Val) (ref.Val, bool) {
	k, ok := key.(types.Int)
	if !ok {
		return nil, false
	}
	f := g.a.facts
	if r := f.GPUs.Read(f.Now, figureFromKey(int64(k)), false); r.Known {
		return types.Double(r.Value), true
	}
	return unknown, true
}

// Figures returns the GPU figures of the conditions.
func (p *Policy) Figures() []duty.Figure {
	var out []duty.Figure
	for _, c := range []*condition{p.where, p.when} {
		if c != nil {
			out = append(out, c.figures...)
		}
	}
	return out
}

// Watch returns the watch of the policies' GPU figures; nil without any.
func (s *Set) Watch() *duty.Watch {
	var all []duty.Figure
	for _, p := range s.Policies {
		all = append(all, p.Figures()...)
	}
	return duty.NewWatch(all)
}

// UsesFigures reports whether the conditions use GPU figures.
func (p *Policy) UsesFigures() bool {
	return p.where != nil && len(p.where.figures) > 0 || p.when != nil && len(p.when.figures) > 0
}
