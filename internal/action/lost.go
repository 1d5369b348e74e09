package action

import (
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// keepTagDuration is the duration of the exemption tag in a warning, the same as that of the keep
// command next to it.
const keepTagDuration = 24 * time.Hour

// lostText describes for people what an action destroys; empty if that is unknown, or nothing is
// done.
func lostText(r *inventory.Resource, do policy.Do) string {
	var lost []string
	switch do.Verb {
	case policy.Stop:
		lost = append(lost, "its processes, and data that is only in memory")
	case policy.Terminate:
		lost = append(lost, "the machine, its processes, and data that is only in memory")
	case policy.Delete:
		if r.Kind == inventory.KindVolume {
			return "the volume; a snapshot is made first and stays"
		}
		return "the " + string(r.Kind) + " with what is on it"
	case policy.Release:
		return "the " + string(r.Kind)
	case policy.Scale:
		return "the machines over the new size, with what runs on them"
	case policy.PutLifecycle, policy.PutRetention:
		return "what the new rules let expire"
	case policy.Tag, policy.Checkpoint, policy.Suspend, policy.Hibernate:
		return "nothing"
	default:
		return ""
	}
	return strings.Join(append(lost, lostDisks(r, do)...), "; ")
}

// lostDisks describes the disks whose content an action destroys, and those saved before they are
// deleted.
func lostDisks(r *inventory.Resource, do policy.Do) (lost []string) {
	for _, l := range LostDisks(r, do) {
		lost = append(lost, "what is on "+l.String())
	}
	if in := instance(r); in != nil && do.Verb == policy.Terminate && do.SaveDisks {
		for _, d := range in.Disks {
			if d.DeleteOnTermination {
				lost = append(lost, "disk "+d.VolumeID+" (a snapshot is made first)")
			}
		}
	}
	return lost
}
