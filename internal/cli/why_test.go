package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestEveryFigureAddsUp asks why of every figure of the simulated audit, and of every figure that
// the answers name: the rows add up to the figure, and the figure is the one that scan shows.
func TestEveryFigureAddsUp(t *testing.T) {
	d := newDesktop(t)
	var plan accountplan.Account
	d.document(&plan, "plan", "account", "--demo")
	var scan view.Scan
	d.document(&scan, "scan", "--demo", "--last") // the audit of the plan: a later one has other sums
	shown := map[string]money.Dollars{
		"now.running": scan.MonthlyCostUSD, "now.wasted": scan.Now.WastedUSD, "window.total": scan.Window.TotalUSD,
		"saves": scan.Totals.MonthlySavingsUSD,
	}
	var list view.Why
	d.document(&list, "why", "--demo")
	if len(list.Rows) < 30 {
		t.Fatalf("%d figures are listed", len(list.Rows))
	}
	shown["plan.before"], shown["plan.saves"] = money.Known(plan.BeforeUSD), money.Known(plan.SavingUSD)
	shown["plan.after"], shown["plan.perhaps"] = money.Known(plan.AfterUSD), money.Known(plan.PerhapsUSD)
	for _, s := range plan.Steps {
		shown[fmt.Sprintf("plan.step.%d.saves", s.Number)] = money.Known(s.SavingUSD)
		shown[fmt.Sprintf("plan.step.%d.after", s.Number)] = money.Known(s.AfterUSD)
	}
	for _, p := range plan.Teams {
		shown["plan.team."+p.Team] = money.Known(p.AfterUSD)
	}
	todo := []string{scan.Findings[0].ID[:8], scan.Findings[0].Resource.ID}
	for _, r := range list.Rows {
		todo = append(todo, r.Figure)
	}
	seen, metered := map[string]bool{}, 0
	for ; len(todo) > 0; todo = todo[1:] {
		id := todo[0]
		if id == "" || seen[id] {
			continue
		}
		seen[id] = true
		var why view.Why
		d.document(&why, "why", id)
		value, known := why.ValueUSD.Get()
		if want, checked := shown[id]; checked && want != why.ValueUSD {
			t.Errorf("%s: scan shows %v, why %v", id, want, why.ValueUSD)
		}
		var total money.Amount
		for _, r := range why.Rows {
			total += r.AmountUSD.Or(0)
			if len(seen) < 120 || strings.HasPrefix(id, "step.") {
				todo = append(todo, r.Figure)
			}
			if r.UnitPrice != "" {
				metered++
				if r.Source == "" || r.Quantity == "" {
					t.Errorf("%s: a price without its source or quantity: %+v", id, r)
				}
			}
		}
		if known && total != value {
			t.Errorf("%s: the rows come to %v, the figure is %v", id, total, value)
		}
		if why.Basis == "" || why.Label == "" {
			t.Errorf("%s: %+v has no basis or label", id, why)
		}
	}
	if metered < 30 {
		t.Errorf("%d meters with a price were reached", metered)
	}
	for id := range shown {
		if !seen[id] {
			t.Errorf("%s is not listed", id)
		}
	}
}

// TestBillFiguresAddUp follows the figures of an imported bill by service and resource down to the day: each comes
// to the sum of its rows, and the period to what the import said.
func TestBillFiguresAddUp(t *testing.T) {
	d := newDesktop(t)
	text, err := os.ReadFile(filepath.FromSlash("../../examples/data/focus-2026-10.csv"))
	if err != nil {
		t.Fatal(err)
	}
	d.write("bill.csv", string(text))
	if code, _, errs := d.run("bill", "import", "bill.csv"); code != ExitDone {
		t.Fatalf("import: %d, %s", code, errs)
	}
	var list view.Why
	if code, out, errs := d.run("why", "bill.nothing"); code != ExitError || !strings.Contains(errs, "no figure") {
		t.Errorf("an unknown figure: %d, %q, %q", code, out, errs)
	}
	var scan view.Scan
	d.document(&scan, "scan", "--demo")
	d.document(&list, "why", "--demo")
	var todo []string
	total := map[string]money.Dollars{}
	for _, r := range list.Rows {
		if strings.HasPrefix(r.Figure, view.BillFigure) {
			todo, total[r.Figure] = append(todo, r.Figure), r.AmountUSD
		}
	}
	if len(todo) == 0 {
		t.Fatalf("no figure of the bill is listed: %+v", list.Rows)
	}
	days := 0
	for n := 0; n < len(todo) && n < 150; n++ {
		var why view.Why
		d.document(&why, "why", todo[n])
		if want := total[todo[n]]; want != why.ValueUSD {
			t.Errorf("%s is %s, and %s where it is a row", todo[n], why.ValueUSD, want)
		}
		sum := money.Known(0)
		for _, r := range why.Rows {
			sum = sum.Plus(r.AmountUSD.Or(0))
			if r.Figure == "" {
				days++
			} else {
				todo, total[r.Figure] = append(todo, r.Figure), r.AmountUSD
			}
		}
		if sum != why.ValueUSD || len(why.Rows) == 0 {
			t.Errorf("%s: %d rows come to %s, the figure is %s", todo[n], len(why.Rows), sum, why.ValueUSD)
		}
	}
	if days == 0 {
		t.Error("no figure was followed to its days")
	}
}

