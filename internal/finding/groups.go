package finding

import (
	"slices"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// autoscalingSticky finds groups with a desired capacity above their minimum and idle members:
// demand fell and the group did not follow. It claims as many idle members as the group may lose;
// each member's own finding comes first.
func autoscalingSticky(x *Index, s *Subject) *Draft {
	g, ok := s.Detail.(*inventory.AutoScalingGroup)
	if !ok || g.Desired <= g.Min {
		return nil
	}
	var idle []*Subject
	unknown := 0
	for _, id := range slices.Sorted(slices.Values(g.Instances)) {
		m, ok := x.near(s.Resource, inventory.KindInstance, id)
		switch {
		case !ok || m.State != inventory.StateRunning || m.KeepUntil.After(x.Now):
		case !x.JudgedIdle(m):
			unknown++
		case m.Duty.State == duty.Idle || m.Duty.State == duty.Held:
			idle = append(idle, m)
		}
	}
	spare := min(int64(len(idle)), g.Desired-g.Min)
	if spare == 0 {
		return nil
	}
	ends := make([]string, spare)
	for i, m := range idle[:spare] {
		ends[i] = m.ID
	}
	d := &Draft{Finding: Finding{
		Confidence: High,
		Because: plain.Number(float64(len(idle)), 0) + " of " + plain.Count(g.Desired, "machine") + " idle, minimum " +
			plain.Number(float64(g.Min), 0),
		Evidence: []usage.Evidence{
			Fact(s, "desired", plain.Decimal(float64(g.Desired), 0)), Fact(s, "min", plain.Decimal(float64(g.Min), 0)),
			usage.Fact("idle_members", plain.Decimal(float64(len(idle)), 0), "metrics")},
		Fix: Fix{
			Change: change.Change{
				Verb: change.Scale, Arguments: change.Arguments{Count: new(g.Desired - spare), Members: ends},
			}, Undo: UndoPartial,
			Note: "ends these idle members and no others, with their disks, and lowers its desired capacity; add a policy " +
				"that follows demand down"},
	}}
	if policies, known := g.ScalingPolicies.Get(); known {
		d.Evidence = append(d.Evidence, Fact(s, "scaling_policies", plain.Decimal(float64(policies), 0)))
		if policies == 0 {
			d.Fix.Note = "no policy changes its size; " + d.Fix.Note
		}
	}
	if w := s.Window; w != nil {
		if st := w.Machine.Stats(usage.Capacity); x.Covered(w, st) {
			d.Evidence = append(d.Evidence, Sampled("capacity_min", plain.Decimal(st.Min, 0), w, st))
			// A group that was smaller within the window does scale, so its desired capacity may be
			// the present demand.
			if st.Min < float64(g.Desired) {
				d.Confidence = Medium
			}
		}
	}
	if unknown > 0 {
		d.Confidence = Medium
		d.Evidence = append(d.Evidence,
			usage.Fact("members_not_judged", plain.Decimal(float64(unknown), 0), "metrics"))
	}
	d.Fix.Policy = x.followGroup(s, g)
	var note string
	d.Fix.Risk, note = Risk(s.Resource, Medium)
	d.Fix.Note = Sentence(note, d.Fix.Note)
	for _, m := range idle[:spare] {
		d.ClaimShare(m, ledger.Compute, 1, 1, WasteAndSavings)
		d.ClaimShare(m, ledger.Network, 1, 1, WasteAndSavings)
	}
	return d
}
