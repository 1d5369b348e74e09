package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

var _ action.FleetCloud = (*Actions)(nil)

// Fleet implements [action.FleetCloud] for Auto Scaling groups and SageMaker endpoints.
func (a *Actions) Fleet(ctx context.Context, ref inventory.Ref) (action.Fleet, error) {
	s, err := a.site(ctx, ref)
	if err != nil {
		return action.Fleet{}, err
	}
	switch ref.Kind {
	case inventory.KindAutoScalingGroup:
		return s.groupFleet(ctx, ref)
	case inventory.KindEndpoint:
		return s.endpointFleet(ctx, ref)
	}
	return action.Fleet{}, refusal("no-such-verb", "the size of a fleet of kind %s is not set", ref.Kind)
}

// groupFleet reads an Auto Scaling group. If a machine cannot be read, its addresses are unknown,
// so that it never counts as drained.
func (s *site) groupFleet(ctx context.Context, ref inventory.Ref) (action.Fleet, error) {
	g, err := s.groupNow(ctx, ref.ID)
	if err != nil {
		return action.Fleet{}, fmt.Errorf("read fleet %s: %w", ref.ID, err)
	}
	if !countsMachines(g) {
		return action.Fleet{}, uncounted(ref.ID)
	}
	r := s.resource(inventory.KindAutoScalingGroup, ref.ID)
	r.Name, r.CreatedAt, r.State = ref.ID, utc(g.CreatedTime), inventory.StateAvailable
	r.Tags = tagged(g.Tags, func(t types.TagDescription) (*string, *string) { return t.Key, t.Value })
	r.Cloud = cloudName
	if err := s.scan.cloud.options.Tags.Apply(r); err != nil {
		return action.Fleet{}, fmt.Errorf("read fleet %s: %w", ref.ID, err)
	}
	d := &inventory.AutoScalingGroup{
		Min: int64(awssdk.ToInt32(g.MinSize)), Max: int64(awssdk.ToInt32(g.MaxSize)),
		Desired: int64(awssdk.ToInt32(g.DesiredCapacity)),
	}
	r.Detail = d
	out := action.Fleet{
		Resource: r, Types: mixedTypes(g), Desired: int(d.Desired), Min: int(d.Min), Max: int(d.Max),
		Drains: balanced(g),
	}
	for _, i := range g.Instances {
		d.Instances = append(d.Instances, awssdk.ToString(i.InstanceId))
		r.Type = firstOf(r.Type, awssdk.ToString(i.InstanceType))
		out.Replicas = append(out.Replicas, action.Replica{
			ID: awssdk.ToString(i.InstanceId), Protected: awssdk.ToBool(i.ProtectedFromScaleIn),
			Serving: i.LifecycleState == types.LifecycleStateInService && awssdk.ToString(i.HealthStatus) == "Healthy",
		})
	}
	if r.Type == "" { // no machine reveals it
		if r.Type, err = s.launchType(ctx, g); err != nil {
			return action.Fleet{}, err
		}
	}
	return out, s.replicaHosts(ctx, d.Instances, out.Replicas)
}

// replicaHosts adds the hosts and the launch times of the machines of a group.
func (p *place) replicaHosts(ctx context.Context, ids []string, replicas []action.Replica) error {
	if len(ids) == 0 {
		return nil
	}
	err := p.filtered(ctx, "instance-id", ids, func(i ec2types.Instance) {
		n := slices.IndexFunc(replicas, func(r action.Replica) bool { return r.ID == awssdk.ToString(i.InstanceId) })
		if n < 0 {
			return
		}
		replicas[n].LaunchedAt = utc(i.LaunchTime)
		for _, host := range []*string{
			i.InstanceId, i.PrivateIpAddress, i.PrivateDnsName, i.PublicIpAddress, i.PublicDnsName, i.Ipv6Address,
		} {
			if name := awssdk.ToString(host); name != "" {
				replicas[n].Hosts = append(replicas[n].Hosts, name)
			}
		}
	})
	return failed("read the machines of the fleet", err)
}

func uncounted(name string) error {
	return refusal("unknown",
		"the number of machines in the size of group %s is unknown: it counts by weights or by what they have", name)
}

// balanced reports whether a group is behind a load balancer, which drains machines before they end
// ("Attach a load balancer to your Auto Scaling group", Amazon EC2 Auto Scaling User Guide).
func balanced(g types.AutoScalingGroup) bool {
	return len(g.TargetGroupARNs) > 0 || len(g.LoadBalancerNames) > 0
}

