package actiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/intent/intenttest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Account is the scope of the resources of a [Cloud].
const Account = "test/1"

// Resource is one resource of a [Cloud].
type Resource struct {
	ID, Type  string
	Kind      inventory.Kind // instance when empty
	State     inventory.State
	CreatedAt time.Time
	Tags      map[string]string
	// Group is the Auto Scaling group that manages it; Protected the provider's own
	// protection; Unsaved says that a disk with data goes with it.
	Group              string
	Protected, Unsaved bool
	RetentionDays      int
	Hourly             money.Amount
	// LocalGB is the size of its instance-store disk; 0 is none.
	LocalGB int64
	// Duty is the duty measured at SampledAt.
	Duty      duty.State
	SampledAt time.Time
}

// Call is one call that a [Cloud] was asked to make.
type Call struct {
	Resource, Step, Key string
	// Carried says that the call had an effect: not for one that was asked again, or
	// failed, or was swallowed.
	Carried bool
	At      time.Time
}

// Fault fails once: at the next call of a step, or at the next "plan" or "look".
type Fault struct {
	Step string
	// Message is the error; Carried says that the call has its effect all the same.
	// Without a message the call is accepted, and nothing ever happens.
	Message string
	Carried bool
}

// effect is the change that a call started.
type effect struct {
	Resource, Step, Receipt string
	// Looks is how often it is seen under way before it is complete.
	Looks  int
	Broken bool
}

type cloudState struct {
	Resources map[string]*Resource
	Effects   map[string]*effect
	Calls     []Call
	Faults    []Fault
	Slow      int
	Receipts  int
	Undone    []string
}

// Cloud is an [action.Cloud] with real state.
type Cloud struct {
	state intenttest.State[cloudState]
	now   func() time.Time
}

var _ action.Cloud = (*Cloud)(nil)

// NewCloud returns an empty cloud in memory.
func NewCloud(now func() time.Time) *Cloud { return &Cloud{now: now} }

// OpenCloud returns the cloud that is kept in a file.
func OpenCloud(path string, now func() time.Time) *Cloud {
	return &Cloud{state: intenttest.State[cloudState]{Path: path}, now: now}
}

// change changes the cloud; only a broken file can fail.
func (c *Cloud) change(f func(v *cloudState)) {
	err := c.state.Do(func(v *cloudState) error {
		if v.Resources == nil {
			v.Resources, v.Effects = map[string]*Resource{}, map[string]*effect{}
		}
		f(v)
		return nil
	})
	if err != nil {
		panic(err)
	}
}

// Put adds a resource, or replaces the one of its id.
func (c *Cloud) Put(r Resource) {
	if r.Kind == "" {
		r.Kind = inventory.KindInstance
	}
	if r.State == "" {
		r.State = inventory.StateRunning
	}
	c.change(func(v *cloudState) { v.Resources[r.ID] = &r })
}

// Change changes a resource, if it is still there.
func (c *Cloud) Change(id string, f func(r *Resource)) {
	c.change(func(v *cloudState) {
		if r := v.Resources[id]; r != nil {
			f(r)
		}
	})
}

// Fail makes the next call of a step go wrong.
func (c *Cloud) Fail(f Fault) { c.change(func(v *cloudState) { v.Faults = append(v.Faults, f) }) }

// Slow lets every later call be seen under way n times before it is complete.
func (c *Cloud) Slow(n int) { c.change(func(v *cloudState) { v.Slow = n }) }

// Break lets whatever is under way for a resource never complete.
func (c *Cloud) Break(id string) {
	c.change(func(v *cloudState) {
		for _, e := range v.Effects {
			if e.Resource == id && e.Looks > 0 {
				e.Broken = true
			}
		}
	})
}

// Calls returns every call that was asked for, and Undone the steps taken back.
func (c *Cloud) Calls() (out []Call) {
	c.change(func(v *cloudState) { out = v.Calls })
	return out
}

// Undone returns the steps that were taken back, in that order.
func (c *Cloud) Undone() (out []string) {
	c.change(func(v *cloudState) { out = v.Undone })
	return out
}

// Carried returns the ids of the resources on which a step had its effect.
func (c *Cloud) Carried(step string) (out []string) {
	for _, call := range c.Calls() {
		if call.Carried && (step == "" || call.Step == step) {
			out = append(out, call.Resource)
		}
	}
	return out
}

// Resources returns what is there, in the order of the ids.
func (c *Cloud) Resources() (out []Resource) {
	c.change(func(v *cloudState) {
		for _, id := range slices.Sorted(maps.Keys(v.Resources)) {
			out = append(out, *v.Resources[id])
		}
	})
	return out
}

