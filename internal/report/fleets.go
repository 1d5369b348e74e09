package report

import (
	"strconv"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Groups shows how many machines of each group are needed. Verb is the planner that asked.
func Groups(verb string, r accountplan.Groups) Sheet {
	s := Sheet{Verb: "plan " + verb, Title: plain.Count(len(r.Groups), "group of machines", "groups of machines") + " in the ledger", Assumptions: r.Assumptions}
	g := Grid{Title: "machines, the most in one hour", Head: []string{"team", "purpose", "type", "region", "ran", "worked", "needed", "not known", "saves a month"},
		Right: []bool{false, false, false, false, true, true, true, true, true}}
	for _, x := range r.Groups {
		g.Rows = append(g.Rows, []string{x.Team, x.Purpose, x.Type, x.Region, strconv.Itoa(x.Machines), strconv.Itoa(x.Working), strconv.Itoa(x.Needed), shareText(x.UnknownShare), "$" + x.SavingUSD})
	}
	s.Tables = append(s.Tables, g)
	return s
}

// Fleets shows how many machines each serving fleet needs.
func Fleets(r accountplan.Fleets) Sheet {
	s := Sheet{Verb: "plan capacity", Title: plain.Count(len(r.Fleets), "serving fleet") + " at a target of " + shareText(r.Target), Assumptions: r.Assumptions}
	g := Grid{Title: "fleets", Head: []string{"team", "type", "region", "machines", "busy", "needed", "then busy", "saves a month"}, Right: []bool{false, false, false, true, true, true, true, true}}
	for _, p := range r.Fleets {
		saving := "unknown"
		if p.SavingUSD != nil {
			saving = "$" + *p.SavingUSD
		}
		g.Rows = append(g.Rows, []string{p.Team, p.Type, p.Region, strconv.Itoa(p.Machines), shareText(p.Utilization), strconv.Itoa(p.Replicas), shareText(p.UtilizationAfter), saving})
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	return s
}
