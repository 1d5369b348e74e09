package finding

import (
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// tagMissing finds resources with a cost that lack required tags. Unreadable tags are not missing.
func tagMissing(x *Index, s *Subject) *Draft {
	if len(s.Charges) == 0 || s.Kind == inventory.KindCommitment {
		return nil
	}
	missing, known := s.MissingFields(x.required)
	if !known || len(missing) == 0 {
		return nil
	}
	total, unpriced := x.Cost(s, "")
	if total == 0 && unpriced == "" {
		return nil
	}
	list := strings.Join(missing, ", ")
	d := &Draft{Stands: true, Finding: Finding{
		Savings: Saving{Known: true}, Cost: total, Confidence: High,
		Because:  "no tag " + list,
		Evidence: []usage.Evidence{Fact(s, "tags_missing", list)},
		Fix: Fix{
			Change: change.Change{Verb: change.Tag, Arguments: change.Arguments{Keys: missing}},
			Risk:   None, Undo: UndoFull,
			Note: "writes only tags; its cost can then be attributed",
		},
	}}
	if x.account.TagsFor == nil {
		return d
	}
	add, left := x.account.TagsFor(s.Resource)
	if len(add) > 0 {
		d.Fix.Change.Arguments = change.Arguments{Tags: add, Keys: left}
		if len(left) > 0 {
			d.Fix.Note = Sentence(d.Fix.Note, "no rule of owners gives "+strings.Join(left, ", "))
		}
	}
	return d
}

// telemetryMissing finds running accelerated machines with unmeasured accelerators. Their cost is
// neither used nor wasted, but unknown.
func telemetryMissing(x *Index, s *Subject) *Draft {
	n, known := s.Size.GPUs.Get()
	if s.State != inventory.StateRunning || (known && n == 0) || (s.Judged && s.Duty.State != duty.Unknown) {
		return nil
	}
	if _, unread := x.account.Unmeasured[s.ref]; unread {
		return nil // the telemetry may exist
	}
	measured, least := 0, 1.0
	for _, t := range s.Window.GPUTracks() {
		for _, sig := range usage.RestSignals() {
			if st := t.Stats(sig); st != nil {
				least = min(least, s.Window.Coverage(st))
				measured++
				break
			}
		}
	}
	if speaksForAll(s.Window, n) {
		measured = max(measured, n)
	}
	if measured >= max(n, 1) && least >= x.Thresholds.Coverage {
		// Telemetry exists, but the window is too short or samples contradict each other.
		return nil
	}
	total, _ := x.Cost(s, "compute")
	d := &Draft{Stands: true, Finding: Finding{
		Savings: Saving{Why: "unmeasured: no GPU telemetry"}, Cost: total, Confidence: High,
		Fix: Fix{Change: change.Change{Verb: change.Measure}, Risk: None, Undo: UndoFull,
			Command: "curfew doctor metrics" + cloudFlag(s.Cloud),
			Note: "record with nvidia-smi or DCGM on the machine, or install the CloudWatch agent with its nvidia_gpu " +
				"metrics; CPU and network say nothing about GPUs"},
	}}
	if x.account.Advice != nil {
		d.Fix.Note = "record with nvidia-smi or DCGM on the machine; CPU and network say nothing about GPUs"
	}
	switch {
	case measured == 0 && !known:
		d.Because = "unmeasured: unknown number of GPUs, none of them measured"
		d.Evidence = []usage.Evidence{usage.Fact("gpus_measured", "0", "metrics"), Fact(s, "type", s.Type)}
	case measured == 0:
		d.Because = "unmeasured: no GPU telemetry"
		d.Evidence = []usage.Evidence{usage.Fact("gpus_measured", "0", "metrics"), Fact(s, "type", s.Type)}
	case measured < n:
		d.Because = "unmeasured: only " + plain.Count(measured, "GPU") + " of " + plain.Number(float64(n), 0) +
			" has telemetry"
		d.Evidence = []usage.Evidence{
			usage.Fact("gpus_measured", plain.Decimal(float64(measured), 0), s.Window.Source),
		}
	default:
		d.Because = "unmeasured: GPU telemetry covers " + plain.Share(least, 0) + " of the window"
		d.Evidence = []usage.Evidence{{Signal: "gpus_measured", Value: plain.Number(float64(measured), 0),
			Window: s.Window.To.Sub(s.Window.From), Coverage: least, Source: s.Window.Source}}
	}
	if fam := price.Family(s.Type); strings.HasPrefix(fam, "trn") || strings.HasPrefix(fam, "inf") {
		d.Fix.Note = "record neuron-monitor's core utilization on the machine; CPU and network say nothing about " +
			"accelerators"
	}
	return d
}

// speaksForAll reports whether a window covers all n GPUs of a machine: it has one track for each,
// or one with the maximum over all.
func speaksForAll(w *usage.Window, n int) bool {
	tracks := w.GPUTracks()
	return len(tracks) > 0 && (len(tracks) >= n || (len(w.GPUs) == 0 && w.Aggregated))
}

// cloudFlag returns the flag that selects a cloud other than the default.
func cloudFlag(cloud string) string {
	switch cloud {
	case "", "aws":
		return ""
	case "sim":
		return " --demo"
	}
	return " --cloud " + cloud
}
