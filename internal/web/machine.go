package web

import (
	"maps"
	"slices"
	"time"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// timelineDays is the length of the time axis of a machine.
const timelineDays = 14

// machineDoc is the content of the page of one machine.
type machineDoc struct {
	machine
	timeline string
	costs    *layout.Sheet
	findings []*view.Finding
	pictures []layout.Picture
	entries  []view.AuditEntry
	actions  []view.Action
	problems []error
	sessions []view.Run
}

// machinePage shows one resource: what it does, why it is judged so, what it costs, what happens
// next, and what happened.
func machinePage(v *visit) (templ.Component, error) {
	id := v.r.PathValue("id")
	fleet, err := read(v, ops.GetResource, ops.ByID{ID: id})
	if err != nil {
		return nil, err
	}
	r := fleet.Resources[0]
	d := machineDoc{machine: v.aboutMachines().machine(r)}
	one := []machine{d.machine}
	v.addCosts(one)
	d.cost = one[0].cost
	history, err := read(v, ops.GetResourceHistory, ops.ByID{ID: r.ID})
	d.note(err)
	if v.may(ops.ListAudit.Info) {
		log, err := read(v, ops.ListAudit, ops.AuditInput{Resource: r.ID, Newest: 40})
		d.note(err)
		d.entries = log.Entries
	}
	if isMachine(r) {
		from := latestOf(v.now.Add(-timelineDays*24*time.Hour), r.FirstAt)
		for _, c := range history.Changes {
			if c.Since != nil && c.Since.Before(from) {
				from = latestOf(v.now.Add(-timelineDays*24*time.Hour), *c.Since)
			}
		}
		if v.now.After(from) {
			d.timeline = report.MachineTimeline(history, d.entries, from, v.now)
		}
	}
	slices.Reverse(d.entries)
	v.machineCosts(&d)
	v.machineFindings(&d)
	if v.may(ops.ListActions.Info) {
		acts, err := read(v, ops.ListActions, ops.Paging{Limit: 200})
		d.note(err)
		for _, a := range acts.Actions {
			if a.Resource == r.ID && len(d.actions) < shownFirst {
				d.actions = append(d.actions, a)
			}
		}
	}
	if v.may(ops.ListSessions.Info) {
		if runs, err := read(v, ops.ListSessions, ops.SessionsInput{}); err == nil {
			for _, s := range runs.Runs {
				if slices.Contains(s.ResourceIDs, r.Resource) {
					d.sessions = append(d.sessions, s)
				}
			}
		}
	}
	return machineContent(v, &d), nil
}

func (d *machineDoc) note(err error) {
	if err != nil {
		d.problems = append(d.problems, err)
	}
}

// machineCosts adds what the machine came to, day by day.
func (v *visit) machineCosts(d *machineDoc) {
	doc, err := read(v, ops.GetCosts, spend.CostsQuery{
		Period: runtime.Period{Since: "14d"}, Granularity: "day",
		Where: []string{string(ledger.ByResource) + "=" + d.ID},
	})
	if err != nil || doc.Costs == nil || len(doc.Rows) == 0 {
		return
	}
	sheet := report.Costs(doc)
	d.costs = &sheet
}

// machineFindings adds the findings about the machine, with what was measured.
func (v *visit) machineFindings(d *machineDoc) {
	if !v.may(ops.GetLastScan.Info) {
		return
	}
	scan, err := v.scan()
	if err != nil {
		return
	}
	for _, f := range report.Ranked(*scan) {
		if fullID(&f.Resource) != d.ID {
			continue
		}
		d.findings = append(d.findings, f)
		if len(d.pictures) == 0 {
			for _, s := range f.Samples {
				d.pictures = append(d.pictures, report.Spark(s))
			}
		}
	}
}

func latestOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// evidenceText is the evidence of a finding without its pictures, which the page shows already.
func evidenceText(f *view.Finding) *layout.Detail {
	d := report.Evidence(f)
	d.Pictures = nil
	return d
}
