package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// groups creates two Auto Scaling groups: one that stayed large after demand fell, and one whose
// machines work.
func (b *seeder) groups(ctx context.Context) error {
	for _, g := range []struct {
		name  string
		owner inventory.Owner
		want  int32
		does  behavior
		stuck bool
	}{
		{"feed-workers", chen, 3, idle(0), true},
		{"assistant-workers", dana, 2, busy(60, 0, 0, 0), false},
	} {
		if err := b.group(ctx, g.name, g.owner, g.want, g.does, g.stuck); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return nil
}

func (b *seeder) group(ctx context.Context, name string, o inventory.Owner, want int32, does behavior,
	stuck bool) error {
	api, net := autoscaling.NewFromConfig(b.Config(east)), b.nets[east]
	if _, err := api.CreateLaunchConfiguration(ctx, &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: &name,
		ImageId:                 aws.String("ami-0000000000000base"), InstanceType: aws.String("c5.xlarge"),
		BlockDeviceMappings: []astypes.BlockDeviceMapping{
			{
				DeviceName: aws.String("/dev/sda1"),
				Ebs: &astypes.Ebs{
					VolumeSize: aws.Int32(30), VolumeType: aws.String("gp3"), DeleteOnTermination: aws.Bool(true),
				},
			},
		}}); err != nil {
		return fmt.Errorf("launch configuration: %w", err)
	}
	own := tags(o, "", inventory.TagLifetime, "persistent", inventory.TagPurpose, "inference")
	var t []astypes.Tag
	for k, v := range own {
		t = append(t, astypes.Tag{Key: aws.String(k), Value: aws.String(v), PropagateAtLaunch: aws.Bool(true),
			ResourceId: &name, ResourceType: aws.String("auto-scaling-group")})
	}
	if _, err := api.CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{AutoScalingGroupName: &name,
		LaunchConfigurationName: &name, MinSize: aws.Int32(1), MaxSize: aws.Int32(8), DesiredCapacity: &want,
		VPCZoneIdentifier: &net.subnet, Tags: t}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	b.age("autoscaling", "AutoScalingGroupName", name, b.ago(days(100)), "CreatedTime")
	b.steady(east, "AWS/AutoScaling", "GroupDesiredCapacity", dims("AutoScalingGroupName", name), b.ago(days(15)),
		func(t time.Time) wire.Datum { return gauge(t, float64(want), float64(want)) })
	out, err := api.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{name},
	})
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	for _, i := range out.AutoScalingGroups[0].Instances {
		launched := b.ago(days(30))
		b.ageMachine(*i.InstanceId, launched)
		b.measure(*i.InstanceId, east, "", launched, 0, noAgent, does)
		m := machine{region: east, owner: o, lifetime: persistent, purpose: inventory.Inference}
		if stuck {
			m.rule, m.want = "instance-idle", Planted{SavingsUSD: month("c5.xlarge", east, 1)}
		} else {
			m.not, m.note = idleRules, "a member that works"
		}
		if err := b.adopt(ctx, m, *i.InstanceId, launched, own); err != nil {
			return err
		}
	}
	r := b.record(inventory.KindAutoScalingGroup, name, east, o)
	if stuck {
		b.plant(r, "autoscaling-sticky", Planted{
			SavingsUSD: "0.00",
			Note:       "three machines and nothing to do for two weeks; the dollars are counted at the machines",
		})
	} else {
		b.innocent(r, "its machines work", "autoscaling-sticky")
	}
	return nil
}
