package view

import (
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/policy"
)

// FleetHistorySchema is the schema of explanations of serving fleets.
const FleetHistorySchema = "curfew.fleet-history/v1"

// FleetHistory is the history of the size of a serving fleet, by the audit log.
type FleetHistory struct {
	Schema string `json:"schema"`
	// Fleet is the id of the fleet in policies.
	Fleet string `json:"fleet"`
	// Changes are the steps of changes and the refusals, oldest first.
	Changes []FleetChange `json:"changes"`
}

// FleetChange is one step of a change of size, or a refusal.
type FleetChange struct {
	At time.Time `json:"at"`
	// Actor is the policy or the person, and Event the step: intent, outcome, confirmed, refused and so on.
	Actor string `json:"actor"`
	Event string `json:"what"`
	// Because is the demand that decided, and Outcome the answer of the provider or the reason of a refusal.
	Because string `json:"because"`
	Outcome string `json:"outcome"`
	// Evidence supports the reason.
	Evidence []Evidence `json:"evidence"`
	// Resource is the full identity of the fleet.
	Resource string `json:"resource"`
}

// NewFleetHistory returns the history of a fleet among the entries of the audit log.
func NewFleetHistory(id string, entries []AuditEntry) FleetHistory {
	out := FleetHistory{Schema: FleetHistorySchema, Fleet: id, Changes: []FleetChange{}}
	for _, e := range entries {
		if e.Verb != string(policy.Scale) || !isFleet(id, e.Resource) {
			continue
		}
		c := FleetChange{
			At: e.At, Actor: e.Actor, Event: e.What, Because: e.Because, Outcome: e.Outcome, Evidence: e.Evidence,
			Resource: e.Resource,
		}
		if c.Evidence == nil {
			c.Evidence = []Evidence{}
		}
		out.Changes = append(out.Changes, c)
	}
	return out
}

// isFleet reports whether the full identity of a resource is that of a fleet.
func isFleet(id, resource string) bool {
	do := policy.Do{Fleet: id}
	return strings.HasSuffix(resource, "/"+FleetResource(id)) &&
		strings.HasPrefix(resource, "custom/") == do.IsCustomFleet()
}

// FleetResource returns the end of the identity of a fleet's resource.
func FleetResource(id string) string {
	do := policy.Do{Fleet: id}
	kind, name := do.FleetResource()
	return string(kind) + "/" + name
}
