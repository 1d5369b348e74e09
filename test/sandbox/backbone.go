package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	curfew "github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/test/wire"
)

// Backbone creates the infrastructure that the sessions of a region share, as terraform/backbone
// does, with an existing bucket, and returns an image to launch from.
func (s *Sandbox) Backbone(ctx context.Context, region, bucket string) (image string, err error) {
	api := ec2.NewFromConfig(s.Config(region))
	subnets, err := api.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{})
	if err != nil {
		return "", err
	}
	groups, err := api.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{})
	if err != nil {
		return "", err
	}
	if len(groups.SecurityGroups) == 0 || len(subnets.Subnets) < 2 {
		return "", fmt.Errorf("%s has %d security groups and %d subnets", region, len(groups.SecurityGroups),
			len(subnets.Subnets))
	}
	made, err := api.RegisterImage(ctx, &ec2.RegisterImageInput{
		Name: aws.String("sessions"), RootDeviceName: aws.String("/dev/sda1"),
		BlockDeviceMappings: []types.BlockDeviceMapping{
			{DeviceName: aws.String("/dev/sda1"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(15)}},
		}})
	if err != nil {
		return "", err
	}
	policy, err := s.MachinePolicy(ctx, region, bucket)
	if err != nil {
		return "", err
	}
	var pairs []string
	for _, n := range subnets.Subnets[:2] {
		pairs = append(pairs, aws.ToString(n.SubnetId)+"="+aws.ToString(n.AvailabilityZone))
	}
	parameters := ssm.NewFromConfig(s.Config(region))
	for name, value := range map[string]string{
		"version": curfew.BackboneVersion, "bucket": bucket, "subnets": strings.Join(pairs, ","),
		"security-group": aws.ToString(groups.SecurityGroups[0].GroupId),
		"machine-policy": policy, "log-group": "/curfew/sessions",
		"kms-key":          "arn:aws:kms:us-east-1:123456789012:key/1",
		"session-document": "curfew-shell"} {
		if _, err := parameters.PutParameter(ctx, &ssm.PutParameterInput{
			Name: aws.String("/curfew/backbone/" + name), Value: aws.String(value), Type: ssmtypes.ParameterTypeString,
			Overwrite: aws.Bool(true)}); err != nil {
			return "", err
		}
	}
	return aws.ToString(made.ImageId), nil
}

// machinePolicy is the name of the policy of the machines' roles.
const machinePolicy = "curfew-session-machine"

// MachinePolicy creates the policy for the roles of session machines, as terraform/backbone does
// for a bucket of a region, and returns its ARN. An existing one is kept.
func (s *Sandbox) MachinePolicy(ctx context.Context, region, bucket string) (string, error) {
	document := string(MachinePolicy(region, bucket))
	_, err := iam.NewFromConfig(s.Config(region)).CreatePolicy(ctx, &iam.CreatePolicyInput{
		PolicyName: aws.String(machinePolicy), PolicyDocument: aws.String(document),
	})
	if exists := (*iamtypes.EntityAlreadyExistsException)(nil); err != nil && !errors.As(err, &exists) {
		return "", err
	}
	return "arn:aws:iam::" + wire.DefaultAccount + ":policy/" + machinePolicy, nil
}

// MachinePolicy returns the document of the policy for the machines' roles in a backbone of the
// sandbox.
func MachinePolicy(region, bucket string) []byte {
	at := region + ":" + wire.DefaultAccount
	return curfew.MachinePolicyJSON(curfew.MachineNames{
		Partition:  "aws",
		Region:     region,
		Account:    wire.DefaultAccount,
		Sessions:   "arn:aws:s3:::" + bucket,
		Repository: "arn:aws:ecr:" + at + ":repository/curfew-sessions",
		Key:        "arn:aws:kms:" + at + ":key/1",
		Logs:       []string{"arn:aws:logs:" + at + ":log-group:/curfew/sessions:*"},
	})
}
