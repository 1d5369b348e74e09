package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// Subject is a resource in a state that the action checks need.
type Subject string

// The subjects.
const (
	// Machine is a standalone machine: unprotected, in no group, without instance-store disks, with
	// a single disk that is deleted with it.
	Machine Subject = "machine"
	// Protected is a machine with termination protection.
	Protected Subject = "protected machine"
	// Grouped is a machine of an Auto Scaling group.
	Grouped Subject = "machine of a group"
	// Local is a machine with instance-store disks.
	Local Subject = "machine with instance-store disks"
	// Group is an Auto Scaling group whose desired capacity exceeds its minimum, which is at least
	// one; Member is a machine of it.
	Group  Subject = "group"
	Member Subject = "member of a group"
	// Volume is unattached, Attached is attached to a machine.
	Volume   Subject = "volume"
	Attached Subject = "attached volume"
	// Address is not associated.
	Address Subject = "address"
	// LogGroup never expires its events.
	LogGroup Subject = "log group"
	// Bucket is versioned and has a lifecycle that does not expire noncurrent versions.
	Bucket Subject = "bucket"
	// Repository has no lifecycle policy.
	Repository Subject = "repository"
	// Notebook, Endpoint and TrainingJob are running.
	Notebook    Subject = "notebook"
	Endpoint    Subject = "endpoint"
	TrainingJob Subject = "training job"
	// Fleet is an endpoint with three machines in one variant.
	Fleet Subject = "endpoint of several machines"
)

// ActionsCase is a provider under test.
type ActionsCase struct {
	Cloud action.Cloud
	// Lister lists some resources again.
	Lister round.Lister
	// Now is the provider's time.
	Now func() time.Time
	// Make returns a resource that no other test uses.
	Make func(tb testing.TB, s Subject) inventory.Ref
	// Pass lets the provider finish pending work.
	Pass func(tb testing.TB)
	// Deaf returns the same account with a provider that accepts every request for a resource and
	// does nothing.
	Deaf func(tb testing.TB, ref inventory.Ref) action.Cloud
	// Snapshots counts the snapshots of a volume.
	Snapshots func(tb testing.TB, volume inventory.Ref) int
}

// RunActions runs the conformance checks of a cloud's actions, each in a subtest with its own case;
// the cases may share an account.
func RunActions(t *testing.T, newCase func(tb testing.TB) ActionsCase) {
	t.Helper()
	for _, p := range actionChecks {
		t.Run(p.name, func(t *testing.T) { p.check(t, &actor{ActionsCase: newCase(t), ctx: t.Context()}) })
	}
}

// actionChecks are the checks that every provider must pass.
var actionChecks = []struct {
	name  string
	check func(t *testing.T, a *actor)
}{
	{"a machine that is stopped can be started again", stopAndStart},
	{"a machine is terminated when its disks are scratch", terminateScratch},
	{"a machine is terminated after its disks are saved", terminateSaved},
	{"a volume is saved before it is deleted", deleteVolume},
	{"a step that is made twice has one effect", twice},
	{"nothing is done before it is asked for", notDone},
	{"what the provider does not do is never complete", deaf},
	{"what must not be done is refused", refusals},
	{"another resource under the same name is refused", otherIdentity},
	{"what is gone is refused, and absent", gone},
	{"an address is released", release},
	{"retention is set and restored", retention},
	{"lifecycle rules are added and taken back", lifecycle},
	{"a repository's lifecycle is set and taken back", repositoryLifecycle},
	{"a notebook is stopped, started and deleted", notebook},
	{"an endpoint is deleted", endpoint},
	{"a training job is stopped", trainingJob},
	{"a group becomes smaller and is given back its size", scaleGroup},
	{"a machine ends through its group, which becomes smaller", scaleMember},
	{"named machines of a group end and no others", scaleNamed},
	{"an endpoint becomes smaller and is given back its size", scaleEndpoint},
	{"what must not become smaller does not", scaleRefusals},
	{"tags are written and restored", tagging},
	{"planning changes nothing", planning},
	{"reading again shows what was asked for and nothing else", recheck},
	{"who gives up gets an answer", givingUp},
}

// actor is a case with helpers.
type actor struct {
	ActionsCase
	ctx context.Context
}

