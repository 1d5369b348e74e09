package round

import (
	"context"
	"testing"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// TestCaseLookBackCoversPolicies checks that a condition over thirty hours is true after thirty
// hours of rest, and not before.
func TestCaseLookBackCoversPolicies(t *testing.T) {
	set, err := policy.Parse("p.yaml", []byte("apiVersion: curfew.policy/v1\npolicies:\n  - name: p\n    when: "+
		"duty.state == \"idle\" && duty.lasting >= duration(\"30h\")\n    then: [{warn: {grace: 1h}}, {do: stop}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := policy.ParseTests("cases.yaml", []byte(`apiVersion: curfew.policytest/v1
cases:
  - name: c
    resources:
      - {id: m, lifetime: ephemeral, created: -48h, hourly_usd: 1, gpus: 1, samples: [{for: 32h, gpu_util: 0, mem_used_bytes: 0, mem_total_bytes: 24e9}]}
    expect:
      - {at: 29h, propose: none}
      - {from: 30h, propose: [{policy: p, resource: m, verb: stop}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	tests.Tags, tests.Duty = inventory.DefaultTagMapping(), duty.DefaultThresholds()
	for _, r := range Test(context.Background(), Setting{Prices: setting(t, Observation{}).Prices}, set, tests) {
		if len(r.Failures) > 0 {
			t.Errorf("%s: %v", r.Name, r.Failures)
		}
	}
}
