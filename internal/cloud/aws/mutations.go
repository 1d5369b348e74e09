package aws

import (
	"context"
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
	// Harm is what it can do to a resource.
	Harm Harm
	// Tagged says that IAM knows the tags of the resource when it decides on the call
	// (aws:ResourceTag; Service Authorization Reference). For the lifecycle of
	// a bucket it does not.
	Tagged bool
}

// Harm is how much a call can do to a resource, from the least to the most.
type Harm int

// The harms.
const (
	// Harmless calls make something, or describe it.
	Harmless Harm = iota
	// Halts ends work that runs.
	Halts
	// Destroys takes a resource or data away, or makes a service do so by age.
	Destroys
)

// mutations is every call that changes something.
var mutations = []Mutation{
	{Service: "ec2", Name: "StopInstances", Actions: []string{"StopInstances"}, Harm: Halts, Tagged: true},
	{Service: "ec2", Name: "StartInstances", Actions: []string{"StartInstances"}, Tagged: true},
	{Service: "ec2", Name: "TerminateInstances", Actions: []string{"TerminateInstances"}, Harm: Destroys, Tagged: true},
	{Service: "ec2", Name: "CreateSnapshot", Actions: []string{"CreateSnapshot"}},
	{Service: "ec2", Name: "CreateSnapshots", Actions: []string{"CreateSnapshots"}},
	{Service: "ec2", Name: "DeleteVolume", Actions: []string{"DeleteVolume"}, Harm: Destroys, Tagged: true},
	{Service: "ec2", Name: "ReleaseAddress", Actions: []string{"ReleaseAddress"}, Harm: Destroys, Tagged: true},
	{Service: "ec2", Name: "CreateTags", Actions: []string{"CreateTags"}, Tagged: true},
	{Service: "ec2", Name: "DeleteTags", Actions: []string{"DeleteTags"}, Tagged: true},

	{Service: "logs", Name: "PutRetentionPolicy", Actions: []string{"PutRetentionPolicy"}, Harm: Destroys, Tagged: true},
	{Service: "logs", Name: "DeleteRetentionPolicy", Actions: []string{"DeleteRetentionPolicy"}, Tagged: true},
	{Service: "logs", Name: "TagResource", Actions: []string{"TagResource"}, Tagged: true},
	{Service: "logs", Name: "UntagResource", Actions: []string{"UntagResource"}, Tagged: true},

	{Service: "s3", Name: "PutBucketLifecycleConfiguration", Actions: []string{"PutLifecycleConfiguration"}, Harm: Destroys},
	{Service: "s3", Name: "DeleteBucketLifecycle", Actions: []string{"PutLifecycleConfiguration"}},
	{Service: "s3", Name: "PutBucketTagging", Actions: []string{"PutBucketTagging"}},
	{Service: "s3", Name: "DeleteBucketTagging", Actions: []string{"PutBucketTagging"}},

	{Service: "ecr", Name: "PutLifecyclePolicy", Actions: []string{"PutLifecyclePolicy"}, Harm: Destroys, Tagged: true},
	{Service: "ecr", Name: "DeleteLifecyclePolicy", Actions: []string{"DeleteLifecyclePolicy"}, Tagged: true},
	{Service: "ecr", Name: "TagResource", Actions: []string{"TagResource"}, Tagged: true},
	{Service: "ecr", Name: "UntagResource", Actions: []string{"UntagResource"}, Tagged: true},

	{Service: "sagemaker", Name: "StopNotebookInstance", Actions: []string{"StopNotebookInstance"}, Harm: Halts, Tagged: true},
	{Service: "sagemaker", Name: "StartNotebookInstance", Actions: []string{"StartNotebookInstance"}, Tagged: true},
	{Service: "sagemaker", Name: "DeleteNotebookInstance", Actions: []string{"DeleteNotebookInstance"}, Harm: Destroys, Tagged: true},
	{Service: "sagemaker", Name: "DeleteEndpoint", Actions: []string{"DeleteEndpoint"}, Harm: Destroys, Tagged: true},
	{Service: "sagemaker", Name: "StopTrainingJob", Actions: []string{"StopTrainingJob"}, Harm: Destroys, Tagged: true},
	{Service: "sagemaker", Name: "AddTags", Actions: []string{"AddTags"}, Tagged: true},
	{Service: "sagemaker", Name: "DeleteTags", Actions: []string{"DeleteTags"}, Tagged: true},

	{Service: "sagemaker", Name: "UpdateEndpointWeightsAndCapacities", Actions: []string{"UpdateEndpointWeightsAndCapacities"}, Harm: Halts, Tagged: true},

	{Service: "autoscaling", Name: "UpdateAutoScalingGroup", Actions: []string{"UpdateAutoScalingGroup"}, Harm: Halts, Tagged: true},
	{Service: "autoscaling", Name: "TerminateInstanceInAutoScalingGroup", Actions: []string{"TerminateInstanceInAutoScalingGroup"}, Harm: Destroys, Tagged: true},
	{Service: "autoscaling", Name: "CreateOrUpdateTags", Actions: []string{"CreateOrUpdateTags"}, Tagged: true},
	{Service: "autoscaling", Name: "DeleteTags", Actions: []string{"DeleteTags"}, Tagged: true},
	{Service: "elasticloadbalancing", Name: "AddTags", Actions: []string{"AddTags"}, Tagged: true},
	{Service: "elasticloadbalancing", Name: "RemoveTags", Actions: []string{"RemoveTags"}, Tagged: true},
	{Service: "elasticfilesystem", Name: "TagResource", Actions: []string{"TagResource"}, Tagged: true},
	{Service: "elasticfilesystem", Name: "UntagResource", Actions: []string{"UntagResource"}, Tagged: true},
	{Service: "fsx", Name: "TagResource", Actions: []string{"TagResource"}, Tagged: true},
	{Service: "fsx", Name: "UntagResource", Actions: []string{"UntagResource"}, Tagged: true},
	{Service: "rds", Name: "AddTagsToResource", Actions: []string{"AddTagsToResource"}, Tagged: true},
	{Service: "rds", Name: "RemoveTagsFromResource", Actions: []string{"RemoveTagsFromResource"}, Tagged: true},
	{Service: "es", Name: "AddTags", Actions: []string{"AddTags"}, Tagged: true},
	{Service: "es", Name: "RemoveTags", Actions: []string{"RemoveTags"}, Tagged: true},
	{Service: "secretsmanager", Name: "TagResource", Actions: []string{"TagResource"}, Tagged: true},
	{Service: "secretsmanager", Name: "UntagResource", Actions: []string{"UntagResource"}, Tagged: true},
}

// API returns "ec2:StopInstances".
func (m Mutation) API() string { return m.Service + ":" + m.Name }

// mutable finds mutations by "service:Name".
var mutable = func() map[string]bool {
	m := make(map[string]bool, len(mutations))
	for _, x := range mutations {
		m[x.API()] = true
	}
	return m
}()

// acting returns the clients that change what p reads.
func (p *place) acting() *clients {
	return &clients{config: func(service string) awssdk.Config {
		return p.configured(guardActions(service, p.scan.limits.of(p.account.id, p.region, service)))
	}}
}

// guardActions is what the calls of clients that act pass through: one that is not in
// mutations is refused before anything is sent, one that is only rehearsed is collected
// and not sent, and each attempt waits for its turn.
func guardActions(service string, limit limit) func(*middleware.Stack) error {
	return guarded(service, limit, "CurfewActions", func(ctx context.Context, input any) (func(time.Time), error) {
		api := service + ":" + awsmiddleware.GetOperationName(ctx)
		if !mutable[api] {
			return nil, &RefusedError{API: api, Acting: true}
		}
		if rehearsed(ctx, api, input) {
			return nil, errRehearsed
		}
		return nil, nil
	})
}
