package aws

import (
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// capacityLack is the note before a machine with accelerators stops.
const capacityLack = "it may not start again for lack of capacity"

// Know returns the degree of undo of a verb on a resource ("full", "partial", "none"), and a note
// for the person who confirms it. Unsupported verbs are "none".
func Know(r *inventory.Resource, verb policy.Verb) (undo, know string) {
	level, note := knowledge(r.Kind, verb, r.Size.Accelerated())
	return string(level), note
}

func knowledge(kind inventory.Kind, verb policy.Verb, scarce bool) (undo finding.Undo, note string) {
	switch (what{kind, string(verb)}) {
	case what{inventory.KindInstance, string(policy.Stop)}, what{inventory.KindInstance, string(policy.Hibernate)}:
		note := "its disks go on costing, and it gets another public address"
		if scarce {
			return finding.UndoPartial, capacityLack + "; " + note
		}
		return finding.UndoFull, note
	case what{inventory.KindInstance, string(policy.Terminate)}:
		return finding.UndoNone,
			"the machine and the disks that end with it are gone; their snapshots remain"
	case what{inventory.KindVolume, string(policy.Delete)}:
		return finding.UndoPartial,
			"a snapshot is made first and costs less than the volume; another volume can be made from it"
	case what{inventory.KindAddress, string(policy.Release)}:
		return finding.UndoNone, "another account may get the address"
	case what{inventory.KindLogGroup, string(policy.PutRetention)}:
		return finding.UndoNone, "events that have expired are gone; taking it back only keeps those that are left"
	case what{
		inventory.KindBucket, string(policy.PutLifecycle),
	}, what{inventory.KindRepository, string(policy.PutLifecycle)}:
		return finding.UndoNone,
			"expired objects are gone; undoing it restores the rules byte for byte, not the data"
	case what{inventory.KindNotebook, string(policy.Stop)}:
		note := "processes in it end, its disk is still charged"
		if scarce {
			return finding.UndoPartial, capacityLack + "; " + note
		}
		return finding.UndoFull, note
	case what{inventory.KindNotebook, string(policy.Delete)}:
		return finding.UndoNone, "its disk is deleted with it"
	case what{inventory.KindEndpoint, string(policy.Delete)}:
		return finding.UndoPartial,
			"its configuration stays, from which it can be made again; until then nothing answers"
	case what{inventory.KindAutoScalingGroup, string(policy.Scale)}:
		return finding.UndoPartial,
			"the group chooses which machines end, unless they are named, and ends their disks " +
				"with them; taking it back launches other machines"
	case what{inventory.KindInstance, string(policy.Scale)}:
		return finding.UndoPartial,
			"its group ends the machine and the disks that go with it, and becomes one smaller; " +
				"taking it back launches another machine"
	case what{inventory.KindEndpoint, string(policy.Scale)}:
		return finding.UndoFull,
			"latency rises as fewer machines serve; where Application Auto Scaling scales it, lower its minimum too"
	case what{inventory.KindTrainingJob, string(policy.Stop)}:
		return finding.UndoNone, "the job cannot go on; another can start from its checkpoint"
	}
	if verb == policy.Tag {
		return finding.UndoFull, "tags that there were are restored"
	}
	return finding.UndoNone, ""
}
