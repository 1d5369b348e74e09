package cloudtest

import (
	"slices"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// group reads a group again.
func (a *actor) group(t *testing.T, ref inventory.Ref) *inventory.AutoScalingGroup {
	t.Helper()
	g, ok := a.mustRead(t, ref).Detail.(*inventory.AutoScalingGroup)
	if !ok {
		t.Fatalf("%s is no group", ref)
	}
	return g
}

func (a *actor) sized(t *testing.T, ref inventory.Ref, desired, least int64) {
	t.Helper()
	if g := a.group(t, ref); g.Desired != desired || g.Min != least || len(g.Instances) != int(desired) {
		t.Errorf("the group wants %d machines, at least %d, and has %d; want %d, %d and %d", g.Desired, g.Min,
			len(g.Instances), desired, least, desired)
	}
}

// revert reverts a step: first as a rehearsal that changes nothing, then for real.
func (a *actor) revert(t *testing.T, task action.Task) {
	t.Helper()
	a.rehearse(t, task)
	a.expect(t, task, action.Complete)
	for range 2 {
		if err := a.Cloud.Undo(a.ctx, task); err != nil {
			t.Fatalf("take it back: %v", err)
		}
	}
	a.Pass(t)
}

func scaleGroup(t *testing.T, a *actor) {
	ref := a.Make(t, Group)
	was := a.group(t, ref)
	// Below the minimum.
	do := policy.Do{Verb: policy.Scale, To: int(was.Min) - 1, ScratchDisks: true}
	task := a.plan(t, a.mustRead(t, ref), do)[0]
	a.expect(t, task, action.NotDone)
	a.sized(t, ref, was.Desired, was.Min)
	a.execute(t, &task)
	a.sized(t, ref, int64(do.To), int64(do.To))
	if _, err := a.Cloud.Do(a.ctx, task); err != nil {
		t.Errorf("once more: %v", err)
	}
	_, err := a.Cloud.Plan(a.ctx, a.mustRead(t, ref), do)
	refused(t, err, "nothing-to-do")
	a.revert(t, task)
	a.sized(t, ref, was.Desired, was.Min)
}

func scaleMember(t *testing.T, a *actor) {
	ref := a.Make(t, Member)
	r := a.mustRead(t, ref)
	group := ref
	group.Kind, group.ID = inventory.KindAutoScalingGroup, r.Manager.Name
	was := a.group(t, group)
	task := a.plan(t, r, policy.Do{Verb: policy.Scale, To: policy.ThroughGroup, ScratchDisks: true})[0]
	a.expect(t, task, action.NotDone)
	a.execute(t, &task)
	a.sized(t, group, was.Desired-1, was.Min)
	if r := a.read(t, ref); r != nil && r.State == inventory.StateRunning {
		t.Errorf("the machine is %s", r.State)
	}
	if slices.Contains(a.group(t, group).Instances, ref.ID) {
		t.Error("the group has the machine after it was ended")
	}
	a.revert(t, task)
	a.sized(t, group, was.Desired, was.Min)
}

func scaleNamed(t *testing.T, a *actor) {
	ref := a.Make(t, Group)
	was := a.group(t, ref)
	end := slices.Clone(was.Instances[:1])
	task := a.plan(t, a.mustRead(t, ref), policy.Do{Verb: policy.Scale, Members: end, ScratchDisks: true})[0]
	a.execute(t, &task)
	a.sized(t, ref, was.Desired-1, was.Min)
	now := a.group(t, ref).Instances
	for _, id := range was.Instances[1:] {
		if !slices.Contains(now, id) {
			t.Errorf("machine %s ended, and the request did not name it", id)
		}
	}
	if slices.Contains(now, end[0]) {
		t.Errorf("machine %s is there, and was to end", end[0])
	}
	a.revert(t, task)
	a.sized(t, ref, was.Desired, was.Min)
}

func scaleEndpoint(t *testing.T, a *actor) {
	ref := a.Make(t, Fleet)
	machines := func() int64 { return a.mustRead(t, ref).Detail.(*inventory.Endpoint).Variants[0].Count }
	was := machines()
	do := policy.Do{Verb: policy.Scale, To: int(was) - 1}
	task := a.plan(t, a.mustRead(t, ref), do)[0]
	a.expect(t, task, action.NotDone)
	a.execute(t, &task)
	if got := machines(); got != was-1 {
		t.Errorf("it has %d machines, want %d", got, was-1)
	}
	_, err := a.Cloud.Plan(a.ctx, a.mustRead(t, ref), do)
	refused(t, err, "nothing-to-do")
	a.revert(t, task)
	if got := machines(); got != was {
		t.Errorf("it has %d machines after it was taken back, want %d", got, was)
	}
}

func scaleRefusals(t *testing.T, a *actor) {
	made := map[Subject]*inventory.Resource{} // none of these checks changes its subject
	for _, x := range []struct {
		name    string
		subject Subject
		do      policy.Do
		rule    string
	}{
		{"no machine is left of an endpoint", Fleet, policy.Do{Verb: policy.Scale}, "at-minimum"},
		{"an endpoint grows", Fleet, policy.Do{Verb: policy.Scale, To: 30}, "nothing-to-do"},
		{"a group grows", Group, policy.Do{Verb: policy.Scale, To: 30, ScratchDisks: true}, "nothing-to-do"},
		{
			"a group without a size", Group, policy.Do{
				Verb: policy.Scale, To: policy.ThroughGroup, ScratchDisks: true,
			},
			"at-minimum",
		},
		{"data on the disks of a group's machines", Group, policy.Do{Verb: policy.Scale, To: 1}, "unsaved-disk"},
		{
			"a machine of another group", Group,
			policy.Do{Verb: policy.Scale, Members: []string{"i-0123456789abcdef0"}, ScratchDisks: true}, "changed",
		},
		{
			"a machine of no group", Machine, policy.Do{
				Verb: policy.Scale, To: policy.ThroughGroup, ScratchDisks: true,
			},
			"no-such-verb",
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			if made[x.subject] == nil {
				made[x.subject] = a.mustRead(t, a.Make(t, x.subject))
			}
			r := made[x.subject]
			_, err := a.Cloud.Plan(a.ctx, r, x.do)
			refused(t, err, x.rule)
		})
	}
	t.Run("a group of another time", func(t *testing.T) {
		r := a.mustRead(t, a.Make(t, Group))
		earlier := *r
		earlier.CreatedAt = r.CreatedAt.AddDate(0, 0, -1)
		_, err := a.Cloud.Plan(a.ctx, &earlier, policy.Do{Verb: policy.Scale, To: 1, ScratchDisks: true})
		refused(t, err, "identity")
	})
}
