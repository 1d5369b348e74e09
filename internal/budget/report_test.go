package budget_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestReportsBudgetWithoutCharges checks that the report says that a budget has no charges.
func TestReportsBudgetWithoutCharges(t *testing.T) {
	d, _ := desk(t, `
budgets:
  - {id: vision, team: vision, purpose: training, amount: 1000}
`)
	r := view.NewBudgets(must(d.Statuses(t.Context(), now))(t), now)
	sheet := report.Budgets(r)
	if sheet.Title != "Nothing posted of 1 budget" || sheet.Tables[0].Rows[0][1] != "nothing posted" {
		t.Errorf("the title is %q, the row %q", sheet.Title, sheet.Tables[0].Rows[0])
	}
	if text := strings.Join(r.CoverageNotes, "\n"); !strings.Contains(text,
		"nothing posted of vision: the ledger has no charge of the current period") {
		t.Errorf("got %q", text)
	}
}

func TestReport(t *testing.T) {
	d, s := desk(t, `
budgets:
  - {id: "a<b>", purpose: any, amount: 100}
  - {id: vision, team: vision, purpose: training, amount: 1000}
  - {id: past, team: vision, purpose: training, amount: 1, period: {from: 2026-01-01, until: 2026-02-01}}
`)
	spend(s, 56, func(int) money.Amount { return 10 * money.USD })
	s.Charge(budgettest.Charge{
		At: now.Add(-2 * time.Hour), Owner: vision, Purpose: inventory.Training, Amount: 5 * money.USD, Unpriced: true,
	})
	r := view.NewBudgets(must(d.Statuses(t.Context(), now))(t), now)
	if title := report.Budgets(r).Title; title != "Budget a<b> exceeded by $100; 1 of 2 budgets within the limit" {
		t.Errorf("got %q", title)
	}
	if text := strings.Join(r.CoverageNotes, "\n"); !strings.Contains(text,
		"vision: unpriced charges of at most $5.00, not counted") {
		t.Errorf("got %q", text)
	}
	if text := strings.Join(r.Changes, "\n"); !strings.Contains(text, "a<b>: exceeded by $100.00") ||
		!strings.Contains(text, "a<b>: at the current rate the period ends at $") {
		t.Errorf("got %q", text)
	}
	text, err := json.Marshal(r)
	for _, want := range []string{
		`"schema":"curfew.budget/v1"`, `"used_usd":"200.00"`, `"unknown_usd":"5.00"`, `"per_hour_usd":null`,
		`"forecast":{"low_usd":"`,
	} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s, %v", want, text, err)
		}
	}
	for dec := xml.NewDecoder(strings.NewReader(report.Budgets(r).Picture)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
	}
	if strings.Contains(report.Budgets(r).Picture, "NaN") {
		t.Error("the picture has no numbers")
	}
	if empty := report.Budgets(view.NewBudgets(nil, now)); empty.Title != "No budget has a current period" {
		t.Errorf("got %+v", empty)
	}
}
