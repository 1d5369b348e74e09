package web

import (
	"html"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

var (
	tableCell = regexp.MustCompile(`(?s)<td[^>]*>(.*?)</td>`)
	labeled   = regexp.MustCompile(`(?s)<dt[^>]*>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>`)
	markupTag = regexp.MustCompile(`<[^>]*>`)
)

// drawnTexts returns the texts of table cells and figures, in order.
func drawnTexts(text string) (cells, figures []string) {
	plain := func(s string) string {
		return strings.Join(strings.Fields(html.UnescapeString(markupTag.ReplaceAllString(s, " "))), " ")
	}
	for _, m := range tableCell.FindAllStringSubmatch(text, -1) {
		cells = append(cells, plain(m[1]))
	}
	for _, m := range labeled.FindAllStringSubmatch(text, -1) {
		figures = append(figures, plain(m[1])+": "+plain(m[2]))
	}
	return cells, figures
}

// TestPagesAndReportsDrawTheSameDocument draws a document as a report (-o html) and as a page, and
// compares every cell of their tables and every figure.
func TestPagesAndReportsDrawTheSameDocument(t *testing.T) {
	v := &visit{
		now: time.Now(), r: httptest.NewRequest("GET", "/", nil), Visit: api.Visit{Call: &ops.Call{Owner: true}},
	}
	budgets, costs := report.Budgets(*tainted[view.Budgets]()), report.Costs(*tainted[view.Costs]())
	allFleets := *tainted[view.ServingFleets]()
	fleets := report.ServingFleets(allFleets)
	for name, tc := range map[string]struct {
		sheet layout.Sheet
		page  templ.Component
	}{
		"budgets": {budgets, budgetsContent(v, &budgetsDoc{sheet: budgets})},
		"costs":   {costs, costsContent(v, &costsDoc{sheet: costs})},
		"fleets":  {fleets, fleetsContent(&fleetsDoc{doc: allFleets, sheet: fleets})},
	} {
		t.Run(name, func(t *testing.T) {
			var asReport, asPage strings.Builder
			if err := tc.sheet.HTML(&asReport); err != nil {
				t.Fatal(err)
			}
			if err := tc.page.Render(t.Context(), &asPage); err != nil {
				t.Fatal(err)
			}
			cells, figures := drawnTexts(asReport.String())
			pageCells, pageFigures := drawnTexts(asPage.String())
			if !slices.Equal(cells, pageCells) || len(cells) == 0 {
				t.Errorf("the cells of the report are %q, of the page %q", cells, pageCells)
			}
			if !slices.Equal(figures, pageFigures) {
				t.Errorf("the figures of the report are %q, of the page %q", figures, pageFigures)
			}
		})
	}
}
