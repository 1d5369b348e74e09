package finding

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// wholeChain says whether all snapshots that share blocks with s, s among them, are
// such that deleted holds.
func (x *index) wholeChain(s *subject, deleted func(*subject) bool) bool {
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

// oldChain says whether the whole chain of s is old, asked once for each chain.
func (x *index) oldChain(s *subject, snap *inventory.Snapshot) bool {
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

// claimSnapshot claims a snapshot that would be deleted, with its whole chain or
// without. Snapshots of one volume share blocks, so what is freed is known only when
// the whole chain goes, or there is none; else the saving is unknown and at most the
// snapshot's own size.
func (x *index) claimSnapshot(d *draft, s *subject, whole bool) {
	snap, ok := s.Detail.(*inventory.Snapshot)
	if !ok {
		return
	}
	switch _, unpriced := x.cost(s, ""); {
	case whole && unpriced == "":
		d.claimShare(s, "", 1, 1, wasteAndSavings)
	case unpriced == "":
		d.unknown = "other snapshots of " + snap.VolumeID + " stay and may share its blocks"
		d.claimShare(s, "", 1, 1, savingsOnly)
	default:
		bound, ok := x.snapshotBound(s, snap)
		if !ok {
			d.claimShare(s, "", 1, 1, wasteAndSavings) // and so says what has no price
			return
		}
		d.unknown = "an incremental snapshot: what it holds beyond the others of " + snap.VolumeID + " is not published"
		d.bound = x.amount(d.bound.Add(bound))
	}
}

// snapshotBound is the most that an incremental snapshot costs a month: all blocks
// of its volume.
func (x *index) snapshotBound(s *subject, snap *inventory.Snapshot) (money.Amount, bool) {
	p, err := x.rate(price.ItemSnapshot, s.Region)
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

// snapshotIsOld says whether a snapshot is old and no image, disabled ones
// included, needs it.
func (x *index) snapshotIsOld(s *subject) bool {
	snap, ok := s.Detail.(*inventory.Snapshot)
	if !ok || !snap.ImagesKnown || len(snap.Images) > 0 || s.KeepUntil.After(x.now) || s.State == inventory.StatePending {
		return false
	}
	age, known := x.age(s)
	return known && age >= x.t.SnapshotAge
}

// snapshotOld finds snapshots older than 90 days that no image needs.
func snapshotOld(x *index, s *subject) *draft {
	if !x.snapshotIsOld(s) {
		return nil
	}
	age, _ := x.age(s)
	snap := s.Detail.(*inventory.Snapshot)
	d := &draft{Finding: Finding{
		Confidence: High,
		Because:    usage.Span(age) + " old, used by no image",
		Evidence: []usage.Evidence{aged(s, "age", age), fact(s, "images", "0"),
			fact(s, "volume_gib", usage.Number(float64(snap.VolumeSizeGiB), 0))},
		Fix: Fix{Action: "delete", Risk: Medium, Undo: UndoNone, Note: "its data is gone; blocks that other snapshots need stay with them"},
	}}
	if s.Lifetime == inventory.Persistent {
		d.Fix.Risk = High
		d.Fix.Note = sentence("declared persistent", d.Fix.Note)
	}
	if snap.Archived {
		d.Fix.Note = sentence(d.Fix.Note, "the archive tier bills at least 90 days")
	}
	x.claimSnapshot(d, s, x.oldChain(s, snap))
	return d
}

// imageUnused finds images that nothing was launched from for 90 days; their
// storage is their snapshots'. Disabled images were put aside by somebody and are
// left out, and snapshots that other images need are not counted.
func imageUnused(x *index, s *subject) *draft {
	img, ok := s.Detail.(*inventory.Image)
	if !ok || s.State == inventory.StateDisabled || s.State == inventory.StatePending || img.Public ||
		len(img.SnapshotIDs) == 0 || !x.readEverywhere(s.Region, inventory.KindInstance) || x.launched[everywhere(s.Resource, s.ID)] {
		return nil
	}
	age, known := x.age(s)
	if !known || age < x.t.ImageUnused {
		return nil
	}
	d := &draft{Finding: Finding{
		Fix: Fix{Action: "deregister", Risk: Medium, Undo: UndoNone,
			Note: "deregisters it and deletes its snapshots; launch templates that name it, and accounts it is shared with, are not looked into"},
	}}
	if launched, known := img.LastLaunched.Get(); known {
		quiet := x.now.Sub(launched)
		if quiet < x.t.ImageUnused {
			return nil
		}
		d.Confidence = High
		d.Because = "last launched " + usage.Span(quiet) + " ago"
		d.Evidence = []usage.Evidence{aged(s, "last_launched", quiet)}
	} else {
		d.Confidence = Medium
		d.Because = usage.Span(age) + " old, no machine runs from it"
		d.Evidence = []usage.Evidence{fact(s, "machines", "0")}
	}
	d.Evidence = append(d.Evidence, aged(s, "age", age))
	mine := func(o *subject) bool {
		snap, ok := o.Detail.(*inventory.Snapshot)
		return ok && snap.ImagesKnown && len(snap.Images) == 1 && snap.Images[0] == s.ID && !o.KeepUntil.After(x.now)
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
	d.Evidence = append(d.Evidence, fact(s, "snapshots", usage.Number(float64(found), 0)))
	return d
}
