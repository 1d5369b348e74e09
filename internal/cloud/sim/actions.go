package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
)

// Actions carries out steps on the simulated account: their effects show in every later observation
// of the same [Cloud]. It refuses and delays as a provider does, and is safe for concurrent use.
type Actions struct {
	cloud *Cloud
	clock func() time.Time
}

var _ action.Cloud = (*Actions)(nil)

// Actions returns the [Actions] of the account. The clock dates a step and its progress at a read;
// nil is the time of the account's layout, at which no operation that takes time ever ends.
func (c *Cloud) Actions(clock func() time.Time) *Actions {
	if clock == nil {
		clock = func() time.Time { return c.options.Now }
	}
	return &Actions{cloud: c, clock: clock}
}

// verbs are the verbs of each kind, except tagging, and the step that carries each out.
var verbs = map[inventory.Kind]map[policy.Verb]string{
	inventory.KindInstance: {
		policy.Stop: stepStop, policy.Hibernate: stepStop, policy.Terminate: stepTerminate, policy.Scale: stepScale,
	},
	inventory.KindAutoScalingGroup: {policy.Scale: stepScale},
	inventory.KindVolume:           {policy.Delete: stepDeleteVolume},
	inventory.KindAddress:          {policy.Release: stepRelease},
	inventory.KindLogGroup:         {policy.PutRetention: stepRetention},
	inventory.KindBucket:           {policy.PutLifecycle: stepLifecycle},
	inventory.KindRepository:       {policy.PutLifecycle: stepLifecycle},
	inventory.KindNotebook:         {policy.Stop: stepStop, policy.Delete: stepDelete},
	inventory.KindEndpoint:         {policy.Delete: stepDelete, policy.Scale: stepScale},
	inventory.KindTrainingJob:      {policy.Stop: stepStop},
}

// Plan implements [action.Cloud].
func (a *Actions) Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	step := verbs[r.Kind][do.Verb]
	if do.Verb == policy.Tag {
		step = stepTag
	}
	if step == "" {
		return nil, refusal("no-such-verb", "%s is not done to a resource of kind %s", do.Verb, r.Kind)
	}
	w, err := a.world(ctx)
	if err != nil {
		return nil, err
	}
	e := w.find(r.Ref())
	if e == nil {
		return nil, refusal("gone", "%s %s no longer exists", r.Kind, r.ID)
	}
	if err := same(r.Ref(), r.CreatedAt, e.resource.CreatedAt); err != nil {
		return nil, err
	}
	if step == stepScale {
		return w.planScale(e, do)
	}
	if err := mayHave(e.resource, step, do); err != nil {
		return nil, err
	}
	return steps(e.resource, step, do)
}

// steps returns the steps that lead to a given one.
func steps(r *inventory.Resource, step string, do policy.Do) ([]action.Step, error) {
	one := func(params, undo any) ([]action.Step, error) {
		return []action.Step{{Name: step, Params: printed(params), Undo: printed(undo)}}, nil
	}
	switch step {
	case stepTerminate:
		disks := deleted(r)
		if len(disks) == 0 || !do.SaveDisks {
			return one(termination{DeletedDisks: disks}, struct{}{})
		}
		return []action.Step{
			{
				Name: stepSnapshot, Params: printed(snapshots{disks}),
			}, {Name: step, Params: printed(termination{disks, true})},
		}, nil
	case stepDeleteVolume:
		params := printed(snapshots{[]string{r.ID}})
		return []action.Step{{Name: stepSnapshot, Params: params}, {Name: step, Params: params}}, nil
	case stepDelete:
		if r.Kind == inventory.KindNotebook && r.State == inventory.StateRunning {
			return []action.Step{{Name: stepStop, Params: "{}"}, {Name: step, Params: "{}"}}, nil
		}
	case stepRetention:
		days, now := do.RetentionDays, r.Detail.(*inventory.LogGroup).RetentionDays.Or(0)
		if now > 0 && now <= days {
			return nil, refusal("nothing-to-do", "log group %s keeps its events for %d days already", r.ID, now)
		}
		return one(retention{days}, retention{now})
	case stepLifecycle:
		return lifecycleSteps(r, do.Change)
	case stepTag:
		if holds(r.Tags, do.Tags) {
			return nil, refusal("nothing-to-do", "%s %s has these tags already", r.Kind, r.ID)
		}
		return one(tags{do.Tags}, tags{r.Tags})
	}
	return one(struct{}{}, struct{}{})
}

