package cloudtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

func stopAndStart(t *testing.T, a *actor) {
	ref, tasks := a.carryOut(t, Machine, policy.Do{Verb: policy.Stop})
	if r := a.mustRead(t, ref); r.State != inventory.StateStopped {
		t.Fatalf("a machine that was stopped is %s", r.State)
	}
	if calls := a.rehearse(t, tasks[0]); calls == "" {
		t.Error("nothing would start it again")
	}
	if r := a.mustRead(t, ref); r.State != inventory.StateStopped {
		t.Fatalf("a machine whose start was rehearsed is %s", r.State)
	}
	if err := a.Cloud.Undo(a.ctx, tasks[0]); err != nil {
		t.Fatalf("start it again: %v", err)
	}
	a.Pass(t)
	if r := a.mustRead(t, ref); r.State != inventory.StateRunning {
		t.Errorf("a machine that was started again is %s", r.State)
	}
}

func terminateScratch(t *testing.T, a *actor) {
	ref, tasks := a.carryOut(t, Machine, policy.Do{Verb: policy.Terminate, ScratchDisks: true})
	if len(tasks) != 1 {
		t.Errorf("%d steps, want one: nothing has to be saved", len(tasks))
	}
	if r := a.read(t, ref); r != nil {
		t.Errorf("a machine that was terminated is there: %s", r.State)
	}
	refused(t, a.Cloud.Undo(a.ctx, tasks[0]), "irrevocable")
	_, err := a.Cloud.Rehearse(a.ctx, tasks[0])
	refused(t, err, "irrevocable")
}

func terminateSaved(t *testing.T, a *actor) {
	ref := a.Make(t, Machine)
	r := a.mustRead(t, ref)
	disk := ref
	disk.Kind, disk.ID = inventory.KindVolume, r.Detail.(*inventory.Instance).Disks[0].VolumeID
	tasks := a.plan(t, r, policy.Do{Verb: policy.Terminate, SaveDisks: true})
	if len(tasks) != 2 {
		t.Fatalf("%d steps, want the disks saved before", len(tasks))
	}
	_, err := a.Cloud.Do(a.ctx, tasks[1])
	refused(t, err, "unsaved-disk")
	save, end := &tasks[0], &tasks[1]
	if save.Step.Receipt, err = a.Cloud.Do(a.ctx, *save); err != nil {
		t.Fatalf("save the disks: %v", err)
	}
	a.expect(t, *save, action.InProgress)
	end.Earlier = []action.Step{save.Step}
	_, err = a.Cloud.Do(a.ctx, *end)
	refused(t, err, "unsaved-disk")
	if r := a.mustRead(t, ref); r.State != inventory.StateRunning {
		t.Fatalf("a machine whose disks are not saved yet is %s", r.State)
	}
	a.Pass(t)
	a.expect(t, *save, action.Complete)
	a.execute(t, end)
	if n := a.Snapshots(t, disk); n != 1 {
		t.Errorf("%d snapshots of the disk, want 1", n)
	}
}

func deleteVolume(t *testing.T, a *actor) {
	ref := a.Make(t, Volume)
	tasks := a.plan(t, a.mustRead(t, ref), policy.Do{Verb: policy.Delete})
	if len(tasks) != 2 || tasks[0].Step.Name != "snapshot" {
		t.Fatalf("the steps are %+v, want a snapshot first", tasks)
	}
	save, end := &tasks[0], &tasks[1]
	_, err := a.Cloud.Do(a.ctx, *end)
	refused(t, err, "unsaved-disk")
	if save.Step.Receipt, err = a.Cloud.Do(a.ctx, *save); err != nil {
		t.Fatal(err)
	}
	end.Earlier = []action.Step{save.Step}
	_, err = a.Cloud.Do(a.ctx, *end)
	refused(t, err, "unsaved-disk")
	a.mustRead(t, ref)
	a.Pass(t)
	a.execute(t, end)
	if a.read(t, ref) != nil {
		t.Error("the volume is there after it was deleted")
	}
	if n := a.Snapshots(t, ref); n != 1 {
		t.Errorf("%d snapshots of it, want 1", n)
	}
	for _, task := range tasks {
		refused(t, a.Cloud.Undo(a.ctx, task), "irrevocable")
	}
}

