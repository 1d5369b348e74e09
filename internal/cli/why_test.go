package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestEveryFigureAddsUp asks why of every figure of the simulated audit, and of every figure that
// the answers name: the rows add up to the figure, and the figure is the one that scan shows.
func TestEveryFigureAddsUp(t *testing.T) {
	d := newDesktop(t)
	var scan view.Scan
	d.document(&scan, "scan", "--demo")
	shown := map[string]money.Dollars{
		"now.running": scan.MonthlyCostUSD, "now.wasted": scan.Now.WastedUSD, "window.total": scan.Window.TotalUSD,
		"saves": scan.Totals.MonthlySavingsUSD,
	}
	var list view.Why
	d.document(&list, "why", "--demo")
	if len(list.Rows) < 30 {
		t.Fatalf("%d figures are listed", len(list.Rows))
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
