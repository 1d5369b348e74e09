package sim

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// sizing is the size of a group or an endpoint, and a group's minimum size.
type sizing struct {
	Group   string `json:"group,omitempty"`
	Desired int64  `json:"desired"`
	Min     int64  `json:"min"`
	// End are the machines that end; empty: the group ends those that it launched last.
	End []string `json:"end,omitempty"`
}

// planScale returns the step that reduces a size.
func (w *world) planScale(e *entry, do policy.Do) ([]action.Step, error) {
	r := e.resource
	var now, want sizing
	if d, ok := r.Detail.(*inventory.Endpoint); ok {
		if len(d.Variants) != 1 || d.Variants[0].Serverless {
			return nil, refusal("no-such-verb", "endpoint %s has no machines of its own to scale", r.ID)
		}
		now = sizing{Desired: d.Variants[0].Count}
		want = sizing{Desired: int64(do.To)}
		switch {
		case want.Desired < 1:
			return nil, refusal("at-minimum", "endpoint %s has to keep one machine", r.ID)
		case want.Desired >= now.Desired:
			return nil, refusal("nothing-to-do", "endpoint %s has %d machines already", r.ID, now.Desired)
		}
		return []action.Step{{Name: stepScale, Params: printed(want), Undo: printed(now)}}, nil
	}
	g := w.groupOf(r)
	if g == nil {
		return nil, refusal("no-such-verb",
			"machine %s belongs to no Auto Scaling group that could be made smaller", r.ID)
	}
	end := do.Members
	if r.Kind == inventory.KindInstance {
		end = []string{r.ID}
	}
	d := g.resource.Detail.(*inventory.AutoScalingGroup)
	now = sizing{Group: g.resource.ID, Desired: d.Desired, Min: d.Min}
	want = sizing{Group: g.resource.ID, Desired: int64(do.To), Min: min(d.Min, int64(do.To)), End: end}
	if len(end) > 0 {
		want.Desired, want.Min = d.Desired-int64(len(end)), d.Min
	}
	switch {
	case want.Desired >= now.Desired:
		return nil, refusal("nothing-to-do", "group %s wants %d machines already", want.Group, now.Desired)
	case want.Desired < max(want.Min, 0):
		return nil, refusal("at-minimum", "group %s has to keep %d machines", want.Group, now.Min)
	}
	for _, id := range w.ending(g, want) {
		m := w.find(memberOf(g, id))
		switch {
		case m == nil || !slices.Contains(d.Instances, id):
			return nil, refusal("changed", "machine %s is none of group %s", id, want.Group)
		case m.resource.Detail.(*inventory.Instance).TerminationProtected.Or(true):
			return nil, refusal("protected", "machine %s is, or may be, protected against being terminated", id)
		case !do.LosesInstanceStore() && localDisks(m.resource.Type).Or(1) > 0 || len(unsaved(m.resource, do)) > 0:
			return nil, refusal("unsaved-disk", "the disks of machine %s would be lost with it", id)
		}
	}
	return []action.Step{{Name: stepScale, Params: printed(want), Undo: printed(now)}}, nil
}

// groupOf returns the group that a resource is or belongs to, or nil.
func (w *world) groupOf(r *inventory.Resource) *entry {
	ref := r.Ref()
	if r.Kind != inventory.KindAutoScalingGroup {
		ref.Kind, ref.ID = inventory.KindAutoScalingGroup, r.Manager.Name
	}
	return w.find(ref)
}

func memberOf(g *entry, id string) inventory.Ref {
	ref := g.resource.Ref()
	ref.Kind, ref.ID = inventory.KindInstance, id
	return ref
}

// ending returns the machines that end when a group takes a size.
func (w *world) ending(g *entry, to sizing) []string {
	if len(to.End) > 0 {
		return to.End
	}
	var there []string
	for _, id := range g.resource.Detail.(*inventory.AutoScalingGroup).Instances {
		if w.find(memberOf(g, id)) != nil {
			there = append(there, id)
		}
	}
	return there[min(len(there), int(to.Desired)):]
}

// scale applies a scaling to a group or an endpoint; after an undo, other machines run in place of
// the ended ones.
func (w *world) scale(d operation, e *entry, undone bool) {
	to, from := parse[sizing](d.Step.Params), parse[sizing](d.Step.Undo)
	if x, ok := e.resource.Detail.(*inventory.Endpoint); ok {
		if !undone {
			x.Variants = slices.Clone(x.Variants)
			x.Variants[0].Count = to.Desired
		}
		return
	}
	g := w.groupOf(e.resource)
	if g == nil {
		return
	}
	ends := w.ending(g, to)
	size := func(hour time.Time, before int64) int64 {
		switch {
		case hour.Before(d.at) || undone && !hour.Before(d.undone):
			return before
		case len(to.End) > 0:
			return before - int64(len(to.End))
		}
		return to.Desired
	}
	x := g.resource.Detail.(*inventory.AutoScalingGroup)
	if !undone {
		x.Min = min(from.Min, to.Min)
	}
	x.Desired = size(w.now, x.Desired)
	if before := g.count; before != nil {
		g.count = func(hour time.Time) (float64, bool) {
			v, ok := before(hour)
			return float64(size(hour, int64(v))), ok
		}
	}
	for _, id := range ends {
		m := w.find(memberOf(g, id))
		switch {
		case m == nil:
		case undone:
			m.resource.CreatedAt = d.undone
		case w.now.Before(d.at.Add(ending)):
			m.resource.State, m.resource.StateSince = inventory.StateDeleting, d.at
		default:
			w.remove(append(w.disks(m), m)...)
		}
	}
}

// scaled returns the progress of a scaling.
func (w *world) scaled(t action.Task, e *entry) action.Progress {
	to := parse[sizing](t.Step.Params)
	ref := t.Ref
	ref.Kind, ref.ID = inventory.KindAutoScalingGroup, to.Group
	if to.Group != "" {
		if e = w.find(ref); e == nil {
			return action.Impossible
		}
	}
	d, ok := e.resource.Detail.(*inventory.AutoScalingGroup)
	if !ok {
		if e.resource.Detail.(*inventory.Endpoint).Variants[0].Count == to.Desired {
			return action.Complete
		}
		return action.NotDone
	}
	left := d.Instances
	if len(to.End) > 0 {
		left = slices.DeleteFunc(slices.Clone(to.End), func(id string) bool { return w.find(memberOf(e, id)) == nil })
	} else if d.Desired > to.Desired {
		return action.NotDone
	} else if len(left) <= int(to.Desired) {
		left = nil
	}
	if len(left) == 0 {
		return action.Complete
	}
	for _, id := range left {
		if m := w.find(memberOf(e, id)); m != nil && m.resource.State == inventory.StateDeleting {
			return action.InProgress
		}
	}
	return action.NotDone
}