func twice(t *testing.T, a *actor) {
	ref := a.Make(t, Volume)
	tasks := a.plan(t, a.mustRead(t, ref), policy.Do{Verb: policy.Delete})
	first, err := a.Cloud.Do(a.ctx, tasks[0])
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.Cloud.Do(a.ctx, tasks[0])
	if err != nil || first == "" || first != second {
		t.Errorf("the same key again: %q, %v; want %q", second, err, first)
	}
	if _, found, err := a.Cloud.Look(a.ctx, tasks[0]); err != nil || found != first {
		t.Errorf("the receipt that is found is %q, %v; want %q", found, err, first)
	}
	if n := a.Snapshots(t, ref); n != 1 {
		t.Errorf("%d snapshots, want 1", n)
	}
	a.Pass(t)
	tasks[1].Earlier = []action.Step{tasks[0].Step}
	a.execute(t, &tasks[1])
	if _, err := a.Cloud.Do(a.ctx, tasks[1]); err != nil {
		refused(t, err, "gone")
	}
	keyless := tasks[0]
	keyless.Step.Key = ""
	if _, err := a.Cloud.Do(a.ctx, keyless); err == nil {
		t.Error("a step without a key was made")
	}
}

// allPermitted permits all actions on every subject.
var allPermitted = map[Subject]policy.Do{
	Machine:     {Verb: policy.Terminate, SaveDisks: true},
	Volume:      {Verb: policy.Delete},
	Address:     {Verb: policy.Release},
	LogGroup:    {Verb: policy.PutRetention, RetentionDays: 30},
	Bucket:      {Verb: policy.PutLifecycle},
	Repository:  {Verb: policy.PutLifecycle},
	Notebook:    {Verb: policy.Delete, ScratchDisks: true},
	Endpoint:    {Verb: policy.Delete},
	TrainingJob: {Verb: policy.Stop},
}

func notDone(t *testing.T, a *actor) {
	for _, s := range slices.Sorted(maps.Keys(allPermitted)) {
		ref := a.Make(t, s)
		for _, task := range a.plan(t, a.mustRead(t, ref), allPermitted[s]) {
			if task.Step.Params == "" {
				t.Errorf("%s %s: its parameters are not shown", task.Step.Name, s)
			}
			a.expect(t, task, action.NotDone)
		}
	}
}

func deaf(t *testing.T, a *actor) {
	for _, x := range []struct {
		subject Subject
		do      policy.Do
	}{
		{Machine, policy.Do{Verb: policy.Terminate, ScratchDisks: true}},
		{Address, policy.Do{Verb: policy.Release}},
		{Endpoint, policy.Do{Verb: policy.Delete}},
		{TrainingJob, policy.Do{Verb: policy.Stop}},
		{LogGroup, policy.Do{Verb: policy.PutRetention, RetentionDays: 30}},
		{Bucket, policy.Do{Verb: policy.PutLifecycle}},
	} {
		ref := a.Make(t, x.subject)
		task := a.plan(t, a.mustRead(t, ref), x.do)[0]
		cloud := a.Deaf(t, ref)
		if _, err := cloud.Do(a.ctx, task); err != nil {
			t.Fatalf("%s %s: %v", task.Step.Name, x.subject, err)
		}
		a.Pass(t)
		got, _, err := cloud.Look(a.ctx, task)
		if err != nil || got != action.NotDone {
			t.Errorf("%s %s, which the provider accepted and did not do: %s, %v; want %s",
				task.Step.Name, x.subject, got, err,
				action.NotDone)
		}
		a.mustRead(t, ref)
	}
}

