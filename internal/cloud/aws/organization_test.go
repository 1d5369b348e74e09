package aws

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/organizations/types"
)

func TestActiveAccount(t *testing.T) {
	for _, tc := range []struct {
		state  types.AccountState
		status types.AccountStatus
		want   bool
	}{
		{types.AccountStateActive, "", true}, {types.AccountStateActive, types.AccountStatusActive, true},
		{"", types.AccountStatusActive, true},
		{types.AccountStateSuspended, types.AccountStatusActive, false}, {types.AccountStatePendingClosure, "", false},
		{types.AccountStateClosed, "", false},
		{types.AccountStatePendingActivation, "", false}, {"", types.AccountStatusSuspended, false},
		{"", types.AccountStatusPendingClosure, false}, {"", "", false},
	} {
		if got := activeAccount(types.Account{State: tc.state, Status: tc.status}); got != tc.want {
			t.Errorf("state %q, status %q: active %v", tc.state, tc.status, got)
		}
	}
}

func TestRolesOfMembers(t *testing.T) {
	for arn, want := range map[string]string{
		"arn:aws:organizations::111122223333:account/o-1/444455556666":        "arn:aws:iam::444455556666:role/ops/curfew-read",
		"arn:aws-us-gov:organizations::111122223333:account/o-1/444455556666": "arn:aws-us-gov:iam::444455556666:role/ops/curfew-read",
		"": "arn:aws:iam::444455556666:role/ops/curfew-read",
	} {
		if got := (Member{ID: "444455556666", partition: partitionOfARN(arn)}).Role("/ops/curfew-read"); got != want {
			t.Errorf("%s: %s, want %s", arn, got, want)
		}
	}
}

// TestCentralPolicy checks that it allows exactly the service's calls from its own account.
func TestCentralPolicy(t *testing.T) {
	type said struct {
		Sid              string
		Action, Resource any
	}
	read := func(raw []byte) []said {
		var doc struct{ Statement []said }
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		return doc.Statement
	}
	both := read(CentralPolicyJSON("aws", []string{"curfew-read", "arn:aws:iam::111122223333:role/x", "curfew-read"},
		true))
	want, _ := json.Marshal([]said{{"CurfewOrganization", []string{"organizations:ListAccounts"}, "*"},
		{
			"CurfewAssume", []string{"sts:AssumeRole"},
			[]string{"arn:aws:iam::*:role/curfew-read", "arn:aws:iam::111122223333:role/x"},
		}})
	if got, _ := json.Marshal(both); string(got) != string(want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	alone := read(CentralPolicyJSON("aws-cn", []string{"curfew-read"}, false))
	if len(alone) != 1 || alone[0].Sid != "CurfewAssume" ||
		fmt.Sprint(alone[0].Resource) != "[arn:aws-cn:iam::*:role/curfew-read]" {
		t.Errorf("in China, without an organization: %v", alone)
	}
}
