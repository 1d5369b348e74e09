package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// costsDoc is the content of the page Costs.
type costsDoc struct {
	query  costsQuery
	sheet  layout.Sheet
	total  view.Costs
	before *view.Costs
	// categories are the five of the field, of the newest audit.
	categories *layout.Picture
	units      *layout.Sheet
	unitsErr   error
	bill       *layout.Sheet
	billErr    error
	// billFigures are the figures of imported bills that are explained, without their prefix.
	billFigures []string
	mayUnits    bool
	mayBill     bool
}

// costsQuery is the state of the page Costs, which its address has.
type costsQuery struct{ since, by, granularity, where string }

func costsQueryOf(u *url.URL) costsQuery {
	q := u.Query()
	return costsQuery{
		since: cmp.Or(q.Get("since"), "month"), by: cmp.Or(q.Get("by"), string(ledger.ByTeam)),
		granularity: cmp.Or(q.Get("granularity"), "total"), where: q.Get("where"),
	}
}

func (q costsQuery) input() spend.CostsQuery {
	in := spend.CostsQuery{Period: runtime.Period{Since: q.since}, By: q.by, Granularity: q.granularity}
	if q.where != "" {
		in.Where = []string{q.where}
	}
	return in
}

// csv returns the address of the same costs as a file.
func (q costsQuery) csv() templ.SafeURL {
	out := url.Values{"since": {q.since}, "by": {q.by}, "granularity": {q.granularity}}
	if q.where != "" {
		out.Set("where", q.where)
	}
	return templ.SafeURL("/costs.csv?" + out.Encode())
}

// earlier are the periods before those that the page offers.
var earlier = map[string]runtime.Period{
	"7d": {Since: "14d", Until: "7d"}, "30d": {Since: "60d", Until: "30d"}, "90d": {Since: "180d", Until: "90d"},
}

// costsPage shows what was spent, against the period before.
func costsPage(v *visit) (templ.Component, error) {
	d := costsDoc{query: costsQueryOf(v.r.URL)}
	doc, err := read(v, ops.GetCosts, d.query.input())
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(v.r.URL.Path, ".csv") {
		return nil, v.csv(doc)
	}
	d.total = doc
	d.sheet = report.Costs(doc)
	d.sheet.Commands, d.sheet.Next = nil, nil
	if p, ok := v.before(d.query.since); ok {
		in := d.query.input()
		in.Period, in.By, in.Granularity = p, "", "total"
		if before, err := read(v, ops.GetCosts, in); err == nil && before.Costs != nil && before.Recorded {
			d.before = &before
		}
	}
	if v.may(ops.GetLastScan.Info) {
		if scan, err := v.scan(); err == nil {
			for _, p := range report.Audit(*scan, report.Options{}).Pictures {
				if p.Title == "By category" {
					d.categories = &p
				}
			}
		}
	}
	if d.mayUnits = v.may(ops.GetUnitCosts.Info); d.mayUnits {
		units, err := read(v, ops.GetUnitCosts, ops.UnitsInput{
			Period: runtime.Period{Since: "3mo"}, Granularity: "month", Per: 1,
		})
		if d.unitsErr = err; err == nil {
			sheet := report.Units(units)
			d.units = &sheet
		}
	}
	if d.mayBill = v.may(ops.GetReconciliation.Info); d.mayBill {
		bill, err := read(v, ops.GetReconciliation, ops.ReconcileInput{
			Period: runtime.Period{Since: d.query.since}, Basis: "billed",
		})
		if d.billErr = err; err == nil {
			sheet := report.Reconciliation(bill)
			sheet.Commands, sheet.Next = nil, nil
			sheet.Tables = sheet.Tables[:min(len(sheet.Tables), 1)] // the rest is curfew bill reconcile
			d.bill = &sheet
		}
		v.explainBill(&d)
	}
	return costsContent(v, &d), nil
}

// explainedPeriods is the number of imported periods that the page links to their explanations.
const explainedPeriods = 6

// explainBill adds the newest imported billing periods whose costs the visitor may have explained.
func (v *visit) explainBill(d *costsDoc) {
	if !v.may(ops.GetWhy.Info) || !v.may(ops.ListBillPeriods.Info) {
		return
	}
	periods, err := read(v, ops.ListBillPeriods, ops.Paging{})
	if err != nil {
		return
	}
	for _, p := range slices.Backward(periods.Periods) {
		if len(d.billFigures) < explainedPeriods {
			d.billFigures = append(d.billFigures, p.ID+".billed")
		}
	}
}