// lifecycleSteps replaces the document that a change was made from by the document of the change.
func lifecycleSteps(r *inventory.Resource, c change.Change) ([]action.Step, error) {
	now, known := documentOf(r).Get()
	switch {
	case !known || c.Document == "":
		return nil, refusal("unknown", "which lifecycle %s %s is to have is not known", r.Kind, r.ID)
	case change.Equivalent(now, c.Document):
		return nil, refusal("nothing-to-do", "%s %s has this lifecycle already", r.Kind, r.ID)
	case !change.Equivalent(now, c.Before):
		return nil, refusal("changed", "the lifecycle of %s %s is another one than when the fix was priced", r.Kind,
			r.ID)
	}
	return []action.Step{{Name: stepLifecycle, Params: printed(c), Undo: now}}, nil
}

// documentOf returns the document of the lifecycle of a bucket or a repository.
func documentOf(r *inventory.Resource) inventory.Fact[string] {
	switch d := r.Detail.(type) {
	case *inventory.Bucket:
		return d.LifecycleDocument
	case *inventory.Repository:
		return d.LifecycleDocument
	}
	return inventory.Fact[string]{}
}

// mayHave refuses a step that is not allowed in the resource's current state.
func mayHave(r *inventory.Resource, step string, do policy.Do) error {
	if step == stepTag || step == stepScale {
		return nil
	}
	if m := r.Manager; m != (inventory.Manager{}) {
		return refusal("group-member", "%s %s belongs to %s: only its manager changes it", r.Kind, r.ID, m.Name)
	}
	switch d := r.Detail.(type) {
	case *inventory.Instance:
		return mayEnd(r, d, step, do)
	case *inventory.Volume:
		if len(d.AttachedTo) > 0 {
			return refusal("in-use", "volume %s is attached to %s", r.ID, d.AttachedTo[0])
		}
	case *inventory.Address:
		if by := d.AssociationID + d.InstanceID; by != "" {
			return refusal("in-use", "address %s is associated: %s", r.ID, by)
		}
	case *inventory.Notebook:
		switch {
		case d.IsApp:
			return refusal("no-such-verb", "studio application %s cannot be stopped; delete it in the studio", r.Name)
		case step == stepStop && r.State != inventory.StateRunning:
			return refusal("state", "notebook %s is %s: only one in service can be stopped", r.ID, r.State)
		case do.Verb == policy.Delete && !do.ScratchDisks:
			return refusal("unsaved-disk", "the disk of notebook %s would be deleted with it", r.ID)
		}
	case *inventory.TrainingJob:
		if r.State != inventory.StateRunning {
			return refusal("state", "training job %s is %s", r.ID, r.State)
		}
	}
	return nil
}

