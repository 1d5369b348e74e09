package aws

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// natGatewayIdle finds gateways that carried no byte in 30 days, and those that no
// route table sends traffic to.
func natGatewayIdle(x *finding.Index, s *finding.Subject) *finding.Draft {
	n, ok := s.Detail.(*inventory.NATGateway)
	if !ok || (s.State != inventory.StateAvailable && s.State != inventory.StateRunning) {
		return nil
	}
	d := &finding.Draft{Finding: finding.Finding{
		Confidence: finding.High,
		Fix: finding.Fix{
			Change: change.Change{Verb: change.Delete}, Undo: finding.UndoPartial,
			Note: "a new one can be made, with another address unless that is kept",
		},
	}}
	var traffic *usage.Stats
	if s.Window != nil {
		traffic = s.Window.Machine.Stats(usage.NetBytes)
	}
	routes, known := n.Routes.Get()
	if traffic != nil && traffic.Sum > 0 {
		return nil
	}
	switch {
	case finding.Spans(s.Window, x.Thresholds.NATWindow) && x.Covered(s.Window, traffic) &&
		s.Window.Fresh(traffic, x.Now):
		d.Because = "0 bytes in " + plain.Duration(s.Window.To.Sub(s.Window.From))
		d.Evidence = []usage.Evidence{finding.Sampled("bytes", "0", s.Window, traffic)}
		if known {
			d.Evidence = append(d.Evidence, finding.Fact(s, "routes", plain.Decimal(float64(routes), 0)))
		}
	case known && routes == 0:
		if age, ok := x.Age(s); !ok || age < 7*day {
			return nil
		}
		d.Confidence = finding.Medium
		d.Because = "no route table sends traffic to it"
		d.Evidence = []usage.Evidence{finding.Fact(s, "routes", "0")}
	default:
		return nil
	}
	var note string
	d.Fix.Risk, note = finding.Risk(s.Resource, finding.Medium)
	d.Fix.Note = finding.Sentence(note, d.Fix.Note)
	d.ClaimShare(s, "", 1, 1, finding.WasteAndSavings)
	return d
}
