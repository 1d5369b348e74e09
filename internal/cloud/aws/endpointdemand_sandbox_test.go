package aws_test

import (
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestEndpointDemand reads the demand for an endpoint from CloudWatch: while it was never measured, with
// requests, without, and while CloudWatch does not answer.
func TestEndpointDemand(t *testing.T) {
	a := actingCloud(t).Actions()
	m := &maker{TB: t}
	ref := m.make(cloudtest.Fleet)
	now := time.Now().UTC().Truncate(time.Minute).Add(5 * time.Second)
	api := cloudwatch.NewFromConfig(scratch.Config(elsewhere))
	put := func(namespace, name string, ago time.Duration, value float64) {
		t.Helper()
		_, err := api.PutMetricData(t.Context(), &cloudwatch.PutMetricDataInput{
			Namespace: &namespace, MetricData: []types.MetricDatum{{
				MetricName: &name, Value: &value, Timestamp: awssdk.Time(now.Truncate(time.Minute).Add(-ago)),
				Dimensions: []types.Dimension{
					{Name: awssdk.String("EndpointName"), Value: &ref.ID},
					{Name: awssdk.String("VariantName"), Value: awssdk.String("main")},
				},
			}},
		})
		m.must(err)
	}
	got, err := a.Demand(t.Context(), ref, now)
	if err != nil || got.Sample.Problem == "" || got.Sample.Rate.Known() || got.Ready != 3 {
		t.Errorf("never measured: %+v, %v", got, err)
	}
	for _, ago := range []time.Duration{time.Minute, 2 * time.Minute} {
		put("/aws/sagemaker/Endpoints", "CPUUtilization", ago, 3)
	}
	if got, err = a.Demand(t.Context(), ref, now); err != nil || got.Sample.Problem != "" ||
		got.Sample.Rate.Or(-1) != 0 || got.Sample.InFlight.Or(-1) != 0 ||
		!got.Sample.At.Equal(now.Truncate(time.Minute)) {
		t.Errorf("two minutes without a request: %+v, %v", got, err)
	}
	put("AWS/SageMaker", "Invocations", time.Minute, 300)
	put("AWS/SageMaker", "ModelLatency", time.Minute, 2e6)
	if got, err = a.Demand(t.Context(), ref, now); err != nil || got.Sample.Rate.Or(-1) != 5 ||
		got.Sample.InFlight.Or(-1) != 10 {
		t.Errorf("5 requests a second of 2 s: %+v, %v", got, err)
	}
	remove := scratch.Wire.Inject(wire.Fault{Operation: "GetMetricData", Kind: wire.AccessDenied})
	_, err = a.Demand(t.Context(), ref, now)
	remove()
	if err == nil {
		t.Error("demand is known without CloudWatch")
	}
	if _, err := a.Demand(t.Context(), inventory.Ref{
		Cloud: ref.Cloud, Account: ref.Account, Region: ref.Region, Kind: ref.Kind, ID: "none",
	}, now); err == nil {
		t.Error("demand of an endpoint that is not there")
	}
}
