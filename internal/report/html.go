package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

//go:embed page.html.tmpl
var pageTemplate string

var page = newPage("page", pageTemplate, template.FuncMap{
	"monthly": monthly,
	"hourly":  hourly,
	"saves":   saves,
	"thing":   func(r view.Resource) string { return thing(&r) },
	"brief": func(r view.Resource) string {
		if r.Name != "" {
			r.ID = ""
		}
		return thing(&r)
	},
	"some": func(d money.Dollars) string {
		if v, ok := d.Get(); ok && v == 0 {
			return none
		}
		return d.String()
	},
	"owner":    func(r view.Resource) string { return owner(&r) },
	"plural":   plain.Count[int],
	"callLine": func(v pageView) string { return callsLine(v.audit) },
	"short":    short,
	"count":    func(n int) string { return money.Thousands(int64(n)) },
	"day":      func(t time.Time) string { return t.Format(time.DateOnly) },
	"unpriced": func(u view.Unpriced) string { return unpricedLine(&u) },
	"box":      func() string { return fmt.Sprintf("0 0 %d %d", sparkWidth, sparkHeight) },
	"usdExact": func(d money.Dollars) string {
		if !d.Known() {
			return "unknown"
		}
		return "$" + d.Cents()
	},
})

// view is what the page shows.
type pageView struct {
	*audit
	Frame            pageFrame
	Took             string
	Headline         string
	Whole            []segment
	WholeLabel       string
	WasteShare       string
	MoreSavings      string
	NotCovered       string
	Terms            string
	Measure          *unmeasured
	Next             []string
	StepBars         []bar
	OwnerBars        []bar
	CategoryBars     []bar
	Top              []row
	Rows             []row
	IDLength         int
	UnpricedBeyond   int
	CannotJudgeShown []view.Unjudged
	CannotJudgeMore  int
}

// row is one finding on the page.
type row struct {
	*view.Finding
	StepName string
	Sparks   []spark
	// Open says that the row holds its evidence and fix, to be expanded.
	Open bool
}

// The page stays of a size that a browser opens at once: rows beyond maxOpen are
// without evidence (which the JSON output has), lists are cut at maxListed.
const (
	maxOpen   = 1000
	maxListed = 50
)

// HTML writes one self-contained page: it refers to no other host and runs no
// script.
func HTML(w io.Writer, scan view.Scan, o Options) error {
	d := newAudit(scan, o)
	v := pageView{
		audit: d, Frame: pageFrame{Title: "curfew scan: " + headline(d), Verb: "scan", Scope: strings.Join(d.scope(), " · ")},
		Headline: sentence(headline(d)), Took: d.took(), Terms: d.terms(), Measure: d.unmeasured(), Next: d.firstFix(o.top()),
		Whole: d.whole(), StepBars: d.stepBars(), OwnerBars: d.ownerBars(), CategoryBars: d.categoryBars(),
		MoreSavings: d.beyond(allSteps), IDLength: d.IDLength(),
		NotCovered: notCovered(d.Billed, maxServices),
	}
	if !d.FinishedAt.IsZero() {
		v.Frame.Scope += " · " + plain.Time(d.FinishedAt)
	}
	if d.MonthlyWasteUSD.Known() {
		v.WasteShare = plain.Share(d.wasteShare(), 0) + " of the cost"
	}
	if w := d.Window; w != nil {
		v.WholeLabel = fmt.Sprintf("Of %s in the last %s, %s was wasted, %s was not measured, %s was used, %s is storage, network and overhead.",
			w.TotalUSD, w.Span(), w.WastedUSD, w.UnmeasuredUSD, w.UsedUSD, w.OtherUSD)
	}
	names := map[int]string{}
	for i := range d.Steps {
		names[d.Steps[i].Step] = stepName(&d.Steps[i])
	}
	for _, f := range d.Largest(o.top()) {
		v.Top = append(v.Top, row{Finding: f, StepName: names[f.Step], Sparks: sparks(f), Open: true})
	}
	for i, f := range d.Largest(-1) {
		v.Rows = append(v.Rows, row{Finding: f, StepName: names[f.Step], Open: i < maxOpen})
	}
	v.CannotJudgeShown = d.CannotJudge[:min(len(d.CannotJudge), maxListed)]
	v.CannotJudgeMore = len(d.CannotJudge) - len(v.CannotJudgeShown)
	if n := len(d.Unpriced); n > maxListed {
		v.UnpricedBeyond = n - maxListed
		d.Unpriced = d.Unpriced[:maxListed]
	}
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		return fmt.Errorf("render the audit as HTML: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the audit as HTML: %w", err)
	}
	return nil
}

// sentence begins with a capital and ends in a full stop.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return capital(s) + "."
}
