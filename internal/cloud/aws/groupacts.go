package aws

import (
	"context"
	"errors"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// groupParams are the parameters of a change to an Auto Scaling group.
type groupParams struct {
	Group string `json:"group"`
	groupSize
	// End lists the machines to end; empty lets the group choose.
	End []string `json:"end,omitempty"`
}

// groupSize is the desired capacity and the minimum of a group.
type groupSize struct {
	Desired int32 `json:"desired"`
	Min     int32 `json:"min"`
}

func groupSizeOf(g types.AutoScalingGroup) groupSize {
	return groupSize{Desired: awssdk.ToInt32(g.DesiredCapacity), Min: awssdk.ToInt32(g.MinSize)}
}

// groupNow reads a group; inventory.ErrNotFound if it does not exist.
func (p *place) groupNow(ctx context.Context, name string) (types.AutoScalingGroup, error) {
	return listed(ctx, "group "+name, func(token *string) ([]types.AutoScalingGroup, *string, error) {
		out, err := autoscalingClient(p.reading).DescribeAutoScalingGroups(ctx,
			&autoscaling.DescribeAutoScalingGroupsInput{
				AutoScalingGroupNames: []string{name},
				NextToken:             token,
			})
		if err != nil {
			return nil, nil, err
		}
		return out.AutoScalingGroups, out.NextToken, nil
	}, func(g types.AutoScalingGroup) bool { return awssdk.ToString(g.AutoScalingGroupName) == name })
}

// planGroup shrinks a group by the given machines, or else to a size, for which the group chooses
// the machines.
func planGroup(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	g, err := s.groupNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(g.CreatedTime)); err != nil {
		return nil, err
	}
	if do.IsFleet() {
		return s.planFleet(ctx, g, do)
	}
	return s.planSize(ctx, g, do)
}

// planMember ends a machine through its group, whose size decreases by one.
func planMember(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	i, err := s.machine(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(i.LaunchTime)); err != nil {
		return nil, err
	}
	m := managerOf(i.Operator, i.Tags)
	if m.Kind != inventory.ManagerAutoScaling {
		return nil, refusal("no-such-verb",
			"machine %s belongs to no Auto Scaling group that could be made smaller", r.ID)
	}
	g, err := s.groupNow(ctx, m.Name)
	if err != nil {
		return nil, err
	}
	do.Members = []string{r.ID}
	return s.planSize(ctx, g, do)
}

func (s *site) planSize(ctx context.Context, g types.AutoScalingGroup, do policy.Do) ([]action.Step, error) {
	name, now := awssdk.ToString(g.AutoScalingGroupName), groupSizeOf(g)
	want := groupParams{
		Group: name, groupSize: groupSize{Desired: int32(min(max(do.To, -1), 1<<30)), Min: now.Min}, End: do.Members,
	}
	if len(do.Members) > 0 {
		want.Desired = now.Desired - int32(len(do.Members))
	} else {
		want.Min = min(now.Min, want.Desired)
	}
	switch {
	case awssdk.ToString(g.Status) != "":
		return nil, refusal("gone", "group %s is being deleted", name)
	case !countsMachines(g):
		return nil, uncounted(name)
	case want.Desired >= now.Desired:
		return nil, refusal("nothing-to-do",
			"group %s wants %d machines already; this only makes groups smaller", name,
			now.Desired)
	case want.Desired < want.Min || want.Desired < 0:
		return nil, refusal("at-minimum", "group %s has to keep %d machines: lower its minimum first", name, now.Min)
	}
	if err := s.mayShrink(ctx, g, want, do); err != nil {
		return nil, err
	}
	return []action.Step{{Name: stepScale, Params: encoded(want), Undo: encoded(now)}}, nil
}

