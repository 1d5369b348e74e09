package aws

import (
	"context"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// LaunchCalls are the calls that start and end sessions. The clients of a [Launcher] make only
// these; other clients make none that is only here.
var LaunchCalls = []Mutation{
	{Service: "ec2", Name: "DescribeAddresses", Actions: []string{"DescribeAddresses"}},
	{Service: "ec2", Name: "DescribeImages", Actions: []string{"DescribeImages"}},
	{Service: "ec2", Name: "DescribeInstances", Actions: []string{"DescribeInstances"}},
	{Service: "ec2", Name: "DescribeInstanceTypeOfferings", Actions: []string{"DescribeInstanceTypeOfferings"}},
	{Service: "ec2", Name: "DescribeNetworkInterfaces", Actions: []string{"DescribeNetworkInterfaces"}},
	{Service: "ec2", Name: "DescribeSpotInstanceRequests", Actions: []string{"DescribeSpotInstanceRequests"}},
	{Service: "ec2", Name: "DescribeVolumes", Actions: []string{"DescribeVolumes"}},
	{Service: "ssm", Name: "GetParameter", Actions: []string{"GetParameter"}},
	{Service: "ssm", Name: "GetParametersByPath", Actions: []string{"GetParametersByPath"}},
	{Service: "sts", Name: "GetCallerIdentity"},
	{Service: "iam", Name: "GetInstanceProfile", Actions: []string{"GetInstanceProfile"}},
	{Service: "iam", Name: "GetRole", Actions: []string{"GetRole"}},
	{Service: "iam", Name: "ListAttachedRolePolicies", Actions: []string{"ListAttachedRolePolicies"}},
	{Service: "iam", Name: "ListInstanceProfiles", Actions: []string{"ListInstanceProfiles"}},
	{Service: "iam", Name: "ListRoles", Actions: []string{"ListRoles"}},

	{Service: "iam", Name: "AddRoleToInstanceProfile", Actions: []string{"AddRoleToInstanceProfile", "PassRole"}},
	{Service: "iam", Name: "AttachRolePolicy", Actions: []string{"AttachRolePolicy"}},
	{Service: "iam", Name: "CreateInstanceProfile", Actions: []string{"CreateInstanceProfile", "TagInstanceProfile"}},
	{Service: "iam", Name: "CreateRole", Actions: []string{"CreateRole", "TagRole"}},
	{
		Service: "iam", Name: "DeleteInstanceProfile", Actions: []string{"DeleteInstanceProfile"}, Harm: Destroys,
		Tagged: true,
	},
	{Service: "iam", Name: "DeleteRole", Actions: []string{"DeleteRole"}, Harm: Destroys, Tagged: true},
	{Service: "iam", Name: "DetachRolePolicy", Actions: []string{"DetachRolePolicy"}, Harm: Destroys, Tagged: true},
	{
		Service: "iam", Name: "RemoveRoleFromInstanceProfile", Actions: []string{"RemoveRoleFromInstanceProfile"},
		Harm: Destroys, Tagged: true,
	},

	{Service: "ec2", Name: "RunInstances", Actions: []string{"RunInstances", "CreateTags"}},
	{
		Service: "ec2", Name: "TerminateInstances", Actions: []string{"TerminateInstances"}, Harm: Destroys,
		Tagged: true,
	},
	{Service: "ec2", Name: "DeleteVolume", Actions: []string{"DeleteVolume"}, Harm: Destroys, Tagged: true},
	{
		Service: "ec2", Name: "DeleteNetworkInterface", Actions: []string{"DeleteNetworkInterface"}, Harm: Destroys,
		Tagged: true,
	},
	{Service: "ec2", Name: "ReleaseAddress", Actions: []string{"ReleaseAddress"}, Harm: Destroys, Tagged: true},
	{
		Service: "ec2", Name: "CancelSpotInstanceRequests", Actions: []string{"CancelSpotInstanceRequests"},
		Harm: Destroys, Tagged: true,
	},
}

// launchable indexes LaunchCalls by "service:Name".
var launchable = sync.OnceValue(func() map[string]bool {
	m := make(map[string]bool, len(LaunchCalls))
	for _, x := range LaunchCalls {
		m[x.API()] = true
	}
	return m
})

// guardLaunches returns the middleware of a launcher's calls.
func guardLaunches(service string, limit limit) func(*middleware.Stack) error {
	return guarded(service, limit, "CurfewLaunches", func(ctx context.Context, _ any) (func(time.Time), error) {
		if api := service + ":" + awsmiddleware.GetOperationName(ctx); !launchable()[api] {
			return nil, &RefusedError{API: api, Acting: true}
		}
		return nil, nil
	})
}

// decided is the SDK's retryer without retries for lack of capacity: the caller chooses another
// pool.
type decided struct{ awssdk.Retryer }

// IsErrorRetryable reports whether an error does not concern the pool's capacity and may be
// transient.
func (d decided) IsErrorRetryable(err error) bool {
	return launchClasses[code(err)] == nil && d.Retryer.IsErrorRetryable(err)
}
