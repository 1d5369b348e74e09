package web

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// shownEvents is the number of the newest events of a log on the page of a job, and maxEvents that on
// the page of its log.
const (
	shownEvents = 100
	maxEvents   = 5000
)

// jobsDoc is the content of the page Jobs.
type jobsDoc struct {
	query jobsQuery
	title string
	rows  []view.Run
	page  pageOf
}

// jobsQuery is the state of the page Jobs, which its address has.
type jobsQuery struct {
	text, state string
	all         bool
	page        int
}

// jobsPage lists the jobs: those that wait with their reason first.
func jobsPage(v *visit) (templ.Component, error) {
	q := v.r.URL.Query()
	d := jobsDoc{query: jobsQuery{text: q.Get("q"), state: q.Get("state"), all: q.Get("ended") != ""}}
	d.query.page, _ = strconv.Atoi(q.Get("page"))
	doc, err := read(v, ops.ListJobs, ops.JobsInput{All: d.query.all})
	if err != nil {
		return nil, err
	}
	open, waiting := 0, 0
	for _, r := range doc.Runs {
		if r.EndedAt == nil {
			open++
			if r.State == string(job.Waiting) {
				waiting++
			}
		}
		if d.query.takes(r) {
			d.rows = append(d.rows, r)
		}
	}
	d.title = plain.Count(open, "job")
	if waiting > 0 {
		d.title += ", of which " + plain.Count(waiting, "waits", "wait")
	}
	slices.SortStableFunc(d.rows, func(a, b view.Run) int {
		return cmp.Or(jobRank(a)-jobRank(b), b.RequestedAt.Compare(a.RequestedAt))
	})
	d.page = pageAt(d.query.page, len(d.rows))
	d.rows = d.rows[d.page.first:d.page.end]
	return jobsContent(v, &d), nil
}

// takes reports whether a job is among those that are asked for.
func (q jobsQuery) takes(r view.Run) bool {
	text := strings.ToLower(strings.TrimSpace(q.text))
	return (q.state == "" || r.State == q.state) && (text == "" || slices.ContainsFunc([]string{
		r.Name, r.ID, r.Type, r.Owner.Team, r.Owner.User, r.Owner.Project, r.AskedBy,
	}, func(s string) bool { return strings.Contains(strings.ToLower(s), text) }))
}

func jobRank(r view.Run) int {
	switch {
	case r.EndedAt != nil:
		return 2
	case r.State == string(job.Waiting):
		return 0
	}
	return 1
}

// jobStates are the states of jobs, by which the page selects.
func jobStates() []string {
	return []string{
		string(job.Waiting), string(job.Launching), string(job.Starting), string(job.Running), string(job.Saving),
		string(job.Succeeded), string(job.Failed), string(job.Canceled),
	}
}

// pageOf is a part of the rows in a list.
type pageOf struct{ first, end, total, number int }

func pageAt(number, total int) pageOf {
	number = min(max(number, 0), maxPage)
	from := min(number*rowsShown, total)
	return pageOf{from, min(from+rowsShown, total), total, number}
}

// jobDoc is the content of the page of one job.
type jobDoc struct {
	view.Run
	sheet  layout.Sheet
	log    []view.SessionEvent
	events int
	// tail is true where only the newest events are shown.
	tail     bool
	logErr   error
	request  *view.Request
	machines []view.Observed
}

// jobPage shows one job: why it waits, its attempts and what each cost, and what it prints.
func jobPage(v *visit) (templ.Component, error) {
	r, err := v.job()
	if err != nil {
		return nil, err
	}
	d := jobDoc{Run: r, sheet: report.Explain(view.Runs{Runs: []view.Run{r}}, v.now)}
	d.sheet.Next, d.sheet.Commands = nil, nil
	d.sheet.Figures = slices.DeleteFunc(d.sheet.Figures, func(f layout.Figure) bool {
		return f.Label == "command" || f.Label == "machine" // the page shows them above
	})
	last := report.LastInterruption(r, v.now)
	d.sheet.Because = slices.DeleteFunc(d.sheet.Because, func(line string) bool { return line == last })
	d.tail = true
	d.readLog(v)
	if d.ApprovalID != "" && v.may(ops.GetApproval.Info) {
		if one, err := read(v, ops.GetApproval, ops.ByID{ID: d.ApprovalID}); err == nil {
			d.request = &one.Request
		}
	}
	if len(d.ResourceIDs) > 0 && v.may(ops.ListResources.Info) {
		if fleet, err := read(v, ops.ListResources, ops.ListInput{}); err == nil {
			for _, m := range fleet.Resources {
				if slices.Contains(d.ResourceIDs, m.Resource) {
					d.machines = append(d.machines, m)
				}
			}
		}
	}
	return jobContent(v, &d), nil
}

