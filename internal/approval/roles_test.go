package approval

import (
	"slices"
	"testing"
)

// TestApproversAreOthersWithTheRole: who asks is left out under any spelling, and so is who
// has another role; without roles the default one is asked for.
func TestApproversAreOthersWithTheRole(t *testing.T) {
	people := map[string][]string{"bo": {"lead", DefaultRole}, "ana": {"lead"}, "cy": {DefaultRole}, "dee": {"finance"}}
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
		if got := Approvers(people, tc.roles, tc.asker); !slices.Equal(got, tc.want) {
			t.Errorf("%s asks %v: %v, want %v", tc.asker, tc.roles, got, tc.want)
		}
	}
}
