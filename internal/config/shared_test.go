package config

import (
	"strings"
	"testing"
)

const sharedText = `approvers: {bo: [approver, admin], cy: [approver]}
people: {bo: {aws: ["arn:aws:iam::1:user/bo"]}}
gate: {ask_over: 50, expiry: 12h}
budgets: [{id: vision, team: vision, purpose: training, amount: 1000, per_hour: 100}]
quotas: [{id: a100, team: vision, gpus: {A100: 8}}]
`

// TestLocalValuesOnlyTightenShared checks each local key separately, with a weaker and a stricter
// value.
func TestLocalValuesOnlyTightenShared(t *testing.T) {
	shared, err := DecodeShared("shared.yaml", []byte(sharedText))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ local, weaker string }{
		"nothing":            {"", ""},
		"a higher threshold": {"gate: {ask_over: 500}", "gate.ask_over is $500.00 here and $50.00 there"},
		"a lower threshold":  {"gate: {ask_over: 10}", ""},
		"a longer expiry":    {"gate: {expiry: 48h}", "gate.expiry"},
		"a shorter expiry":   {"gate: {expiry: 1h}", ""},
		"another role":       {"gate: {roles: [friend]}", "gate.roles has friend"},
		"another approver":   {"approvers: {eve: [approver]}", "approvers gives eve the roles approver"},
		"more of a role":     {"approvers: {cy: [approver, admin]}", "approvers gives cy the roles admin"},
		"fewer approvers":    {"approvers: {cy: [approver]}", ""},
		"another identity": {
			"people: {bo: {aws: [\"arn:aws:iam::1:user/eve\"]}}", "people gives bo the identities",
		},
		"the same identity":        {"people: {bo: {aws: [\"arn:aws:iam::1:user/bo\"]}}", ""},
		"another login":            {"github: {identities: {eve: bo}}", "github.identities names eve"},
		"self-declared names":      {"approvals: {accept: [self-declared]}", "approvals.accept"},
		"an STS at another host":   {"approvals: {sts_endpoint: http://127.0.0.1:1}", "approvals.sts_endpoint"},
		"a GitHub at another host": {"approvals: {github_api: http://127.0.0.1:1}", "approvals.github_api"},
		"a larger budget": {
			"budgets: [{id: vision, team: vision, purpose: training, amount: 2000, per_hour: 100}]",
			"amount of budget vision is higher",
		},
		"no hourly limit": {
			"budgets: [{id: vision, team: vision, purpose: training, amount: 900}]",
			"per_hour of budget vision is higher",
		},
		"a later threshold": {
			"budgets: [{id: vision, team: vision, purpose: training, amount: 900, per_hour: 90, thresholds: {gate: 95%, " +
				"deny: 100%}}]",
			"thresholds.gate of budget vision is higher",
		},
		"a smaller budget": {
			"budgets: [{id: vision, team: vision, purpose: training, amount: 900, per_hour: 90}]", "",
		},
		"a budget of another team": {
			"budgets: [{id: vision, team: speech, purpose: training, amount: 900, per_hour: 90}]",
			"covers something else",
		},
		"a budget that covers more": {
			"budgets: [{id: other, team: speech, purpose: any, amount: 1}]", "budget other is not there",
		},
		"a further quota":            {"quotas: [{id: h100, team: vision, gpus: {H100: 0}}]", ""},
		"a quota of the same id":     {"quotas: [{id: a100, team: vision, gpus: {A100: 80}}]", ""},
		"something that is not here": {"aws: {regions: [us-east-1]}", ""},
	} {
		c := Default()
		if err := Decode("curfew.yaml", []byte(tc.local), &c); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := c.Under(shared)
		if tc.weaker != "" {
			if err == nil || !strings.Contains(err.Error(), tc.weaker) {
				t.Errorf("%s: %v, want %q", name, err, tc.weaker)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		limit, _ := got.Gate.Limit()
		if theirs, _ := shared.Gate.Limit(); limit > theirs || len(got.Budgets) != 1 ||
			got.Budgets[0].Amount > shared.Budgets[0].Amount || len(got.Approvers) == 0 ||
			len(got.Approvers) > len(shared.Approvers) || len(got.People) != 1 || len(got.Quotas) < 1 ||
			got.Quotas[0].GPUs["A100"] != 8 {
			t.Errorf("%s: %+v", name, got.shared())
		}
	}
	for name, text := range map[string]string{
		"another key": "policies: [x]", "look-alikes": "approvers: {bo: [admin], b0: [approver]}",
		"a wrong budget": "budgets: [{id: a}]",
		"nothing":        "", "a wrong amount": "gate: {ask_over: much}", "no expiry": "gate: {expiry: 0s}"} {
		if _, err := DecodeShared("s", []byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
