package budget_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

func TestReport(t *testing.T) {
	d, s := desk(t, `
budgets:
  - {id: "a<b>", purpose: any, amount: 100}
  - {id: vision, team: vision, purpose: training, amount: 1000}
  - {id: past, team: vision, purpose: training, amount: 1, period: {from: 2026-01-01, until: 2026-02-01}}
`)
	spend(s, 56, func(int) money.Amount { return 10 * money.USD })
	s.Charge(budgettest.Charge{At: now.Add(-2 * time.Hour), Owner: vision, Purpose: inventory.Training, Amount: 5 * money.USD, Unpriced: true})
	r := budget.NewReport(must(d.Statuses(t.Context(), now))(t), now)
	if r.Title != "1 of 2 budgets are in order, 1 spent" {
		t.Errorf("got %q", r.Title)
	}
	if text := strings.Join(r.CoverageNotes, "\n"); !strings.Contains(text, "vision: unpriced charges of at most $5.00, not counted") {
		t.Errorf("got %q", text)
	}
	if text := strings.Join(r.Changes, "\n"); !strings.Contains(text, "a<b>: $100.00 more is spent") || !strings.Contains(text, "a<b>: at this rate the period ends at $") {
		t.Errorf("got %q", text)
	}
	text, err := json.Marshal(r)
	for _, want := range []string{`"schema":"curfew.budget/v1"`, `"used_usd":"200.00"`, `"unknown_usd":"5.00"`, `"per_hour_usd":null`, `"forecast":{"low_usd":"`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s, %v", want, text, err)
		}
	}
	for dec := xml.NewDecoder(strings.NewReader(r.SVG())); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
	}
	if strings.Contains(r.SVG(), "NaN") {
		t.Error("the picture has no numbers")
	}
	if empty := budget.NewReport(nil, now); !strings.HasPrefix(empty.SVG(), "<svg") || empty.Title == "" {
		t.Errorf("got %+v", empty)
	}
}
