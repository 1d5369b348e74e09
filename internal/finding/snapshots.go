package finding

import (
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// wholeChain reports whether deleted is true for all snapshots that share blocks with s, including
// s.
func (x *Index) wholeChain(s *Subject, deleted func(*Subject) bool) bool {
	snap, ok := s.Detail.(*inventory.Snapshot)
	if !ok || !snap.InChain() {
		return ok
	}
	for _, at := range x.chains[scope(s.Resource, snap.VolumeID)] {
		if !deleted(&x.subjects[at]) {
			return false
		}
	}
	return true
}

// oldChain reports whether the whole chain of s is old, computed once per chain.
func (x *Index) oldChain(s *Subject, snap *inventory.Snapshot) bool {
	if !snap.InChain() {
		return true
	}
	k := scope(s.Resource, snap.VolumeID)
	old, asked := x.oldChains[k]
	if !asked {
		old = x.wholeChain(s, x.snapshotIsOld)
		x.oldChains[k] = old
	}
	return old
}

// claimSnapshot claims a snapshot to delete. Snapshots of one volume share blocks, so the freed
// size is known only if the whole chain is deleted or has one snapshot; otherwise the saving is
// unknown, at most the snapshot's own size.
func (x *Index) claimSnapshot(d *Draft, s *Subject, whole bool) {
	snap, ok := s.Detail.(*inventory.Snapshot)
	if !ok {
		return
	}
	switch _, unpriced := x.Cost(s, ""); {
	case unpriced == "" && !snap.Locked.Known():
		d.Unknown = "whether a snapshot lock keeps it was not read"
		d.ClaimShare(s, "", 1, 1, SavingsOnly)
	case whole && unpriced == "":
		d.ClaimShare(s, "", 1, 1, WasteAndSavings)
	case unpriced == "":
		d.Unknown = "other snapshots of " + snap.VolumeID + " stay and may share its blocks"
		d.ClaimShare(s, "", 1, 1, SavingsOnly)
	default:
		bound, ok := x.snapshotBound(s, snap)
		if !ok {
			d.ClaimShare(s, "", 1, 1, WasteAndSavings) // also names an unpriced meter
			return
		}
		d.Unknown = "an incremental snapshot: what it holds beyond the others of " +
			snap.VolumeID + " is not published"
		d.Bound = x.amount(d.Bound.Add(bound))
	}
}

// snapshotBound returns the maximum monthly cost of an incremental snapshot: all blocks of its
// volume.
func (x *Index) snapshotBound(s *Subject, snap *inventory.Snapshot) (money.Amount, bool) {
	p, err := x.Rate(price.ItemSnapshot, s.Region)
	if err != nil || !snap.InChain() {
		return 0, false
	}
	if full, known := snap.FullBytes.Get(); known {
		cost, err := p.Cost(full, gib)
		return cost, err == nil
	}
	cost, err := p.Cost(snap.VolumeSizeGiB, 1)
	return cost, err == nil
}

const gib = 1 << 30

// startsNothing reports whether no launch template, launch configuration or fleet is known to start
// machines from an image or snapshot.
func startsNothing(launchers inventory.Fact[[]string]) bool {
	names, known := launchers.Get()
	return known && len(names) == 0
}

// deletable reports whether a snapshot can be deleted once no image needs it: nothing would start a
// machine with it, no owner or lock keeps it, and it is no recovery point, which only AWS Backup
// deletes. An unknown lock affects the saving ([Index.claimSnapshot]).
func (x *Index) deletable(s *Subject, snap *inventory.Snapshot) bool {
	return snap.ImagesKnown && startsNothing(snap.Launchers) && !snap.Locked.Or(false) &&
		s.Manager == (inventory.Manager{}) && !s.KeepUntil.After(x.Now)
}

// snapshotIsOld reports whether a snapshot is old, deletable, and not needed by an image, including
// disabled ones.
func (x *Index) snapshotIsOld(s *Subject) bool {
	snap, ok := s.Detail.(*inventory.Snapshot)
	if !ok || len(snap.Images) > 0 || s.State == inventory.StatePending || !x.deletable(s, snap) {
		return false
	}
	age, known := x.Age(s)
	return known && age >= x.Thresholds.SnapshotAge
}

// snapshotOld finds snapshots older than 90 days that no image needs.
func snapshotOld(x *Index, s *Subject) *Draft {
	if !x.snapshotIsOld(s) {
		return nil
	}
	age, _ := x.Age(s)
	snap := s.Detail.(*inventory.Snapshot)
	d := &Draft{Finding: Finding{
		Confidence: High,
		Because:    plain.Duration(age) + " old, used by no image",
		Evidence: []usage.Evidence{Aged(s, "age", age), Fact(s, "images", "0"),
			Fact(s, "volume_gib", plain.Decimal(float64(snap.VolumeSizeGiB), 0))},
		Fix: Fix{
			Change: change.Change{Verb: change.Delete}, Risk: Medium, Undo: UndoNone,
			Note: "its data is gone; blocks that other snapshots need stay with them",
		},
	}}
	if s.Lifetime == inventory.Persistent {
		d.Fix.Risk = High
		d.Fix.Note = Sentence("declared persistent", d.Fix.Note)
	}
	if snap.Archived {
		d.Fix.Note = Sentence(d.Fix.Note, "the archive tier bills at least 90 days")
	}
	x.claimSnapshot(d, s, x.oldChain(s, snap))
	return d
}

// unusedImage reports whether an image can be deregistered and is known to be unused: no machine
// runs from it, nothing would start one, and neither protection nor AWS Backup keeps it.
func (x *Index) unusedImage(s *Subject, img *inventory.Image) bool {
	kept := s.State == inventory.StateDisabled || s.State == inventory.StatePending || img.Public || img.Protected ||
		s.Manager != (inventory.Manager{})
	used := !startsNothing(img.Launchers) || !x.readEverywhere(s.Region, inventory.KindInstance) ||
		x.launched[everywhere(s.Resource, s.ID)]
	return !kept && !used
}

// imageUnused finds images not launched for 90 days; their cost is that of their snapshots. Images
// disabled on purpose are left out, and snapshots needed by other images are not counted.
func imageUnused(x *Index, s *Subject) *Draft {
	img, ok := s.Detail.(*inventory.Image)
	if !ok || len(img.SnapshotIDs) == 0 || !x.unusedImage(s, img) {
		return nil
	}
	age, known := x.Age(s)
	if !known || age < x.Thresholds.ImageUnused {
		return nil
	}
	d := &Draft{Finding: Finding{
		Fix: Fix{Change: change.Change{Verb: change.Deregister}, Risk: Medium, Undo: UndoNone,
			Note: "deregisters it and deletes its snapshots; accounts that it is shared with, " +
				"and older versions of launch templates that nothing names, are not looked into"},
	}}
	if launched, known := img.LastLaunched.Get(); known {
		quiet := x.Now.Sub(launched)
		if quiet < x.Thresholds.ImageUnused {
			return nil
		}
		d.Confidence = High
		d.Because = "last launched " + plain.Duration(quiet) + " ago"
		d.Evidence = []usage.Evidence{Aged(s, "last_launched", quiet)}
	} else {
		d.Confidence = Medium
		d.Because = plain.Duration(age) + " old, no machine runs from it"
		d.Evidence = []usage.Evidence{Fact(s, "machines", "0")}
	}
	d.Evidence = append(d.Evidence, Aged(s, "age", age))
	mine := func(o *Subject) bool {
		snap, ok := o.Detail.(*inventory.Snapshot)
		return ok && len(snap.Images) == 1 && snap.Images[0] == s.ID && x.deletable(o, snap)
	}
	found := 0
	for _, id := range img.SnapshotIDs {
		snap, ok := x.near(s.Resource, inventory.KindSnapshot, id)
		if !ok || !mine(snap) {
			continue
		}
		found++
		x.claimSnapshot(d, snap, x.wholeChain(snap, mine))
	}
	if found == 0 {
		return nil
	}
	d.Evidence = append(d.Evidence, Fact(s, "snapshots", plain.Decimal(float64(found), 0)))
	return d
}
