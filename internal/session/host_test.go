package session

import "testing"

func TestEndReasonNamesActorOnce(t *testing.T) {
	for _, tc := range []struct{ why, by, want string }{
		{"asked for by bo", "bo", "asked for by bo"},
		{"asked for by bobby", "bo", "asked for by bobby, by bo"},
		{"denied by bo's rule", "bo", "denied by bo's rule, by bo"},
		{"its lease ended", "keeper", "its lease ended, by keeper"},
	} {
		if got := (End{Why: tc.why, By: tc.by}).Reason(); got != tc.want {
			t.Errorf("%q by %s is %q, want %q", tc.why, tc.by, got, tc.want)
		}
	}
}