// Inventory returns a resource as an observation has it.
func (r Resource) Inventory() *inventory.Resource {
	out := &inventory.Resource{
		ID: r.ID, Kind: r.Kind, Cloud: "test", Account: "1", Region: "here", Type: r.Type, State: r.State,
		CreatedAt: r.CreatedAt, Tags: maps.Clone(r.Tags)}
	if r.Kind == inventory.KindInstance {
		out.Detail = &inventory.Instance{}
	}
	if r.LocalGB > 0 {
		out.Size.InstanceStorageGB, out.Size.InstanceDisks = inventory.Known(r.LocalGB), inventory.Known(1)
	}
	if r.Group != "" {
		out.Manager = inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: r.Group}
	}
	_ = inventory.DefaultTagMapping().Apply(out) // an unreadable keep still exempts
	return out
}

// Verdict returns the duty of the resource with its evidence; nil if it does not run.
func (r Resource) Verdict() *duty.Verdict {
	if r.State != inventory.StateRunning {
		return nil
	}
	v := duty.Verdict{State: r.Duty, Why: "as measured", Coverage: 1}
	if r.Duty != duty.Unknown {
		v.Until, v.Expires = r.SampledAt.Add(time.Minute), r.SampledAt.Add(3*time.Minute)
	}
	return &v
}

// refuse is an answer of a plan.
func refuse(rule, why string) error { return &action.Refusal{Rule: rule, Why: why} }

// Plan implements [action.Cloud].
func (c *Cloud) Plan(_ context.Context, r *inventory.Resource, do policy.Do) (steps []action.Step, err error) {
	c.change(func(v *cloudState) {
		if f := v.fault("plan"); f != nil {
			err = errors.New(f.Message)
			return
		}
		have := v.Resources[r.ID]
		if have == nil {
			err = refuse("gone", "it no longer exists")
			return
		}
		steps, err = have.plan(do)
	})
	return steps, err
}

func (r *Resource) plan(do policy.Do) ([]action.Step, error) {
	ends := do.Verb == policy.Terminate || (do.Verb == policy.Delete && r.Kind == inventory.KindInstance)
	switch {
	case do.Verb == policy.Scale && r.Group == "":
		return nil, refuse("no-such-verb", "it belongs to no group")
	case r.Group != "" && do.Verb.IsDestructive() && do.Verb != policy.Scale:
		return nil, refuse("group-member", "its group would replace it")
	case r.Protected && ends:
		return nil, refuse("protected", "it is protected against termination")
	case r.Unsaved && ends && !do.ScratchDisks && !do.SaveDisks:
		return nil, refuse("unsaved-disk", "its disks hold unsaved data")
	}
	named := func(names ...string) []action.Step {
		out := make([]action.Step, len(names))
		for i, n := range names {
			out[i].Name = n
		}
		return out
	}
	switch do.Verb {
	case policy.Terminate:
		if do.SaveDisks {
			return named("snapshot", "terminate"), nil
		}
		return named("terminate"), nil
	case policy.Delete:
		if r.Kind == inventory.KindVolume {
			return named("snapshot", "delete"), nil
		}
		return named("delete"), nil
	case policy.Stop, policy.Release, policy.Scale:
		return named(string(do.Verb)), nil
	case policy.PutRetention:
		return []action.Step{
			{Name: "put-retention", Params: fmt.Sprint(do.RetentionDays), Undo: fmt.Sprint(r.RetentionDays)},
		}, nil
	case policy.Tag:
		params, _ := json.Marshal(do.Tags)
		former, _ := json.Marshal(r.Tags)
		return []action.Step{{Name: "tag", Params: string(params), Undo: string(former)}}, nil
	}
	return nil, refuse("verb", "there is no way to "+string(do.Verb)+" it")
}

// Do implements [action.Cloud].
func (c *Cloud) Do(_ context.Context, t action.Task) (receipt string, err error) {
	c.change(func(v *cloudState) {
		call := Call{Resource: t.Ref.ID, Step: t.Step.Name, Key: t.Step.Key, At: c.now()}
		receipt, call.Carried, err = v.make(t)
		v.Calls = append(v.Calls, call)
	})
	return receipt, err
}

