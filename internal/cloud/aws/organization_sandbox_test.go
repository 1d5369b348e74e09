package aws_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/organizations"
	"github.com/aws/aws-sdk-go-v2/service/organizations/types"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestOrganization checks that all active accounts are listed page by page, that additions and
// removals are followed, and that a failed list is an error, not an empty organization.
func TestOrganization(t *testing.T) {
	box, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	environOf(t, box)
	cloud, err := aws.New(t.Context(), aws.Options{RequestsPerSecond: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.Organization(t.Context()); err == nil {
		t.Error("an account without an organization lists one")
	}
	api := organizations.NewFromConfig(box.Config("us-east-1"))
	if _, err := api.CreateOrganization(t.Context(), &organizations.CreateOrganizationInput{
		FeatureSet: types.OrganizationFeatureSetAll,
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{wire.DefaultAccount}
	create := func(n int) string {
		out, err := api.CreateAccount(t.Context(), &organizations.CreateAccountInput{
			AccountName: awssdk.String(fmt.Sprintf("team-%02d", n)),
			Email:       awssdk.String(fmt.Sprintf("team-%02d@example.com", n)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return *out.CreateAccountStatus.AccountId
	}
	for n := range 45 {
		want = append(want, create(n))
	}
	// The listing itself is compared with the SDK's own paginator.
	check := func(what string, cloud *aws.Cloud) {
		t.Helper()
		box.Wire.Recorder.Reset()
		got, err := cloud.Organization(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var ids []string
		for _, m := range got {
			ids = append(ids, m.ID)
			if m.Own != (m.ID == wire.DefaultAccount) {
				t.Errorf("%s: %s is the own account: %v", what, m.ID, m.Own)
			}
			if role := m.Role("curfew-read"); role != "arn:aws:iam::"+m.ID+":role/curfew-read" {
				t.Errorf("%s: %s", what, role)
			}
		}
		slices.Sort(want)
		if !slices.Equal(ids, want) {
			t.Errorf("%s: %d accounts %v, want %d", what, len(ids), ids, len(want))
		}
		if n := box.Wire.Recorder.Count("organizations:ListAccounts"); n < 2 {
			t.Errorf("%s: %d pages of %d accounts", what, n, len(want))
		}
	}
	check("45 members", cloud)
	closed := want[7]
	if closed == wire.DefaultAccount {
		closed = want[8]
	}
	if _, err := api.CloseAccount(t.Context(), &organizations.CloseAccountInput{AccountId: &closed}); err != nil {
		t.Fatal(err)
	}
	want = append(slices.DeleteFunc(want, func(id string) bool { return id == closed }), create(99))
	check("one is closed, one is new", cloud)

	for _, kind := range []wire.FaultKind{wire.AccessDenied, wire.Hollow, wire.Empty} {
		stop := box.Wire.Inject(wire.Fault{Service: "organizations", Kind: kind})
		got, err := cloud.Organization(t.Context())
		if err == nil || len(got) > 0 {
			t.Errorf("fault %d: %d accounts, %v", kind, len(got), err)
		}
		if kind == wire.AccessDenied && !errors.Is(err, inventory.ErrDenied) {
			t.Errorf("denied: %v", err)
		}
		stop()
	}
	// A failing page in the middle is an error, not the end of the list.
	stop := box.Wire.Inject(wire.Fault{Service: "organizations", Kind: wire.AccessDenied, After: 1})
	if got, err := cloud.Organization(t.Context()); err == nil {
		t.Errorf("the second page is denied: %d accounts", len(got))
	}
	stop()
	// With a role that may list, such as that of a delegated administrator.
	role := "arn:aws:iam::" + wire.DefaultAccount + ":role/lister"
	by, err := aws.New(t.Context(), aws.Options{RequestsPerSecond: 1000, AssumeRoles: []string{role}, RolesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	check("by a role", by)
	for _, name := range box.Wire.Recorder.Names() {
		if strings.HasPrefix(name, "organizations:") && name != "organizations:ListAccounts" &&
			name != "organizations:CreateAccount" && name != "organizations:CloseAccount" {
			t.Errorf("%s was called", name)
		}
	}
}
