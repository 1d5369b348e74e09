package report

import (
	"fmt"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// WastedNow states the waste of an audit in one sentence, with the total.
func WastedNow(scan view.Scan) string {
	n := scan.Now
	if n == nil || !n.RunningUSD.Known() || !n.WastedUSD.Known() || n.WastedUSD.Or(0) == 0 {
		return layout.Capital(headline(newAudit(scan, Options{})))
	}
	return fmt.Sprintf("%s a month is wasted now, %s of %s", n.WastedUSD,
		plain.Share(share(n.WastedUSD, n.RunningUSD), 0), n.RunningUSD)
}

// NowParts divides the running cost, the wasted part first.
func NowParts(scan view.Scan) []layout.Part {
	parts := newAudit(scan, Options{}).parts()
	if len(parts) != 4 {
		return parts
	}
	used, wasted, unmeasured, other := parts[0], parts[1], parts[2], parts[3]
	return []layout.Part{wasted, unmeasured, used, other}
}

// Shown returns the n most worthwhile findings; all if n < 0.
func Shown(scan view.Scan, n int) []*view.Finding { return newAudit(scan, Options{}).shown(n) }

// Ranked returns all findings, the most worthwhile first.
func Ranked(scan view.Scan) []*view.Finding {
	return newAudit(scan, Options{All: true}).ranked()
}

// Saves formats the monthly saving of a finding.
func Saves(f *view.Finding) string { return saves(f) }

// Owner formats the owner of a resource: "vision/ana".
func Owner(r *view.Resource) string { return owner(r) }

// Evidence returns the evidence of a finding with its pictures.
func Evidence(f *view.Finding) *layout.Detail { return detail(f) }

// Spark draws one signal of a resource.
func Spark(in view.Samples) layout.Picture { return draw(&in).picture() }

// StepName formats the name of a step.
func StepName(s *view.ScanStep) string { return stepName(s) }

// StepSaves formats the monthly saving of a step's fixes.
func StepSaves(s *view.ScanStep) string { return saving(s.MonthlySavingsUSD, s.SavingsUpperBoundUSD) }

// machineKinds are the color meanings of a machine's timeline.
var machineKinds = []chart.Kind{
	{Name: "busy", Color: chart.Blue}, {Name: "idle, held or stalled", Color: chart.Orange},
	{Name: "other", Color: chart.SoftBlue}, {Name: "unmeasured", Color: chart.Hatched},
	{Name: "not running", Color: chart.Gray},
}

func dutyKind(d string) chart.Kind {
	switch duty.State(d) {
	case duty.Busy:
		return machineKinds[0]
	case duty.Idle, duty.Held, duty.Stalled:
		return machineKinds[1]
	case duty.Unknown, duty.State(duty.Unknown.String()):
		return machineKinds[3]
	}
	return machineKinds[2]
}

// MachineTimeline draws the verdicts, states, warnings and actions of one machine on a time axis,
// from a time to now.
func MachineTimeline(h view.History, entries []view.AuditEntry, from, now time.Time) string {
	l := chart.Lanes{
		Title: "Verdicts, states and actions over time", Axis: chart.Dates(from, now), Kinds: machineKinds,
		Rows: []chart.Lane{{Label: "verdict"}, {Label: "state"}},
	}
	for lane, what := range []string{"duty", "state"} {
		begins, value := from, ""
		add := func(until time.Time) {
			if value == "" || !until.After(begins) || !until.After(from) {
				return
			}
			kind := dutyKind(value)
			if what == "state" {
				if kind = machineKinds[0]; value != "running" {
					kind = machineKinds[4]
				}
			}
			block := chart.Block{
				From: chart.Second(latest(begins, from)), To: chart.Second(until), Label: value, Color: kind.Color,
			}
			l.Rows[lane].Blocks = append(l.Rows[lane].Blocks, block)
		}
		for _, c := range h.Changes {
			if c.What != what {
				continue
			}
			at := c.At
			if c.Since != nil {
				at = latest(*c.Since, begins)
			}
			add(at)
			begins, value = at, c.Value
		}
		add(now)
	}
	for _, e := range entries {
		switch e.What {
		case action.EventWarned, action.EventConfirmed, action.EventKeep, action.EventUndone, action.EventWithdrawn:
			if e.At.After(from) && len(l.Marks) < maxTimelineMarks {
				l.Marks = append(l.Marks, chart.Mark{
					At: chart.Second(e.At), Label: layout.Joined(" ", e.What, e.Verb),
				})
			}
		}
	}
	return l.SVG()
}

// maxTimelineMarks bounds the warnings and actions named on a timeline.
const maxTimelineMarks = 8

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// WaitText formats a wait before release.
func WaitText(w backtest.Wait) string { return spanText(w.WaitSeconds) }

// WaitHours returns the savings of a wait, net of restarts.
func WaitHours(w backtest.Wait) string { return hoursText(w.NetSavedHours) }

// WaitPolicy returns a policy that stops an idle machine after a wait.
func WaitPolicy(w backtest.Wait) string {
	return `apiVersion: curfew.policy/v1
policies:
  - name: idle-ephemeral
    select: {kind: instance, lifetime: ephemeral}
    when: duty.state == "idle" && duty.lasting >= duration("` + strconv.FormatFloat(w.WaitSeconds, 'f', -1, 64) + `s")
    then:
      - warn: {notify: owner, grace: 15m}
      - do: stop
`
}
