package approval

import (
	"slices"
	"testing"
)

// TestApproversExcludeRequester checks that the requester under any spelling and people with
// other roles are excluded, and that the default role applies if none is given.
func TestApproversExcludeRequester(t *testing.T) {
	people := map[string][]string{
		"bo": {"lead", DefaultRole}, "ana": {"lead"}, "cy": {DefaultRole}, "dee": {"finance"},
	}
	for _, tc := range []struct {
		asker string
		roles []string
		want  []string
	}{
		{"eve", []string{"lead"}, []string{"ana", "bo"}},
		{"ana", []string{"lead"}, []string{"bo"}},
		{"ANA", []string{"lead"}, []string{"bo"}},
		{"eve", nil, []string{"bo", "cy"}},
		{"eve", []string{"finance", "lead"}, []string{"ana", "bo", "dee"}},
		{"eve", []string{"owner"}, nil},
	} {
		if got := Approvers(people, tc.roles, "", tc.asker); !slices.Equal(got, tc.want) {
			t.Errorf("%s asks %v: %v, want %v", tc.asker, tc.roles, got, tc.want)
		}
	}
}

// TestRoleOfTeam checks that a team's role applies only to that team, and not to unallocated
// things.
func TestRoleOfTeam(t *testing.T) {
	for name, tc := range map[string]struct {
		held []string
		team string
		want bool
	}{
		"in all teams":       {[]string{"approver"}, "speech", true},
		"in its team":        {[]string{"approver@vision"}, "vision", true},
		"in other letters":   {[]string{"approver@Vision"}, "vision", true},
		"in another team":    {[]string{"approver@vision"}, "speech", false},
		"of no team":         {[]string{"approver@vision"}, "", false},
		"a team of no name":  {[]string{"approver@"}, "", false},
		"another role there": {[]string{"user@vision"}, "vision", false},
		"a greater role":     {[]string{"admin"}, "vision", false},
	} {
		if got := May(tc.held, []string{DefaultRole}, tc.team); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestLimitsAddNoRoles checks that limits never add roles.
func TestLimitsAddNoRoles(t *testing.T) {
	for _, tc := range []struct{ held, limits, want []string }{
		{[]string{"operator"}, []string{"viewer"}, []string{"viewer"}},
		{[]string{"viewer"}, []string{"operator"}, nil},
		{[]string{"operator@vision"}, []string{"viewer"}, []string{"viewer@vision"}},
		{[]string{"admin"}, []string{"user@vision"}, []string{"user@vision"}},
		{[]string{"admin"}, []string{"approver"}, nil},
		{
			[]string{"approver", "finance"}, []string{"finance", "approver@vision"},
			[]string{"finance", "approver@vision"},
		},
		{nil, []string{"viewer"}, nil},
	} {
		if got := Within(tc.held, tc.limits); !slices.Equal(got, tc.want) {
			t.Errorf("%v within %v: got %v, want %v", tc.held, tc.limits, got, tc.want)
		}
	}
}
