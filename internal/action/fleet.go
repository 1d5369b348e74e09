package action

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Fleet is a serving fleet at its provider.
type Fleet struct {
	Resource *inventory.Resource
	// Types are the machine types among which the manager chooses; empty for the one of the resource.
	Types []string
	// Desired is the size that the provider is asked for; Min and Max are the provider's own bounds.
	Desired, Min, Max int
	// Replicas is empty where the manager alone chooses which machines end.
	Replicas []Replica
	// Drains is set if the manager takes a machine out of its load balancer and waits for requests in
	// flight before it ends it.
	Drains bool
}

// Replica is a machine of a fleet.
type Replica struct {
	ID string
	// Hosts are the names and addresses by which metrics may know it.
	Hosts []string
	// Serving is set if its manager counts it as in service and healthy.
	Serving bool
	// Protected is set if its manager may not end it.
	Protected bool
	// LaunchedAt is zero where it is unknown.
	LaunchedAt time.Time
}

// FleetCloud reads fleets. A [Cloud] whose fleets can be resized implements it.
type FleetCloud interface {
	// Fleet reads a fleet; an error wraps inventory.ErrNotFound where there is none.
	Fleet(ctx context.Context, ref inventory.Ref) (Fleet, error)
}

// outOfBounds keeps a policy of a fleet to the fleet that it names, between the sizes that its owner
// allows.
func outOfBounds(c *ruleInput) string {
	if !c.Do.IsFleet() {
		return ""
	}
	switch {
	case c.Do.Verb != policy.Scale || !c.Do.MatchesFleet(c.Resource):
		return "it is not the fleet that the policy names, " + c.Do.Fleet
	case c.Do.To < c.Do.Min:
		return fmt.Sprintf("%d machines are fewer than %d, the minimum of its owner", c.Do.To, c.Do.Min)
	case c.Do.To > c.Do.Max:
		return fmt.Sprintf("%d machines are more than %d, the maximum of its owner", c.Do.To, c.Do.Max)
	}
	return ""
}

// resizesFleet reports whether a policy sets the size of the one fleet that it names, which is no end
// of a resource (docs/safety.md, rule 8): two readings, stabilization and drained machines take the
// place of a warning.
func (p *Proposal) resizesFleet() bool { return p.Do.IsFleet() && !p.ByPerson }
