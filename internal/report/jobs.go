package report

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// JobLine summarizes the cost of a finished job: "$14.20; on demand $46.00. 3 interruptions cost
// 11m."
func JobLine(r view.Run) string {
	line := dollarsOf(r.CostUSD)
	if r.Job.OnDemandUSD.Known() {
		line += "; on demand " + r.Job.OnDemandUSD.String()
	}
	if r.Job.Interruptions == 0 {
		return line + ". No interruption."
	}
	return fmt.Sprintf("%s. %s cost %s.", line, plain.Count(r.Job.Interruptions, "interruption"),
		plain.Duration(time.Duration(r.Job.InterruptionSeconds)*time.Second))
}

// LastInterruption describes the newest interruption of a job, or "".
func LastInterruption(r view.Run, now time.Time) string {
	last := r.Job.LastInterruption
	if last == nil {
		return ""
	}
	cost := plain.Duration(time.Duration(last.LostSeconds)*time.Second) + " of work"
	if last.RepeatedUSD.Known() {
		cost += " (" + last.RepeatedUSD.String() + ")"
	}
	after := "the command does not run again yet"
	if last.RestartSeconds != nil {
		after = plain.Duration(time.Duration(*last.RestartSeconds)*time.Second) + " until the command ran again"
	} else if r.EndedAt != nil {
		after = "the command did not run again"
	}
	return fmt.Sprintf("The last interruption (attempt %d, %s) cost %s; %s", last.Attempt, plain.When(last.At, now),
		cost, after)
}

// jobKinds are the meanings of the colors of a job's attempts.
var jobKinds = []chart.Kind{
	{Name: "useful", Color: chart.Blue}, {Name: "repeated", Color: chart.Orange},
	{Name: "waiting", Color: chart.SoftBlue}, {Name: "not saved yet", Color: chart.Hatched},
}

// maxJobLanes bounds the attempts that a picture shows, the newest ones.
const maxJobLanes = 12

// JobTimeline draws the newest attempts of a job on one time axis; empty if there is none.
func JobTimeline(r view.Run, now time.Time) layout.Picture {
	attempts := r.Job.Attempts
	p := layout.Picture{Title: "Attempts over time"}
	if len(attempts) == 0 {
		return p
	}
	p.Caption = "Useful is work that was saved, repeated work that was lost, waiting the start and end of machines."
	if more := len(attempts) - maxJobLanes; more > 0 {
		p.Caption += fmt.Sprintf(" The first %s are in the table.", plain.Count(more, "attempt"))
		attempts = attempts[more:]
	}
	end := now
	if r.EndedAt != nil {
		end = *r.EndedAt
	}
	l := chart.Lanes{
		Title: "Attempts over time", Kinds: jobKinds,
		Axis: chart.Dates(attempts[0].BeganAt, latest(end, attempts[0].BeganAt)),
	}
	for _, a := range attempts {
		l.Rows = append(l.Rows, chart.Lane{
			Label: "attempt " + strconv.Itoa(a.Number), Blocks: attemptBlocks(a, r.Checkpoint, end),
		})
	}
	p.SVG = l.SVG()
	return p
}

// attemptBlocks divides the time of an attempt by its use, as its cost is divided.
func attemptBlocks(a view.RunAttempt, saved *view.RunCheckpoint, now time.Time) (out []chart.Block) {
	add := func(from, to time.Time, kind chart.Kind) {
		if to.After(from) {
			out = append(out, chart.Block{
				From: chart.Second(from), To: chart.Second(to), Label: kind.Name, Color: kind.Color,
			})
		}
	}
	useful, repeated, waiting, unsaved := jobKinds[0], jobKinds[1], jobKinds[2], jobKinds[3]
	end := now
	if a.EndedAt != nil {
		end = *a.EndedAt
	}
	if a.LaunchedAt == nil {
		return nil
	}
	if a.CommandAt == nil {
		add(*a.LaunchedAt, end, waiting)
		return out
	}
	add(*a.LaunchedAt, *a.CommandAt, waiting)
	if a.EndedAt == nil {
		until := *a.CommandAt
		if saved != nil {
			until = latest(until, saved.At)
		}
		add(*a.CommandAt, until, useful)
		add(until, end, unsaved)
		return out
	}
	stopped := end
	if a.StoppedAt != nil {
		stopped = *a.StoppedAt
	}
	kept := stopped.Add(-time.Duration(a.LostSeconds) * time.Second)
	add(*a.CommandAt, kept, useful)
	add(latest(*a.CommandAt, kept), stopped, repeated)
	add(stopped, end, waiting)
	return out
}

