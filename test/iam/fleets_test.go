package iam_test

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/test/iam"
)

// TestSizesPersistentFleetsByConsentAlone checks that the acting role only sets the size of a
// persistent fleet that its owner has tagged for it, and that this tag permits no termination.
func TestSizesPersistentFleetsByConsentAlone(t *testing.T) {
	policy := parse(t, string(aws.ActionPolicyJSON(aws.Grants{Partition: "aws"})))
	for _, c := range []struct {
		action string
		tags   map[string]string
		want   bool
	}{
		{"autoscaling:SetDesiredCapacity", map[string]string{"curfew:lifetime": "persistent"}, false},
		{
			"autoscaling:SetDesiredCapacity",
			map[string]string{"curfew:lifetime": "persistent", "curfew:managed": "true"}, false,
		},
		{
			"autoscaling:SetDesiredCapacity",
			map[string]string{"curfew:lifetime": "persistent", "curfew:scale": "true"}, true,
		},
		{"autoscaling:TerminateInstanceInAutoScalingGroup", map[string]string{"curfew:scale": "true"}, true},
		{"sagemaker:UpdateEndpointWeightsAndCapacities", map[string]string{"curfew:scale": "false"}, false},
		{"autoscaling:UpdateAutoScalingGroup", map[string]string{"curfew:scale": "true"}, false},
		{"ec2:TerminateInstances", map[string]string{"curfew:scale": "true"}, false},
		{
			"sagemaker:DeleteEndpoint",
			map[string]string{"curfew:lifetime": "persistent", "curfew:scale": "true", "curfew:managed": "true"},
			false,
		},
		{"autoscaling:SetDesiredCapacity", map[string]string{"curfew:managed": "true"}, true},
	} {
		got, err := policy.Allows(iam.Request{Action: c.action, Tags: c.tags})
		if err != nil || got != c.want {
			t.Errorf("%s on %v: %t, %v; want %t", c.action, c.tags, got, err, c.want)
		}
	}
}
