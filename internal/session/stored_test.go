package session

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

// storedNames are the JSON names of the parts of a session in existing databases.
var storedNames = map[string]string{
	"session": "Account Adopted Approval By ByHand Ceiling Charged Connections Control Discard Earlier " +
		"End EndBy EndWhy EndedAt EndingAt Epoch Gone Hash HoldID ID Idle Launch LaunchedAt Launches " +
		"LeaseUntil Lost Machines Missing Name NotBefore Noted NotedAt Owner Person Place Pool Provider " +
		"Rate ReadyAt Region RequestedAt RunAs Save Serial Snapshot Spec State TellAt ToldAt Tries " +
		"Version Why Work Wrong WrongAt",
	"machine":    "ID LaunchedAt Node Pool State",
	"pool":       "Image Rate Region Spot Type Zone",
	"try":        "At Pool Until Why",
	"place":      "Profile Refs Role",
	"connection": "Node kind since",
}

// TestStoredNamesAreStable guards the documents of existing databases, which hold sessions in JSON.
func TestStoredNamesAreStable(t *testing.T) {
	rate := money.Rate(1)
	for name, value := range map[string]any{
		"session":    Session{Rate: &rate},
		"machine":    Machine{},
		"pool":       Pool{},
		"try":        CapacityFailure{},
		"place":      Place{},
		"connection": NodeConnection{},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(slices.Sorted(maps.Keys(fields)), " ")
		if got != storedNames[name] {
			t.Errorf("%s is stored with the names\n%s, want\n%s", name, got, storedNames[name])
		}
	}
}
