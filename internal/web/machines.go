package web

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

// rowsShown is the number of rows on a page of a list.
const rowsShown = 100

// maxPage bounds the page number of an address.
const maxPage = 100_000

// unmeasured selects the machines that the audit could not judge.
const unmeasured = "unmeasured"

// machine is one row of the page Machines.
type machine struct {
	view.Observed
	spark string
	// cost is the charge of this month; unknown where the ledger cannot be read.
	cost  money.Dollars
	keep  *view.Keep
	act   *view.Action
	dueAt time.Time
	// why is the reason for a missing verdict.
	why string
	// progress is the last progress of its work; nil where its work makes none that is known.
	progress *view.ScanProgress
	// runaway is true where it works on without progress, by the thresholds of the audit.
	runaway bool
}

// machinesDoc is the content of the page Machines.
type machinesDoc struct {
	query   machineQuery
	rows    []machine
	all     int
	teams   []string
	regions []string
	more    bool
}

// machineQuery is the state of the page Machines, which its address has.
type machineQuery struct {
	text, team, region, duty, state, sort, group, stops string
	page                                                int
}

func machineQueryOf(u *url.URL) machineQuery {
	q := u.Query()
	page, _ := strconv.Atoi(q.Get("page"))
	return machineQuery{
		text: q.Get("q"), team: q.Get("team"), region: q.Get("region"), duty: q.Get("duty"), state: q.Get("state"),
		sort: cmp.Or(q.Get("sort"), "-hour"), group: q.Get("group"), stops: q.Get("stops"),
		page: min(max(page, 0), maxPage),
	}
}

// address is the page with one thing changed.
func (q machineQuery) address(change func(*machineQuery)) templ.SafeURL {
	change(&q)
	out := url.Values{}
	for name, text := range map[string]string{
		"q": q.text, "team": q.team, "region": q.region, "duty": q.duty, "state": q.state, "group": q.group,
		"stops": q.stops,
	} {
		if text != "" {
			out.Set(name, text)
		}
	}
	if q.sort != "-hour" {
		out.Set("sort", q.sort)
	}
	if q.page > 0 {
		out.Set("page", strconv.Itoa(q.page))
	}
	if len(out) == 0 {
		return "/machines"
	}
	return templ.SafeURL("/machines?" + out.Encode())
}

// columns are the columns by which machines are sorted, by their names in addresses.
var columns = map[string]func(a, b *machine) int{
	"name":     func(a, b *machine) int { return cmp.Compare(resourceName(a.Observed), resourceName(b.Observed)) },
	"owner":    func(a, b *machine) int { return cmp.Compare(ownerName(a.Observed), ownerName(b.Observed)) },
	"duty":     func(a, b *machine) int { return cmp.Compare(dutyOf(a.Observed), dutyOf(b.Observed)) },
	"since":    func(a, b *machine) int { return since(b).Compare(since(a)) },
	"gpus":     func(a, b *machine) int { return cmp.Compare(gpus(a), gpus(b)) },
	"progress": func(a, b *machine) int { return cmp.Compare(sinceProgress(a), sinceProgress(b)) },
	"hour":     func(a, b *machine) int { return cmp.Compare(a.Hourly.Or(-1), b.Hourly.Or(-1)) },
	"group":    func(*machine, *machine) int { return 0 },
}

func since(m *machine) time.Time {
	if m.DutySince == nil {
		return time.Time{}
	}
	return *m.DutySince
}

func gpus(m *machine) int {
	if m.GPUs == nil {
		return -1
	}
	return *m.GPUs
}

// sinceProgress is the cost of a machine since the last progress of its work, for the order.
func sinceProgress(m *machine) money.Amount {
	if m.progress == nil {
		return -2
	}
	return m.progress.SpentUSD.Or(-1)
}

func gpuText(r view.Observed) string {
	if r.GPUs == nil {
		return "?"
	}
	return strconv.Itoa(*r.GPUs)
}

// groups are the group names of machines, by the name of the grouping.
var groups = map[string]func(*machine) string{
	"team":   func(m *machine) string { return teamName(m.Owner.Team) },
	"region": func(m *machine) string { return m.Region },
	"type":   func(m *machine) string { return m.Type },
	"duty":   func(m *machine) string { return cmp.Or(dutyOf(m.Observed), "not judged") },
}

func (q machineQuery) groupOf(m *machine) string {
	if by := groups[q.group]; by != nil {
		return by(m)
	}
	return ""
}

// machinesPage lists the machines as they were seen last.
func machinesPage(v *visit) (templ.Component, error) {
	fleet, err := v.fleet()
	if err != nil {
		return nil, err
	}
	d := machinesDoc{
		query: machineQueryOf(v.r.URL), all: len(fleet.machines), teams: fleet.teams, regions: fleet.regions,
	}
	rows, from, total := fleet.page(d.query)
	d.rows, d.more = rows, from+len(rows) < total
	v.addCosts(d.rows)
	return machinesContent(v, &d, total, from), nil
}

