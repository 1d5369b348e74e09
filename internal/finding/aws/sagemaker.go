package aws

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/usage"
)

// endpointIdle finds endpoints without an invocation for 14 days. Asynchronous
// endpoints, whose work does not show as invocations of the endpoint, and
// serverless ones, which cost nothing idle, are left out. Invocations are
// published only when there are some, so another metric must prove that the
// endpoint was measured.
func endpointIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	e, ok := s.Detail.(*inventory.Endpoint)
	if !ok || s.State != inventory.StateRunning || e.Async || !finding.Spans(s.Window, x.Thresholds.EndpointIdle) {
		return nil
	}
	machines := false
	for _, v := range e.Variants {
		machines = machines || !v.Serverless && v.Count > 0
	}
	if age, known := x.Age(s); !machines || (known && age < x.Thresholds.EndpointIdle) {
		return nil
	}
	w := s.Window
	requests := w.Machine.Stats(usage.Requests)
	if requests != nil && (requests.Max > 0 || requests.Sum > 0) {
		return nil
	}
	// An endpoint whose accelerator works serves somebody, whatever is counted.
	if finding.Computed(w) {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Because:    "no invocation for " + usage.Span(w.To.Sub(w.From)),
		Fix: finding.Fix{Change: change.Change{Verb: change.Delete}, Undo: finding.UndoPartial,
			Note: "its configuration and model stay, it can be created again from them"},
	}}
	switch sig, proof := x.Alive(w, usage.CPUUtil, usage.GPUUtil, usage.HostMemUsed); {
	case x.Covered(w, requests) && w.Fresh(requests, x.Now):
		d.Evidence = []usage.Evidence{finding.Sampled("invocations", "0", w, requests)}
	case proof != nil:
		d.Evidence = []usage.Evidence{
			{Signal: "invocations", Value: "0", Window: w.To.Sub(w.From), Coverage: w.Coverage(proof), Source: w.Source},
			finding.Sampled(sig.String()+"_max", usage.Number(proof.Max, 1), w, proof),
		}
	default:
		return nil
	}
	var note string
	d.Fix.Risk, note = finding.Risk(s.Resource, finding.Medium)
	d.Fix.Note = finding.Sentence(note, d.Fix.Note)
	d.ClaimShare(s, ledger.Compute, 1, 1, finding.WasteAndSavings)
	return d
}

// notebookIdle finds notebooks in service that nobody uses. Telemetry decides
// where there is any; then the notebook's own record of use; when it was last
// modified is weak evidence.
func notebookIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	n, ok := s.Detail.(*inventory.Notebook)
	if !ok || s.State != inventory.StateRunning {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Fix: finding.Fix{Change: change.Change{Verb: change.Stop}, Undo: finding.UndoFull, Note: "its volume stays and goes on costing; what is only in kernels' memory is lost"},
	}}
	if n.App {
		d.Fix.Change.Verb, d.Fix.Undo = change.DeleteApp, finding.UndoPartial
	}
	activity, recorded := n.LastActivity.Get()
	switch {
	case s.Judged && s.Duty.State != duty.Unknown:
		if s.Duty.State.Used() || !x.JudgedIdle(s) {
			return nil
		}
		if recorded && x.Now.Sub(activity) < x.Thresholds.MinAge {
			return nil // somebody works in it without computing
		}
		d.Confidence, d.Because, d.Evidence = finding.High, s.Duty.Why, s.Duty.Evidence
		if len(d.Evidence) == 0 {
			d.Evidence = []usage.Evidence{{Signal: "duty", Value: s.Duty.State.String(), Window: s.Duty.Lasting, Coverage: s.Duty.Coverage, Source: "metrics"}}
		}
	case recorded:
		quiet := x.Now.Sub(activity)
		if quiet < x.Thresholds.NotebookIdle {
			return nil
		}
		d.Confidence, d.Because = finding.Medium, "no activity for "+usage.Span(quiet)
		d.Evidence = []usage.Evidence{finding.Aged(s, "last_activity", quiet)}
	case !n.LastModified.IsZero() && x.Now.Sub(n.LastModified) >= x.Thresholds.NotebookIdle:
		quiet := x.Now.Sub(n.LastModified)
		d.Confidence, d.Because = finding.Low, "in service, last modified "+usage.Span(quiet)+" ago (weak evidence)"
		d.Evidence = []usage.Evidence{finding.Aged(s, "last_modified", quiet)}
	default:
		return nil
	}
	if age, known := x.Age(s); known && age < x.Thresholds.MinAge {
		return nil
	}
	d.Fix.Risk = finding.Low
	if d.Confidence == finding.Low {
		d.Fix.Risk = finding.Medium
		d.Fix.Note = finding.Sentence("ask its owner first", d.Fix.Note)
	}
	level, note := finding.Risk(s.Resource, d.Fix.Risk)
	d.Fix.Risk, d.Fix.Note = level, finding.Sentence(note, d.Fix.Note)
	d.ClaimShare(s, ledger.Compute, 1, 1, finding.WasteAndSavings)
	return d
}

// trainingOverrun warns of managed training jobs that run for over a day. It
// claims no waste.
func trainingOverrun(x *finding.Index, s *finding.Subject) *finding.Draft {
	j, ok := s.Detail.(*inventory.TrainingJob)
	if !ok || s.State != inventory.StateRunning || j.StartedAt.IsZero() || j.StartedAt.After(x.Now) {
		return nil
	}
	running := x.Now.Sub(j.StartedAt)
	if running <= x.Thresholds.TrainingAge {
		return nil
	}
	total, _ := x.Cost(s, ledger.Compute)
	d := &finding.Draft{Stands: true, Finding: finding.Finding{
		Savings: finding.Saving{Known: true}, Cost: total, Confidence: finding.High,
		Because:  "runs for " + usage.Span(running) + ", usual jobs end within " + usage.Span(x.Thresholds.TrainingAge),
		Evidence: []usage.Evidence{finding.Aged(s, "running", running)},
		Fix:      finding.Fix{Change: change.Change{Verb: change.Notify}, Risk: finding.None, Undo: finding.UndoFull, Note: "check its progress and set a maximum runtime"},
	}}
	if j.MaxRuntime > 0 {
		d.Evidence = append(d.Evidence, finding.Fact(s, "max_runtime", usage.Span(j.MaxRuntime)))
	}
	return d
}
