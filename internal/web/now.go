package web

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

// shownFirst is the number of findings and of actions on the page Now.
const shownFirst = 5

// nowDoc is the content of the page Now.
type nowDoc struct {
	scan     *view.Scan
	scanErr  error
	week     [2]view.Costs
	weeks    bool
	weekErr  error
	counts   []count
	next     []*view.Finding
	actions  []view.Action
	names    map[string]view.Observed
	keeps    map[string]view.Keep
	mayUndo  bool
	actsErr  error
	hasTeams bool
}

// count is one of the four counts, a link to its rows.
type count struct {
	n          string
	label      string
	address    string
	unread     error
	noticeable bool
}

// nowPage shows what is wasted, by whom, and what to do first.
func nowPage(v *visit) (templ.Component, error) {
	d := nowDoc{names: map[string]view.Observed{}, keeps: map[string]view.Keep{}}
	if v.may(ops.GetLastScan.Info) {
		if d.scan, d.scanErr = v.scan(); d.scanErr == nil {
			d.next = doable(*d.scan)
			d.hasTeams = len(d.scan.Owners) > 0
		}
	}
	fleet, fleetErr := read(v, ops.ListResources, ops.ListInput{})
	for _, r := range fleet.Resources {
		d.names[r.ID] = r
	}
	if v.may(ops.ListKeeps.Info) {
		if keeps, err := read(v, ops.ListKeeps, ops.Paging{}); err == nil {
			for _, k := range keeps.Keeps {
				d.keeps[k.Resource] = k
			}
		}
	}
	if v.may(ops.ListActions.Info) {
		var acts view.Actions
		acts, d.actsErr = read(v, ops.ListActions, ops.Paging{Limit: 200})
		d.actions = acts.Actions
	}
	d.mayUndo = v.may(ops.UndoAction.Info)
	d.weeks, d.weekErr = v.weeks(&d.week)
	d.counts = v.counts(fleet, fleetErr, d.actions, d.actsErr)
	d.actions = carriedOut(d.actions)
	return nowContent(v, &d), nil
}

// doable are the findings to begin with: those whose fix does more than tell someone.
func doable(scan view.Scan) []*view.Finding {
	var out []*view.Finding
	for _, f := range report.Shown(scan, len(scan.Findings)) {
		if len(out) < shownFirst {
			out = append(out, f)
		}
	}
	return out
}

// carriedOut are the newest actions that did something, or are under way.
func carriedOut(all []view.Action) []view.Action {
	var out []view.Action
	for _, a := range all {
		if a.Phase != string(action.Observed) && a.Phase != string(action.Withdrawn) && len(out) < shownFirst {
			out = append(out, a)
		}
	}
	return out
}

// weeks reads what the last week and the one before it came to, and reports whether both are known
// and may be compared.
func (v *visit) weeks(out *[2]view.Costs) (bool, error) {
	var err error
	for i, p := range []runtime.Period{{Since: "7d"}, {Since: "14d", Until: "7d"}} {
		out[i], err = read(v, ops.GetCosts, spend.CostsQuery{Period: p, Granularity: "total"})
		if err != nil {
			return false, err
		}
		if out[i].Costs == nil || !out[i].Recorded {
			return false, nil
		}
	}
	return out[0].Comparison == nil || out[0].Comparison.Unknown == "", nil
}

// counts are the four counts of the page Now. Each is how many rows its page shows.
func (v *visit) counts(fleet view.Fleet, fleetErr error, acts []view.Action, actsErr error) []count {
	idle := count{label: "idle now", address: "/machines?duty=idle", unread: fleetErr}
	idle.set(countOf(fleet.Resources, func(r view.Observed) bool {
		return isMachine(r) && r.State == string(inventory.StateRunning) && dutyOf(r) == string(duty.Idle)
	}))
	waits := count{label: "waiting for a decision", address: "/approvals"}
	requests, err := read(v, ops.ListApprovals, ops.ApprovalsInput{})
	waits.unread = err
	waits.set(len(requests.Requests))
	ends := count{label: "stopping within an hour", address: "/machines?stops=1h", unread: actsErr}
	ends.set(len(v.stopping(acts)))
	over := count{label: "over budget", address: "/budgets"}
	budgets, err := read(v, ops.ListBudgets, ops.None{})
	over.unread = err
	over.set(countOf(budgets.Budgets, func(b view.Budget) bool { return b.State == budget.Over }))
	return []count{idle, waits, ends, over}
}