// mayEnd refuses to end a machine that is protected or whose disks hold data.
func mayEnd(r *inventory.Resource, d *inventory.Instance, step string, do policy.Do) error {
	protected, known := d.TerminationProtected.Get()
	switch {
	case !known:
		return refusal("unknown", "whether machine %s is protected is not known", r.ID)
	case protected && step == stepTerminate:
		return refusal("protected", "machine %s is protected against being terminated", r.ID)
	case do.Verb == policy.Hibernate:
		return refusal("not-enabled", "machine %s was not launched with hibernation", r.ID)
	case step == stepStop && r.State != inventory.StateRunning:
		return refusal("state", "machine %s is %s: only one that runs can be stopped", r.ID, r.State)
	case step == stepStop && d.Market == inventory.Spot:
		return refusal("spot-request",
			"machine %s is of a one-time spot request: it cannot be stopped, only terminated",
			r.ID)
	case step == stepTerminate && !do.SaveDisks && len(unsaved(r, do)) > 0:
		return refusal("unsaved-disk", "%s would be deleted with machine %s", strings.Join(unsaved(r, do), ", "), r.ID)
	case do.LosesInstanceStore():
		return nil
	}
	switch gb, known := localDisks(r.Type).Get(); {
	case !known:
		return refusal("unknown", "whether a %s has instance-store disks is not known", r.Type)
	case gb > 0:
		return refusal("unsaved-disk", "machine %s is a %s: data on its instance-store disks is lost when it stops",
			r.ID,
			r.Type)
	}
	return nil
}

// localDisks returns the size of a machine type's instance-store disks, by the price book.
func localDisks(machineType string) inventory.Fact[int64] {
	book, err := price.Embedded()
	if err != nil {
		return inventory.Fact[int64]{}
	}
	return book.Size(machineType).InstanceStorageGB
}

