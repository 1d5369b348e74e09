package sandbox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// sessionProfile is the instance profile of a backbone's machines.
const sessionProfile = "sessions"

// Backbone makes what sessions of a region share, as terraform/backbone does, with a bucket
// that is there already, and returns an image to launch from.
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
		return "", fmt.Errorf("%s has %d security groups and %d subnets", region, len(groups.SecurityGroups), len(subnets.Subnets))
	}
	made, err := api.RegisterImage(ctx, &ec2.RegisterImageInput{Name: aws.String("sessions"), RootDeviceName: aws.String("/dev/sda1"),
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sda1"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(15)}}}})
	if err != nil {
		return "", err
	}
	if err := s.instanceProfile(ctx); err != nil {
		return "", err
	}
	var pairs []string
	for _, n := range subnets.Subnets[:2] {
		pairs = append(pairs, aws.ToString(n.SubnetId)+"="+aws.ToString(n.AvailabilityZone))
	}
	parameters := ssm.NewFromConfig(s.Config(region))
	for name, value := range map[string]string{"version": "1", "bucket": bucket, "subnets": strings.Join(pairs, ","), "security-group": aws.ToString(groups.SecurityGroups[0].GroupId),
		"instance-profile": "arn:aws:iam::123456789012:instance-profile/" + sessionProfile, "log-group": "/curfew/sessions", "kms-key": "arn:aws:kms:us-east-1:123456789012:key/1",
		"session-document": "curfew-shell"} {
		if _, err := parameters.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/curfew/backbone/" + name), Value: aws.String(value), Type: ssmtypes.ParameterTypeString,
			Overwrite: aws.Bool(true)}); err != nil {
			return "", err
		}
	}
	return aws.ToString(made.ImageId), nil
}

// instanceProfile makes the profile that machines of sessions are launched with. One that is
// there is no error.
func (s *Sandbox) instanceProfile(ctx context.Context) error {
	form := url.Values{"Action": {"CreateInstanceProfile"}, "Version": {"2010-05-08"}, "InstanceProfileName": {sessionProfile}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.MotoURL(), strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+AccessKey+"/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}