func (c *count) set(n int) {
	c.n, c.noticeable = strconv.Itoa(n), n > 0
	if c.unread != nil {
		c.n, c.noticeable = "?", true
	}
}

func countOf[T any](all []T, is func(T) bool) int {
	n := 0
	for _, v := range all {
		if is(v) {
			n++
		}
	}
	return n
}

// stopping are the actions that are due within an hour, by resource.
func (v *visit) stopping(acts []view.Action) map[string]view.Action {
	out := map[string]view.Action{}
	for _, a := range acts {
		if at, ok := due(a); ok && at.Before(v.now.Add(time.Hour)) {
			out[a.Resource] = a
		}
	}
	return out
}

// due returns the end of the grace period of a warned action.
func due(a view.Action) (time.Time, bool) {
	if a.Phase != string(action.Warned) || a.WarnedAt == nil {
		return time.Time{}, false
	}
	return a.WarnedAt.Add(time.Duration(a.GraceSeconds * float64(time.Second))), true
}

// isMachine reports whether a resource computes.
func isMachine(r view.Observed) bool { return inventory.Kind(r.Kind).Traits().Compute }

func dutyOf(r view.Observed) string {
	if r.Duty == nil {
		return ""
	}
	return *r.Duty
}

// resourceName returns the name of a resource, or its id.
func resourceName(r view.Observed) string {
	if r.Name != "" {
		return r.Name
	}
	return r.Resource
}

// nameOf returns the name of the resource with an identity.
func nameOf(names map[string]view.Observed, id string) string {
	if r, ok := names[id]; ok {
		return resourceName(r)
	}
	return lastPart(id)
}

// fullID is the identity of the resource of a finding.
func fullID(r *view.Resource) string {
	return fmt.Sprintf("%s/%s/%s/%s/%s", r.Cloud, r.Account, r.Region, r.Kind, r.ID)
}

// weekly prints the waste of a period and its total.
func weekly(c view.Costs) string {
	return money.Known(c.Total.Wasted).String() + " of " + money.Known(c.Total.Amount).String()
}

// name returns the name of the resource of a finding, or its id.
func name(r *view.Resource) string {
	if r.Name != "" {
		return r.Name
	}
	return r.ID
}

// lastPart is the provider's id of a resource in its identity.
func lastPart(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// doLabel is the one thing that a visitor does with a finding.
func doLabel(v *visit, f *view.Finding) string {
	verb := string(f.Fix.Change.Verb)
	if !v.mayIn(ops.FixFinding.Info, f.Resource.Owner.Team) {
		return "Review"
	}
	switch change.Verb(verb) {
	case "", change.Notify, change.Advise, change.Measure:
		return "Review"
	case change.Stop, change.Terminate, change.Delete:
		return capital(verb) + "…"
	}
	return "Fix…"
}

// undoable reports whether an action is one that can be taken back.
func undoable(a view.Action) bool {
	return a.Verb != string(change.Notify) && a.Verb != string(change.Terminate)
}

// noTeam is the team of what no tag gives one, in addresses.
const noTeam = "none"

func teamParameter(team string) string { return cmp.Or(team, noTeam) }

func teamName(team string) string { return cmp.Or(plain.Line(team), "no team tag") }

// length is an amount as a share of the largest one, as the width of a drawing.
func length(part, whole money.Dollars) string {
	p, w := part.Or(0), whole.Or(0)
	if p <= 0 || w <= 0 {
		return "0%"
	}
	return strconv.FormatFloat(100*min(1, money.Ratio(p, w)), 'f', 2, 64) + "%"
}
