package finding

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// volumeUnattached finds volumes that have been attached to nothing for a week.
// Providers do not say when a volume was detached; its I/O does, because it is
// published only while the volume is attached: any sample within the week says
// that it was in use.
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
		Fix: Fix{Change: change.Change{Verb: change.Delete, Arguments: change.Arguments{Snapshot: []string{s.ID}}}, Risk: Low, Undo: UndoPartial,
			Note: "a volume can be made again from the snapshot, which costs at most the snapshot price of its size while it is kept"},
	}}
	if detached, known := x.since(s); known {
		if detached < x.Thresholds.VolumeUnattached {
			return nil
		}
		d.Because = "attached to nothing for " + usage.Span(detached)
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
			d.Because = "attached to nothing, no I/O for " + usage.Span(x.Thresholds.VolumeUnattached)
		}
		d.Evidence = append(d.Evidence, usage.Evidence{Signal: "disk_ops", Value: "0", Window: x.Thresholds.VolumeUnattached,
			Coverage: usage.NoCoverage, Source: s.Window.Source})
	} else if d.Because == "" {
		// Without its metrics its I/O is unknown: it may have been detached a minute
		// ago, whatever was read of others.
		return nil
	}
	if s.Lifetime == inventory.Persistent {
		d.Fix.Risk = Medium
	}
	d.ClaimShare(s, "", 1, 1, WasteAndSavings)
	return d
}