func refusals(t *testing.T, a *actor) {
	for _, x := range []struct {
		name    string
		subject Subject
		do      policy.Do
		rule    string
	}{
		{"protected", Protected, policy.Do{Verb: policy.Terminate, ScratchDisks: true}, "protected"},
		{"stopping one of a group", Grouped, policy.Do{Verb: policy.Stop, ScratchDisks: true}, "group-member"},
		{"terminating one of a group", Grouped, policy.Do{Verb: policy.Terminate, ScratchDisks: true}, "group-member"},
		{"stopping with data on local disks", Local, policy.Do{Verb: policy.Stop}, "unsaved-disk"},
		{
			"terminating with data on local disks that no snapshot saves", Local,
			policy.Do{Verb: policy.Terminate, SaveDisks: true}, "unsaved-disk",
		},
		{"terminating with data on its disk", Machine, policy.Do{Verb: policy.Terminate}, "unsaved-disk"},
		{"hibernating what was not launched for it", Machine, policy.Do{Verb: policy.Hibernate}, "not-enabled"},
		{"deleting what is attached", Attached, policy.Do{Verb: policy.Delete}, "in-use"},
		{"deleting a notebook with data on its disk", Notebook, policy.Do{Verb: policy.Delete}, "unsaved-disk"},
		{"releasing a machine", Machine, policy.Do{Verb: policy.Release}, "no-such-verb"},
		{"stopping a volume", Volume, policy.Do{Verb: policy.Stop}, "no-such-verb"},
		{"scaling", Machine, policy.Do{Verb: policy.Scale}, "no-such-verb"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := a.mustRead(t, a.Make(t, x.subject))
			_, err := a.Cloud.Plan(a.ctx, r, x.do)
			refused(t, err, x.rule)
		})
	}
	t.Run("with scratch disks the local ones are no reason", func(t *testing.T) {
		a.plan(t, a.mustRead(t, a.Make(t, Local)), policy.Do{Verb: policy.Stop, ScratchDisks: true})
	})
}

func otherIdentity(t *testing.T, a *actor) {
	for _, s := range slices.Sorted(maps.Keys(allPermitted)) {
		ref := a.Make(t, s)
		r := a.mustRead(t, ref)
		if r.CreatedAt.IsZero() {
			continue // it cannot be told from another resource of its name
		}
		task := a.plan(t, r, allPermitted[s])[0]
		earlier := *r
		earlier.CreatedAt = r.CreatedAt.Add(-time.Hour)
		_, err := a.Cloud.Plan(a.ctx, &earlier, allPermitted[s])
		refused(t, err, "identity")
		task.Identity = identityOf(&earlier)
		_, err = a.Cloud.Do(a.ctx, task)
		refused(t, err, "identity")
		if task.Step.Name != "snapshot" {
			_, _, err = a.Cloud.Look(a.ctx, task)
			refused(t, err, "identity")
		}
		if now := a.mustRead(t, ref); now.State != r.State {
			t.Errorf("%s is %s after it was refused, it was %s", s, now.State, r.State)
		}
		task.Identity = ""
		_, err = a.Cloud.Do(a.ctx, task)
		refused(t, err, "unknown")
		task.Identity = "yesterday"
		if _, err = a.Cloud.Do(a.ctx, task); err == nil {
			t.Errorf("%s: an identity that cannot be read was good enough", s)
		}
	}
}

