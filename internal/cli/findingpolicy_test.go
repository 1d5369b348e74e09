package cli

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestAuditPrintsPoliciesThatParse reads the policy of each finding about a fleet as a file has it, and
// holds that one of them comes with its saving.
func TestAuditPrintsPoliciesThatParse(t *testing.T) {
	d := newDesktop(t)
	var scan view.Scan
	d.document(&scan, "scan", "--demo")
	rules, saving := map[string]bool{}, 0
	for _, f := range scan.Findings {
		p := f.Fix.Policy
		if p == nil {
			continue
		}
		rules[f.Rule] = true
		set, err := policy.Parse("p.yaml", []byte("apiVersion: curfew.policy/v1\npolicies:\n  - "+p.Policy+"\n"))
		switch {
		case err != nil:
			t.Errorf("%s: %v", p.Policy, err)
		case len(set.Policies) != 1 || !set.Policies[0].IsFleet():
			t.Errorf("%s names no fleet", p.Policy)
		case p.MeanReplicas == nil && p.Reason == "":
			t.Errorf("%s has neither a replay nor a reason", p.Policy)
		}
		if p.MonthlySavingsUSD.Or(0) > 0 {
			saving++
		}
	}
	if !rules["autoscaling-sticky"] || !rules["inference-overprovisioned"] || saving == 0 {
		t.Errorf("policies of the rules %v, %d with a saving", rules, saving)
	}
}
