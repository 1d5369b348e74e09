package report

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/round"
)

// TestNotCoveredServicesAreNamedWithTheirDollars: what is billed for services that are not
// read is summed up and named, the largest first.
func TestNotCoveredServicesAreNamedWithTheirDollars(t *testing.T) {
	b := billed(&round.Billed{Total: usd("150"), ByService: []round.ServiceCost{
		{Service: "Amazon Kinesis", Cost: usd("12"), NotCovered: true}, {Service: "Amazon Elastic Compute Cloud - Compute", Cost: usd("100")},
		{Service: "Amazon MSK", Cost: usd("35"), NotCovered: true}, {Service: "AWS Glue", NotCovered: true}, {Service: "Tax", Cost: usd("3"), NotCovered: true}}})
	if b.NotCoveredUSD.Cents() != "50.00" {
		t.Errorf("%s is not covered, want 50.00", b.NotCoveredUSD)
	}
	want := "$50 of it for services that curfew does not read: Amazon MSK $35, Amazon Kinesis $12, 1 other service"
	if got := b.notCovered(2); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := billed(&round.Billed{Total: usd("1"), ByService: []round.ServiceCost{{Service: "EC2 - Other", Cost: usd("1")}}}).notCovered(2); got != "" {
		t.Errorf("everything is covered, and it says %q", got)
	}
}
