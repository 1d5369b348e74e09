package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const groupsPage = 100

// scalingGroups reads the Auto Scaling groups, and reports whether all were read.
func (p *place) scalingGroups(ctx context.Context) (groups []types.AutoScalingGroup, read bool) {
	p.groupsOnce.Do(func() { p.readGroups(ctx) })
	return p.groups, p.groupsRead
}

func (p *place) readGroups(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := autoscalingClient(p.reading).DescribeAutoScalingGroups(ctx,
			&autoscaling.DescribeAutoScalingGroupsInput{
				MaxRecords: awssdk.Int32(groupsPage),
				NextToken:  token,
			})
		if err != nil {
			return nil, err
		}
		p.groups = append(p.groups, out.AutoScalingGroups...)
		return out.NextToken, nil
	})
	p.failed(ctx, "autoscaling:DescribeAutoScalingGroups", err)
	p.groupsRead = err == nil
}

func (p *place) autoScalingGroups(ctx context.Context) {
	groups, _ := p.scalingGroups(ctx)
	if len(groups) == 0 {
		return
	}
	policies, readable := p.scalingPolicies(ctx)
	for _, g := range groups {
		r := p.resource(inventory.KindAutoScalingGroup, awssdk.ToString(g.AutoScalingGroupName))
		r.Name = r.ID
		r.CreatedAt = utc(g.CreatedTime)
		r.Tags = tagged(g.Tags, func(t types.TagDescription) (*string, *string) { return t.Key, t.Value })
		r.State = inventory.StateAvailable
		if awssdk.ToString(g.Status) != "" { // set only while the group is being deleted
			r.State = inventory.StateDeleting
		}
		d := &inventory.AutoScalingGroup{}
		if countsMachines(g) {
			d.Min, d.Max, d.Desired = int64(awssdk.ToInt32(g.MinSize)), int64(awssdk.ToInt32(g.MaxSize)), int64(
				awssdk.ToInt32(g.DesiredCapacity))
		}
		for _, i := range g.Instances {
			d.Instances = append(d.Instances, awssdk.ToString(i.InstanceId))
			r.Type = firstOf(r.Type, awssdk.ToString(i.InstanceType))
		}
		if readable {
			d.ScalingPolicies = inventory.Known(policies[r.ID])
		}
		r.Detail = d
		p.scan.add(r)
	}
}

// countsMachines reports whether a group's sizes count machines. They may instead be virtual CPUs,
// memory, or weights per type, for which the number of machines is unknown.
func countsMachines(g types.AutoScalingGroup) bool {
	if t := awssdk.ToString(g.DesiredCapacityType); t != "" && t != "units" {
		return false
	}
	one := func(weight *string) bool { return firstOf(awssdk.ToString(weight), "1") == "1" }
	for _, i := range g.Instances {
		if !one(i.WeightedCapacity) {
			return false
		}
	}
	if m := g.MixedInstancesPolicy; m != nil && m.LaunchTemplate != nil {
		for _, o := range m.LaunchTemplate.Overrides {
			if !one(o.WeightedCapacity) {
				return false
			}
		}
	}
	return true
}

// scalingPolicies counts the policies and schedules of each group's size. readable is false if some
// could not be read.
func (p *place) scalingPolicies(ctx context.Context) (perGroup map[string]int, readable bool) {
	perGroup = map[string]int{}
	byDemand := pages(ctx, func(token *string) (*string, error) {
		out, err := autoscalingClient(p.reading).DescribePolicies(ctx, &autoscaling.DescribePoliciesInput{
			MaxRecords: awssdk.Int32(groupsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, x := range out.ScalingPolicies {
			perGroup[awssdk.ToString(x.AutoScalingGroupName)]++
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "autoscaling:DescribePolicies", byDemand)
	bySchedule := pages(ctx, func(token *string) (*string, error) {
		out, err := autoscalingClient(p.reading).DescribeScheduledActions(ctx,
			&autoscaling.DescribeScheduledActionsInput{
				MaxRecords: awssdk.Int32(groupsPage),
				NextToken:  token,
			})
		if err != nil {
			return nil, err
		}
		for _, x := range out.ScheduledUpdateGroupActions {
			perGroup[awssdk.ToString(x.AutoScalingGroupName)]++
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "autoscaling:DescribeScheduledActions", bySchedule)
	return perGroup, byDemand == nil && bySchedule == nil
}
