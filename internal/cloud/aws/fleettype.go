package aws

import (
	"context"
	"fmt"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// launchType returns the machine type that a group starts, from its launch template or
// configuration; empty if it chooses among several, or by attributes.
func (s *site) launchType(ctx context.Context, g types.AutoScalingGroup) (string, error) {
	template := g.LaunchTemplate
	if m := g.MixedInstancesPolicy; m != nil && m.LaunchTemplate != nil {
		var one string
		for i, o := range m.LaunchTemplate.Overrides {
			if o.InstanceRequirements != nil || i > 0 && awssdk.ToString(o.InstanceType) != one {
				return "", nil
			}
			one = awssdk.ToString(o.InstanceType)
		}
		if one != "" {
			return one, nil
		}
		template = m.LaunchTemplate.LaunchTemplateSpecification
	}
	switch {
	case template != nil:
		return s.templateType(ctx, template)
	case awssdk.ToString(g.LaunchConfigurationName) != "":
		return s.configurationType(ctx, *g.LaunchConfigurationName)
	}
	return "", nil
}

func (s *site) templateType(ctx context.Context, t *types.LaunchTemplateSpecification) (string, error) {
	version := firstOf(awssdk.ToString(t.Version), "$Default")
	in := &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: t.LaunchTemplateId, Versions: []string{version}}
	if in.LaunchTemplateId == nil {
		in.LaunchTemplateName = t.LaunchTemplateName
	}
	out, err := ec2Client(s.reading).DescribeLaunchTemplateVersions(ctx, in)
	if err != nil {
		return "", fmt.Errorf("read the launch template of the fleet: %w", err)
	}
	for _, v := range out.LaunchTemplateVersions {
		if v.LaunchTemplateData != nil {
			return string(v.LaunchTemplateData.InstanceType), nil
		}
	}
	return "", nil
}

func (s *site) configurationType(ctx context.Context, name string) (string, error) {
	out, err := autoscalingClient(s.reading).DescribeLaunchConfigurations(ctx,
		&autoscaling.DescribeLaunchConfigurationsInput{LaunchConfigurationNames: []string{name}})
	if err != nil {
		return "", fmt.Errorf("read the launch configuration of the fleet: %w", err)
	}
	for _, c := range out.LaunchConfigurations {
		if awssdk.ToString(c.LaunchConfigurationName) == name {
			return awssdk.ToString(c.InstanceType), nil
		}
	}
	return "", nil
}
