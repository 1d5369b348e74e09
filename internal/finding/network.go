package finding

import (
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// loadBalancerIdle finds load balancers without a target, without a healthy one, or with under 100
// requests a day over a week. CloudWatch has requests only if there are some; without samples of
// them, or of healthy targets, their number is unknown.
func loadBalancerIdle(x *Index, s *Subject) *Draft {
	lb, ok := s.Detail.(*inventory.LoadBalancer)
	if !ok || s.State == inventory.StatePending {
		return nil
	}
	if age, known := x.Age(s); !known || age < x.Thresholds.LoadBalancerWindow {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: High,
		Fix: Fix{
			Change: change.Change{Verb: change.Delete}, Risk: Medium, Undo: UndoNone,
			Note: "its address and DNS name are gone with it; look for names that point to it first",
		},
	}}
	rate, stats, measured := x.requestsPerDay(s.Window)
	targets, targetsKnown := lb.Targets.Get()
	healthy, healthyKnown := lb.HealthyTargets.Get()
	switch {
	case measured && rate >= x.Thresholds.LoadBalancerRequests:
		return nil
	case !measured && x.servedLately(s.Window):
		return nil // without targets it may respond itself, and targets unhealthy now may recover
	case targetsKnown && targets == 0:
		d.Because = "no targets"
		d.Evidence = []usage.Evidence{Fact(s, "targets", "0")}
		if s.Window == nil {
			d.Confidence = Medium
		}
	case healthyKnown && healthy == 0:
		d.Because = "no healthy target"
		d.Evidence = []usage.Evidence{Fact(s, "healthy_targets", "0")}
		if !measured {
			d.Confidence = Medium
		}
	case measured:
		d.Because = plain.Number(rate, 0) + " requests a day, under " + plain.Number(
			x.Thresholds.LoadBalancerRequests, 0)
	default:
		return nil
	}
	if measured {
		d.Evidence = append(d.Evidence, Sampled("requests_per_day", plain.Decimal(rate, 1), s.Window, stats))
	}
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	d.ClaimShare(s, "", 1, 1, WasteAndSavings)
	return d
}

// servedLately reports whether any request was measured within the window of the rule, at any
// coverage.
func (x *Index) servedLately(w *usage.Window) bool {
	if w == nil {
		return false
	}
	st := w.Machine.Stats(usage.Requests)
	return st != nil && st.Active > 0 && x.Now.Sub(st.LastActive) < x.Thresholds.LoadBalancerWindow
}

// requestsPerDay returns a load balancer's requests a day and their samples; false if not measured.
func (x *Index) requestsPerDay(w *usage.Window) (float64, *usage.Stats, bool) {
	if !Spans(w, x.Thresholds.LoadBalancerWindow) {
		return 0, nil, false
	}
	requests := w.Machine.Stats(usage.Requests)
	if x.Covered(w, requests) {
		return perDay(requests.Sum, w), requests, true
	}
	if _, proof := x.Alive(w, usage.Healthy); proof != nil {
		if requests == nil {
			return 0, proof, true
		}
		return perDay(requests.Sum, w), proof, true
	}
	return 0, nil, false
}

// addressUnused finds public addresses that are not associated or belong to a stopped machine.
func addressUnused(x *Index, s *Subject) *Draft {
	a, ok := s.Detail.(*inventory.Address)
	if !ok {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: High,
		Fix: Fix{
			Change: change.Change{Verb: change.Release}, Risk: Low, Undo: UndoNone,
			Note: "the same address cannot be had again; look for names that point to it first",
		},
	}}
	switch {
	case a.AssociationID == "" && a.InstanceID == "" && s.State != inventory.StateInUse:
		d.Because = "not associated"
		d.Evidence = []usage.Evidence{Fact(s, "association", "none")}
	case a.InstanceID != "" && x.read(s.Resource, inventory.KindInstance):
		i, ok := x.near(s.Resource, inventory.KindInstance, a.InstanceID)
		if !ok || i.State != inventory.StateStopped || i.KeepUntil.After(x.Now) {
			return nil
		}
		var stopped time.Duration
		if stopped, ok = x.since(i); ok && stopped < day {
			return nil
		}
		d.Because = "associated with a stopped machine"
		d.Evidence = []usage.Evidence{Fact(s, "association", i.ID), Fact(i, "state", string(i.State))}
		if ok {
			d.Evidence = append(d.Evidence, Aged(i, "stopped", stopped))
		} else {
			d.Confidence = Medium
		}
	default:
		return nil
	}
	d.ClaimShare(s, "", 1, 1, WasteAndSavings)
	return d
}
