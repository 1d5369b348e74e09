package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Gate shows a decision: the decision with its dollars, the next command, the reasons, then the
// estimate.
func Gate(d view.Gate) layout.Sheet {
	s := Estimate("gate", d.Estimate)
	basis := "decided by the shared settings: " + d.Settings.String()
	if d.Settings.Advisory {
		basis = "advisory: budgets, thresholds, approvers and prices come from the local configuration, which the person " +
			"who asks can change; `curfew settings set` binds every process"
	}
	s.Assumptions = append(s.Assumptions[:len(s.Assumptions):len(s.Assumptions)], basis)
	s.Title = gateTitle(d)
	s.Because = d.Reasons
	var tables []layout.Grid
	if len(d.Budget) > 0 {
		g := layout.Grid{
			Title: "budgets",
			Head:  []string{"budget", "state", "limit", "spent", "reserved", "this run", "remaining after", "ends"},
			Right: []bool{false, false, true, true, true, true, true, false}, States: []bool{1: true},
		}
		for _, l := range d.Budget {
			g.Rows = append(g.Rows, []string{
				l.Budget, budgetStates[l.State], l.Amount.Exact(), l.Used.Exact(), l.Held.Exact(), l.Asked.Exact(),
				l.LeftAfter.Exact(), plain.Date(l.Window.To),
			})
		}
		tables = append(tables, g)
	}
	by := approversText(d.Approvers)
	if len(d.WouldPass) > 0 {
		g := layout.Grid{
			Title: "would pass instead", Head: []string{"how", "change", "p95", "decision"},
			Right: []bool{false, false, true, false},
		}
		for _, w := range d.WouldPass {
			decision := "allowed"
			switch {
			case w.Kind == "raise":
				decision = "the budget owner decides"
			case w.Decision == gate.Held:
				decision = "needs approval by " + by
			}
			g.Rows = append(g.Rows, []string{w.Kind, w.What, w.P95.Exact(), decision})
		}
		tables = append(tables, g)
	}
	s.Tables = append(tables, s.Tables...)
	switch {
	case d.DryRun:
	case gate.Verdict(d.Decision) == gate.Held && d.ApprovalID != nil:
		s.Commands = []string{
			"curfew approve " + *d.ApprovalID + "   # by " + by + "; then run the same gate command again",
		}
	case d.HoldID != nil:
		s.Commands = []string{
			"curfew budget settle " + *d.HoldID + "   # when the run is done",
			"curfew budget release " + *d.HoldID + "   # if it does not start",
		}
	}
	return s
}

func approversText(names []string) string {
	if len(names) == 0 {
		return "an approver"
	}
	return strings.Join(names, " or ")
}

// gateTitle states the decision with its dollars: "Denied: budget vision exceeded by $2,176".
func gateTitle(d view.Gate) string {
	cost := fmt.Sprintf("%s %s costs %s", d.Kind, d.Name, d.P50.Dollars())
	if d.P95 != d.P50 {
		cost += " to " + d.P95.Dollars()
	}
	if d.Unpriced() {
		cost = fmt.Sprintf("the cost of %s %s is unknown", d.Kind, d.Name)
	}
	title := "Allowed: " + cost
	switch gate.Verdict(d.Decision) {
	case gate.Held:
		title = "Needs approval: " + cost
	case gate.Denied:
		title = "Denied: " + cost
		for _, l := range d.Budget {
			if l.LeftAfter < 0 {
				title = fmt.Sprintf("Denied: budget %s exceeded by %s", l.Budget, (-l.LeftAfter).Dollars())
				break
			}
		}
	}
	if d.DryRun {
		title += " (dry run: nothing is reserved or requested)"
	}
	return title
}

// GateReport shows how many runs needed an approval, and how long they waited.
func GateReport(d view.GateReport) layout.Sheet {
	s := layout.Sheet{
		Verb: "gate report", Title: fmt.Sprintf("No run was submitted from %s to %s",
			plain.Date(d.From), plain.Date(d.To)),
		Assumptions: d.Assumptions, Coverage: d.CoverageNotes, Changes: d.Changes}
	if d.AskedShare != nil {
		s.Title = fmt.Sprintf("%s of %s needed approval", plain.Share(*d.AskedShare, 0), plain.Count(d.Runs, "run"))
		s.Picture = chart.Bars{
			Title: "Runs by decision", Axis: chart.Axis{Label: "runs", Format: func(v float64) string {
				return plain.Number(v, 0)
			}}, Ordered: true, Rows: []chart.Bar{
				{
					Label: "allowed at once", Value: float64(d.Runs - d.Asked),
				}, {Label: "needed approval", Value: float64(d.Asked), Color: chart.Orange},
				{Label: "denied", Value: float64(d.Denied), Color: chart.Gray}}}.SVG()
		s.Caption = "Runs by decision; a denied submission is not a run."
	}
	s.Figures = []layout.Figure{
		{Label: "needed approval", Value: fmt.Sprint(d.Asked), Note: fmt.Sprintf("%d waiting", d.Waiting)},
		{Label: "denied", Value: fmt.Sprint(d.Denied)},
	}
	if d.WaitP50 != nil {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "median wait", Value: waited(*d.WaitP50), Note: "p95 " + waited(*d.WaitP95),
		})
	}
	return s
}

// waited formats a wait in seconds.
func waited(seconds float64) string {
	return plain.Duration(time.Duration(seconds * float64(time.Second)))
}
