package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// operation is a completed step. The account at a time is its layout with the earlier operations
// applied in order.
type operation struct {
	action.Task
	at time.Time
	// undone is when it was undone, or zero.
	undone time.Time
}

// The names of steps, the same as in other clouds.
const (
	stepStop         = "stop"
	stepTerminate    = "terminate"
	stepSnapshot     = "snapshot"
	stepDelete       = "delete"
	stepDeleteVolume = "delete-volume"
	stepRelease      = "release"
	stepRetention    = "put-retention"
	stepLifecycle    = "put-lifecycle"
	stepTag          = "tag"
	stepScale        = "scale"
)

// The durations of the provider's slow operations.
const (
	ending = time.Minute
	saving = 3 * time.Minute
)

// actionTag marks a snapshot with the key of its action.
const actionTag = "curfew:action"

// world is the account at a time.
type world struct {
	now     time.Time
	entries []*entry
}

// find returns a resource's entry, or nil.
func (w *world) find(ref inventory.Ref) *entry {
	for _, e := range w.entries {
		if e.resource.Ref() == ref {
			return e
		}
	}
	return nil
}

func (w *world) remove(gone ...*entry) {
	w.entries = slices.DeleteFunc(w.entries, func(e *entry) bool { return slices.Contains(gone, e) })
}

// enact applies the operations up to now to the account.
func (w *world) enact(operations []operation) {
	for _, d := range operations {
		if d.at.After(w.now) {
			continue
		}
		if e := w.find(d.Ref); e != nil {
			w.apply(d, e, !d.undone.IsZero() && !d.undone.After(w.now))
		}
	}
}

// apply applies an operation to a resource.
func (w *world) apply(d operation, e *entry, undone bool) {
	r, over := e.resource, !w.now.Before(d.at.Add(ending))
	switch {
	case d.Step.Name == stepScale:
		w.scale(d, e, undone)
	case undone && d.Step.Name == stepStop:
		// It is launched again.
		r.State, r.StateSince = inventory.StateRunning, d.undone
		if r.Kind == inventory.KindInstance {
			r.CreatedAt = d.undone
		}
	case undone:
	case d.Step.Name == stepStop && r.Kind == inventory.KindTrainingJob:
		if r.State = inventory.StateStopping; over {
			w.remove(e) // ended resources are not listed
		}
	case d.Step.Name == stepStop:
		if r.State, r.StateSince = inventory.StateStopping, d.at; over {
			r.State = inventory.StateStopped
		}
	case d.Step.Name == stepTerminate:
		if r.State, r.StateSince = inventory.StateDeleting, d.at; over {
			w.remove(append(w.disks(e), e)...)
		}
	case d.Step.Name == stepDelete:
		if r.State, r.StateSince = inventory.StateDeleting, d.at; over {
			w.remove(e)
		}
	case d.Step.Name == stepDeleteVolume, d.Step.Name == stepRelease:
		w.remove(e)
	case d.Step.Name == stepSnapshot:
		w.snapshot(d, e)
	case d.Step.Name == stepRetention:
		r.Detail.(*inventory.LogGroup).RetentionDays = inventory.Known(parse[retention](d.Step.Params).Days)
	case d.Step.Name == stepLifecycle && r.Kind == inventory.KindRepository:
		repository := r.Detail.(*inventory.Repository)
		document := parse[change.Change](d.Step.Params).Document
		repository.LifecyclePolicy, repository.LifecycleDocument = inventory.Known(
			document != ""), inventory.Known(document)
	case d.Step.Name == stepLifecycle:
		setLifecycle(r.Detail.(*inventory.Bucket), parse[change.Change](d.Step.Params).Document)
	case d.Step.Name == stepTag:
		r.Tags = maps.Clone(r.Tags)
		maps.Copy(r.Tags, parse[tags](d.Step.Params).Set)
	}
}

// disks returns the disks that end with a machine.
func (w *world) disks(e *entry) []*entry {
	var out []*entry
	for _, id := range deleted(e.resource) {
		ref := e.resource.Ref()
		ref.Kind, ref.ID = inventory.KindVolume, id
		if v := w.find(ref); v != nil {
			out = append(out, v)
		}
	}
	return out
}

// deleted returns the names of the disks that end with a machine.
func deleted(r *inventory.Resource) []string { return unsaved(r, policy.Do{}) }

// unsaved returns the names of the disks that end with a machine and that an action does
// not declare scratch.
func unsaved(r *inventory.Resource, do policy.Do) []string {
	var ids []string
	for _, d := range r.Detail.(*inventory.Instance).Disks {
		if d.DeleteOnTermination && !do.MayLoseDisk(d.Root) {
			ids = append(ids, d.VolumeID)
		}
	}
	slices.Sort(ids)
	return ids
}

// snapshot adds the snapshots of an operation: one of each volume.
func (w *world) snapshot(d operation, of *entry) {
	state := inventory.StatePending
	if !w.now.Before(d.at.Add(saving)) {
		state = inventory.StateAvailable
	}
	for _, id := range parse[snapshots](d.Step.Params).Volumes {
		ref := d.Ref
		ref.Kind, ref.ID = inventory.KindVolume, id
		var gib int64
		if v := w.find(ref); v != nil {
			gib = v.resource.Detail.(*inventory.Volume).SizeGiB
		}
		own := maps.Clone(of.resource.Tags)
		if own == nil {
			own = map[string]string{}
		}
		maps.DeleteFunc(own, func(k, _ string) bool {
			return strings.HasPrefix(k, "aws:") || strings.HasPrefix(k, "curfew:")
		})
		own[actionTag], own[inventory.TagLifetime] = d.Step.Key, string(inventory.Persistent)
		k := newKey(0, "snapshot/"+d.Step.Key+"/"+id)
		w.entries = append(w.entries, &entry{
			key: k, planted: honest("made before something was deleted"), resource: &inventory.Resource{
				ID: "snap-0" + k.hex(16), Name: own["Name"], Kind: inventory.KindSnapshot,
				Cloud: CloudName, Account: Account,
				Region: d.Ref.Region,
				State:  state, CreatedAt: d.at, Tags: own,
				Detail: &inventory.Snapshot{
					VolumeID: id, VolumeSizeGiB: gib, ImagesKnown: true, Launchers: inventory.Known([]string{}),
					Locked: inventory.Known(false)}}})
	}
}

// made returns the snapshots that were made with a key.
func (w *world) made(key string) []*inventory.Resource {
	var out []*inventory.Resource
	for _, e := range w.entries {
		if r := e.resource; r.Kind == inventory.KindSnapshot && r.Tags[actionTag] == key {
			out = append(out, r)
		}
	}
	return out
}

// The parameters of steps.
type (
	snapshots struct {
		Volumes []string `json:"volumes"`
	}
	retention struct {
		Days int `json:"retention_days"`
	}
	tags struct {
		Set map[string]string `json:"set"`
	}
	termination struct {
		DeletedDisks []string `json:"deleted_disks"`
		Saved        bool     `json:"saved"`
	}
)

// parse reads parameters; those of other packages are their zero value.
func parse[T any](text string) T {
	var v T
	if json.Unmarshal([]byte(text), &v) != nil {
		var zero T
		return zero
	}
	return v
}

func printed(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("print the parameters of a step: " + err.Error()) // they are plain values
	}
	return string(b)
}
