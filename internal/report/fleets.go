package report

import (
	"fmt"
	"strconv"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// Groups shows the required machines of each group. verb is the calling planner.
func Groups(verb string, r accountplan.Groups) layout.Sheet {
	s := layout.Sheet{Verb: "plan " + verb, Assumptions: r.Assumptions}
	g := layout.Grid{
		Title: "Machines, the most in one hour", Head: []string{
			"team", "purpose", "type", "region", "ran", "worked", "needed", "unknown duty", "saves a month",
		},
		Right: []bool{false, false, false, false, true, true, true, true, true}, Priority: []int{2, 0, 3, 1}}
	var saved money.Amount
	extra := 0
	for _, x := range r.Groups {
		if x.Machines > x.Needed {
			saved, extra = saved+x.SavingUSD, extra+x.Machines-x.Needed
		}
		g.Rows = append(g.Rows, []string{
			x.Team, x.Purpose, x.Type, x.Region, strconv.Itoa(x.Machines),
			strconv.Itoa(x.Working), strconv.Itoa(x.Needed),
			plain.Share(x.UnknownShare, 1), x.SavingUSD.Dollars(),
		})
	}
	s.Tables = append(s.Tables, g)
	if extra > 0 {
		s.Title = fmt.Sprintf("Remove %s of %s: saves %s a month", plain.Count(extra, "machine"),
			plain.Count(len(r.Groups), "group"), saved.Dollars())
		s.Next = []string{"curfew plan " + verb + " --from scan"}
	} else {
		s.Title = fmt.Sprintf("Keep all machines: in each of %s, all of them are needed in some hour",
			plain.Count(len(r.Groups), "group"))
	}
	return s
}

// Fleets shows the required machines of each serving fleet.
func Fleets(r accountplan.Fleets) layout.Sheet {
	s := layout.Sheet{Verb: "plan capacity", Assumptions: r.Assumptions}
	g := layout.Grid{
		Title: "Serving fleets", Head: []string{
			"team", "type", "region", "machines", "utilization", "needed", "then", "saves a month",
		},
		Right: []bool{false, false, false, true, true, true, true, true}, Priority: []int{2, 3, 1}}
	var sum money.Amount
	changed, unpriced := 0, false
	for _, p := range r.Fleets {
		saving := "unknown"
		if p.Replicas != p.Machines {
			changed++
			unpriced = unpriced || !p.SavingUSD.Known()
		}
		if p.SavingUSD.Known() {
			saving = p.SavingUSD.String()
			sum += p.SavingUSD.Or(0)
		}
		g.Rows = append(g.Rows, []string{
			p.Team, p.Type, p.Region, strconv.Itoa(p.Machines), plain.Share(p.Utilization, 1),
			strconv.Itoa(p.Replicas),
			plain.Share(p.UtilizationAfter, 1), saving,
		})
		g.Notes = append(g.Notes, p.Note)
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	dollars := "saves " + sum.Dollars() + " a month"
	if sum < 0 {
		dollars = "costs " + (-sum).Dollars() + " a month more"
	}
	if unpriced {
		dollars += ", without the fleets that have no price"
	}
	switch {
	case len(r.Fleets) == 0:
		s.Title = "No serving fleet: no running machine has purpose inference and GPU metrics"
	case changed == 0:
		s.Title = fmt.Sprintf("Keep %s as they are: utilization is close to %s",
			plain.Count(len(r.Fleets), "serving fleet"),
			plain.Share(r.Target, 0))
	default:
		s.Title = fmt.Sprintf("Resize %d of %s to %s utilization: %s", changed,
			plain.Count(len(r.Fleets), "serving fleet"),
			plain.Share(r.Target, 0), dollars)
	}
	return s
}