// mayShrink refuses to shrink a group that something else manages, or if a machine might end that
// is protected or has disks with data. An unanswered check refuses.
func (s *site) mayShrink(ctx context.Context, g types.AutoScalingGroup, want groupParams, do policy.Do) error {
	var tags []ec2types.Tag
	for _, t := range g.Tags {
		tags = append(tags, ec2types.Tag{Key: t.Key, Value: t.Value})
	}
	if err := unmanaged("group", want.Group, nil, tags); err != nil {
		return err
	}
	var candidates []string
	for _, i := range g.Instances {
		id := awssdk.ToString(i.InstanceId)
		named := slices.Contains(want.End, id)
		switch {
		case len(want.End) > 0 && !named:
		case named && i.LifecycleState != types.LifecycleStateInService:
			return refusal("state", "machine %s of group %s is %s: only one in service is ended", id, want.Group,
				i.LifecycleState)
		case awssdk.ToBool(i.ProtectedFromScaleIn) && named:
			return refusal("protected", "machine %s is protected from scale-in in group %s", id, want.Group)
		case !awssdk.ToBool(i.ProtectedFromScaleIn):
			candidates = append(candidates, id)
		}
	}
	ends := int(awssdk.ToInt32(g.DesiredCapacity) - want.Desired)
	switch {
	case len(want.End) > 0 && len(candidates) < len(want.End):
		return refusal("changed", "not all of %s are machines of group %s", strings.Join(want.End, ", "), want.Group)
	case len(g.Instances) > 0 && len(candidates) < ends:
		return refusal("protected", "%d machines of group %s would end, and only %d are not protected from scale-in",
			ends,
			want.Group, len(candidates))
	case len(candidates) == 0:
		return nil
	}
	return s.mayLose(ctx, candidates, do)
}

// mayLose refuses if one of the given machines of a group has termination protection, which groups
// ignore, or has disks with data that are deleted with it.
func (s *site) mayLose(ctx context.Context, ids []string, do policy.Do) error {
	out, err := ec2Client(s.reading).DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: ids})
	if err != nil {
		return unanswered(ctx, "what the machines of the group are", err)
	}
	found := 0
	for _, reservation := range out.Reservations {
		for _, i := range reservation.Instances {
			found++
			id := awssdk.ToString(i.InstanceId)
			others := slices.DeleteFunc(slices.Clone(i.Tags), func(t ec2types.Tag) bool {
				return awssdk.ToString(t.Key) == groupTag
			})
			if err := unmanaged("machine", id, i.Operator, others); err != nil {
				return err
			}
			switch on, err := s.attribute(ctx, id, ec2types.InstanceAttributeNameDisableApiTermination); {
			case err != nil:
				return unanswered(ctx, "whether machine "+id+" is protected", err)
			case on.Or(true):
				return refusal("protected", "machine %s is, or may be, protected against termination", id)
			}
			if disks := unsaved(i, do); len(disks) > 0 {
				return refusal("unsaved-disk",
					"%s would be deleted with machine %s of the group: declare them scratch",
					strings.Join(disks, ", "), id)
			}
			if do.LosesInstanceStore() {
				continue
			}
			switch local, err := s.localDisks(ctx, i.InstanceType); {
			case err != nil:
				return unanswered(ctx, "whether "+string(i.InstanceType)+" has instance-store disks", err)
			case local:
				return refusal("unsaved-disk",
					"data on the instance-store disks of machine %s would be lost: declare them scratch", id)
			}
		}
	}
	if found < len(ids) {
		return refusal("unknown", "%d of the group's %d machines that might end cannot be read",
			len(ids)-found, len(ids))
	}
	return nil
}

// sizing reads a task's group and its target. Another group or member under the same name is
// refused.
func (s *site) sizing(ctx context.Context, t action.Task) (g types.AutoScalingGroup, want groupParams, was groupSize,
	err error) {
	if want, err = decoded[groupParams](t, t.Step.Params); err != nil {
		return g, want, was, err
	}
	if was, err = decoded[groupSize](t, t.Step.Undo); err != nil {
		return g, want, was, err
	}
	if g, err = s.groupNow(ctx, want.Group); err != nil {
		return g, want, was, err
	}
	if t.Ref.Kind == inventory.KindAutoScalingGroup {
		return g, want, was, identical(t, utc(g.CreatedTime))
	}
	i, err := s.machine(ctx, t.Ref.ID)
	switch {
	case errors.Is(err, inventory.ErrNotFound):
		return g, want, was, nil // the machine has ended, and its group exists
	case err != nil:
		return g, want, was, err
	}
	return g, want, was, identical(t, utc(i.LaunchTime))
}

// left returns those of the machines to end that are still in service.
func left(g types.AutoScalingGroup, want groupParams) []string {
	var ids []string
	for _, i := range g.Instances {
		if id := awssdk.ToString(i.InstanceId); slices.Contains(want.End, id) &&
			i.LifecycleState == types.LifecycleStateInService {
			ids = append(ids, id)
		}
	}
	return ids
}

// isMember reports whether a machine belongs to a group, in service or not.
func isMember(g types.AutoScalingGroup, id string) bool {
	return slices.ContainsFunc(g.Instances, func(i types.Instance) bool { return awssdk.ToString(i.InstanceId) == id })
}

