package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// PolicyCheck shows cautions about policies, and the resources they could act on. next are
// suggested commands.
func PolicyCheck(doc view.PolicyCheck, next []string) layout.Sheet {
	s := layout.Sheet{Verb: "policy check", Title: policyCheckTitle(doc), Next: next}
	if len(doc.Warnings) > 0 {
		g := layout.Grid{Title: "Warnings", Head: []string{"policy", "warning", "where"}}
		for _, w := range doc.Warnings {
			g.Rows = append(g.Rows, []string{w.Policy, w.Message, fmt.Sprintf("%s:%d", w.File, w.Line)})
		}
		s.Tables = append(s.Tables, g)
	}
	if g, any := reachGrid(doc.Against); any {
		s.Tables = append(s.Tables, g)
		s.Assumptions = []string{
			"Every selected resource meets the condition of the policy: machines count as idle and measured.",
		}
		s.Coverage = []string{againstText(doc.Against)}
	}
	return s
}

func policyCheckTitle(doc view.PolicyCheck) string {
	return plain.Count(doc.Policies, "policy is", "policies are") + " valid, " +
		plain.Count(len(doc.Warnings), "warning")
}

func againstText(r *view.PolicyReach) string {
	return fmt.Sprintf("The scan of %s at %s, %s.", r.Cloud, plain.Time(r.At), plain.Count(r.Resources, "resource"))
}

// reachGrid lists the resources of a stored scan that policies could act on.
func reachGrid(r *view.PolicyReach) (layout.Grid, bool) {
	if r == nil {
		return layout.Grid{}, false
	}
	g := layout.Grid{
		Title: "What the policies could act on in the last scan",
		Head:  []string{"policy", "selects", "could act on", "unknown", "refused by"},
		Right: []bool{false, true, true, true},
	}
	for _, n := range r.Policies {
		var refused []string
		for _, rule := range slices.Sorted(maps.Keys(n.Refused)) {
			refused = append(refused, fmt.Sprintf("%s %d", rule, n.Refused[rule]))
		}
		g.Rows = append(g.Rows, []string{
			n.Policy, plain.Number(float64(n.Selected), 0), plain.Number(float64(n.CouldAct), 0),
			plain.Number(float64(n.Unknown), 0), strings.Join(refused, ", "),
		})
	}
	return g, true
}

// PolicyCheckText writes cautions in the style of compilers.
func PolicyCheckText(w io.Writer, doc view.PolicyCheck, o Options) error {
	p := layout.NewPaint(o.Color)
	for _, c := range doc.Warnings {
		line := layout.Hanging(fmt.Sprintf("%s:%d: policy %s: %s", c.File, c.Line, c.Policy, c.Message), o.Width, 0, 4)
		where := plain.Line(fmt.Sprintf("%s:%d:", c.File, c.Line))
		if rest, ok := strings.CutPrefix(line, where); ok {
			line = p.Attention(where) + rest
		}
		fmt.Fprintf(w, "%s\n", line)
	}
	_, err := fmt.Fprintf(w, "%s\n", policyCheckTitle(doc))
	if g, any := reachGrid(doc.Against); err == nil && any {
		err = layout.Sheet{
			Verb: "policy check --against last", Title: againstText(doc.Against),
			Tables: []layout.Grid{g}, Color: o.Color,
		}.Text(w, o.Width)
	}
	return err
}

// PolicyTest shows the results of test cases, failures first.
func PolicyTest(doc view.PolicyTest) layout.Sheet {
	s := layout.Sheet{Verb: "policy test", Title: policyTestTitle(doc)}
	cases := slices.Clone(doc.Cases)
	slices.SortStableFunc(cases, func(a, b view.PolicyCase) int { return cmp.Compare(passedLast(a), passedLast(b)) })
	g := layout.Grid{Title: "Cases", Head: []string{"result", "case", "where"}, States: []bool{true}}
	for _, c := range cases {
		result := "ok"
		if !c.Passed {
			result = "FAIL"
			for _, f := range c.Failures {
				s.Because = append(s.Because, c.Name+": "+f)
			}
		}
		g.Rows = append(g.Rows, []string{result, c.Name, fmt.Sprintf("%s:%d", c.File, c.Line)})
	}
	s.Tables = []layout.Grid{g}
	return s
}

func passedLast(c view.PolicyCase) int {
	if c.Passed {
		return 1
	}
	return 0
}

func policyTestTitle(doc view.PolicyTest) string {
	return fmt.Sprintf("%s, %d failed", plain.Count(len(doc.Cases), "case"), doc.Failed)
}

