package finding

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// volumeUnattached finds volumes unattached for a week. Providers do not state when a volume was
// detached, but publish its I/O only while it is attached: any sample within the week shows that it
// was in use.
func volumeUnattached(x *Index, s *Subject) *Draft {
	v, ok := s.Detail.(*inventory.Volume)
	if !ok || s.State != inventory.StateAvailable || len(v.AttachedTo) > 0 {
		return nil
	}
	age, known := x.Age(s)
	if !known || age < x.Thresholds.VolumeUnattached {
		return nil
	}
	d := &Draft{Finding: Finding{
		Confidence: High,
		Evidence:   []usage.Evidence{Fact(s, "state", "available"), Aged(s, "age", age)},
		Fix: Fix{
			Change: change.Change{
				Verb: change.Delete, Arguments: change.Arguments{Snapshot: []string{s.ID}},
			}, Risk: Low,
			Undo: UndoPartial,
			Note: "a volume can be made again from the snapshot, whose price is counted as if the volume were full"},
	}}
	if detached, known := x.since(s); known {
		if detached < x.Thresholds.VolumeUnattached {
			return nil
		}
		d.Because = "unattached for " + plain.Duration(detached)
		d.Evidence = append(d.Evidence, Aged(s, "unattached", detached))
	}
	if s.Window != nil {
		for _, sig := range []usage.Signal{usage.DiskOps, usage.DiskBytes} {
			if st := s.Window.Machine.Stats(sig); st != nil && x.Now.Sub(st.Last) < x.Thresholds.VolumeUnattached {
				return nil
			}
		}
		if d.Because == "" {
			if !Spans(s.Window, x.Thresholds.VolumeUnattached) {
				return nil
			}
			d.Because = "unattached, no I/O for " + plain.Duration(x.Thresholds.VolumeUnattached)
		}
		d.Evidence = append(d.Evidence, usage.Evidence{
			Signal: "disk_ops", Value: "0", Window: x.Thresholds.VolumeUnattached,
			Coverage: usage.NoCoverage, Source: s.Window.Source})
	} else if d.Because == "" {
		// Without its metrics its I/O is unknown: it may have been detached a minute ago.
		return nil
	}
	if s.Lifetime == inventory.Persistent {
		d.Fix.Risk = Medium
	}
	if s.Manager != (inventory.Manager{}) {
		x.leaveToManager(d, s, v)
		return d
	}
	x.keepSnapshot(d, s)
	return d
}

// leaveToManager turns the deletion of a volume into advice if something manages it: a Kubernetes
// claim holds its data even while no pod uses it, and only the cluster knows whether it can go. The
// saving is only bounded and not called waste.
func (x *Index) leaveToManager(d *Draft, s *Subject, v *inventory.Volume) {
	holder, risk := s.Manager.String(), Medium
	if v.Claim != "" {
		holder, risk = "the claim "+v.Claim+" of Kubernetes", High
		d.Evidence = append(d.Evidence, Fact(s, "claim", v.Claim))
	}
	d.Evidence = append(d.Evidence, Fact(s, "manager", s.Manager.String()))
	d.Fix = Fix{Change: change.Change{Verb: change.Advise}, Risk: risk, Undo: UndoNone,
		Note: "curfew does not delete it: " + holder + " may still need its data; delete it there"}
	d.Unknown = "it can be deleted only once " + holder + " lets go of it"
	d.ClaimShare(s, "", 1, 1, SavingsOnly)
}

// keepSnapshot claims a volume that is deleted after a snapshot of it: its whole cost is waste, and
// the saving is that less the snapshot, which is bounded by the volume's size. If the snapshot may
// cost more than the volume, or has no price, the saving is unknown.
func (x *Index) keepSnapshot(d *Draft, v *Subject) {
	vol, ok := v.Detail.(*inventory.Volume)
	total, unpriced := x.Cost(v, "")
	if !ok || unpriced != "" {
		d.ClaimShare(v, "", 1, 1, WasteAndSavings)
		return
	}
	p, err := x.Rate(price.ItemSnapshot, v.Region)
	if err != nil {
		d.Unknown = "no price for the snapshot: " + err.Error()
		d.ClaimShare(v, "", 1, 1, WasteAndSavings)
		return
	}
	kept := x.amount(p.Cost(vol.SizeGiB, 1))
	d.Evidence = append(d.Evidence, Priced("snapshot_usd_per_month_at_most", kept, p.Source))
	if kept >= total {
		d.Unknown = "the snapshot of a full volume costs as much as the volume"
		d.ClaimShare(v, "", 1, 1, WasteAndSavings)
		return
	}
	d.ClaimShare(v, "", 1, 1, WasteOnly)
	d.ClaimShare(v, "", int64(total-kept), int64(total), SavingsOnly)
	d.ClaimReplaced(v, 1, 1) // only the snapshot remains
}
