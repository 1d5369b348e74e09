package finding

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// wellUsed is the mean utilization, in percent, from which accelerators count as well used, so that
// only a cheaper model lowers the cost of serving (the usual limit of right-sizing: above 60%).
const wellUsed = 60

// modelOptimize advises model optimization if inference is expensive and its accelerators are well
// used, so that smaller machines do not suffice. The savings of distillation, quantization or
// batching depend on the model.
func modelOptimize(x *Index, s *Subject) *Draft {
	if s.State != inventory.StateRunning || (s.Kind == inventory.KindInstance && s.Purpose != inventory.Inference) {
		return nil
	}
	w := s.Window
	var sum, least float64
	n := 0
	for _, t := range w.GPUTracks() {
		st := t.Stats(usage.GPUUtil)
		if !x.Covered(w, st) {
			return nil
		}
		mean, err := st.Mean()
		if err != nil {
			return nil
		}
		if c := w.Coverage(st); n == 0 || c < least {
			least = c
		}
		sum += mean
		n++
	}
	total, unpriced := x.Cost(s, ledger.Compute)
	if n == 0 || sum/float64(n) < wellUsed ||
		(unpriced == "" && total < money.Amount(x.Thresholds.ModelCost)*money.USD) {
		return nil
	}
	return &Draft{Stands: true, Finding: Finding{
		Savings: Saving{Why: "depends on the model"}, Cost: total, Confidence: Medium,
		Because: "well used at " + plain.Percent(sum/float64(n), 0) + ": only a cheaper model saves",
		Evidence: []usage.Evidence{
			{
				Signal: "gpu_util_mean_pct", Value: plain.Number(sum/float64(n), 1),
				Window: w.To.Sub(w.From), Coverage: least,
				Source: w.Source,
			},
			Priced("monthly_usd", total, "price book"),
		},
		Fix: Fix{Change: change.Change{Verb: change.Advise}, Risk: Low, Undo: UndoFull,
			Note: "try dynamic batching first, then 8-bit weights, then distillation; measure quality before and after"},
	}}
}