func scaleGroup(ctx context.Context, s *site, t action.Task) (string, error) {
	g, want, was, err := s.sizing(ctx, t)
	if err != nil {
		return "", err
	}
	now, ends := groupSizeOf(g), left(g, want)
	switch {
	case t.Do.IsFleet() && len(want.End) == 0:
		return "", s.growFleet(ctx, g, want, was)
	case t.Do.IsFleet() && len(ends) > 0:
		if err := s.soleWriter(ctx, g, want); err != nil {
			return "", err
		}
	}
	if len(want.End) == 0 {
		switch now {
		case want.groupSize:
			return "", nil
		case was:
		default:
			return "", refusal("changed",
				"group %s wants %d machines and at least %d now: another size than when this was planned",
				want.Group, now.Desired,
				now.Min)
		}
		if err := s.mayShrink(ctx, g, want, t.Do); err != nil {
			return "", err
		}
		return "", s.resize(ctx, want.Group, want.groupSize)
	}
	if len(ends) == 0 {
		return "", nil
	}
	again := want
	again.End, again.Desired = ends, now.Desired-int32(len(ends))
	if again.Desired < now.Min {
		return "", refusal("at-minimum", "group %s has to keep %d machines", want.Group, now.Min)
	}
	if err := s.mayShrink(ctx, g, again, t.Do); err != nil {
		return "", err
	}
	for _, id := range ends {
		_, err := autoscalingClient(s.acting).TerminateInstanceInAutoScalingGroup(ctx,
			&autoscaling.TerminateInstanceInAutoScalingGroupInput{
				InstanceId:                     &id,
				ShouldDecrementDesiredCapacity: awssdk.Bool(true),
			})
		if err != nil {
			return "", failed("end machine "+id+" of group "+want.Group, err)
		}
	}
	return "", nil
}

func (s *site) resize(ctx context.Context, group string, to groupSize) error {
	_, err := autoscalingClient(s.acting).UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: &group,
		DesiredCapacity:      &to.Desired,
		MinSize:              &to.Min,
	})
	return failed("change the size of group "+group, err)
}

// lookGroup is complete once the group's desired and actual size are at most the target; for named
// machines, once EC2 reports them as terminated.
func lookGroup(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	g, want, _, err := s.sizing(ctx, t)
	if err != nil {
		return action.NotDone, "", err
	}
	if len(want.End) == 0 {
		switch {
		case t.Do.IsFleet() && groupSizeOf(g).Desired == want.Desired:
			return action.Complete, "", nil // whether its machines serve is left to later readings
		case t.Do.IsFleet():
			return action.NotDone, "", nil
		case groupSizeOf(g).Desired > want.Desired:
			return action.NotDone, "", nil
		case len(g.Instances) > int(want.Desired):
			return action.InProgress, "", nil
		}
		return action.Complete, "", nil
	}
	if len(left(g, want)) > 0 {
		return action.NotDone, "", nil
	}
	for _, id := range want.End {
		i, err := twice(ctx, func() (ec2types.Instance, error) { return s.machine(ctx, id) })
		switch {
		case errors.Is(err, inventory.ErrNotFound):
		case err != nil:
			return action.NotDone, "", err
		case g.WarmPoolConfiguration != nil && !isMember(g, id): // it was returned to the warm pool
		case stateOf(i) != ec2types.InstanceStateNameTerminated:
			return action.InProgress, string(stateOf(i)), nil
		}
	}
	return action.Complete, "", nil
}

// restoreGroup restores the size of a group, which launches other machines. After ending named
// machines it grows by their number, up to the former desired capacity, because other machines may
// have ended or been restored meanwhile.
func restoreGroup(ctx context.Context, s *site, t action.Task) error {
	g, want, was, err := s.sizing(ctx, t)
	if err != nil {
		return err
	}
	now := groupSizeOf(g)
	to := was
	switch {
	case t.Do.IsFleet():
		return demandDecides(want.Group)
	case now == was:
		return nil
	case len(want.End) > 0:
		if now.Desired >= was.Desired {
			return nil
		}
		to = groupSize{
			Desired: min(now.Desired+int32(len(want.End)), was.Desired), Min: now.Min,
		}
	case now != want.groupSize:
		return refusal("changed",
			"the size of group %s was changed by another user or service: it wants %d machines and at least %d",
			want.Group,
			now.Desired, now.Min)
	}
	return s.resize(ctx, want.Group, to)
}
