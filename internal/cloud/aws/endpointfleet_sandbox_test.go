package aws_test

import (
	"errors"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/applicationautoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/applicationautoscaling/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/test/wire"
)

// resizesEndpoint returns the action that gives an endpoint a size.
func resizesEndpoint(ref inventory.Ref, to int) policy.Do {
	return policy.Do{Verb: policy.Scale, Fleet: "endpoint/" + ref.ID, Min: 1, Max: 9, To: to}
}

func TestEndpointFleetGrowsAndShrinks(t *testing.T) {
	a := actingCloud(t).Actions()
	m := &maker{TB: t}
	ref := m.make(cloudtest.Fleet)
	f := mustFleet(t, a, ref)
	if f.Desired != 3 || f.Min != 1 || !f.Drains || len(f.Replicas) != 0 || f.Resource.Type == "" ||
		f.Resource.Tags == nil {
		t.Fatalf("got %+v of %+v", f, f.Resource)
	}
	for _, to := range []int{5, 2} {
		task, err := planned(t, a, mustFleet(t, a, ref), resizesEndpoint(ref, to))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second call is one whose answer was lost
			if _, err := a.Do(t.Context(), task); err != nil {
				t.Fatal(err)
			}
		}
		if p, _, err := a.Look(t.Context(), task); err != nil || p != action.Complete {
			t.Fatalf("got %s, %v", p, err)
		}
		if f := mustFleet(t, a, ref); f.Desired != to {
			t.Errorf("the size is %d, want %d", f.Desired, to)
		}
		var refused *action.Refusal
		if err := a.Undo(t.Context(), task); !errors.As(err, &refused) || refused.Rule != "irrevocable" {
			t.Errorf("taken back: %v", err)
		}
	}
}

func TestEndpointFleetRefusals(t *testing.T) {
	a := actingCloud(t).Actions()
	m := &maker{TB: t}
	ref := m.make(cloudtest.Fleet)
	f := mustFleet(t, a, ref)
	var refused *action.Refusal
	for to, rule := range map[int]string{0: "at-minimum", 3: "nothing-to-do", 10_001: "at-maximum"} {
		if _, err := planned(t, a, f, resizesEndpoint(ref, to)); !errors.As(err, &refused) || refused.Rule != rule {
			t.Errorf("to %d: %v, want a refusal by %s", to, err, rule)
		}
	}
	remove := scratch.Wire.Inject(wire.Fault{Operation: "DescribeScalableTargets", Kind: wire.AccessDenied})
	_, err := planned(t, a, f, resizesEndpoint(ref, 4))
	remove()
	if err == nil {
		t.Error("planned without knowing what else sets its size")
	}
	task, err := planned(t, a, f, resizesEndpoint(ref, 4))
	if err != nil {
		t.Fatal(err)
	}
	api := applicationautoscaling.NewFromConfig(scratch.Config(elsewhere))
	_, err = api.RegisterScalableTarget(t.Context(), &applicationautoscaling.RegisterScalableTargetInput{
		ServiceNamespace:  scalingtypes.ServiceNamespaceSagemaker,
		ScalableDimension: scalingtypes.ScalableDimensionSageMakerVariantDesiredInstanceCount,
		ResourceId:        awssdk.String("endpoint/" + ref.ID + "/variant/main"),
		MinCapacity:       awssdk.Int32(1), MaxCapacity: awssdk.Int32(4),
	})
	m.must(err)
	_, err = planned(t, a, f, resizesEndpoint(ref, 4))
	if !errors.As(err, &refused) || refused.Rule != "other-writer" {
		t.Errorf("planned next to Application Auto Scaling: %v", err)
	}
	if _, err := a.Do(t.Context(), task); !errors.As(err, &refused) || refused.Rule != "other-writer" {
		t.Errorf("called next to Application Auto Scaling: %v", err)
	}
}