// make carries a call out, unless it was carried out before or a fault comes first.
func (v *cloudState) make(t action.Task) (receipt string, carried bool, err error) {
	if e := v.Effects[t.Step.Key]; e != nil {
		return e.Receipt, false, nil
	}
	fault := v.fault(t.Step.Name)
	if fault != nil && !fault.Carried {
		if fault.Message == "" {
			return "accepted", false, nil
		}
		return "", false, errors.New(fault.Message)
	}
	r := v.Resources[t.Ref.ID]
	switch {
	case r == nil:
		return "", false, fmt.Errorf("%s: %w", t.Ref.ID, inventory.ErrNotFound)
	case action.Identity(r.Inventory()) != t.Identity:
		return "", false, refuse("identity", "it is another one under the same name")
	case r.Protected && (t.Step.Name == "terminate" || t.Step.Name == "delete"):
		return "", false, refuse("protected", "it is protected")
	case t.Step.Name == "delete" && len(t.Earlier) == 1 && !v.complete(t.Earlier[0].Key):
		return "", false, refuse("unsaved-disk", "its snapshot is not complete")
	}
	v.Receipts++
	e := &effect{
		Resource: r.ID, Step: t.Step.Name, Receipt: fmt.Sprintf("%s-%d", t.Step.Name, v.Receipts), Looks: v.Slow,
	}
	v.Effects[t.Step.Key] = e
	switch t.Step.Name {
	case "stop":
		r.State = inventory.StateStopping
	case "terminate", "delete", "release", "scale":
		r.State = inventory.StateDeleting
	case "put-retention":
		_, err = fmt.Sscan(t.Step.Params, &r.RetentionDays)
	case "tag":
		if r.Tags == nil {
			r.Tags = map[string]string{}
		}
		maps.Copy(r.Tags, t.Do.Tags)
	}
	if fault != nil {
		return "", true, errors.New(fault.Message)
	}
	return e.Receipt, true, err
}

// fault takes the next fault of a step; nil if there is none.
func (v *cloudState) fault(step string) *Fault {
	i := slices.IndexFunc(v.Faults, func(f Fault) bool { return f.Step == step })
	if i < 0 {
		return nil
	}
	f := v.Faults[i]
	v.Faults = slices.Delete(v.Faults, i, i+1)
	return &f
}

func (v *cloudState) complete(key string) bool {
	e := v.Effects[key]
	return e != nil && e.Looks == 0 && !e.Broken
}

// Look implements [action.Cloud].
func (c *Cloud) Look(_ context.Context, t action.Task) (p action.Progress, receipt string, err error) {
	c.change(func(v *cloudState) {
		if f := v.fault("look"); f != nil {
			err = errors.New(f.Message)
			return
		}
		e := v.Effects[t.Step.Key]
		switch {
		case e == nil:
			p = action.NotDone
			return
		case e.Broken:
			p, receipt = action.Impossible, e.Receipt
			return
		case e.Looks > 0:
			e.Looks--
			p, receipt = action.InProgress, e.Receipt
			return
		}
		p, receipt = action.Complete, e.Receipt
		r := v.Resources[e.Resource]
		if r == nil || action.Identity(r.Inventory()) != t.Identity {
			return
		}
		switch e.Step {
		case "stop":
			if r.State == inventory.StateStopping {
				r.State = inventory.StateStopped
			}
		case "terminate", "delete", "release", "scale":
			delete(v.Resources, e.Resource)
		}
	})
	return p, receipt, err
}

// Undo implements [action.Cloud].
func (c *Cloud) Undo(_ context.Context, t action.Task) (err error) {
	c.change(func(v *cloudState) { err = v.undo(t) })
	return err
}

// Rehearse implements [action.Cloud]: it takes the step back on a copy.
func (c *Cloud) Rehearse(_ context.Context, t action.Task) (calls string, err error) {
	c.change(func(v *cloudState) {
		tried := cloudState{Resources: map[string]*Resource{}}
		if r := v.Resources[t.Ref.ID]; r != nil {
			copied := *r
			tried.Resources[r.ID] = &copied
		}
		err = tried.undo(t)
	})
	return "take " + t.Step.Name + " back", err
}

func (v *cloudState) undo(t action.Task) (err error) {
	r := v.Resources[t.Ref.ID]
	switch name := t.Step.Name; {
	case name == "snapshot":
	case r == nil:
		return refuse("undo", "what is gone cannot be brought back")
	case name == "stop":
		r.State = inventory.StateRunning
	case name == "put-retention":
		_, err = fmt.Sscan(t.Step.Undo, &r.RetentionDays)
	case name == "tag":
		r.Tags = nil
		err = json.Unmarshal([]byte(t.Step.Undo), &r.Tags)
	default:
		return refuse("undo", name+" cannot be undone")
	}
	v.Undone = append(v.Undone, t.Step.Name)
	return err
}