// Do implements [action.Cloud].
func (a *Actions) Do(ctx context.Context, t action.Task) (receipt string, err error) {
	if t.Step.Key == "" {
		return "", fmt.Errorf("%s %s: the step has no key to find it again by", t.Step.Name, t.Ref)
	}
	a.cloud.mu.Lock()
	defer a.cloud.mu.Unlock()
	if slices.ContainsFunc(a.cloud.operations, func(d operation) bool {
		return d.Step.Key == t.Step.Key && d.Step.Name == t.Step.Name
	}) {
		return receiptOf(t), nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	now := a.clock().UTC()
	w := a.cloud.at(now)
	e := w.find(t.Ref)
	if e == nil {
		return "", refusal("gone", "%s %s no longer exists", t.Ref.Kind, t.Ref.ID)
	}
	if err := identical(t, e.resource.CreatedAt); err != nil {
		return "", err
	}
	if ended(e.resource, t.Step.Name) {
		return string(e.resource.State), nil
	}
	if err := mayHave(e.resource, t.Step.Name, t.Do); err != nil {
		return "", err
	}
	if err := w.unchanged(t, e.resource); err != nil {
		return "", err
	}
	if !slices.Contains(a.cloud.options.Deaf, t.Ref) {
		a.cloud.operations = append(a.cloud.operations, operation{Task: t, at: now})
	}
	return receiptOf(t), nil
}

// receiptOf returns the provider's answer.
func receiptOf(t action.Task) string {
	if t.Step.Name != stepSnapshot {
		return ""
	}
	var ids []string
	for _, v := range parse[snapshots](t.Step.Params).Volumes {
		ids = append(ids, "snap-0"+newKey(0, "snapshot/"+t.Step.Key+"/"+v).hex(16))
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

// ended reports whether the effect of a step on a resource has already begun.
func ended(r *inventory.Resource, step string) bool {
	switch step {
	case stepStop:
		return r.State == inventory.StateStopping || r.State == inventory.StateStopped
	case stepTerminate, stepDelete:
		return r.State == inventory.StateDeleting
	}
	return false
}

// unchanged refuses a step if its preconditions have changed since it was planned: disks that are
// not saved, or a document that another person has changed.
func (w *world) unchanged(t action.Task, r *inventory.Resource) error {
	switch t.Step.Name {
	case stepTerminate, stepDeleteVolume:
		disks := []string{r.ID}
		if t.Step.Name == stepTerminate {
			if disks = unsaved(r, t.Do); len(disks) == 0 {
				return nil
			}
		}
		for _, s := range t.Earlier {
			if s.Name == stepSnapshot && w.saved(s.Key, disks) == action.Complete {
				return nil
			}
		}
		return refusal("unsaved-disk", "not all of %s are saved", strings.Join(disks, ", "))
	case stepDelete:
		if r.Kind == inventory.KindNotebook && r.State == inventory.StateRunning {
			return refusal("state", "notebook %s is %s: it is deleted once it is stopped", r.ID, r.State)
		}
	case stepScale:
		planned, err := w.planScale(w.find(t.Ref), t.Do)
		if err == nil && len(parse[sizing](t.Step.Params).End) == 0 &&
			planned[0] != (action.Step{Name: stepScale, Params: t.Step.Params, Undo: t.Step.Undo}) {
			err = refusal("changed", "%s %s has another size than when this was planned", r.Kind, r.ID)
		}
		return err
	case stepRetention:
		if now := r.Detail.(*inventory.LogGroup).RetentionDays.Or(0); now != parse[retention](t.Step.Undo).Days {
			return refusal("changed", "log group %s keeps its events for %d days now", r.ID, now)
		}
	case stepLifecycle:
		if documentOf(r).Or("") != t.Step.Undo {
			return refusal("changed", "the lifecycle of %s %s is another one than when this was planned", r.Kind, r.ID)
		}
	}
	return nil
}

// saved returns the progress of the snapshots that an action made.
func (w *world) saved(key string, disks []string) action.Progress {
	found := w.made(key)
	if len(found) == 0 {
		return action.NotDone
	}
	for _, id := range disks {
		if !slices.ContainsFunc(found, func(r *inventory.Resource) bool {
			return r.Detail.(*inventory.Snapshot).VolumeID == id && r.State == inventory.StateAvailable
		}) {
			return action.InProgress
		}
	}
	return action.Complete
}

// Look implements [action.Cloud].
func (a *Actions) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	w, err := a.world(ctx)
	if err != nil {
		return action.NotDone, "", err
	}
	if t.Step.Name == stepSnapshot {
		p := w.saved(t.Step.Key, parse[snapshots](t.Step.Params).Volumes)
		if p == action.NotDone {
			return p, "", nil
		}
		return p, receiptOf(t), nil
	}
	e := w.find(t.Ref)
	if t.Step.Name == stepScale && (e != nil || t.Ref.Kind == inventory.KindInstance) {
		if e != nil {
			if err := identical(t, e.resource.CreatedAt); err != nil {
				return action.NotDone, "", err
			}
		}
		return w.scaled(t, e), "", nil
	}
	switch t.Step.Name {
	case stepTerminate, stepDelete, stepDeleteVolume, stepRelease:
		if e == nil {
			return action.Complete, "", nil
		}
	case stepStop:
		if e == nil && t.Ref.Kind == inventory.KindTrainingJob {
			return action.Complete, "", nil
		}
		if e == nil {
			return action.Impossible, "", nil
		}
	}
	if e == nil {
		return action.NotDone, "", refusal("gone", "%s %s no longer exists", t.Ref.Kind, t.Ref.ID)
	}
	r := e.resource
	if err := identical(t, r.CreatedAt); err != nil {
		return action.NotDone, "", err
	}
	switch done := shows(r, t); {
	case done, t.Step.Name == stepStop && r.State == inventory.StateStopped:
		return action.Complete, string(r.State), nil
	case t.Step.Name == stepStop && r.State == inventory.StateDeleting:
		return action.Impossible, string(r.State), nil
	case ended(r, t.Step.Name):
		return action.InProgress, string(r.State), nil
	}
	return action.NotDone, "", nil
}

// shows reports whether a resource has the effect of a step.
func shows(r *inventory.Resource, t action.Task) bool {
	switch d := r.Detail.(type) {
	case *inventory.LogGroup:
		if t.Step.Name == stepRetention {
			return d.RetentionDays.Or(-1) == parse[retention](t.Step.Params).Days
		}
	case *inventory.Repository, *inventory.Bucket:
		if t.Step.Name == stepLifecycle {
			return change.Equivalent(documentOf(r).Or(""), parse[change.Change](t.Step.Params).Document)
		}
	}
	return t.Step.Name == stepTag && holds(r.Tags, parse[tags](t.Step.Params).Set)
}

// holds reports whether tags contain these values.
func holds(tags, values map[string]string) bool {
	for k, v := range values {
		if now, there := tags[k]; !there || now != v {
			return false
		}
	}
	return true
}

// Undo implements [action.Cloud].
func (a *Actions) Undo(ctx context.Context, t action.Task) error {
	_, err := a.undo(ctx, t, true)
	return err
}

// Rehearse implements [action.Cloud].
func (a *Actions) Rehearse(ctx context.Context, t action.Task) (string, error) {
	return a.undo(ctx, t, false)
}

// undo undoes a step, or only describes the undo.
func (a *Actions) undo(ctx context.Context, t action.Task, really bool) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	switch t.Step.Name {
	case stepTerminate, stepDelete, stepDeleteVolume, stepRelease:
		return "", refusal("irrevocable", "%s %s is gone; its data is in snapshots tagged %s", t.Ref.Kind, t.Ref.ID,
			actionTag)
	case stepSnapshot:
		return "", refusal("irrevocable",
			"the snapshots that were made are kept; delete them when they are no longer needed")
	case stepStop:
		if t.Ref.Kind == inventory.KindTrainingJob {
			return "", refusal("irrevocable",
				"a training job that was stopped cannot go on; start another from its checkpoint")
		}
	}
	a.cloud.mu.Lock()
	defer a.cloud.mu.Unlock()
	now := a.clock().UTC()
	w := a.cloud.at(now)
	ref := t.Ref
	if group := parse[sizing](t.Step.Params).Group; t.Step.Name == stepScale && group != "" {
		ref.Kind, ref.ID = inventory.KindAutoScalingGroup, group
	}
	e := w.find(ref)
	if e == nil {
		return "", refusal("gone", "%s %s no longer exists", t.Ref.Kind, t.Ref.ID)
	}
	if r := e.resource; t.Step.Name == stepStop && r.State == inventory.StateStopping {
		return "", refusal("state", "%s %s is %s: only one that is stopped can be started", r.Kind, r.ID, r.State)
	}
	calls := ""
	for i := range a.cloud.operations {
		if d := &a.cloud.operations[i]; d.Step.Key == t.Step.Key && d.Step.Name == t.Step.Name && d.undone.IsZero() {
			if err := identical(t, e.resource.CreatedAt); err != nil && ref == t.Ref {
				return "", err
			}
			if calls = strings.TrimSpace("take back " + t.Step.Name + " " + t.Step.Params); really {
				d.undone = now
			}
		}
	}
	return calls, nil
}

// world returns the current account.
func (a *Actions) world(ctx context.Context) (*world, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a.cloud.mu.Lock()
	defer a.cloud.mu.Unlock()
	return a.cloud.at(a.clock().UTC()), nil
}

func refusal(rule, format string, args ...any) error {
	return &action.Refusal{Rule: rule, Why: fmt.Sprintf(format, args...)}
}

// same refuses a resource created at another time than the intended one.
func same(ref inventory.Ref, meant, is time.Time) error {
	switch {
	case meant.IsZero() && is.IsZero():
		return nil
	case meant.IsZero():
		return refusal("unknown", "when %s %s was made was not known, so that it may be another one now", ref.Kind,
			ref.ID)
	case !meant.Truncate(time.Second).Equal(is.Truncate(time.Second)):
		return refusal("identity", "%s %s is another one than was meant: it dates from %s", ref.Kind, ref.ID,
			is.Format(time.RFC3339))
	}
	return nil
}

func identical(t action.Task, is time.Time) error {
	var meant time.Time
	if t.Identity != "" {
		var err error
		if meant, err = time.Parse(time.RFC3339Nano, t.Identity); err != nil {
			return fmt.Errorf("read the identity %q of %s: a time is expected: %w", t.Identity, t.Ref, err)
		}
	}
	return same(t.Ref, meant, is)
}