// planFleet returns the call that resizes a fleet to its demand: larger as a whole, or smaller by
// the given drained machines.
func (s *site) planFleet(ctx context.Context, g types.AutoScalingGroup, do policy.Do) ([]action.Step, error) {
	name, now := awssdk.ToString(g.AutoScalingGroupName), groupSizeOf(g)
	want := groupParams{
		Group: name, groupSize: groupSize{Desired: int32(min(max(do.To, -1), 1<<30)), Min: now.Min}, End: do.Members,
	}
	most := awssdk.ToInt32(g.MaxSize)
	switch {
	case awssdk.ToString(g.Status) != "":
		return nil, refusal("gone", "group %s is being deleted", name)
	case !countsMachines(g):
		return nil, uncounted(name)
	case want.Desired == now.Desired:
		return nil, refusal("nothing-to-do", "group %s wants %d machines already", name, now.Desired)
	case want.Desired < max(now.Min, 0):
		return nil, refusal("at-minimum", "group %s has to keep %d machines: lower its minimum first", name, now.Min)
	case want.Desired > most:
		return nil, refusal("at-maximum", "group %s may have %d machines: raise its maximum first", name, most)
	case want.Desired > now.Desired && len(do.Members) > 0,
		want.Desired < now.Desired && len(do.Members) != int(now.Desired-want.Desired):
		return nil, refusal("not-drained", "of the %d machines that would end, %d are drained",
			max(0, now.Desired-want.Desired), len(do.Members))
	}
	if err := s.soleWriter(ctx, g, want); err != nil {
		return nil, err
	}
	if len(want.End) > 0 {
		if err := s.mayShrink(ctx, g, want, do); err != nil {
			return nil, err
		}
	}
	return []action.Step{{Name: stepScale, Params: encoded(want), Undo: encoded(now)}}, nil
}

// soleWriter refuses a fleet that something else resizes, or that must not start or end machines
// now.
func (s *site) soleWriter(ctx context.Context, g types.AutoScalingGroup, want groupParams) error {
	process := "Launch"
	if len(want.End) > 0 {
		process = "Terminate"
	}
	for _, p := range g.SuspendedProcesses {
		if awssdk.ToString(p.ProcessName) == process {
			return refusal("suspended", "the process %s of group %s is suspended: resume it first", process, want.Group)
		}
	}
	writers, err := s.writers(ctx, want.Group)
	switch {
	case err != nil:
		return unanswered(ctx, "what else sets the size of group "+want.Group, err)
	case len(writers) > 0:
		return refusal("other-writer", "%s of group %s sets its size as well: remove it, so that one does",
			strings.Join(writers, ", "), want.Group)
	}
	var tags []ec2types.Tag
	for _, t := range g.Tags {
		tags = append(tags, ec2types.Tag{Key: t.Key, Value: t.Value})
	}
	return unmanaged("group", want.Group, nil, tags)
}

// writers lists the policies and scheduled actions that resize a group.
func (s *site) writers(ctx context.Context, group string) ([]string, error) {
	api := autoscalingClient(s.reading)
	var out []string
	err := pages(ctx, func(token *string) (*string, error) {
		page, err := api.DescribePolicies(ctx, &autoscaling.DescribePoliciesInput{
			AutoScalingGroupName: &group, NextToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, p := range page.ScalingPolicies {
			if awssdk.ToString(p.AutoScalingGroupName) == group {
				out = append(out, "scaling policy "+awssdk.ToString(p.PolicyName))
			}
		}
		return page.NextToken, nil
	})
	if err != nil {
		return nil, err
	}
	err = pages(ctx, func(token *string) (*string, error) {
		page, err := api.DescribeScheduledActions(ctx, &autoscaling.DescribeScheduledActionsInput{
			AutoScalingGroupName: &group, NextToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, a := range page.ScheduledUpdateGroupActions {
			if awssdk.ToString(a.AutoScalingGroupName) == group {
				out = append(out, "scheduled action "+awssdk.ToString(a.ScheduledActionName))
			}
		}
		return page.NextToken, nil
	})
	return out, err
}

// growFleet raises the group's desired capacity. It does not write the minimum, which the owner may
// have changed meanwhile.
func (s *site) growFleet(ctx context.Context, g types.AutoScalingGroup, want groupParams, was groupSize) error {
	switch now := groupSizeOf(g); {
	case now.Desired == want.Desired:
		return nil
	case now.Desired != was.Desired || awssdk.ToInt32(g.MaxSize) < want.Desired:
		return refusal("changed", "group %s wants %d machines of at most %d now: another size than when this was planned",
			want.Group, now.Desired, awssdk.ToInt32(g.MaxSize))
	}
	if err := s.soleWriter(ctx, g, want); err != nil {
		return err
	}
	_, err := autoscalingClient(s.acting).SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: &want.Group, DesiredCapacity: &want.Desired, HonorCooldown: awssdk.Bool(false),
	})
	return failed(fmt.Sprintf("ask group %s for %d machines", want.Group, want.Desired), err)
}

// demandDecides refuses to revert the size of a fleet.
func demandDecides(name string) error {
	return refusal("irrevocable", "the next readings of demand set the size of fleet %s: change min or max of its "+
		"policy, or freeze", name)
}
