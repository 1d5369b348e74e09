package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Runs lists sessions and jobs.
func Runs(doc view.Runs, now time.Time) layout.Sheet {
	s := layout.Sheet{Verb: "ls", Title: "No sessions and no jobs"}
	if len(doc.Runs) == 0 {
		s.Next = []string{"curfew up demo --gpu L4", "curfew run --gpu L4 -- python train.py"}
		return s
	}
	g := layout.Grid{
		Head:  []string{"name", "state", "machine", "an hour", "cost", "lease ends", "saved", "owner"},
		Right: []bool{false, false, false, true, true, false, false, false}, States: []bool{1: true},
	}
	progress := slices.ContainsFunc(doc.Runs, func(r view.Run) bool { return r.Progress != nil })
	if progress {
		g.Head, g.Right = slices.Insert(g.Head, 5, progressHead), slices.Insert(g.Right, 5, true)
	}
	sessions, jobs := 0, 0
	var hourly money.Amount
	for _, r := range doc.Runs {
		if r.EndedAt == nil {
			if r.Job != nil {
				jobs++
			} else {
				sessions++
			}
			hourly += hourOf(r).Or(0)
		}
		hour := dollarsOf(hourOf(r))
		if r.HourlyUSD == nil && r.Job != nil {
			hour = "-" // no machine is running
		}
		row := []string{
			r.Name, r.State, machineOf(r), hour, dollarsOf(r.CostUSD),
			leaseOf(r, now), savedOf(r, now),
			cmp.Or(r.Owner.User, r.Owner.Team, r.AskedBy),
		}
		if progress {
			row = slices.Insert(row, 5, sinceProgress(r.Progress))
		}
		g.Rows = append(g.Rows, row)
	}
	var open []string
	for _, n := range []struct {
		count int
		what  string
	}{{sessions, "session"}, {jobs, "job"}} {
		if n.count > 0 {
			open = append(open, plain.Count(n.count, n.what))
		}
	}
	s.Title = fmt.Sprintf("%s, %s an hour", strings.Join(open, " and "), hourly.Dollars())
	if len(open) == 0 {
		s.Title = "No session and no job runs"
	}
	s.Tables = []layout.Grid{g}
	who := layout.Grid{Head: []string{"session", "node", "connection", "from", "since"}}
	for _, r := range doc.Runs {
		for _, c := range r.Connections {
			who.Rows = append(who.Rows, []string{
				r.Name, strconv.Itoa(c.Node), c.Kind, c.From, plain.When(c.Since, now),
			})
		}
	}
	if len(who.Rows) > 0 {
		s.Tables = append(s.Tables, who)
	}
	for _, r := range doc.Runs {
		if r.Why != "" && r.EndedAt == nil {
			s.Because = append(s.Because, r.Name+": "+r.Why)
		}
		if r.Lost != "" {
			s.Because = append(s.Because, r.Name+": not saved: "+r.Lost)
		}
	}
	return s
}

// progressHead is the heading of the column of [sinceProgress].
const progressHead = "since progress"

// sinceProgress returns the dollars and time since the last progress as of the newest audit; empty
// if the machine was not busy.
func sinceProgress(p *view.SeenProgress) string {
	if p == nil {
		return ""
	}
	return dollarsOf(p.SpentUSD) + " in " + plain.Duration(p.At.Sub(p.Since))
}

func machineOf(r view.Run) string {
	out := r.Type
	if r.Nodes > 1 {
		out = strconv.Itoa(r.Nodes) + " × " + out
	}
	if r.Region != "" {
		out += " " + r.Region
	}
	return strings.TrimSpace(cmp.Or(out, r.Provider))
}

// hourOf returns the hourly cost of a run, to the nano-dollar.
func hourOf(r view.Run) money.Dollars {
	if r.HourlyUSD == nil {
		return money.Dollars{}
	}
	hour, err := r.HourlyUSD.Times(1)
	if err != nil {
		return money.Dollars{}
	}
	return money.Known(hour)
}

func dollarsOf(d money.Dollars) string {
	if !d.Known() {
		return "unpriced"
	}
	return d.String()
}

func leaseOf(r view.Run, now time.Time) string {
	if r.EndedAt != nil {
		return "ended " + plain.When(*r.EndedAt, now)
	}
	if r.LeaseUntil.IsZero() { // a job that waits
		return "-"
	}
	return plain.When(r.LeaseUntil, now)
}

func savedOf(r view.Run, now time.Time) string {
	if r.Checkpoint == nil {
		return "-"
	}
	return plain.When(r.Checkpoint.At, now)
}

