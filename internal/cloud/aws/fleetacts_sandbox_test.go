package aws_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/test/wire"
)

// fleetOf creates a group of 2 machines with a maximum of 6, and returns its reference and API.
func fleetOf(t *testing.T, m *maker) (inventory.Ref, *autoscaling.Client) {
	t.Helper()
	ref := m.group(2)
	api := autoscaling.NewFromConfig(scratch.Config(elsewhere))
	_, err := api.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: &ref.ID, MaxSize: awssdk.Int32(6),
	})
	m.must(err)
	return ref, api
}

// resizes returns the action that gives a fleet a size, and ends some machines.
func resizes(ref inventory.Ref, to int, ends ...string) policy.Do {
	return policy.Do{
		Verb: policy.Scale, Fleet: "asg/" + ref.ID, Min: 1, Max: 5, To: to, Members: ends, ScratchDisks: true,
	}
}

// planned returns the single call of an action on a fleet.
func planned(t *testing.T, a *aws.Actions, f action.Fleet, do policy.Do) (action.Task, error) {
	t.Helper()
	steps, err := a.Plan(t.Context(), f.Resource, do)
	if err != nil {
		return action.Task{}, err
	}
	steps[0].Key = t.Name()
	return action.Task{Ref: f.Resource.Ref(), Identity: action.Identity(f.Resource), Do: do, Step: steps[0]}, nil
}

func mustFleet(t *testing.T, a *aws.Actions, ref inventory.Ref) action.Fleet {
	t.Helper()
	f, err := a.Fleet(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestTypeOfEmptyFleet checks the machine type that an empty group would start.
func TestTypeOfEmptyFleet(t *testing.T) {
	a := actingCloud(t).Actions()
	m := &maker{TB: t}
	config := scratch.Config(elsewhere)
	api := autoscaling.NewFromConfig(config)
	name := m.name()
	template, err := ec2.NewFromConfig(config).CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name,
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			InstanceType: "g5.xlarge", ImageId: awssdk.String("ami-0000000000000base"),
		},
	})
	m.must(err)
	spec := &astypes.LaunchTemplateSpecification{LaunchTemplateId: template.LaunchTemplate.LaunchTemplateId}
	launch := func(types ...string) *astypes.MixedInstancesPolicy {
		p := &astypes.MixedInstancesPolicy{
			LaunchTemplate: &astypes.LaunchTemplate{LaunchTemplateSpecification: spec},
		}
		for _, one := range types {
			p.LaunchTemplate.Overrides = append(p.LaunchTemplate.Overrides, astypes.LaunchTemplateOverrides{
				InstanceType: awssdk.String(one),
			})
		}
		return p
	}
	configured := m.group(1)
	_, err = api.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: &configured.ID, MinSize: awssdk.Int32(0), DesiredCapacity: awssdk.Int32(0),
	})
	m.must(err)
	if f := mustFleet(t, a, configured); f.Desired != 0 || f.Resource.Type != "c5.xlarge" {
		t.Errorf("by its launch configuration: %d of %q", f.Desired, f.Resource.Type)
	}
	for want, in := range map[string]*autoscaling.CreateAutoScalingGroupInput{
		"g5.xlarge": {LaunchTemplate: spec},
		"g6.xlarge": {MixedInstancesPolicy: launch("g6.xlarge", "g6.xlarge")},
		"":          {MixedInstancesPolicy: launch("g6.xlarge", "g5.xlarge")},
	} {
		group := m.name()
		in.AutoScalingGroupName, in.MinSize, in.MaxSize = &group, awssdk.Int32(0), awssdk.Int32(3)
		in.DesiredCapacity, in.AvailabilityZones = awssdk.Int32(0), []string{elsewhere + "a"}
		_, err := api.CreateAutoScalingGroup(t.Context(), in)
		m.must(err)
		ref := m.ref(inventory.KindAutoScalingGroup, &group)
		f := mustFleet(t, a, ref)
		if f.Resource.Type != want || f.Desired != 0 {
			t.Errorf("got %d of %q, want %q", f.Desired, f.Resource.Type, want)
		}
		if several := slices.Equal(f.Types, []string{"g6.xlarge", "g5.xlarge"}); several != (want == "") {
			t.Errorf("%q chooses among %q", want, f.Types)
		}
	}
}

