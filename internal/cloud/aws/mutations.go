package aws

import (
	"context"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// Mutation is one call that changes an account. A client that acts makes the calls
// in mutations and no others, a client that reads none of them.
type Mutation struct {
	// Service is the prefix of the service's IAM actions, Name the API operation:
	// "ec2", "StopInstances".
	Service, Name string
	// Actions are the IAM actions that allow it, without the prefix.
	Actions []string
	// Harm is the worst effect on a resource.
	Harm Harm
	// Tagged is true if IAM knows the tags of the resource when it decides on the call
	// (aws:ResourceTag; Service Authorization Reference), and for one that writes tags their keys
	// (aws:TagKeys). Of a bucket it knows them only where attribute-based access control is on,
	// and then PutBucketTagging is refused (Amazon S3 User Guide, "Enabling ABAC in general
	// purpose buckets"), so that the tags of buckets count as unknown here.
	Tagged bool
}

// Harm is how much a call can do to a resource, from the least to the most. Its zero value is
// unknown, and no policy allows such a call.
type Harm int

// The harms.
const (
	// Saves makes a snapshot.
	Saves Harm = iota + 1
	// Describes writes or removes tags.
	Describes
	// Restores takes an action back: it starts what was stopped, and removes what an action put.
	Restores
	// Halts ends work that runs.
	Halts
	// Destroys takes a resource or data away, or makes a service do so by age.
	Destroys
)

// mutations is every call that changes something.
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

// mutable finds mutations by "service:Name".
var mutable = sync.OnceValue(func() map[string]bool {
	m := make(map[string]bool, len(mutations))
	for _, x := range mutations {
		m[x.API()] = true
	}
	return m
})

// acting returns the clients that change what p reads.
func (p *place) acting() *clients {
	return &clients{config: func(service string) awssdk.Config {
		return p.configured(guardActions(service, p.scan.limits.of(p.account.id, p.region, service)))
	}}
}

// guardActions is the middleware of clients that act: a call that is not in mutations is refused
// before anything is sent, a rehearsed one is collected and not sent, and each attempt waits for
// its turn.
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