func gone(t *testing.T, a *actor) {
	ref := a.Make(t, Volume)
	r := a.mustRead(t, ref)
	r.ID = "vol-0123456789abcdef0"
	if a.read(t, r.Ref()) != nil {
		t.Error("a volume that is not there was read")
	}
	_, err := a.Cloud.Plan(a.ctx, r, policy.Do{Verb: policy.Delete})
	refused(t, err, "gone")
	m := a.mustRead(t, a.Make(t, Machine))
	m.ID = "i-0123456789abcdef0"
	_, err = a.Cloud.Plan(a.ctx, m, policy.Do{Verb: policy.Stop})
	refused(t, err, "gone")
	got, _, err := a.Cloud.Look(a.ctx, action.Task{
		Ref: m.Ref(), Identity: identityOf(m), Step: action.Step{Name: "stop", Key: "k", Params: "{}"},
	})
	if err != nil || got != action.Impossible {
		t.Errorf("a machine that is gone was stopped: %s, %v", got, err)
	}
}

func release(t *testing.T, a *actor) {
	ref, tasks := a.carryOut(t, Address, policy.Do{Verb: policy.Release})
	if a.read(t, ref) != nil {
		t.Error("the address is there after it was released")
	}
	refused(t, a.Cloud.Undo(a.ctx, tasks[0]), "irrevocable")
}

func retention(t *testing.T, a *actor) {
	ref, tasks := a.carryOut(t, LogGroup, policy.Do{Verb: policy.PutRetention, RetentionDays: 14})
	days := func() int { return a.mustRead(t, ref).Detail.(*inventory.LogGroup).RetentionDays.Or(-1) }
	if days() != 14 {
		t.Fatalf("events are kept for %d days, want 14", days())
	}
	_, err := a.Cloud.Plan(a.ctx, a.mustRead(t, ref), policy.Do{Verb: policy.PutRetention, RetentionDays: 30})
	refused(t, err, "nothing-to-do")
	if err := a.Cloud.Undo(a.ctx, tasks[0]); err != nil {
		t.Fatal(err)
	}
	if days() != 0 {
		t.Errorf("events are kept for %d days after it was taken back, want no end", days())
	}
}

func lifecycle(t *testing.T, a *actor) {
	ref := a.Make(t, Bucket)
	rules := func() []inventory.LifecycleRule {
		return a.mustRead(t, ref).Detail.(*inventory.Bucket).Lifecycle.Or(nil)
	}
	before := rules()
	put := policy.Do{Verb: policy.PutLifecycle, Change: Lifecycle(t, a.mustRead(t, ref))}
	tasks := a.plan(t, a.mustRead(t, ref), put)
	a.execute(t, &tasks[0])
	if got := a.mustRead(t, ref).Detail.(*inventory.Bucket).LifecycleDocument.Or(""); !change.Equivalent(
		got, put.Change.Document) {
		t.Errorf("the provider's own document is\n%s\nand what was put is\n%s", got, put.Change.Document)
	}
	after := rules()
	for _, r := range before {
		if !slices.ContainsFunc(after, func(x inventory.LifecycleRule) bool { return cmp.Equal(x, r) }) {
			t.Errorf("the rule %+v is not there any more: %+v", r, after)
		}
	}
	if !slices.ContainsFunc(after, func(x inventory.LifecycleRule) bool {
		return x.Enabled && x.AbortMultipartDays == 7
	}) ||
		!slices.ContainsFunc(after, func(x inventory.LifecycleRule) bool {
			return x.Enabled && x.NoncurrentExpirationDays == 30
		}) {
		t.Errorf("uploads and versions do not end: %+v", after)
	}
	_, err := a.Cloud.Plan(a.ctx, a.mustRead(t, ref), put)
	refused(t, err, "nothing-to-do")
	other := put
	other.Change.Document = change.WriteRules([]change.Rule{{ID: "curfew-other", AbortDays: 3}})
	_, err = a.Cloud.Plan(a.ctx, a.mustRead(t, ref), other)
	refused(t, err, "changed")
	_, err = a.Cloud.Plan(a.ctx, a.mustRead(t, ref), policy.Do{Verb: policy.PutLifecycle})
	refused(t, err, "unknown")
	if err := a.Cloud.Undo(a.ctx, tasks[0]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, rules()); diff != "" {
		t.Errorf("the rules after it was taken back (-before +after):\n%s", diff)
	}
}

