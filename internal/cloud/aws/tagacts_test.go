package aws

import (
	"errors"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestDeniedTagNamesAllowedRole checks that only the denial of a tag by which IAM decides is
// reported as permanent for the acting role.
func TestDeniedTagNamesAllowedRole(t *testing.T) {
	for _, tc := range []struct {
		tags, answer string
		want         bool
	}{
		{`{"Curfew:Managed":"true","owner":"ana"}`, "UnauthorizedOperation", true},
		{`{"owner":"ana"}`, "UnauthorizedOperation", false},
		{`{"curfew:managed":"true"}`, "InternalError", false},
	} {
		a, _ := answering(t, map[string]string{
			"DescribeInstances": machineXML("running", launched, "<tagSet></tagSet>"), "CreateTags": tc.answer,
		})
		task := one("tag", stepTag)
		task.Step.Params, task.Step.Undo = `{"set":`+tc.tags+`,"service":"ec2","name":"i-1"}`, `{"former":{}}`
		_, err := a.Do(t.Context(), task)
		denied := errors.Is(err, inventory.ErrDenied)
		if err == nil || denied != (tc.answer == "UnauthorizedOperation") ||
			strings.Contains(err.Error(), "the acting role may not write") != tc.want {
			t.Errorf("%s, %s: %v", tc.tags, tc.answer, err)
		}
	}
}
