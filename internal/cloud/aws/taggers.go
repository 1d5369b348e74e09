package aws

import (
	"context"
	"maps"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	ecrtypes "github.com/aws/aws-sdk-go-v2/service/ecr/types"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	efstypes "github.com/aws/aws-sdk-go-v2/service/efs/types"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	classictypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/fsx"
	fsxtypes "github.com/aws/aws-sdk-go-v2/service/fsx/types"
	"github.com/aws/aws-sdk-go-v2/service/opensearch"
	opensearchtypes "github.com/aws/aws-sdk-go-v2/service/opensearch/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	sagemakertypes "github.com/aws/aws-sdk-go-v2/service/sagemaker/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	secrettypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
)

// tagger writes and removes tags of the resources of one service.
type tagger struct {
	put  func(ctx context.Context, s *site, name string, tags map[string]string) error
	drop func(ctx context.Context, s *site, name string, keys []string) error
}

// taggers are the services that tag resources, each with its own calls.
var taggers = map[string]tagger{
	"ec2": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := ec2Client(s.acting).CreateTags(ctx, &ec2.CreateTagsInput{
				Resources: []string{name},
				Tags:      toEC2(tags),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := ec2Client(s.acting).DeleteTags(ctx, &ec2.DeleteTagsInput{
				Resources: []string{name},
				Tags:      pairs(bare(keys), func(k, _ *string) ec2types.Tag { return ec2types.Tag{Key: k} }),
			})
			return err
		},
	},
	"s3": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			return s.bucketTags(ctx, name, func(now map[string]string) { maps.Copy(now, tags) })
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			return s.bucketTags(ctx, name, func(now map[string]string) {
				maps.DeleteFunc(now, func(k, _ string) bool { return slices.Contains(keys, k) })
			})
		},
	},
	"ecr": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := ecrClient(s.acting).TagResource(ctx, &ecr.TagResourceInput{
				ResourceArn: &name,
				Tags:        pairs(tags, func(k, v *string) ecrtypes.Tag { return ecrtypes.Tag{Key: k, Value: v} }),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := ecrClient(s.acting).UntagResource(ctx, &ecr.UntagResourceInput{
				ResourceArn: &name, TagKeys: keys,
			})
			return err
		},
	},
	"logs": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := logsClient(s.acting).TagResource(ctx, &cloudwatchlogs.TagResourceInput{
				ResourceArn: &name,
				Tags:        tags,
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := logsClient(s.acting).UntagResource(ctx, &cloudwatchlogs.UntagResourceInput{
				ResourceArn: &name,
				TagKeys:     keys,
			})
			return err
		},
	},
	"sagemaker": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := sagemakerClient(s.acting).AddTags(ctx, &sagemaker.AddTagsInput{
				ResourceArn: &name,
				Tags: pairs(tags, func(k, v *string) sagemakertypes.Tag {
					return sagemakertypes.Tag{Key: k, Value: v}
				}),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := sagemakerClient(s.acting).DeleteTags(ctx, &sagemaker.DeleteTagsInput{
				ResourceArn: &name,
				TagKeys:     keys,
			})
			return err
		},
	},
	"autoscaling": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			propagated, err := s.propagated(ctx, name)
			if err != nil {
				return err
			}
			_, err = autoscalingClient(s.acting).CreateOrUpdateTags(ctx, &autoscaling.CreateOrUpdateTagsInput{
				Tags: pairs(tags, func(k, v *string) autoscalingtypes.Tag {
					return groupTagOf(name, k, v, propagated[*k])
				})})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := autoscalingClient(s.acting).DeleteTags(ctx, &autoscaling.DeleteTagsInput{
				Tags: pairs(bare(keys), func(k, _ *string) autoscalingtypes.Tag {
					return groupTagOf(name, k, nil, false)
				}),
			})
			return err
		},
	},
	"elb": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := classicClient(s.acting).AddTags(ctx, &elasticloadbalancing.AddTagsInput{
				LoadBalancerNames: []string{name},
				Tags: pairs(tags, func(k, v *string) classictypes.Tag {
					return classictypes.Tag{Key: k, Value: v}
				}),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := classicClient(s.acting).RemoveTags(ctx, &elasticloadbalancing.RemoveTagsInput{
				LoadBalancerNames: []string{name},
				Tags: pairs(bare(keys), func(k, _ *string) classictypes.TagKeyOnly {
					return classictypes.TagKeyOnly{Key: k}
				}),
			})
			return err
		},
	},
	"elbv2": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := elbClient(s.acting).AddTags(ctx, &elbv2.AddTagsInput{
				ResourceArns: []string{name},
				Tags:         pairs(tags, func(k, v *string) elbtypes.Tag { return elbtypes.Tag{Key: k, Value: v} }),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := elbClient(s.acting).RemoveTags(ctx, &elbv2.RemoveTagsInput{
				ResourceArns: []string{name},
				TagKeys:      keys,
			})
			return err
		},
	},
	"efs": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := efsClient(s.acting).TagResource(ctx, &efs.TagResourceInput{
				ResourceId: &name,
				Tags:       pairs(tags, func(k, v *string) efstypes.Tag { return efstypes.Tag{Key: k, Value: v} }),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := efsClient(s.acting).UntagResource(ctx, &efs.UntagResourceInput{ResourceId: &name, TagKeys: keys})
			return err
		},
	},
	"fsx": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := fsxClient(s.acting).TagResource(ctx, &fsx.TagResourceInput{
				ResourceARN: &name,
				Tags:        pairs(tags, func(k, v *string) fsxtypes.Tag { return fsxtypes.Tag{Key: k, Value: v} }),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := fsxClient(s.acting).UntagResource(ctx, &fsx.UntagResourceInput{
				ResourceARN: &name, TagKeys: keys,
			})
			return err
		},
	},
	"rds": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := rdsClient(s.acting).AddTagsToResource(ctx, &rds.AddTagsToResourceInput{
				ResourceName: &name,
				Tags:         pairs(tags, func(k, v *string) rdstypes.Tag { return rdstypes.Tag{Key: k, Value: v} }),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := rdsClient(s.acting).RemoveTagsFromResource(ctx, &rds.RemoveTagsFromResourceInput{
				ResourceName: &name,
				TagKeys:      keys,
			})
			return err
		},
	},
	"es": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := opensearchClient(s.acting).AddTags(ctx, &opensearch.AddTagsInput{
				ARN: &name,
				TagList: pairs(tags, func(k, v *string) opensearchtypes.Tag {
					return opensearchtypes.Tag{Key: k, Value: v}
				}),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := opensearchClient(s.acting).RemoveTags(ctx, &opensearch.RemoveTagsInput{
				ARN: &name, TagKeys: keys,
			})
			return err
		},
	},
	"secretsmanager": {
		put: func(ctx context.Context, s *site, name string, tags map[string]string) error {
			_, err := secretsClient(s.acting).TagResource(ctx, &secretsmanager.TagResourceInput{
				SecretId: &name,
				Tags:     pairs(tags, func(k, v *string) secrettypes.Tag { return secrettypes.Tag{Key: k, Value: v} }),
			})
			return err
		},
		drop: func(ctx context.Context, s *site, name string, keys []string) error {
			_, err := secretsClient(s.acting).UntagResource(ctx, &secretsmanager.UntagResourceInput{
				SecretId: &name,
				TagKeys:  keys,
			})
			return err
		},
	},
}