// before is the period before one, as long as it; for this month it is the last one.
func (v *visit) before(since string) (runtime.Period, bool) {
	if since == "month" {
		first := v.now.AddDate(0, 0, 1-v.now.Day())
		return runtime.Period{
			Since: first.AddDate(0, -1, 0).Format("2006-01-02"), Until: first.Format("2006-01-02"),
		}, true
	}
	p, ok := earlier[since]
	return p, ok
}

// csv writes costs as a file.
func (v *visit) csv(doc view.Costs) error {
	h := v.w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="curfew-costs.csv"`)
	v.pages.send(v.w, v.r, http.StatusOK, func(out writer) error { return report.CostsCSV(out, doc) })
	return errSent
}

// budgetsDoc is the content of the page Budgets.
type budgetsDoc struct {
	sheet layout.Sheet
	holds *layout.Sheet
	none  bool
	// explained are the budgets whose figures the visitor may have explained.
	explained []string
}

// budgetFigures are the figures of each budget that are explained.
var budgetFigures = []string{"spent", "reserved", "remaining"}

// budgetsPage shows where budgets stand.
func budgetsPage(v *visit) (templ.Component, error) {
	doc, err := read(v, ops.ListBudgets, ops.None{})
	if err != nil {
		return nil, err
	}
	d := budgetsDoc{sheet: report.Budgets(doc), none: len(doc.Budgets) == 0}
	if v.may(ops.GetWhy.Info) {
		for _, b := range doc.Budgets {
			d.explained = append(d.explained, b.ID)
		}
	}
	if v.may(ops.ListHolds.Info) {
		if holds, err := read(v, ops.ListHolds, ops.HoldsInput{}); err == nil && len(holds.Holds) > 0 {
			sheet := report.Holds(holds, v.now)
			sheet.Next, sheet.Commands = nil, nil
			d.holds = &sheet
		}
	}
	return budgetsContent(v, &d), nil
}

// approvalsDoc is the content of the page Approvals.
type approvalsDoc struct {
	doc     view.Approvals
	decided []view.Request
	budgets map[string]view.Budget
}

// approvalsPage shows the requests that wait, a card each, and those that were decided.
func approvalsPage(v *visit) (templ.Component, error) {
	doc, err := read(v, ops.ListApprovals, ops.ApprovalsInput{All: true})
	if err != nil {
		return nil, err
	}
	d := approvalsDoc{doc: doc, budgets: map[string]view.Budget{}}
	d.doc.Requests = nil
	for _, r := range doc.Requests {
		if r.State == "pending" {
			d.doc.Requests = append(d.doc.Requests, r)
			continue
		}
		d.decided = append(d.decided, r)
	}
	slices.SortStableFunc(d.decided, func(a, b view.Request) int { return b.AskedAt.Compare(a.AskedAt) })
	d.decided = d.decided[:min(len(d.decided), rowsShown)]
	if budgets, err := read(v, ops.ListBudgets, ops.None{}); err == nil {
		for _, b := range budgets.Budgets {
			if b.Match.Team != "" {
				d.budgets[b.Match.Team] = b
			}
		}
	}
	return approvalsContent(v, &d), nil
}

// whyNot is why the visitor does not decide a request; empty: they may.
func (v *visit) whyNot(r view.Request) string {
	switch {
	case r.AskedBy == v.Call.Who.Name:
		return "You asked for it: another person decides."
	case !v.decides(r):
		return "It needs the role " + strings.Join(r.Roles, " or ") + "."
	}
	return ""
}

// gatewaysPage shows the registered gateways.
func gatewaysPage(v *visit) (templ.Component, error) {
	doc, err := read(v, ops.GetGateways, ops.None{})
	if err != nil {
		return nil, err
	}
	return sheetContent(v, report.Gateways(doc)), nil
}

// dimensions lists the dimensions of costs.
func dimensions() [][2]string {
	out := make([][2]string, 0, len(ledger.Dimensions))
	for _, d := range ledger.Dimensions {
		out = append(out, [2]string{string(d), string(d)})
	}
	return out
}

func offered(choices [][2]string, value string) bool {
	return slices.ContainsFunc(choices, func(c [2]string) bool { return c[0] == value })
}

func waitingTitle(n int) string {
	if n == 0 {
		return "Nothing waits for a decision"
	}
	return plain.Count(n, "request waits", "requests wait") + " for a decision"
}

// oneLine makes each line of a text fit to be shown.
func oneLine(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.Repeat(" ", len(s)-len(strings.TrimLeft(s, " "))) + plain.Line(s)
	}
	return out
}