// PolicyTestText writes a line per test case.
func PolicyTestText(w io.Writer, doc view.PolicyTest, o Options) error {
	p := layout.NewPaint(o.Color)
	for _, c := range doc.Cases {
		if c.Passed {
			fmt.Fprintf(w, "%s    %s\n", p.Saving("ok"), layout.Hanging(c.File+": "+c.Name, o.Width, 6, 6))
			continue
		}
		fmt.Fprintf(w, "%s  %s\n", p.Waste("FAIL"),
			layout.Hanging(fmt.Sprintf("%s:%d: %s", c.File, c.Line, c.Name), o.Width,
				6, 6))
		for _, why := range c.Failures {
			fmt.Fprintf(w, "      %s\n", layout.Hanging(why, o.Width, 6, 6))
		}
	}
	_, err := fmt.Fprintf(w, "%s\n", policyTestTitle(doc))
	return err
}

// PolicyExplain shows the result of every policy for a resource, matching ones first.
func PolicyExplain(doc view.PolicyExplain) layout.Sheet {
	s := layout.Sheet{Verb: "policy explain", Title: explainTitle(doc)}
	if d := doc.Duty; d != nil {
		s.Figures = []layout.Figure{{Label: "duty now", Value: dutyText(d), Note: d.Why}}
	}
	if d := doc.Audit; d != nil {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "over " + string(doc.AuditWindow), Value: dutyText(d), Note: d.Why,
		})
	}
	policies := slices.Clone(doc.Policies)
	order := []string{"true", "unknown", "false"}
	slices.SortStableFunc(policies, func(a, b view.ExplainedPolicy) int {
		return cmp.Compare(slices.Index(order, a.Answer), slices.Index(order, b.Answer))
	})
	for _, p := range policies {
		g := layout.Grid{
			Title: p.Policy + ": " + answerText(p), Head: []string{"part", "answer", "condition", "because"},
			States: []bool{false, true},
		}
		for _, part := range p.Parts {
			g.Rows = append(g.Rows, []string{part.Name, part.Answer, part.Text, part.Why})
		}
		s.Tables = append(s.Tables, g)
	}
	return s
}

// PolicyExplainText writes the result of every policy for a resource.
func PolicyExplainText(w io.Writer, doc view.PolicyExplain, o Options) error {
	p, width := layout.NewPaint(o.Color), o.Width
	state := func(text string, columns int) string {
		space := strings.Repeat(" ", max(0, columns-layout.Width(text)))
		if color := p.State(text); color != nil {
			text = color(text)
		}
		return text + space
	}
	fmt.Fprintf(w, "%s\n",
		layout.Hanging(strings.Join(slices.DeleteFunc([]string{doc.Kind, doc.Type, doc.Name, doc.Region},
			func(s string) bool { return s == "" }), "  "), width, 0, 2))
	for _, line := range []struct {
		label string
		duty  *view.ExplainedDuty
	}{{"duty now: ", doc.Duty}, {"over " + string(doc.AuditWindow) + ", as scan judges: ", doc.Audit}} {
		if d := line.duty; d != nil {
			text := layout.Hanging(line.label+dutyText(d)+": "+d.Why, width, 2, 4)
			fmt.Fprintf(w, "  %s\n", strings.Replace(text, line.label+d.State, line.label+state(d.State, 0), 1))
		}
	}
	fmt.Fprintf(w, "  %s\n", layout.Hanging(explainTitle(doc), width, 2, 4))
	for _, e := range doc.Policies {
		name := layout.Hanging(e.Policy+": "+answerText(e), width, 0, 4)
		fmt.Fprintf(w, "\n%s\n", strings.Replace(name, ": "+e.Answer, ": "+state(e.Answer, 0), 1))
		for _, part := range e.Parts {
			fmt.Fprintf(w, "  %-9s %s %s\n", part.Name, state(part.Answer, 8),
				layout.Hanging(part.Text, width, 21, 21))
			if part.Why != "" {
				fmt.Fprintf(w, "%21s%s\n", "", layout.Hanging(part.Why, width, 21, 21))
			}
		}
	}
	return nil
}

// explainTitle counts the policies that match a resource.
func explainTitle(doc view.PolicyExplain) string {
	counts := map[string]int{}
	for _, p := range doc.Policies {
		counts[p.Answer]++
	}
	out := fmt.Sprintf("%s: %d of %s match", doc.Name, counts["true"],
		plain.Count(len(doc.Policies), "policy", "policies"))
	if n := counts["unknown"]; n > 0 {
		out += fmt.Sprintf(", %d unknown", n)
	}
	return out
}

func dutyText(d *view.ExplainedDuty) string {
	if d.LastingSeconds == 0 {
		return d.State
	}
	return d.State + " for " + plain.Duration(d.Lasting())
}

func answerText(p view.ExplainedPolicy) string {
	if p.Next == nil {
		return p.Answer
	}
	return p.Answer + ", may change at " + plain.Time(*p.Next)
}
