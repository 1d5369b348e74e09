package view

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
)

func TestFleetHistoryHasItsOwnEntries(t *testing.T) {
	entry := func(resource, verb string) AuditEntry {
		return AuditEntry{Entry: action.Entry{Resource: resource, Verb: verb}}
	}
	entries := []AuditEntry{
		entry("aws/1/us-east-1/endpoint/embed", "scale"), entry("custom/own//endpoint/embed", "scale"),
		entry("aws/1/us-east-1/endpoint/my-embed", "scale"), entry("aws/1/us-east-1/autoscaling-group/embed", "scale"),
		entry("aws/1/us-east-1/endpoint/embed", "delete"),
	}
	for id, want := range map[string]string{
		"endpoint/embed": entries[0].Resource, "custom/embed": entries[1].Resource, "asg/embed": entries[3].Resource,
	} {
		if got := NewFleetHistory(id, entries).Changes; len(got) != 1 || got[0].Resource != want {
			t.Errorf("%s: %+v, want %s", id, got, want)
		}
	}
}
