package finding

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// loadBalancerIdle finds load balancers without any target, without a healthy
// one, or with under 100 requests a day over a week. Requests are published only
// when there are some; without samples of them, or of healthy targets, their
// number is unknown.
func loadBalancerIdle(x *index, s *subject) *draft {
	lb, ok := s.Detail.(*inventory.LoadBalancer)
	if !ok || s.State == inventory.StatePending {
		return nil
	}
	if age, known := x.age(s); !known || age < x.t.LoadBalancerWindow {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: High,
		Fix:        Fix{Action: "delete", Risk: Medium, Undo: UndoNone, Note: "its address and DNS name are gone with it; look for names that point to it first"},
	}}
	rate, stats, measured := x.requestsPerDay(s.window)
	targets, targetsKnown := lb.Targets.Get()
	healthy, healthyKnown := lb.HealthyTargets.Get()
	switch {
	case measured && rate >= x.t.LoadBalancerRequests:
		return nil
	case !measured && x.servedLately(s.window):
		return nil // without targets it may answer by itself, and unhealthy now need not be unhealthy always
	case targetsKnown && targets == 0:
		d.Because = "no targets"
		d.Evidence = []usage.Evidence{fact(s, "targets", "0")}
		if s.window == nil {
			d.Confidence = Medium
		}
	case healthyKnown && healthy == 0:
		d.Because = "no healthy target"
		d.Evidence = []usage.Evidence{fact(s, "healthy_targets", "0")}
		if !measured {
			d.Confidence = Medium
		}
	case measured:
		d.Because = usage.Number(rate, 0) + " requests a day, under " + usage.Number(x.t.LoadBalancerRequests, 0)
	default:
		return nil
	}
	if measured {
		d.Evidence = append(d.Evidence, sampled("requests_per_day", usage.Number(rate, 1), s.window, stats))
	}
	var note string
	d.Fix.Risk, note = risk(s.Resource, Medium)
	d.Fix.Note = sentence(note, d.Fix.Note)
	d.claimShare(s, "", 1, 1, wasteAndSavings)
	return d
}

// servedLately says whether any request was seen within the window of the rule,
// however much of that was measured.
func (x *index) servedLately(w *usage.Window) bool {
	if w == nil {
		return false
	}
	st := w.Machine.Stats(usage.Requests)
	return st != nil && st.Active > 0 && x.now.Sub(st.LastActive) < x.t.LoadBalancerWindow
}

// requestsPerDay returns how many requests a balancer serves a day, what proves
// that they were measured, and whether they were.
func (x *index) requestsPerDay(w *usage.Window) (float64, *usage.Stats, bool) {
	if !spans(w, x.t.LoadBalancerWindow) {
		return 0, nil, false
	}
	requests := w.Machine.Stats(usage.Requests)
	if x.covered(w, requests) {
		return perDay(requests.Sum, w), requests, true
	}
	if _, proof := x.alive(w, usage.Healthy); proof != nil {
		if requests == nil {
			return 0, proof, true
		}
		return perDay(requests.Sum, w), proof, true
	}
	return 0, nil, false
}

// natGatewayIdle finds gateways that carried no byte in 30 days, and those that no
// route table sends traffic to.
func natGatewayIdle(x *index, s *subject) *draft {
	n, ok := s.Detail.(*inventory.NATGateway)
	if !ok || (s.State != inventory.StateAvailable && s.State != inventory.StateRunning) {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: High,
		Fix:        Fix{Action: "delete", Undo: UndoPartial, Note: "a new one can be made, with another address unless that is kept"},
	}}
	var traffic *usage.Stats
	if s.window != nil {
		traffic = s.window.Machine.Stats(usage.NetBytes)
	}
	routes, known := n.Routes.Get()
	if traffic != nil && traffic.Sum > 0 {
		return nil
	}
	switch {
	case spans(s.window, x.t.NATWindow) && x.covered(s.window, traffic) && s.window.Fresh(traffic, x.now):
		d.Because = "0 bytes in " + usage.Span(s.window.To.Sub(s.window.From))
		d.Evidence = []usage.Evidence{sampled("bytes", "0", s.window, traffic)}
		if known {
			d.Evidence = append(d.Evidence, fact(s, "routes", usage.Number(float64(routes), 0)))
		}
	case known && routes == 0:
		if age, ok := x.age(s); !ok || age < 7*day {
			return nil
		}
		d.Confidence = Medium
		d.Because = "no route table sends traffic to it"
		d.Evidence = []usage.Evidence{fact(s, "routes", "0")}
	default:
		return nil
	}
	var note string
	d.Fix.Risk, note = risk(s.Resource, Medium)
	d.Fix.Note = sentence(note, d.Fix.Note)
	d.claimShare(s, "", 1, 1, wasteAndSavings)
	return d
}

// addressUnused finds public addresses that are associated with nothing, or with a
// machine that is stopped.
func addressUnused(x *index, s *subject) *draft {
	a, ok := s.Detail.(*inventory.Address)
	if !ok {
		return nil
	}
	d := &draft{Finding: Finding{
		Confidence: High,
		Fix:        Fix{Action: "release", Risk: Low, Undo: UndoNone, Note: "the same address cannot be had again; look for names that point to it first"},
	}}
	switch {
	case a.AssociationID == "" && a.InstanceID == "" && s.State != inventory.StateInUse:
		d.Because = "associated with nothing"
		d.Evidence = []usage.Evidence{fact(s, "association", "none")}
	case a.InstanceID != "" && x.read(s.Resource, inventory.KindInstance):
		i, ok := x.near(s.Resource, inventory.KindInstance, a.InstanceID)
		if !ok || i.State != inventory.StateStopped || i.KeepUntil.After(x.now) {
			return nil
		}
		var stopped time.Duration
		if stopped, ok = x.since(i); ok && stopped < day {
			return nil
		}
		d.Because = "associated with a stopped machine"
		d.Evidence = []usage.Evidence{fact(s, "association", i.ID), fact(i, "state", string(i.State))}
		if ok {
			d.Evidence = append(d.Evidence, aged(i, "stopped", stopped))
		} else {
			d.Confidence = Medium
		}
	default:
		return nil
	}
	d.claimShare(s, "", 1, 1, wasteAndSavings)
	return d
}
