package aws_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestReadsPlacementScores checks the scores of a type in a region, and that a refusal names the
// call.
func TestReadsPlacementScores(t *testing.T) {
	environOf(t, scratch)
	scratch.Wire.State.SetPlacementScores("g5.xlarge",
		wire.PlacementScore{Region: "us-east-1", ZoneID: "use1-az1", Score: 3},
		wire.PlacementScore{Region: "us-east-1", ZoneID: "use1-az2", Score: 8},
		wire.PlacementScore{Region: "us-west-2", ZoneID: "usw2-az1", Score: 9})
	c, err := aws.New(t.Context(), aws.Options{Regions: []string{"us-east-1"}, RequestsPerSecond: 10_000, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.PlacementScores(t.Context(), "g5.xlarge", 2, "us-east-1")
	want := []aws.PlacementScore{{"us-east-1", "use1-az1", 3}, {"us-east-1", "use1-az2", 8}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := c.PlacementScores(t.Context(), "p5.48xlarge", 1, "us-east-1"); len(got) > 0 || err != nil {
		t.Errorf("a type without scores: %v, %v", got, err)
	}
	defer scratch.Wire.Inject(wire.Fault{
		Service: "ec2", Operation: "GetSpotPlacementScores", Kind: wire.AccessDenied,
	})()
	if _, err := c.PlacementScores(t.Context(), "g5.xlarge", 1, "us-east-1"); err == nil ||
		!strings.Contains(err.Error(), "spot placement scores of g5.xlarge") {
		t.Errorf("a refusal: %v", err)
	}
}
