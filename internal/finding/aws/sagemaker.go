package aws

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// endpointIdle finds endpoints without an invocation for 14 days. Asynchronous endpoints, whose
// work is not counted as invocations, and serverless ones, which are free while idle, are excluded.
// CloudWatch has invocations only if there are some, so another metric must show that the endpoint
// was measured. An endpoint without any metric is a finding of low confidence by the age of its
// last change, with unknown dollars.
func endpointIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	e, ok := s.Detail.(*inventory.Endpoint)
	if !ok || s.State != inventory.StateRunning || e.Async {
		return nil
	}
	machines := false
	for _, v := range e.Variants {
		machines = machines || !v.Serverless && v.Count > 0
	}
	if age, known := x.Age(s); !machines || (known && age < x.Thresholds.EndpointIdle) {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Fix: finding.Fix{Change: change.Change{Verb: change.Delete}, Undo: finding.UndoPartial,
			Note: "its configuration and model stay, it can be created again from them"},
	}}
	w, as := s.Window, finding.WasteAndSavings
	if !sampled(w) {
		quiet := x.Now.Sub(e.LastModified)
		// Without a window its metrics could not be read, which is no evidence of use or disuse.
		if w == nil || e.LastModified.IsZero() || quiet < x.Thresholds.EndpointIdle {
			return nil
		}
		d.Because = "in service, last modified " + plain.Duration(quiet) + " ago (weak evidence)"
		d.Evidence = []usage.Evidence{finding.Aged(s, "last_modified", quiet)}
		d.Fix.Change, as = change.Change{Verb: change.Notify}, finding.SavingsOnly
		unmeasured(d)
	} else if !uninvoked(x, s, d) {
		return nil
	}
	var note string
	d.Fix.Risk, note = finding.Risk(s.Resource, finding.Medium)
	d.Fix.Note = finding.Sentence(note, d.Fix.Note)
	d.ClaimShare(s, ledger.Compute, 1, 1, as)
	return d
}

// sampled reports whether an endpoint has any sample.
func sampled(w *usage.Window) bool {
	if w == nil {
		return false
	}
	for _, sig := range []usage.Signal{
		usage.Requests, usage.CPUUtil, usage.GPUUtil, usage.MemUsed, usage.HostMemUsed,
	} {
		if w.Machine.Stats(sig) != nil {
			return true
		}
	}
	return len(w.GPUs) > 0
}

// uninvoked reports whether an endpoint was measured and had no invocation, and adds reason and
// evidence to the draft.
func uninvoked(x *finding.Index, s *finding.Subject, d *finding.Draft) bool {
	w := s.Window
	if !finding.Spans(w, x.Thresholds.EndpointIdle) {
		return false
	}
	requests := w.Machine.Stats(usage.Requests)
	if requests != nil && (requests.Max > 0 || requests.Sum > 0) {
		return false
	}
	// An endpoint with a busy accelerator serves requests, whatever is counted.
	if finding.Computed(w) {
		return false
	}
	d.Because = "no invocation for " + plain.Duration(w.To.Sub(w.From))
	switch sig, proof := x.Alive(w, usage.CPUUtil, usage.GPUUtil, usage.HostMemUsed); {
	case x.Covered(w, requests) && w.Fresh(requests, x.Now):
		d.Evidence = []usage.Evidence{finding.Sampled("invocations", "0", w, requests)}
	case proof != nil:
		d.Evidence = []usage.Evidence{
			{
				Signal: "invocations", Value: "0", Window: w.To.Sub(w.From), Coverage: w.Coverage(proof),
				Source: w.Source,
			},
			finding.Sampled(sig.String()+"_max", plain.Decimal(proof.Max, 1), w, proof),
		}
	default:
		return false
	}
	return true
}

// unmeasured marks waste and saving of a draft as unknown, bounded by the whole cost, because its
// only evidence is a date.
func unmeasured(d *finding.Draft) {
	d.Confidence, d.WasteUnknown = finding.Low, true
	d.Unknown = "nothing measured its use"
	d.Fix.Note = finding.Sentence("ask its owner first", d.Fix.Note)
}

// notebookIdle finds unused notebooks in service, by telemetry if there is any, else by the
// notebook's own record of use. The last modification is weak evidence.
func notebookIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	n, ok := s.Detail.(*inventory.Notebook)
	if !ok || s.State != inventory.StateRunning {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Fix: finding.Fix{
			Change: change.Change{Verb: change.Stop}, Undo: finding.UndoFull,
			Note: "its volume stays and is still charged; data that is only in the memory of kernels is lost",
		},
	}}
	if n.IsApp {
		d.Fix.Change.Verb, d.Fix.Undo = change.DeleteApp, finding.UndoPartial
	}
	activity, recorded := n.LastActivity.Get()
	switch {
	case s.Judged && s.Duty.State != duty.Unknown:
		if s.Duty.State.Productive() || !x.JudgedIdle(s) {
			return nil
		}
		if recorded && x.Now.Sub(activity) < x.Thresholds.MinAge {
			return nil // a person works in it without computing
		}
		d.Confidence, d.Because, d.Evidence = finding.High, s.Duty.Why, s.Duty.Evidence
		if len(d.Evidence) == 0 {
			d.Evidence = []usage.Evidence{
				{
					Signal: "duty", Value: s.Duty.State.String(), Window: s.Duty.Duration, Coverage: s.Duty.Coverage,
					Source: "metrics",
				},
			}
		}
	case recorded:
		quiet := x.Now.Sub(activity)
		if quiet < x.Thresholds.NotebookIdle {
			return nil
		}
		d.Confidence, d.Because = finding.Medium, "no activity for "+plain.Duration(quiet)
		d.Evidence = []usage.Evidence{finding.Aged(s, "last_activity", quiet)}
	case !n.LastModified.IsZero() && x.Now.Sub(n.LastModified) >= x.Thresholds.NotebookIdle:
		quiet := x.Now.Sub(n.LastModified)
		d.Because = "in service, last modified " + plain.Duration(quiet) + " ago (weak evidence)"
		d.Evidence = []usage.Evidence{finding.Aged(s, "last_modified", quiet)}
		unmeasured(d)
	default:
		return nil
	}
	if age, known := x.Age(s); known && age < x.Thresholds.MinAge {
		return nil
	}
	usual, as := finding.Low, finding.WasteAndSavings
	if d.WasteUnknown {
		usual, as = finding.Medium, finding.SavingsOnly
	}
	level, note := finding.Risk(s.Resource, usual)
	d.Fix.Risk, d.Fix.Note = level, finding.Sentence(note, d.Fix.Note)
	d.ClaimShare(s, ledger.Compute, 1, 1, as)
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
		Because: "runs for " + plain.Duration(running) + ", usual jobs end within " + plain.Duration(
			x.Thresholds.TrainingAge),
		Evidence: []usage.Evidence{finding.Aged(s, "running", running)},
		Fix: finding.Fix{
			Change: change.Change{Verb: change.Notify}, Risk: finding.None, Undo: finding.UndoFull,
			Note: "check its progress and set a maximum runtime",
		},
	}}
	if j.MaxRuntime > 0 {
		d.Evidence = append(d.Evidence, finding.Fact(s, "max_runtime", plain.Duration(j.MaxRuntime)))
	}
	return d
}
