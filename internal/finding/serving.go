package finding

import (
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/usage"
)

// alive returns a signal whose samples cover a window, which proves that metrics
// of the resource were read: where a provider publishes a counter only when there
// is something to count, its absence then means zero.
func (x *index) alive(w *usage.Window, signals ...usage.Signal) (usage.Signal, *usage.Stats) {
	for _, sig := range signals {
		if st := w.Machine.Stats(sig); x.covered(w, st) && w.Fresh(st, x.now) {
			return sig, st
		}
		for _, t := range w.GPUs {
			if st := t.Stats(sig); x.covered(w, st) && w.Fresh(st, x.now) {
				return sig, st
			}
		}
	}
	return 0, nil
}

// endpointIdle finds endpoints without an invocation for 14 days. Asynchronous
// endpoints, whose work does not show as invocations of the endpoint, and
// serverless ones, which cost nothing idle, are left out. Invocations are
// published only when there are some, so another metric must prove that the
// endpoint was measured.
func endpointIdle(x *index, s *subject) *draft {
	e, ok := s.Detail.(*inventory.Endpoint)
	if !ok || s.State != inventory.StateRunning || e.Async || !spans(s.window, x.t.EndpointIdle) {
		return nil
	}
	machines := false
	for _, v := range e.Variants {
		machines = machines || !v.Serverless && v.Count > 0
	}
	if age, known := x.age(s); !machines || (known && age < x.t.EndpointIdle) {
		return nil
	}
	w := s.window
	requests := w.Machine.Stats(usage.Requests)
	if requests != nil && (requests.Max > 0 || requests.Sum > 0) {
		return nil
	}
	// An endpoint whose accelerator works serves somebody, whatever is counted.
	if computed(w) {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: High,
		Because:    "no invocation for " + usage.Span(w.To.Sub(w.From)),
		Fix: Fix{Action: "delete", Undo: UndoPartial,
			Note: "its configuration and model stay, it can be created again from them"},
	}}
	switch sig, proof := x.alive(w, usage.CPUUtil, usage.GPUUtil, usage.HostMemUsed); {
	case x.covered(w, requests) && w.Fresh(requests, x.now):
		d.Evidence = []usage.Evidence{sampled("invocations", "0", w, requests)}
	case proof != nil:
		d.Evidence = []usage.Evidence{
			{Signal: "invocations", Value: "0", Window: w.To.Sub(w.From), Coverage: w.Coverage(proof), Source: w.Source},
			sampled(sig.String()+"_max", usage.Number(proof.Max, 1), w, proof),
		}
	default:
		return nil
	}
	var note string
	d.Fix.Risk, note = risk(s.Resource, Medium)
	d.Fix.Note = sentence(note, d.Fix.Note)
	d.claimShare(s, ledger.Compute, 1, 1, wasteAndSavings)
	return d
}

// notebookIdle finds notebooks in service that nobody uses. Telemetry decides
// where there is any; then the notebook's own record of use; when it was last
// modified is weak evidence.
func notebookIdle(x *index, s *subject) *draft {
	n, ok := s.Detail.(*inventory.Notebook)
	if !ok || s.State != inventory.StateRunning {
		return nil
	}
	d := &draft{Finding: Finding{
		Fix: Fix{Action: "stop", Undo: UndoFull, Note: "its volume stays and goes on costing; what is only in kernels' memory is lost"},
	}}
	if n.App {
		d.Fix.Action, d.Fix.Undo = "delete-app", UndoPartial
	}
	activity, recorded := n.LastActivity.Get()
	switch {
	case s.judged && s.duty.State != duty.Unknown:
		if s.duty.State.Used() || !x.judgedIdle(s) {
			return nil
		}
		if recorded && x.now.Sub(activity) < x.t.MinAge {
			return nil // somebody works in it without computing
		}
		d.Confidence, d.Because, d.Evidence = High, s.duty.Why, s.duty.Evidence
		if len(d.Evidence) == 0 {
			d.Evidence = []usage.Evidence{{Signal: "duty", Value: s.duty.State.String(), Window: s.duty.Lasting, Coverage: s.duty.Coverage, Source: "metrics"}}
		}
	case recorded:
		quiet := x.now.Sub(activity)
		if quiet < x.t.NotebookIdle {
			return nil
		}
		d.Confidence, d.Because = Medium, "no activity for "+usage.Span(quiet)
		d.Evidence = []usage.Evidence{aged(s, "last_activity", quiet)}
	case !n.LastModified.IsZero() && x.now.Sub(n.LastModified) >= x.t.NotebookIdle:
		quiet := x.now.Sub(n.LastModified)
		d.Confidence, d.Because = Low, "in service, last modified "+usage.Span(quiet)+" ago (weak evidence)"
		d.Evidence = []usage.Evidence{aged(s, "last_modified", quiet)}
	default:
		return nil
	}
	if age, known := x.age(s); known && age < x.t.MinAge {
		return nil
	}
	d.Fix.Risk = Low
	if d.Confidence == Low {
		d.Fix.Risk = Medium
		d.Fix.Note = sentence("ask its owner first", d.Fix.Note)
	}
	level, note := risk(s.Resource, d.Fix.Risk)
	d.Fix.Risk, d.Fix.Note = level, sentence(note, d.Fix.Note)
	d.claimShare(s, ledger.Compute, 1, 1, wasteAndSavings)
	return d
}

// perDay is a counter's mean a day over a window.
func perDay(sum float64, w *usage.Window) float64 {
	days := w.To.Sub(w.From).Hours() / (24 * time.Hour).Hours()
	if days <= 0 {
		return 0
	}
	return sum / days
}