// jobStatus shows one job.
func jobStatus(r view.Run, now time.Time) layout.Sheet {
	s := layout.Sheet{Verb: "status " + r.Name, Title: r.Name + " is " + r.State}
	switch job.State(r.State) {
	case job.Succeeded, job.Failed:
		s.Title = r.Name + " " + r.State
	case job.Canceled:
		s.Title = r.Name + " was canceled"
	}
	switch {
	case r.State == string(job.Canceled):
		s.Title += " " + r.Why
	case r.Why != "":
		s.Title += ": " + r.Why
	}
	step := "-"
	if r.Job.Step != nil {
		step = strconv.FormatInt(*r.Job.Step, 10)
	}
	s.Figures = []layout.Figure{
		{Label: "command", Value: plain.Line(r.Job.Command)},
		{Label: "machine", Value: machineOf(r), Note: r.Provider},
		{Label: "cost so far", Value: dollarsOf(r.CostUSD), Note: limitNote(r)},
		{Label: "step", Value: step},
		{Label: "work saved", Value: savedOf(r, now), Note: savedStep(r)},
		{Label: "attempts", Value: strconv.Itoa(len(r.Job.Attempts))},
	}
	if r.Job.NextAt != nil && r.Job.NextAt.After(now) {
		s.Figures = append(s.Figures, layout.Figure{Label: "next attempt", Value: plain.When(*r.Job.NextAt, now)})
	}
	if r.EndedAt != nil {
		s.Because = append(s.Because, JobLine(r))
	}
	s.Next = []string{"curfew logs -f " + r.Name, "curfew explain " + r.Name, "curfew cancel " + r.Name}
	switch {
	case r.EndedAt != nil:
		s.Next = []string{"curfew explain " + r.Name, "curfew run --again " + r.Name}
	case r.ApprovalID != "" && r.HoldID == "":
		s.Next = []string{"curfew approve " + r.ApprovalID + "   # by an approver"}
	}
	return s
}

func savedStep(r view.Run) string {
	if r.Checkpoint == nil || r.Checkpoint.Step == nil {
		return ""
	}
	return "step " + strconv.FormatInt(*r.Checkpoint.Step, 10)
}

func limitNote(r view.Run) string {
	if !r.Job.LimitUSD.Known() {
		return ""
	}
	return "of " + r.Job.LimitUSD.String() + " at most"
}