func TestFleetGrowsAndShrinks(t *testing.T) {
	a := actingCloud(t).Actions()
	m := &maker{TB: t}
	ref, _ := fleetOf(t, m)
	f := mustFleet(t, a, ref)
	if f.Desired != 2 || f.Min != 1 || f.Max != 6 || len(f.Replicas) != 2 || f.Drains || !f.Replicas[0].Serving ||
		!slices.Contains(f.Replicas[0].Hosts, f.Replicas[0].ID) || f.Replicas[0].LaunchedAt.IsZero() {
		t.Fatalf("got %+v", f)
	}
	grow, err := planned(t, a, f, resizes(ref, 4))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call follows a lost response
		if _, err := a.Do(t.Context(), grow); err != nil {
			t.Fatal(err)
		}
		if p, _, err := a.Look(t.Context(), grow); err != nil || p != action.Complete {
			t.Fatalf("got %s, %v", p, err)
		}
	}
	f = mustFleet(t, a, ref)
	if f.Desired != 4 || len(f.Replicas) != 4 || f.Min != 1 {
		t.Fatalf("after it grew: %+v", f)
	}
	end := f.Replicas[1].ID
	shrink, err := planned(t, a, f, resizes(ref, 3, end))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(shrink.Step.Params, end) || !strings.Contains(shrink.Step.Params, `"desired":3`) {
		t.Errorf("the preview does not say what ends: %s", shrink.Step.Params)
	}
	for range 2 {
		if _, err := a.Do(t.Context(), shrink); err != nil {
			t.Fatal(err)
		}
	}
	if p, _, err := a.Look(t.Context(), shrink); err != nil || p != action.Complete {
		t.Fatalf("got %s, %v", p, err)
	}
	f = mustFleet(t, a, ref)
	left := slices.ContainsFunc(f.Replicas, func(r action.Replica) bool { return r.ID == end })
	if f.Desired != 3 || len(f.Replicas) != 3 || left {
		t.Errorf("after it shrank, twice called: %+v", f)
	}
	var refused *action.Refusal
	if err := a.Undo(t.Context(), grow); !errors.As(err, &refused) || refused.Rule != "irrevocable" {
		t.Errorf("taken back: %v", err)
	}
}