// Status shows one session with its machines.
func Status(doc view.Runs, now time.Time) layout.Sheet {
	if len(doc.Runs) != 1 {
		return Runs(doc, now)
	}
	r := doc.Runs[0]
	if r.Job != nil {
		return jobStatus(r, now)
	}
	s := layout.Sheet{Verb: "status " + r.Name, Title: r.Name + " is " + r.State}
	if r.State == "failed" {
		s.Title = r.Name + " never became ready"
	}
	if r.Why != "" {
		s.Title += ": " + r.Why
	}
	s.Figures = []layout.Figure{
		{Label: "machine", Value: machineOf(r), Note: r.Provider}, {Label: "an hour", Value: dollarsOf(hourOf(r))},
		{Label: "cost so far", Value: dollarsOf(r.CostUSD)}, {Label: "lease ends", Value: leaseOf(r, now)},
		{Label: "work saved", Value: savedOf(r, now)}}
	if r.Image != "" {
		s.Figures = append(s.Figures, layout.Figure{Label: "image", Value: r.Image})
	}
	if r.Idle != "" {
		s.Figures = append(s.Figures, layout.Figure{Label: "ends when idle for", Value: r.Idle})
	}
	if r.ReleaseBy != nil {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "released by", Value: plain.When(*r.ReleaseBy, now), Note: "whatever is not saved by then",
		})
	}
	s.Coverage = r.Notes
	for _, line := range []struct{ about, text string }{
		{"not saved: ", r.Lost}, {"ignored what its machines wrote that cannot be: ", r.Wrong},
	} {
		if line.text != "" {
			s.Because = append(s.Because, line.about+line.text)
		}
	}
	if len(r.Hosts) > 0 {
		g := layout.Grid{
			Head: []string{"node", "phase", "activity", "since", "terminals", "ends", "note"}, States: []bool{1: true},
		}
		for _, h := range r.Hosts {
			ends := "-"
			if h.EndsAt != nil {
				ends = plain.When(*h.EndsAt, now)
			}
			g.Rows = append(g.Rows, []string{
				strconv.Itoa(h.Node), h.Phase, h.Activity, plain.When(h.Since, now), strconv.Itoa(h.Terminals), ends,
				cmp.Or(h.Unsaved, h.Why),
			})
		}
		s.Tables = []layout.Grid{g}
		if c := connectionsOf(r.Hosts, now); len(c.Rows) > 0 {
			s.Tables = append(s.Tables, c)
		}
	}
	switch {
	case r.State == "ready":
		s.Next = []string{"curfew connect " + r.Name, "curfew extend " + r.Name + " --for 2h", "curfew down " + r.Name}
	case r.ApprovalID != "" && r.State == "requested":
		s.Next = []string{"curfew approve " + r.ApprovalID + "   # by an approver", "curfew up " + r.Name}
	case r.EndedAt != nil:
		s.Next = []string{"curfew up " + r.Name + "   # starts it again with its work"}
	}
	return s
}

// connectionsOf lists people's connections to machines.
func connectionsOf(hosts []view.RunHost, now time.Time) layout.Grid {
	g := layout.Grid{Head: []string{"node", "connection", "from", "since"}}
	for _, h := range hosts {
		for _, c := range h.Connections {
			g.Rows = append(g.Rows, []string{strconv.Itoa(h.Node), c.Kind, c.From, plain.When(c.Since, now)})
		}
	}
	return g
}

// SessionLog shows a session's journal.
func SessionLog(doc view.SessionLog) layout.Sheet {
	s := layout.Sheet{Verb: "logs " + doc.Name, Title: plain.Count(len(doc.Events), "event")}
	g := layout.Grid{Head: []string{"time", "node", "event", "what"}}
	for _, e := range doc.Events {
		g.Rows = append(g.Rows, []string{e.At.Format("2006-01-02 15:04:05.000Z"), nodeOf(e), e.Kind, e.Text})
	}
	s.Tables = []layout.Grid{g}
	return s
}

func nodeOf(e view.SessionEvent) string {
	if e.Node == nil {
		return "keeper"
	}
	return strconv.Itoa(*e.Node)
}

// SessionLine formats an event for `logs -f`.
func SessionLine(e view.SessionEvent) string {
	return fmt.Sprintf("%s  %-6s  %-12s  %s", e.At.Format("15:04:05"), nodeOf(e),
		plain.Line(e.Kind), plain.Line(e.Text))
}

// Adoption shows how a machine becomes a session. reaching are the flags that select its account.
func Adoption(doc view.Adoption, reaching string) layout.Sheet {
	id := doc.Resource[strings.LastIndexByte(doc.Resource, '/')+1:]
	s := layout.Sheet{Verb: "session adopt", Coverage: doc.Notes}
	if len(doc.Refusals) > 0 {
		s.Title = id + " is not adopted"
		for _, r := range doc.Refusals {
			s.Because = append(s.Because, r.Rule+": "+r.Why)
		}
		return s
	}
	s.Figures = []layout.Figure{
		{Label: "machine", Value: strings.TrimSpace(doc.Type + " " + doc.Region), Note: doc.Resource},
		{
			Label: "an hour", Value: dollarsOf(doc.HourlyUSD),
		}, {Label: "owner", Value: cmp.Or(doc.Owner.User, doc.Owner.Team)},
		{
			Label: "lease ends", Value: plain.Time(doc.LeaseUntil),
		}, {Label: "idle for", Value: doc.Idle, Note: "and it is to end"}}
	g := layout.Grid{Head: []string{"", "tag", "value"}}
	for _, t := range doc.Tags {
		sign := "+"
		if t.Before != nil {
			sign = "~"
		}
		g.Rows = append(g.Rows, []string{sign, t.Key, t.Value})
	}
	s.Tables = []layout.Grid{g}
	switch doc.State {
	case view.AdoptDone:
		s.Title = id + " is session " + doc.Session
		s.Next = []string{"curfew extend " + doc.Session + " --for 2h", "curfew down " + doc.Session + "   # stops it"}
		if doc.Item != "" {
			s.Next = append(s.Next, "curfew fix --undo "+doc.Item+reaching+"   # gives it back")
		}
	case view.AdoptUnfinished:
		s.Title = id + ": its tags are not confirmed"
	default:
		s.Title = "Nothing was changed: " + id + " would be session " + doc.Session
		s.Next = []string{"curfew session adopt " + id + " --enforce" + reaching}
	}
	return s
}
