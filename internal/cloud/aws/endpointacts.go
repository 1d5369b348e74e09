package aws

import (
	"context"
	"errors"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// replicas is the number of machines of an endpoint with one variant.
type replicas struct {
	Variant string `json:"variant"`
	Count   int32  `json:"count"`
}

// replicasNow reads an endpoint and its machines. It refuses an endpoint with several variants,
// because the request names none, and one without machines.
func (s *site) replicasNow(ctx context.Context, name string) (out *sagemaker.DescribeEndpointOutput, now replicas,
	wanted int32, err error) {
	if _, err = s.endpointNow(ctx, name); err != nil {
		return nil, now, 0, err
	}
	if out, err = sagemakerClient(s.reading).DescribeEndpoint(ctx, &sagemaker.DescribeEndpointInput{
		EndpointName: &name,
	}); err != nil {
		return nil, now, 0, failed("read endpoint "+name, err)
	}
	if len(out.ProductionVariants) != 1 || len(out.ShadowProductionVariants) > 0 {
		return nil, now, 0, refusal("unknown",
			"endpoint %s has %d variants: which of them is meant is not known", name,
			len(out.ProductionVariants)+len(out.ShadowProductionVariants))
	}
	v := out.ProductionVariants[0]
	if v.CurrentInstanceCount == nil || v.CurrentServerlessConfig != nil {
		return nil, now, 0, refusal("no-such-verb", "endpoint %s has no machines of its own to scale", name)
	}
	now = replicas{Variant: awssdk.ToString(v.VariantName), Count: *v.CurrentInstanceCount}
	wanted = now.Count
	if v.DesiredInstanceCount != nil {
		wanted = *v.DesiredInstanceCount
	}
	return out, now, wanted, nil
}

// serves refuses an endpoint that is not in service, which SageMaker cannot change.
func serves(name string, status types.EndpointStatus) error {
	if err := settled(name, status); err != nil {
		return err
	}
	if status != types.EndpointStatusInService {
		return refusal("state", "endpoint %s is %s: only one in service is scaled", name, status)
	}
	return nil
}

// planEndpointScale reduces the machines of an endpoint to at least one.
func planEndpointScale(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	out, now, wanted, err := s.replicasNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(out.CreationTime)); err != nil {
		return nil, err
	}
	if err := serves(r.ID, out.EndpointStatus); err != nil {
		return nil, err
	}
	if do.IsFleet() {
		return s.planEndpointFleet(ctx, r.ID, now, wanted, do)
	}
	switch part := do.Change.Arguments.Part; {
	case part != "" && part != now.Variant:
		return nil, refusal("changed", "endpoint %s has variant %s in the place of %s", r.ID, now.Variant, part)
	case do.To < 1:
		return nil, refusal("at-minimum", "endpoint %s has to keep one machine; deleting it ends the last", r.ID)
	case do.To >= int(now.Count) || do.To >= int(wanted):
		return nil, refusal("nothing-to-do",
			"endpoint %s has %d machines already; this only makes endpoints smaller", r.ID,
			now.Count)
	}
	want := replicas{Variant: now.Variant, Count: int32(do.To)}
	return []action.Step{{Name: stepScale, Params: encoded(want), Undo: encoded(now)}}, nil
}

// replicating reads a task's endpoint and its target size.
func (s *site) replicating(ctx context.Context, t action.Task) (out *sagemaker.DescribeEndpointOutput, now, want,
	was replicas, wanted int32, err error) {
	if want, err = decoded[replicas](t, t.Step.Params); err != nil {
		return nil, now, want, was, 0, err
	}
	if was, err = decoded[replicas](t, t.Step.Undo); err != nil {
		return nil, now, want, was, 0, err
	}
	if out, now, wanted, err = s.replicasNow(ctx, t.Ref.ID); err != nil {
		return nil, now, want, was, 0, err
	}
	return out, now, want, was, wanted, identical(t, utc(out.CreationTime))
}

func scaleEndpoint(ctx context.Context, s *site, t action.Task) (string, error) {
	out, now, want, was, wanted, err := s.replicating(ctx, t)
	if err != nil || (now.Variant == want.Variant && wanted == want.Count) {
		return "", err
	}
	if err := serves(t.Ref.ID, out.EndpointStatus); err != nil {
		return "", err
	}
	if now != was {
		return "", refusal("changed",
			"endpoint %s has %d machines in variant %s: another size than when this was planned",
			t.Ref.ID, now.Count, now.Variant)
	}
	if t.Do.IsFleet() {
		if err := s.soleEndpointWriter(ctx, t.Ref.ID); err != nil {
			return "", err
		}
	}
	return "", s.replicate(ctx, t.Ref.ID, want)
}

func (s *site) replicate(ctx context.Context, name string, to replicas) error {
	_, err := sagemakerClient(s.acting).UpdateEndpointWeightsAndCapacities(ctx,
		&sagemaker.UpdateEndpointWeightsAndCapacitiesInput{EndpointName: &name,
			DesiredWeightsAndCapacities: []types.DesiredWeightAndCapacity{
				{VariantName: &to.Variant, DesiredInstanceCount: &to.Count},
			}})
	return failed("scale endpoint "+name, err)
}

func lookEndpointScale(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	var now, want replicas
	var wanted int32
	out, err := twice(ctx, func() (out *sagemaker.DescribeEndpointOutput, err error) {
		out, now, want, _, wanted, err = s.replicating(ctx, t)
		return out, err
	})
	switch {
	case errors.Is(err, inventory.ErrNotFound):
		return action.Impossible, "", nil
	case err != nil:
		return action.NotDone, "", err
	case wanted != want.Count || now.Variant != want.Variant:
		return action.NotDone, "", nil
	case out.EndpointStatus == types.EndpointStatusInService && now.Count == want.Count:
		return action.Complete, string(out.EndpointStatus), nil
	}
	return action.InProgress, string(out.EndpointStatus), nil
}

// restoreEndpoint restores the former number of machines.
func restoreEndpoint(ctx context.Context, s *site, t action.Task) error {
	out, now, want, was, _, err := s.replicating(ctx, t)
	switch {
	case err == nil && t.Do.IsFleet():
		return demandDecides(t.Ref.ID)
	case err != nil || now == was:
		return err
	}
	if err := serves(t.Ref.ID, out.EndpointStatus); err != nil {
		return err
	}
	if now != want {
		return refusal("changed", "endpoint %s was changed by another user or service: it has %d machines", t.Ref.ID,
			now.Count)
	}
	return s.replicate(ctx, t.Ref.ID, was)
}