// pairs converts tags to a service's own type, sorted by key.
func pairs[T any](tags map[string]string, tag func(key, value *string) T) []T {
	out := make([]T, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, tag(awssdk.String(k), awssdk.String(tags[k])))
	}
	return out
}

// bare returns keys as tags without values.
func bare(keys []string) map[string]string {
	out := make(map[string]string, len(keys))
	for _, k := range keys {
		out[k] = ""
	}
	return out
}

func groupTagOf(group string, key, value *string, propagate bool) autoscalingtypes.Tag {
	return autoscalingtypes.Tag{
		ResourceId: &group, ResourceType: awssdk.String("auto-scaling-group"), Key: key, Value: value,
		PropagateAtLaunch: &propagate,
	}
}

// propagated returns the tags that a group propagates to its machines, because writing a tag
// replaces that setting. A missing tag is not propagated.
func (p *place) propagated(ctx context.Context, group string) (map[string]bool, error) {
	out, err := autoscalingClient(p.reading).DescribeAutoScalingGroups(ctx,
		&autoscaling.DescribeAutoScalingGroupsInput{
			AutoScalingGroupNames: []string{group},
		})
	if err != nil {
		return nil, err
	}
	on := map[string]bool{}
	for _, g := range out.AutoScalingGroups {
		for _, t := range g.Tags {
			on[awssdk.ToString(t.Key)] = awssdk.ToBool(t.PropagateAtLaunch)
		}
	}
	return on, nil
}