// jobLogPage shows what a job printed, in all its attempts.
func jobLogPage(v *visit) (templ.Component, error) {
	r, err := v.job()
	if err != nil {
		return nil, err
	}
	d := jobDoc{Run: r, tail: v.r.URL.Query().Get("tail") != ""}
	d.readLog(v)
	return jobLogContent(v, &d), nil
}

// job reads the job of the address.
func (v *visit) job() (view.Run, error) {
	return ops.One(read(v, ops.GetJob, ops.JobInput{ByID: ops.ByID{ID: v.r.PathValue("id")}}))
}

// readLog adds the newest events.
func (d *jobDoc) readLog(v *visit) {
	most := maxEvents
	if d.tail {
		most = shownEvents
	}
	log, err := read(v, ops.GetJobLog, ops.SessionLogInput{ByID: ops.ByID{ID: d.ID}})
	d.logErr, d.events = err, len(log.Events)
	d.log = log.Events[max(0, len(log.Events)-most):]
}

// ofMachine names the machine of a job in a sentence.
func (d *jobDoc) ofMachine() string {
	if machine := plain.Line(strings.TrimSpace(d.Type + " " + d.Region)); machine != "" {
		return ", on " + machine
	}
	return ""
}

// jobAddress returns the address of the page of a job.
func jobAddress(r view.Run) templ.SafeURL { return templ.SafeURL("/jobs/" + url.PathEscape(r.Name)) }

// logAddress returns the address of the log of a job, and of a document that of its events.
func logAddress(r view.Run) templ.SafeURL { return jobAddress(r) + "/log" }

func (d *jobDoc) logAddress() string {
	if d.tail {
		return string(logAddress(d.Run)) + "?tail=1"
	}
	return string(logAddress(d.Run))
}

// address is the page with another part of the rows.
func (q jobsQuery) address(page int) templ.SafeURL {
	out := url.Values{"page": {strconv.Itoa(page)}, "q": {q.text}, "state": {q.state}}
	if q.all {
		out.Set("ended", "yes")
	}
	return templ.SafeURL("/jobs?" + out.Encode())
}

// ownerOf names whose a job or session is.
func ownerOf(r view.Run) string {
	return cmp.Or(layout.Joined("/", r.Owner.Team, r.Owner.User), r.AskedBy)
}

// isOver reports whether a job or session has ended.
func isOver(r view.Run) bool { return r.EndedAt != nil }

// partsOf are the parts of the cost of the attempts that are over; ok is false where none is known.
func partsOf(r view.Run) (parts [3]string, ok bool) {
	j := r.Job
	over := j != nil && slices.ContainsFunc(j.Attempts, func(a view.RunAttempt) bool { return a.UsefulUSD.Known() })
	if !over || !j.UsefulUSD.Known() {
		return parts, false
	}
	return [3]string{j.UsefulUSD.String(), j.RepeatedUSD.String(), j.WaitingUSD.String()}, true
}

// jobTables are the headings of the tables of a job: its attempts, and the places of the last choice.
var jobTables = []string{"Attempts", "Places"}

// limitOf returns the most that a job may cost; a dash before the gate has allowed it.
func limitOf(r view.Run) string {
	if r.HoldID == "" && !r.Job.LimitUSD.Known() {
		return "–"
	}
	return r.Job.LimitUSD.String()
}

// savedText returns how far the work of a job is saved.
func (v *visit) savedText(r view.Run) string {
	if r.Checkpoint == nil {
		return "nothing is saved yet"
	}
	out := "saved " + plain.Duration(max(0, v.now.Sub(r.Checkpoint.At)).Round(time.Second)) + " ago"
	if r.Checkpoint.Step != nil {
		out = "step " + strconv.FormatInt(*r.Checkpoint.Step, 10) + " " + out
	}
	return out
}

// eventSource names the writer of an event.
func eventSource(e view.SessionEvent) string {
	if e.Node == nil {
		return "curfew"
	}
	return "node " + strconv.Itoa(*e.Node)
}
