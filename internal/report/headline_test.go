package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

// printedDollars returns the amounts of a printed line in order.
func printedDollars(line string) (out []float64) {
	for _, m := range regexp.MustCompile(`\$([0-9,]+(\.[0-9]+)?)`).FindAllStringSubmatch(line, -1) {
		v, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		if err != nil {
			panic(err)
		}
		out = append(out, v)
	}
	return out
}

// cell returns the amount in a cell of a printed table; none and unknown are 0.
func cell(text string) float64 {
	if list := printedDollars(text); len(list) > 0 && !strings.Contains(text, "≤") {
		return list[0]
	}
	return 0
}

// TestPrintedAuditAddsUp parses the printed audit of random accounts and checks that its rows sum
// to its headline, within a dollar per row.
func TestPrintedAuditAddsUp(t *testing.T) {
	categories := map[inventory.Kind]ledger.Category{
		inventory.KindInstance: ledger.Compute, inventory.KindVolume: ledger.Storage,
		inventory.KindAddress: ledger.Network,
	}
	kinds := []inventory.Kind{inventory.KindInstance, inventory.KindVolume, inventory.KindAddress}
	rapid.Check(t, func(t *rapid.T) {
		w := viewtest.NewWorld()
		for i := range rapid.IntRange(1, 12).Draw(t, "resources") {
			kind := rapid.SampledFrom(kinds).Draw(t, "kind")
			r := w.Resource(kind, fmt.Sprint("r-", i), "any", "", viewtest.Ana)
			cents := rapid.IntRange(1, 3_000_000).Draw(t, "cost")
			cost := fmt.Sprintf("%d.%02d", cents/100, cents%100)
			w.Charge(r, "meter", categories[kind], cost)
			state := rapid.SampledFrom([]duty.State{duty.Unknown, duty.Busy, duty.Idle}).Draw(t, "duty")
			if state != duty.Unknown {
				w.Verdict(r, state, "measured")
			}
			if state == duty.Idle {
				wasted := rapid.IntRange(0, cents).Draw(t, "wasted")
				saved := rapid.IntRange(0, cents).Draw(t, "saved")
				w.Find(r, viewtest.Found{
					Rule: "instance-idle", Waste: fmt.Sprintf("%d.%02d", wasted/100, wasted%100), Cost: cost,
					Step:   rapid.SampledFrom([]finding.Step{finding.StepIdle, finding.StepStorage}).Draw(t, "step"),
					Saving: viewtest.Saving(fmt.Sprintf("%d.%02d", saved/100, saved%100)),
				})
			}
		}
		doc := view.NewScan(w.Audit(), view.ScanOptions{})
		near := func(what string, got, want float64, rows int) {
			if math.Abs(got-want) > 0.5*float64(rows)+0.51 {
				t.Fatalf("%s come to %.2f, the headline says %.2f", what, got, want)
			}
		}
		d := newAudit(doc, Options{All: true})
		title := printedDollars(headline(d))
		now := d.figures()[0]
		running, parts := printedDollars(now.Value)[0], printedDollars(now.PartsText())
		sum := 0.0
		for _, p := range parts {
			sum += p
		}
		near("the parts", sum, running, 2)
		waste := parts[1]
		if len(title) > 0 && strings.Contains(headline(d), "wasted, ") {
			near("the title's dollars", title[0], waste, 0)
		}
		var wasted, saved float64
		steps := d.stepsGrid()
		if len(d.Steps) == 0 {
			return
		}
		for _, row := range steps.Rows[:len(d.Steps)] {
			wasted, saved = wasted+cell(row[2]), saved+cell(row[3])
		}
		near("the steps' waste", wasted, waste, len(d.Steps))
		last := d.figures()[len(d.figures())-1]
		near("the steps' savings", saved, cell(last.Value), len(d.Steps))
		saved = 0
		for _, row := range d.findingsGrid().Rows {
			saved += cell(row[0])
		}
		near("the findings' savings", saved, cell(last.Value), len(doc.Findings))
	})
}