// TestWhyNamesUnknownFigures: an unknown figure is an error with the one that was meant, and so is an
// audit that was never made.
func TestWhyNamesUnknownFigures(t *testing.T) {
	d := newDesktop(t)
	if code, _, stderr := d.run("why", "now.wasted"); code != ExitError || !strings.Contains(stderr, "curfew scan") {
		t.Errorf("without an audit: %d, %q", code, stderr)
	}
	var scan view.Scan
	d.document(&scan, "scan", "--demo")
	for _, c := range []struct{ id, says string }{
		{"now.wastd", "did you mean now.wasted?"}, {"team.vison.running", "did you mean team.vision.running?"},
		{"\x1b[31mred", "no figure"},
	} {
		code, _, stderr := d.run("why", c.id)
		if code != ExitError || !strings.Contains(stderr, c.says) || slices.Contains([]byte(stderr), 0x1b) {
			t.Errorf("%q: %d, %q", c.id, code, stderr)
		}
	}
}

// TestBudgetFiguresAddUp compares the figures of a budget with their explanations, whose rows sum up to them.
func TestBudgetFiguresAddUp(t *testing.T) {
	d := newDesktop(t)
	d.now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	d.write("curfew.yaml", strings.Replace(gateConfig, "amount: 1000", "amount: 100000", 1)+`rates:
  gpu_hour: {H100-80GB: 2.10}
  vcpu_hour: 0.01
  memory_gib_hour: 0.0025
  source: finance
  as_of: 2026-01-01
machines:
  - {name: a, gpu: H100-80GB, gpus: 2, vcpus: 64, memory_gib: 512, tags: {team: vision, purpose: training}}
  - {name: b, gpu: H100-80GB, gpus: 2, vcpus: 64, memory_gib: 512, tags: {team: ranking, purpose: training}}
`)
	for range 20 {
		var scan view.Scan
		d.document(&scan, "scan", "--cloud", "onprem")
		d.now = d.now.Add(time.Hour)
	}
	for _, name := range []string{"first", "second"} {
		d.write("train.yaml", fmt.Sprintf(gateJob, name, "4h"))
		if code, out, errs := d.run("gate", "train.yaml"); code != ExitDone {
			t.Fatalf("exit %d: %s%s", code, out, errs)
		}
	}
	var status view.Budgets
	d.document(&status, "budget")
	b := status.Budgets[0]
	for figure, want := range map[string]money.Amount{"spent": b.Used, "reserved": b.Held, "remaining": b.Left} {
		var why view.Why
		d.document(&why, "why", "budget.vision."+figure)
		total := money.Amount(0)
		for _, r := range why.Rows {
			total += r.AmountUSD.Or(0)
		}
		if got, known := why.ValueUSD.Get(); !known || got != want || total != want || want == 0 || len(why.Rows) < 2 {
			t.Errorf("%s is %s, its explanation %s, the sum of its %d rows %s", figure, want, why.ValueUSD, len(why.Rows), total)
		}
		code, out, errs := d.run("why", "budget.vision."+figure)
		if code != ExitDone || !strings.Contains(out, "adds up from") {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
		if figure == "spent" {
			d.sumsUp(why.Command, want)
		}
	}
	code, _, errs := d.run("why", "budget.vision.spend")
	if code == ExitDone || !strings.Contains(errs, "budget.vision.spent") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// sumsUp runs a suggested command that shows charges, and compares their sum.
func (d *desktop) sumsUp(command string, want money.Amount) {
	d.t.Helper()
	args := strings.Fields(command)
	var doc view.Costs
	d.document(&doc, args[1:]...)
	if doc.Total.Amount != want {
		d.t.Errorf("%s shows %s, want %s", command, doc.Total.Amount, want)
	}
}