func distinct(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// about holds facts of other documents about machines, by their identities.
type about struct {
	keeps  map[string]view.Keep
	acts   map[string]view.Action
	sparks map[string]string
	whys   map[string]string
	// progress is of the audit.
	progress map[string]*view.ScanProgress
	auditAt  time.Time
}

// aboutMachines returns the facts of other documents about machines, without those of documents that
// cannot be read.
func (v *visit) aboutMachines() about {
	doc, err := v.pages.docs.get("about machines "+v.roles(), "", func() (any, error) { return v.readAbout(), nil })
	if a, ok := doc.(about); ok && err == nil {
		return a
	}
	return about{}
}

func (v *visit) readAbout() about {
	a := about{
		map[string]view.Keep{}, map[string]view.Action{}, map[string]string{}, map[string]string{},
		map[string]*view.ScanProgress{}, time.Time{},
	}
	if v.may(ops.ListKeeps.Info) {
		if keeps, err := read(v, ops.ListKeeps, ops.Paging{}); err == nil {
			for _, k := range keeps.Keeps {
				if k.Until.After(v.now) {
					a.keeps[k.Resource] = k
				}
			}
		}
	}
	if v.may(ops.ListActions.Info) {
		if acts, err := read(v, ops.ListActions, ops.Paging{Limit: 200}); err == nil {
			for _, one := range slices.Backward(acts.Actions) {
				if _, warned := due(one); warned {
					a.acts[one.Resource] = one
				}
			}
		}
	}
	if v.may(ops.GetLastScan.Info) {
		if scan, err := v.scan(); err == nil {
			for i := range scan.Findings {
				if f := &scan.Findings[i]; len(f.Samples) > 0 {
					a.sparks[fullID(&f.Resource)] = report.Spark(f.Samples[0]).SVG
				}
			}
			a.auditAt = scan.FinishedAt
			for i := range scan.Progress {
				a.progress[fullID(&scan.Progress[i].Resource)] = &scan.Progress[i]
			}
			for i := range scan.CannotJudge {
				a.whys[fullID(&scan.CannotJudge[i].Resource)] = scan.CannotJudge[i].Why
			}
		}
	}
	return a
}

func (a about) machine(r view.Observed) machine {
	m := machine{Observed: r, spark: a.sparks[r.ID], why: a.whys[r.ID], progress: a.progress[r.ID]}
	m.runaway = m.progress != nil && m.progress.Runaway(a.auditAt)
	if k, ok := a.keeps[r.ID]; ok {
		m.keep = &k
	}
	if act, ok := a.acts[r.ID]; ok {
		m.act = &act
		m.dueAt, _ = due(act)
	}
	return m
}

// addCosts adds what the shown machines came to this month.
func (v *visit) addCosts(rows []machine) {
	if len(rows) == 0 {
		return
	}
	at := map[string]int{}
	ids := make([]string, 0, len(rows))
	for i := range rows {
		at[rows[i].ID] = i
		if !strings.ContainsAny(rows[i].ID, ",") {
			ids = append(ids, rows[i].ID)
		}
	}
	doc, err := read(v, ops.GetCosts, spend.CostsQuery{
		Period: runtime.Period{Since: "month"}, By: string(ledger.ByResource), Granularity: "total",
		Where: []string{string(ledger.ByResource) + "=" + strings.Join(ids, ",")},
	})
	if err != nil || doc.Costs == nil {
		return
	}
	for _, c := range doc.Rows {
		if i, ok := at[strings.Join(c.Key, "")]; ok {
			rows[i].cost = money.Known(c.Amount)
		}
	}
}

// ownerName returns the owner of a resource.
func ownerName(r view.Observed) string {
	return report.Owner(&view.Resource{ID: r.Resource, Description: r.Description})
}

// lasting returns the time since a verdict began.
func (v *visit) lasting(at *time.Time) string {
	if at == nil {
		return ""
	}
	return plain.Duration(max(0, v.now.Sub(*at)))
}

// dutyWord returns the word for a duty.
func dutyWord(d string) string { return cmp.Or(d, "not judged") }

// dutyClass is the color of a duty, which never stands without its word.
func dutyClass(d string) string {
	switch duty.State(d) {
	case duty.Busy:
		return "is-worked"
	case duty.Idle, duty.Held, duty.Stalled:
		return "is-idle"
	case duty.Unknown, duty.State(duty.Unknown.String()):
		return "is-open hatched"
	}
	return "is-open"
}

// chosen describes the filters of a page in words.
func chosen(q machineQuery) string {
	words := ""
	switch {
	case q.duty == unmeasured:
		words += " unmeasured"
	case q.duty != "":
		words += " " + plain.Line(q.duty)
	}
	switch q.state {
	case "":
		words += " running"
	case "stopped":
		words += " stopped"
	}
	if q.team != "" {
		words += " of " + teamName(strings.TrimPrefix(q.team, noTeam))
	}
	if q.stops != "" {
		words += ", warned"
	}
	return words
}

// direction is the sort direction of a column.
func direction(sort string) string {
	if strings.HasPrefix(sort, "-") {
		return "descending"
	}
	return "ascending"
}

// turned is the sort order after a click on a column: the largest first, then the smallest.
func turned(sort, column string) string {
	if sort == "-"+column {
		return column
	}
	return "-" + column
}

// nextMonday is nine in the morning of the next Monday, UTC.
func nextMonday(now time.Time) string {
	days := (8 - int(now.Weekday())) % 7
	if days == 0 {
		days = 7
	}
	day := now.Truncate(24*time.Hour).AddDate(0, 0, days)
	return day.Add(9 * time.Hour).Format(time.RFC3339)
}
