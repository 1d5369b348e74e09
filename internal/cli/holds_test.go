package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestBudgetCountsSpendWithoutScans runs jobs of up to $90 on a budget of $200 with an empty
// ledger: an admitted amount is held, and shown, until it is settled.
func TestBudgetCountsSpendWithoutScans(t *testing.T) {
	d := newDesktop(t)
	d.write("curfew.yaml",
		strings.Replace(gateConfig, "amount: 1000", "amount: 200, thresholds: {warn: 98%, gate: 99%}",
			1))
	d.now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	var held []string
	for i := range 8 {
		name := fmt.Sprintf("job%d.yaml", i)
		d.write(name, fmt.Sprintf(gateJob, fmt.Sprint("job", i), "80h"))
		if i < 2 {
			held = append(held, d.gate(ExitDone, name).HoldID)
		} else if got := d.gate(ExitDenied, name); !strings.Contains(got.Reasons[0],
			"by runs that are over and were never charged") {
			t.Fatalf("denied by %q", got.Reasons)
		}
		d.now = d.now.Add(82 * time.Hour)
	}
	_, out, _ := d.run("budget", "holds")
	if strings.Count(out, "unobserved") != 2 || strings.Count(out, "when settled or charged") != 2 {
		t.Errorf("the holds are\n%s", out)
	}
	if _, out, _ = d.run("budget"); !strings.Contains(out, "is reserved by runs that ended without a charge") {
		t.Errorf("the budgets are\n%s", out)
	}
	for _, id := range held {
		if code, _, errs := d.run("budget", "settle", id, "--actual", "10", "-o", "json"); code != ExitDone {
			t.Fatal(errs)
		}
	}
	d.gate(ExitDone, "job7.yaml")
}

// TestExtendRespectsBudget: more time asks although the amount stays, and so do the holds of the
// month.
func TestExtendRespectsBudget(t *testing.T) {
	d := newDesktop(t)
	d.write("curfew.yaml", strings.Replace(gateConfig, "amount: 1000, period: {from: 2026-01-01, until: 2046-01-01}",
		"amount: 200", 1))
	d.now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	d.write("job.yaml", fmt.Sprintf(gateJob, "job", "80h"))
	id := d.gate(ExitDone, "job.yaml").HoldID
	if code, _, errs := d.run("budget", "extend", id, "--amount", "90", "--for", "8700h"); code != ExitHeld ||
		!strings.Contains(errs, "it needs approval") {
		t.Errorf("exit %d: %s", code, errs)
	}
	_, out, _ := d.run("approvals")
	d.env["CURFEW_IDENTITY"] = "bo"
	if code, _, errs := d.run("approve", strings.Fields(out)[0], "-o", "json"); code != ExitDone {
		t.Fatalf("%s%s", out, errs)
	}
	d.env["CURFEW_IDENTITY"] = "ana"
	if code, _, errs := d.run("budget", "extend", id, "--amount", "90", "--for", "8700h", "-o",
		"json"); code != ExitDone {
		t.Errorf("exit %d: %s", code, errs)
	}
	if _, out, _ := d.run("budget"); !strings.Contains(out, "$90.00") {
		t.Errorf("all of the $90 can be spent this month, and held is\n%s", out)
	}
}
