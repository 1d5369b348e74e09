package report

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// JobLine is the sentence about the cost of a job that is over: "$14.20; on demand $46.00. 3
// interruptions cost 11m."
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

// Explain shows the attempts of one job and what each cost.
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