// read reads a resource again; nil if it does not exist.
func (a *actor) read(t *testing.T, ref inventory.Ref) *inventory.Resource {
	t.Helper()
	o, err := Recheck(a.ctx, a.Lister, []inventory.Ref{ref}, round.Query{Now: a.Now(), Window: 3 * time.Hour})
	if err != nil {
		t.Fatalf("read %s again: %v", ref, err)
	}
	if len(o.Unread) > 0 {
		t.Fatalf("read %s again: unread %v: %+v", ref, o.Unread, o.BlindSpots)
	}
	if len(o.Resources) == 0 {
		return nil
	}
	if r := o.Resources[0]; len(o.Resources) > 1 || r.Ref() != ref {
		t.Fatalf("read %s again: got %d resources, the first is %s", ref, len(o.Resources), r.Ref())
	}
	return o.Resources[0]
}

// mustRead reads a resource that must exist.
func (a *actor) mustRead(t *testing.T, ref inventory.Ref) *inventory.Resource {
	t.Helper()
	r := a.read(t, ref)
	if r == nil {
		t.Fatalf("%s is not there", ref)
	}
	return r
}

// plan plans an action, which must not be refused, and sets the keys of its steps.
func (a *actor) plan(t *testing.T, r *inventory.Resource, do policy.Do) []action.Task {
	t.Helper()
	if do.Verb == policy.PutLifecycle && do.Change.Document == "" {
		do.Change = Lifecycle(t, r)
	}
	steps, err := a.Cloud.Plan(a.ctx, r, do)
	if err != nil {
		t.Fatalf("plan to %s %s: %v", do.Verb, r.Ref(), err)
	}
	if len(steps) == 0 {
		t.Fatalf("plan to %s %s: no step", do.Verb, r.Ref())
	}
	tasks := make([]action.Task, len(steps))
	for i, s := range steps {
		s.Key, s.IntentAt = fmt.Sprintf("%s-%d-%s", t.Name(), i, r.ID), a.Now()
		tasks[i] = action.Task{Ref: r.Ref(), Identity: identityOf(r), Do: do, Step: s}
	}
	return tasks
}

func identityOf(r *inventory.Resource) string {
	if r.CreatedAt.IsZero() {
		return ""
	}
	return r.CreatedAt.UTC().Format(time.RFC3339Nano)
}

// execute executes a step and lets the provider finish it.
func (a *actor) execute(t *testing.T, task *action.Task) {
	t.Helper()
	receipt, err := a.Cloud.Do(a.ctx, *task)
	if err != nil {
		t.Fatalf("%s %s: %v", task.Step.Name, task.Ref, err)
	}
	task.Step.Receipt = receipt
	a.Pass(t)
	a.expect(t, *task, action.Complete)
}

func (a *actor) expect(t *testing.T, task action.Task, want action.Progress) {
	t.Helper()
	got, _, err := a.Cloud.Look(a.ctx, task)
	if err != nil || got != want {
		t.Fatalf("look at %s %s: %s, %v; want %s", task.Step.Name, task.Ref, got, err, want)
	}
}

// rehearse returns the plan to revert a step, which must not be empty.
func (a *actor) rehearse(t *testing.T, task action.Task) string {
	t.Helper()
	calls, err := a.Cloud.Rehearse(a.ctx, task)
	if err != nil || calls == "" {
		t.Fatalf("rehearse to take %s %s back: %q, %v", task.Step.Name, task.Ref, calls, err)
	}
	return calls
}

// carryOut plans an action on a new subject and executes all of its steps.
func (a *actor) carryOut(t *testing.T, s Subject, do policy.Do) (inventory.Ref, []action.Task) {
	t.Helper()
	ref := a.Make(t, s)
	tasks := a.plan(t, a.mustRead(t, ref), do)
	for i := range tasks {
		for _, before := range tasks[:i] {
			tasks[i].Earlier = append(tasks[i].Earlier, before.Step)
		}
		a.execute(t, &tasks[i])
	}
	return ref, tasks
}

// refused requires a refusal by one of the rules.
func refused(t *testing.T, err error, rules ...string) {
	t.Helper()
	var r *action.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %v, want a refusal %v", err, rules)
	}
	if !slices.Contains(rules, r.Rule) || r.Why == "" {
		t.Fatalf("refused by %q (%s), want %v", r.Rule, r.Why, rules)
	}
}
