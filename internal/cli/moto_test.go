package cli

import (
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// TestScanAgainstOtherAWSImplementation audits plain moto, without the proxy of the other tests:
// its answers are read and priced, and missing calls are named.
func TestScanAgainstOtherAWSImplementation(t *testing.T) {
	s, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, e := range s.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	t.Setenv("AWS_ENDPOINT_URL", s.MotoURL())
	cfg := s.Config("us-east-1")
	cfg.BaseEndpoint = awssdk.String(s.MotoURL())
	client := ec2.NewFromConfig(cfg)
	run, err := client.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: awssdk.String("ami-03cf127a"), InstanceType: "g6.xlarge", MinCount: awssdk.Int32(1),
		MaxCount: awssdk.Int32(1),
	})
	if err != nil {
		t.Fatal(err)
	}

	// Under load a new moto was seen to answer its first call of S3 with something else.
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := buckets.ListBuckets(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	doc := scanJSON(t, ExitPartial, "--regions=us-east-1")
	id := *run.Instances[0].InstanceId
	if slices.ContainsFunc(doc.Unpriced, func(u view.Unpriced) bool { return slices.Contains(u.Resources, id) }) {
		t.Errorf("without a price: %+v", doc.Unpriced)
	}
	if !slices.ContainsFunc(doc.Assumptions, func(a string) bool { return strings.Contains(a, "Linux is assumed") }) {
		t.Errorf("assumes %q", doc.Assumptions)
	}
	for _, what := range []string{
		"DescribeCapacityReservations", "DescribeLockedSnapshots", "DescribeReservedInstances", "DescribeSavingsPlans",
		"ListApps",
	} {
		if !slices.ContainsFunc(doc.BlindSpots, func(b inventory.BlindSpot) bool {
			return strings.Contains(b.Why, what)
		}) {
			t.Errorf("%s is not named as not read: %+v", what, doc.BlindSpots)
		}
	}
	if n := len(doc.BlindSpots); n != 5 {
		t.Errorf("%d blind spots, which docs/aws-sandbox.md lists: %+v", n, doc.BlindSpots)
	}
}
