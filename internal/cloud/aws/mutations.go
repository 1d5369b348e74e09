package aws

import (
	"context"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// Mutation is one call that changes an account. Acting clients make only the calls in mutations,
// reading clients none of them.
type Mutation struct {
	// Service is the prefix of the service's IAM actions, Name the API operation:
	// "ec2", "StopInstances".
	Service, Name string
	// Actions are the IAM actions that allow it, without the prefix.
	Actions []string
	// Harm is the worst effect on a resource.
	Harm Harm
	// Tagged is true if IAM can use the resource's tags for the call (aws:ResourceTag; Service
	// Authorization Reference), and for tagging calls the keys (aws:TagKeys). For buckets that
	// requires attribute-based access control, with which PutBucketTagging is refused (Amazon S3
	// User Guide, "Enabling ABAC in general purpose buckets"), so the tags of buckets count as
	// unusable.
	Tagged bool
}

// Harm is the severity of a call's effect on a resource, ascending. Its zero value is unknown, and
// no policy allows such a call.
type Harm int

// The harms.
const (
	// Saves makes a snapshot.
	Saves Harm = iota + 1
	// Describes writes or removes tags.
	Describes
	// Restores undoes an action: it starts stopped resources, and removes what an action added.
	Restores
	// Halts ends running work.
	Halts
	// Destroys deletes a resource or data, or makes a service do so by age.
	Destroys
)

// mutations are all mutating calls.
var mutations = []Mutation{
	{Service: "ec2", Name: "StopInstances", Actions: []string{"StopInstances"}, Harm: Halts, Tagged: true},
	{Service: "ec2", Name: "StartInstances", Actions: []string{"StartInstances"}, Harm: Restores, Tagged: true},
	{
		Service: "ec2", Name: "TerminateInstances", Actions: []string{"TerminateInstances"}, Harm: Destroys,
		Tagged: true,
	},
	{Service: "ec2", Name: "CreateSnapshot", Actions: []string{"CreateSnapshot"}, Harm: Saves},
	{Service: "ec2", Name: "CreateSnapshots", Actions: []string{"CreateSnapshots"}, Harm: Saves},
	{Service: "ec2", Name: "DeleteVolume", Actions: []string{"DeleteVolume"}, Harm: Destroys, Tagged: true},
	{Service: "ec2", Name: "ReleaseAddress", Actions: []string{"ReleaseAddress"}, Harm: Destroys, Tagged: true},
	{Service: "ec2", Name: "CreateTags", Actions: []string{"CreateTags"}, Harm: Describes, Tagged: true},
	{Service: "ec2", Name: "DeleteTags", Actions: []string{"DeleteTags"}, Harm: Describes, Tagged: true},

	{
		Service: "logs", Name: "PutRetentionPolicy", Actions: []string{"PutRetentionPolicy"}, Harm: Destroys,
		Tagged: true,
	},
	{
		Service: "logs", Name: "DeleteRetentionPolicy", Actions: []string{"DeleteRetentionPolicy"}, Harm: Restores,
		Tagged: true,
	},
	{Service: "logs", Name: "TagResource", Actions: []string{"TagResource"}, Harm: Describes, Tagged: true},
	{Service: "logs", Name: "UntagResource", Actions: []string{"UntagResource"}, Harm: Describes, Tagged: true},

	{
		Service: "s3", Name: "PutBucketLifecycleConfiguration", Actions: []string{"PutLifecycleConfiguration"},
		Harm: Destroys,
	},
	{Service: "s3", Name: "DeleteBucketLifecycle", Actions: []string{"PutLifecycleConfiguration"}, Harm: Restores},
	{Service: "s3", Name: "PutBucketTagging", Actions: []string{"PutBucketTagging"}, Harm: Describes},
	{Service: "s3", Name: "DeleteBucketTagging", Actions: []string{"PutBucketTagging"}, Harm: Describes},

	{
		Service: "ecr", Name: "PutLifecyclePolicy", Actions: []string{"PutLifecyclePolicy"}, Harm: Destroys,
		Tagged: true,
	},
	{
		Service: "ecr", Name: "DeleteLifecyclePolicy", Actions: []string{"DeleteLifecyclePolicy"}, Harm: Restores,
		Tagged: true,
	},
	{Service: "ecr", Name: "TagResource", Actions: []string{"TagResource"}, Harm: Describes, Tagged: true},
	{Service: "ecr", Name: "UntagResource", Actions: []string{"UntagResource"}, Harm: Describes, Tagged: true},

	{
		Service: "sagemaker", Name: "StopNotebookInstance", Actions: []string{"StopNotebookInstance"}, Harm: Halts,
		Tagged: true,
	},
	{
		Service: "sagemaker", Name: "StartNotebookInstance", Actions: []string{
			"StartNotebookInstance",
		}, Harm: Restores,
		Tagged: true,
	},
	{
		Service: "sagemaker", Name: "DeleteNotebookInstance", Actions: []string{
			"DeleteNotebookInstance",
		}, Harm: Destroys,
		Tagged: true,
	},
	{Service: "sagemaker", Name: "DeleteEndpoint", Actions: []string{"DeleteEndpoint"}, Harm: Destroys, Tagged: true},
	{
		Service: "sagemaker", Name: "StopTrainingJob", Actions: []string{"StopTrainingJob"}, Harm: Destroys,
		Tagged: true,
	},
	{Service: "sagemaker", Name: "AddTags", Actions: []string{"AddTags"}, Harm: Describes, Tagged: true},
	{Service: "sagemaker", Name: "DeleteTags", Actions: []string{"DeleteTags"}, Harm: Describes, Tagged: true},

	{
		Service: "sagemaker", Name: "UpdateEndpointWeightsAndCapacities",
		Actions: []string{"UpdateEndpointWeightsAndCapacities"}, Harm: Halts, Tagged: true,
	},

	{
		Service: "autoscaling", Name: "UpdateAutoScalingGroup", Actions: []string{
			"UpdateAutoScalingGroup",
		}, Harm: Halts,
		Tagged: true,
	},
	{
		Service: "autoscaling", Name: "SetDesiredCapacity", Actions: []string{"SetDesiredCapacity"}, Harm: Halts,
		Tagged: true,
	},
	{
		Service: "autoscaling", Name: "TerminateInstanceInAutoScalingGroup",
		Actions: []string{"TerminateInstanceInAutoScalingGroup"}, Harm: Destroys, Tagged: true,
	},
	{
		Service: "autoscaling", Name: "CreateOrUpdateTags", Actions: []string{"CreateOrUpdateTags"}, Harm: Describes,
		Tagged: true,
	},
	{Service: "autoscaling", Name: "DeleteTags", Actions: []string{"DeleteTags"}, Harm: Describes, Tagged: true},
	{Service: "elasticloadbalancing", Name: "AddTags", Actions: []string{"AddTags"}, Harm: Describes, Tagged: true},
	{
		Service: "elasticloadbalancing", Name: "RemoveTags", Actions: []string{"RemoveTags"}, Harm: Describes,
		Tagged: true,
	},
	{
		Service: "elasticfilesystem", Name: "TagResource", Actions: []string{"TagResource"}, Harm: Describes,
		Tagged: true,
	},
	{
		Service: "elasticfilesystem", Name: "UntagResource", Actions: []string{"UntagResource"}, Harm: Describes,
		Tagged: true,
	},
	{Service: "fsx", Name: "TagResource", Actions: []string{"TagResource"}, Harm: Describes, Tagged: true},
	{Service: "fsx", Name: "UntagResource", Actions: []string{"UntagResource"}, Harm: Describes, Tagged: true},
	{Service: "rds", Name: "AddTagsToResource", Actions: []string{"AddTagsToResource"}, Harm: Describes, Tagged: true},
	{
		Service: "rds", Name: "RemoveTagsFromResource", Actions: []string{"RemoveTagsFromResource"}, Harm: Describes,
		Tagged: true,
	},
	{Service: "es", Name: "AddTags", Actions: []string{"AddTags"}, Harm: Describes, Tagged: true},
	{Service: "es", Name: "RemoveTags", Actions: []string{"RemoveTags"}, Harm: Describes, Tagged: true},
	{Service: "secretsmanager", Name: "TagResource", Actions: []string{"TagResource"}, Harm: Describes, Tagged: true},
	{
		Service: "secretsmanager", Name: "UntagResource", Actions: []string{"UntagResource"}, Harm: Describes,
		Tagged: true,
	},
}

// API returns "ec2:StopInstances".
func (m Mutation) API() string { return m.Service + ":" + m.Name }

// mutable indexes mutations by "service:Name".
var mutable = sync.OnceValue(func() map[string]bool {
	m := make(map[string]bool, len(mutations))
	for _, x := range mutations {
		m[x.API()] = true
	}
	return m
})

// acting returns clients that can change the place.
func (p *place) acting() *clients {
	return &clients{config: func(service string) awssdk.Config {
		return p.configured(guardActions(service, p.scan.limits.of(p.account.id, p.region, service)))
	}}
}

// guardActions returns the middleware of acting clients: a call that is not in mutations is refused
// before it is sent, a rehearsed one is collected instead of sent, and each attempt waits for the
// rate limit.
func guardActions(service string, limit limit) func(*middleware.Stack) error {
	return guarded(service, limit, "CurfewActions", func(ctx context.Context, input any) (func(time.Time), error) {
		api := service + ":" + awsmiddleware.GetOperationName(ctx)
		if !mutable()[api] {
			return nil, &RefusedError{API: api, Acting: true}
		}
		if rehearsed(ctx, api, input) {
			return nil, errRehearsed
		}
		return nil, nil
	})
}