func TestFleetRefusals(t *testing.T) {
	a := actingCloud(t).Actions()
	m := &maker{TB: t}
	for _, tc := range []struct {
		name, rule string
		to, ends   int
		change     func(t *testing.T, api *autoscaling.Client, name *string, ids []string)
	}{
		{"no machine is drained", "not-drained", 1, 0, nil},
		{"other machines than would end", "not-drained", 1, 2, nil},
		{"under the group's own minimum", "at-minimum", 0, 2, nil},
		{"over the group's own maximum", "at-maximum", 7, 0, nil},
		{"the size that it has", "nothing-to-do", 2, 0, nil},
		{"a scaling policy", "other-writer", 3, 0, func(t *testing.T, api *autoscaling.Client, name *string,
			_ []string) {
			_, err := api.PutScalingPolicy(t.Context(), &autoscaling.PutScalingPolicyInput{
				AutoScalingGroupName: name, PolicyName: awssdk.String("by-cpu"),
				AdjustmentType: awssdk.String("ChangeInCapacity"), ScalingAdjustment: awssdk.Int32(1),
			})
			m.must(err)
		}},
		{"a schedule", "other-writer", 1, 1, func(t *testing.T, api *autoscaling.Client, name *string, _ []string) {
			_, err := api.PutScheduledUpdateGroupAction(t.Context(), &autoscaling.PutScheduledUpdateGroupActionInput{
				AutoScalingGroupName: name, ScheduledActionName: awssdk.String("at-night"),
				DesiredCapacity: awssdk.Int32(1), StartTime: awssdk.Time(time.Now().Add(24 * time.Hour)),
			})
			m.must(err)
		}},
		{"no machine may be launched", "suspended", 3, 0,
			func(t *testing.T, api *autoscaling.Client, name *string, _ []string) {
				_, err := api.SuspendProcesses(t.Context(), &autoscaling.SuspendProcessesInput{
					AutoScalingGroupName: name, ScalingProcesses: []string{"Launch"},
				})
				m.must(err)
			}},
		{"a protected machine", "protected", 1, 1,
			func(t *testing.T, api *autoscaling.Client, name *string, ids []string) {
				_, err := api.SetInstanceProtection(t.Context(), &autoscaling.SetInstanceProtectionInput{
					AutoScalingGroupName: name, InstanceIds: ids[:1], ProtectedFromScaleIn: awssdk.Bool(true),
				})
				m.must(err)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ref, api := fleetOf(t, m)
			f := mustFleet(t, a, ref)
			var ids []string
			for _, r := range f.Replicas {
				ids = append(ids, r.ID)
			}
			do := resizes(ref, tc.to, ids[:tc.ends]...)
			var task action.Task
			if tc.change != nil { // it was allowed at planning and is checked again at the call
				var err error
				if task, err = planned(t, a, f, do); err != nil {
					t.Fatal(err)
				}
				tc.change(t, api, &ref.ID, ids)
			}
			var refused *action.Refusal
			if _, err := planned(t, a, f, do); !errors.As(err, &refused) || refused.Rule != tc.rule {
				t.Errorf("planned: %v, want a refusal by %s", err, tc.rule)
			}
			if tc.change == nil {
				return
			}
			if _, err := a.Do(t.Context(), task); !errors.As(err, &refused) || refused.Rule != tc.rule {
				t.Errorf("called: %v, want a refusal by %s", err, tc.rule)
			}
			if now := mustFleet(t, a, ref); now.Desired != 2 {
				t.Errorf("the size is %d", now.Desired)
			}
		})
	}
}

// TestRefusesResizedFleet changes the size between plan and call, as another process may.
func TestRefusesResizedFleet(t *testing.T) {
	a := actingCloud(t).Actions()
	m := &maker{TB: t}
	ref, api := fleetOf(t, m)
	grow, err := planned(t, a, mustFleet(t, a, ref), resizes(ref, 4))
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: &ref.ID, DesiredCapacity: awssdk.Int32(3),
	})
	m.must(err)
	var refused *action.Refusal
	if _, err := a.Do(t.Context(), grow); !errors.As(err, &refused) || refused.Rule != "changed" {
		t.Errorf("got %v", err)
	}
}

func TestFleetThatCannotBeRead(t *testing.T) {
	a := actingCloud(t).Actions()
	m := &maker{TB: t}
	ref, _ := fleetOf(t, m)
	f := mustFleet(t, a, ref)
	for _, op := range []string{"DescribePolicies", "DescribeScheduledActions", "DescribeAutoScalingGroups"} {
		remove := scratch.Wire.Inject(wire.Fault{Operation: op, Kind: wire.AccessDenied})
		_, err := planned(t, a, f, resizes(ref, 3))
		remove()
		if err == nil {
			t.Errorf("planned without %s", op)
		}
	}
	grow, err := planned(t, a, f, resizes(ref, 3))
	if err != nil {
		t.Fatal(err)
	}
	remove := scratch.Wire.Inject(wire.Fault{Operation: "SetDesiredCapacity", Kind: wire.AccessDenied})
	_, err = a.Do(t.Context(), grow)
	remove()
	if p, _, looked := a.Look(t.Context(), grow); err == nil || looked != nil || p != action.NotDone {
		t.Errorf("a denied call: %v; looked up %s, %v", err, p, looked)
	}
	ref.ID = "no-such-group"
	if _, err := a.Fleet(t.Context(), ref); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