// Lifecycle adds rules to the existing ones: for a bucket, to abort uploads and expire noncurrent
// versions; for a repository, to expire untagged images.
func Lifecycle(tb testing.TB, r *inventory.Resource) change.Change {
	tb.Helper()
	c := change.Change{Verb: change.PutLifecycle}
	var err error
	switch d := r.Detail.(type) {
	case *inventory.Bucket:
		c.Before, c.Arguments.MinimumSize = d.LifecycleDocument.Or("unknown"), d.MinimumSize
		c.Document, err = change.WithRules(c.Before, []change.Rule{
			{ID: "curfew-incomplete-uploads", AbortDays: 7}, {ID: "curfew-replaced-versions", NoncurrentDays: 30},
		})
	case *inventory.Repository:
		c.Before = d.LifecycleDocument.Or("unknown")
		c.Document, _, err = change.WithUntagged(c.Before, 90)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func repositoryLifecycle(t *testing.T, a *actor) {
	ref := a.Make(t, Repository)
	put := Lifecycle(t, a.mustRead(t, ref))
	tasks := a.plan(t, a.mustRead(t, ref), policy.Do{Verb: policy.PutLifecycle, Change: put})
	a.execute(t, &tasks[0])
	if got := a.mustRead(t, ref).Detail.(*inventory.Repository).LifecycleDocument.Or(
		""); !change.Equivalent(got, put.Document) {
		t.Errorf("the provider's own document is %s, and what was put is %s", got, put.Document)
	}
	has := func() bool { return a.mustRead(t, ref).Detail.(*inventory.Repository).LifecyclePolicy.Or(false) }
	if !has() {
		t.Fatal("the repository has no lifecycle policy")
	}
	if err := a.Cloud.Undo(a.ctx, tasks[0]); err != nil {
		t.Fatal(err)
	}
	if has() {
		t.Error("the repository has a lifecycle policy after it was taken back")
	}
}

func notebook(t *testing.T, a *actor) {
	ref, tasks := a.carryOut(t, Notebook, policy.Do{Verb: policy.Stop})
	if r := a.mustRead(t, ref); r.State != inventory.StateStopped {
		t.Fatalf("a notebook that was stopped is %s", r.State)
	}
	if err := a.Cloud.Undo(a.ctx, tasks[0]); err != nil {
		t.Fatal(err)
	}
	a.Pass(t)
	if r := a.mustRead(t, ref); r.State != inventory.StateRunning {
		t.Fatalf("a notebook that was started again is %s", r.State)
	}
	ref, tasks = a.carryOut(t, Notebook, policy.Do{Verb: policy.Delete, ScratchDisks: true})
	if len(tasks) != 2 || tasks[0].Step.Name != "stop" {
		t.Errorf("the steps are %+v, want it stopped first", tasks)
	}
	if a.read(t, ref) != nil {
		t.Error("the notebook is there after it was deleted")
	}
}

func endpoint(t *testing.T, a *actor) {
	ref, tasks := a.carryOut(t, Endpoint, policy.Do{Verb: policy.Delete})
	if a.read(t, ref) != nil {
		t.Error("the endpoint is there after it was deleted")
	}
	refused(t, a.Cloud.Undo(a.ctx, tasks[0]), "irrevocable")
}

func trainingJob(t *testing.T, a *actor) {
	ref, tasks := a.carryOut(t, TrainingJob, policy.Do{Verb: policy.Stop})
	if r := a.read(t, ref); r != nil && r.State == inventory.StateRunning {
		t.Error("the job runs after it was stopped")
	}
	refused(t, a.Cloud.Undo(a.ctx, tasks[0]), "irrevocable")
}

func tagging(t *testing.T, a *actor) {
	for _, s := range slices.Sorted(maps.Keys(allPermitted)) {
		t.Run(string(s), func(t *testing.T) {
			ref := a.Make(t, s)
			r := a.mustRead(t, ref)
			before := maps.Clone(r.Tags)
			do := policy.Do{Verb: policy.Tag, Tags: map[string]string{"curfew-test": "yes"}}
			for k := range before {
				do.Tags[k] = "changed" // an existing tag
				break
			}
			task := a.plan(t, r, do)[0]
			a.execute(t, &task)
			after := a.mustRead(t, ref).Tags
			for k, v := range do.Tags {
				if after[k] != v {
					t.Errorf("the tag %s is %q, want %q", k, after[k], v)
				}
			}
			_, err := a.Cloud.Plan(a.ctx, a.mustRead(t, ref), do)
			refused(t, err, "nothing-to-do")
			a.rehearse(t, task)
			if diff := cmp.Diff(after, a.mustRead(t, ref).Tags); diff != "" {
				t.Errorf("rehearsing changed the tags:\n%s", diff)
			}
			if err := a.Cloud.Undo(a.ctx, task); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, a.mustRead(t, ref).Tags); diff != "" {
				t.Errorf("the tags after they were restored (-before +after):\n%s", diff)
			}
		})
	}
}

func planning(t *testing.T, a *actor) {
	for _, s := range slices.Sorted(maps.Keys(allPermitted)) {
		ref := a.Make(t, s)
		before := a.mustRead(t, ref)
		a.plan(t, before, allPermitted[s])
		if diff := cmp.Diff(before, a.mustRead(t, ref), deepEqual); diff != "" {
			t.Errorf("%s after a plan (-before +after):\n%s", s, diff)
		}
	}
}

func recheck(t *testing.T, a *actor) {
	machine, protected, volume := a.Make(t, Machine), a.Make(t, Protected), a.Make(t, Volume)
	absent := volume
	absent.ID = "vol-0fedcba9876543210"
	o, err := Recheck(a.ctx, a.Lister, []inventory.Ref{machine, protected, volume, absent},
		round.Query{Now: a.Now(), Window: 3 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	o.Sort()
	got := make([]inventory.Ref, len(o.Resources))
	for i, r := range o.Resources {
		got[i] = r.Ref()
		if d, ok := r.Detail.(*inventory.Instance); ok {
			if on, known := d.TerminationProtected.Get(); !known || on != (r.Ref() == protected) {
				t.Errorf("%s is protected: %v, known: %v", r.Ref(), on, known)
			}
		}
	}
	want := []inventory.Ref{machine, protected, volume}
	slices.SortFunc(want, inventory.CompareRefs)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was read again (-want +got):\n%s", diff)
	}
	if len(o.Unread) > 0 || len(o.BlindSpots) > 0 {
		t.Errorf("unread %v, blind spots %+v; want none", o.Unread, o.BlindSpots)
	}
	for ref := range o.Windows {
		if !slices.Contains(want, ref) {
			t.Errorf("%s was measured and not asked for", ref)
		}
	}
}

func givingUp(t *testing.T, a *actor) {
	r := a.mustRead(t, a.Make(t, Machine))
	task := a.plan(t, r, policy.Do{Verb: policy.Terminate, ScratchDisks: true})[0]
	ctx, cancel := context.WithCancel(a.ctx)
	cancel()
	_, planned := a.Cloud.Plan(ctx, r, policy.Do{Verb: policy.Stop})
	_, done := a.Cloud.Do(ctx, task)
	_, _, looked := a.Cloud.Look(ctx, task)
	for what, err := range map[string]error{
		"plan": planned, "do": done, "look": looked, "undo": a.Cloud.Undo(ctx, task),
	} {
		var r *action.Refusal
		if err == nil || what != "undo" && errors.As(err, &r) {
			t.Errorf("%s for who has given up: %v", what, err)
		}
	}
	if got := a.mustRead(t, r.Ref()); got.State != inventory.StateRunning {
		t.Errorf("the machine is %s", got.State)
	}
}
