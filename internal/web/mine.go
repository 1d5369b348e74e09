package web

import (
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// mineDoc is the content of the page Mine.
type mineDoc struct {
	person   string
	own      bool
	runs     []view.Run
	runsErr  error
	jobs     []view.Run
	jobsErr  error
	machines []machine
	costs    *view.Costs
	people   []string
}

// minePage shows what one person runs: sessions, machines, what happens when, and the cost of the
// month. It is the visitor's, or that of another person whom they may see.
func minePage(v *visit) (templ.Component, error) {
	d := mineDoc{person: v.Call.Who.Name, own: true}
	if of := strings.TrimSpace(v.r.URL.Query().Get("of")); of != "" && of != d.person {
		d.person, d.own = of, false
	}
	runs, err := read(v, ops.ListSessions, ops.SessionsInput{})
	d.runsErr = err
	for _, r := range runs.Runs {
		if isNamed(d.person, r.AskedBy, r.Owner.User) {
			d.runs = append(d.runs, r)
		}
	}
	jobs, err := read(v, ops.ListJobs, ops.JobsInput{})
	d.jobsErr = err
	for _, r := range jobs.Runs {
		if isNamed(d.person, r.AskedBy, r.Owner.User) {
			d.jobs = append(d.jobs, r)
		}
	}
	fleet, err := read(v, ops.ListResources, ops.ListInput{})
	if err != nil {
		return nil, err
	}
	about := v.aboutMachines()
	for _, r := range fleet.Resources {
		if !isMachine(r) {
			continue
		}
		if r.Owner.User != "" {
			d.people = append(d.people, r.Owner.User)
		}
		if isNamed(d.person, r.Owner.User) {
			d.machines = append(d.machines, about.machine(r))
		}
	}
	d.people = distinct(d.people)
	slices.SortStableFunc(d.machines, func(a, b machine) int { return first(b.act != nil) - first(a.act != nil) })
	v.addCosts(d.machines)
	if !strings.ContainsAny(d.person, ",=") {
		costs, err := read(v, ops.GetCosts, spend.CostsQuery{
			Period: runtime.Period{Since: "month"}, Granularity: "total",
			Where: []string{string(ledger.ByUser) + "=" + d.person},
		})
		if err == nil && costs.Costs != nil && costs.Recorded {
			d.costs = &costs
		}
	}
	return mineContent(v, &d), nil
}

func first(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// isNamed reports whether one of some names is a person's, by itself or as a mail address.
func isNamed(who string, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return n != "" && (strings.EqualFold(n, who) || strings.EqualFold(strings.SplitN(n, "@", 2)[0], who))
	})
}

// runs reports whether the visitor may extend and end a session.
func (v *visit) runs(r view.Run) bool {
	own := r.AskedBy == v.Call.Who.Name || r.Owner.User == v.Call.Who.Name
	return v.Call.Sees(approval.RoleOperator, r.Owner.Team) || own && v.mayIn(ops.Down.Info, r.Owner.Team)
}

// idleText returns the idle time after which a session ends.
func idleText(r view.Run) string {
	d, err := time.ParseDuration(r.Idle)
	if err != nil || d <= 0 {
		return ""
	}
	return "for " + plain.Duration(d)
}
