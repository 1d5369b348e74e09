package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/applicationautoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/applicationautoscaling/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
)

// endpointFleet reads an endpoint with one variant. SageMaker chooses the machines to end and
// drains them. Only endpoints of inference components could scale to zero.
func (s *site) endpointFleet(ctx context.Context, ref inventory.Ref) (action.Fleet, error) {
	e, err := s.endpointNow(ctx, ref.ID)
	if err != nil {
		return action.Fleet{}, fmt.Errorf("read fleet %s: %w", ref.ID, err)
	}
	_, now, wanted, err := s.replicasNow(ctx, ref.ID)
	if err != nil {
		return action.Fleet{}, err
	}
	r := s.resource(inventory.KindEndpoint, ref.ID)
	d := s.endpoint(ctx, e)
	r.Cloud, r.Name, r.CreatedAt, r.State, r.Detail = cloudName, r.ID, utc(e.CreationTime),
		endpointStates[e.EndpointStatus], d
	for _, v := range d.Variants {
		if v.Name == now.Variant {
			r.Type = v.Type
		}
	}
	r.Tags = s.sageMakerTags(ctx, e.EndpointArn, r.ID)
	if err := s.scan.cloud.options.Tags.Apply(r); err != nil {
		return action.Fleet{}, fmt.Errorf("read fleet %s: %w", ref.ID, err)
	}
	return action.Fleet{Resource: r, Desired: int(wanted), Min: 1, Max: fleet.MaxReplicas, Drains: true}, nil
}

// planEndpointFleet returns the call that resizes an endpoint to its demand.
func (s *site) planEndpointFleet(ctx context.Context, name string, now replicas, wanted int32,
	do policy.Do) ([]action.Step, error) {
	switch {
	case do.To < 1:
		return nil, refusal("at-minimum", "endpoint %s has to keep one machine", name)
	case do.To > fleet.MaxReplicas:
		return nil, refusal("at-maximum", "endpoint %s may have %d machines", name, fleet.MaxReplicas)
	case do.To == int(wanted):
		return nil, refusal("nothing-to-do", "endpoint %s wants %d machines already", name, wanted)
	}
	if err := s.soleEndpointWriter(ctx, name); err != nil {
		return nil, err
	}
	want := replicas{Variant: now.Variant, Count: int32(do.To)}
	return []action.Step{{Name: stepScale, Params: encoded(want), Undo: encoded(now)}}, nil
}

// soleEndpointWriter refuses an endpoint scaled by Application Auto Scaling.
func (s *site) soleEndpointWriter(ctx context.Context, name string) error {
	variants := "endpoint/" + name + "/variant/"
	page := func(token *string) ([]scalingtypes.ScalableTarget, *string, error) {
		out, err := appscalingClient(s.reading).DescribeScalableTargets(ctx,
			&applicationautoscaling.DescribeScalableTargetsInput{
				ServiceNamespace: scalingtypes.ServiceNamespaceSagemaker, NextToken: token,
			})
		if err != nil {
			return nil, nil, err
		}
		return out.ScalableTargets, out.NextToken, nil
	}
	target, err := listed(ctx, "scalable target "+name, page, func(t scalingtypes.ScalableTarget) bool {
		return strings.HasPrefix(awssdk.ToString(t.ResourceId), variants)
	})
	switch {
	case errors.Is(err, inventory.ErrNotFound):
		return nil
	case err != nil:
		return unanswered(ctx, "what else sets the size of endpoint "+name, err)
	}
	return refusal("other-writer", "scalable target %s of Application Auto Scaling sets the size of endpoint %s as well: "+
		"deregister it, so that one does", awssdk.ToString(target.ResourceId), name)
}