// Explain shows the attempts of one job and their costs.
func Explain(doc view.Runs, now time.Time) layout.Sheet {
	if len(doc.Runs) != 1 || doc.Runs[0].Job == nil {
		return Runs(doc, now)
	}
	r := doc.Runs[0]
	s := jobStatus(r, now)
	s.Verb = "explain " + r.Name
	g := layout.Grid{
		Head: []string{
			"attempt", "machine", "began", "ran", "from step", "saved", "useful", "repeated", "waiting", "cost",
			"ended",
		},
		Right: []bool{true, false, false, true, true, true, true, true, true, true, false}, States: []bool{10: true},
	}
	for _, a := range r.Job.Attempts {
		g.Rows = append(g.Rows, []string{
			strconv.Itoa(a.Number), cmp.Or(a.Pool, r.Provider), plain.When(a.BeganAt, now), ranOf(a, now),
			stepNumber(a.FromStep), stepNumber(a.SavedStep), partOf(a, a.UsefulUSD.String()),
			partOf(a, a.RepeatedUSD.String()), partOf(a, a.WaitingUSD.String()), partOf(a, a.CostUSD.String()),
			cmp.Or(a.EndedBy, "runs"),
		})
		if a.Evidence != "" {
			s.Because = append(s.Because, fmt.Sprintf("attempt %d: %s: %s", a.Number, a.EndedBy, a.Evidence))
		}
	}
	if len(g.Rows) > 0 {
		s.Tables = []layout.Grid{g}
	}
	s.Because = append(s.Because, replacedNodes(r, now)...)
	if line := LastInterruption(r, now); line != "" {
		s.Because = append(s.Because, line)
	}
	if p := JobTimeline(r, now); p.SVG != "" {
		s.Pictures = append(s.Pictures, p)
	}
	if p := r.Job.Placement; p != nil {
		s.Tables = append(s.Tables, placesGrid(p))
		s.Because = append(s.Because, fmt.Sprintf("place, chosen %s: %s", plain.When(p.At, now), p.Why))
	}
	if r.Job.UsefulUSD.Known() && len(r.Job.Attempts) > 0 {
		s.Figures = append(s.Figures,
			layout.Figure{Label: "useful", Value: r.Job.UsefulUSD.String(), Note: "saved work"},
			layout.Figure{Label: "repeated", Value: r.Job.RepeatedUSD.String(), Note: "work that was lost"},
			layout.Figure{Label: "waiting", Value: r.Job.WaitingUSD.String(), Note: "start and end of machines"})
	}
	return s
}

// replacedNodes explains the restarts of attempts whose nodes were replaced.
func replacedNodes(r view.Run, now time.Time) (lines []string) {
	for _, a := range r.Job.Attempts {
		for _, one := range a.Restarts {
			text := fmt.Sprintf("attempt %d: node %d (%s) was lost %s; all nodes went on from step %s", a.Number, one.Node,
				one.ResourceID, plain.When(one.LostAt, now), stepNumber(one.FromStep))
			if one.CommandAt != nil {
				text += " after " + plain.Duration(one.CommandAt.Sub(one.LostAt).Round(time.Second))
			} else if a.EndedAt != nil {
				text = fmt.Sprintf("attempt %d: node %d (%s) was lost %s, and was not replaced", a.Number, one.Node,
					one.ResourceID, plain.When(one.LostAt, now))
			}
			lines = append(lines, text)
		}
	}
	return lines
}

// partOf is a part of an attempt's cost; "-" while it runs.
func partOf(a view.RunAttempt, dollars string) string {
	switch {
	case a.EndedAt == nil:
		return "-"
	case !a.CostUSD.Known():
		return "unpriced"
	}
	return dollars
}

func ranOf(a view.RunAttempt, now time.Time) string {
	if a.LaunchedAt == nil {
		return "-"
	}
	end := now
	if a.EndedAt != nil {
		end = *a.EndedAt
	}
	return strings.TrimSpace(plain.Duration(max(0, end.Sub(*a.LaunchedAt)).Round(time.Second)))
}

func stepNumber(step *int64) string {
	if step == nil {
		return "-"
	}
	return strconv.FormatInt(*step, 10)
}

// placesGrid shows the places of a choice with their figures.
func placesGrid(p *view.RunPlacement) layout.Grid {
	g := layout.Grid{
		Head:  []string{"place", "an hour", "a useful hour", "interruptions/h", "because"},
		Right: []bool{false, true, true, true, false},
	}
	for _, o := range p.Options {
		g.Rows = append(g.Rows, []string{
			o.Pool, o.HourlyUSD.String(), o.UsefulUSD.String(), plain.Number(o.InterruptionsPerHour, 3), o.Note,
		})
	}
	return g
}
