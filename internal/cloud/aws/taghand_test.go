package aws_test

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestKeepByHand checks that the command in a warning can be pasted.
func TestKeepByHand(t *testing.T) {
	until := time.Date(2026, 11, 22, 15, 4, 0, 0, time.FixedZone("CET", 3600))
	for _, tc := range []struct {
		kind   inventory.Kind
		id     string
		typ    string
		region string
		want   string
	}{
		{
			inventory.KindInstance, "i-0abc", "", "us-east-1",
			"aws ec2 create-tags --resources i-0abc --tags Key=curfew:keep-until,Value=2026-11-22T14:04:00Z " +
				"--region us-east-1",
		},
		{
			inventory.KindNotebook, "Work", "", "eu-west-1",
			"aws sagemaker add-tags --resource-arn arn:aws:sagemaker:eu-west-1:123456789012:notebook-instance/work --tags " +
				"Key=curfew:keep-until,Value=2026-11-22T14:04:00Z --region eu-west-1",
		},
		{
			inventory.KindLogGroup, "/a b", "", "cn-north-1",
			"aws logs tag-resource --resource-arn 'arn:aws-cn:logs:cn-north-1:123456789012:log-group:/a b' --tags " +
				"curfew:keep-until=2026-11-22T14:04:00Z --region cn-north-1",
		},
		{
			inventory.KindAutoScalingGroup, "it's", "", "us-east-1",
			`aws autoscaling create-or-update-tags --tags 'ResourceId=it'\''s,ResourceType=auto-scaling-group,PropagateAtLaunch=false,Key=curfew:keep-until,Value=2026-11-22T14:04:00Z' --region us-east-1`,
		},
		{
			inventory.KindFileSystem, "fs-1", "efs", "us-east-1",
			"aws efs tag-resource --resource-id fs-1 --tags Key=curfew:keep-until,Value=2026-11-22T14:04:00Z " +
				"--region us-east-1",
		},
		{inventory.KindBucket, "data", "", "us-east-1", ""}, // its command would replace all other tags
		{inventory.KindCommitment, "sp-1", "", "us-east-1", ""},
	} {
		r := &inventory.Resource{
			ID: tc.id, Kind: tc.kind, Cloud: "aws", Account: "123456789012", Region: tc.region, Type: tc.typ,
		}
		if got := aws.KeepByHand(r, until); got != tc.want {
			t.Errorf("%s %s:\n%s\nwant\n%s", tc.kind, tc.id, got, tc.want)
		}
	}
}
