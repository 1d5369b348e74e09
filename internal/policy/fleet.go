package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/usage"
)

// fleetKinds maps prefixes of fleet IDs to kinds.
var fleetKinds = map[string]inventory.Kind{
	"asg": inventory.KindAutoScalingGroup, "endpoint": inventory.KindEndpoint, customKind: inventory.KindEndpoint,
}

// customKind is the prefix of fleets whose size is set by a command or webhook of their owner, and
// the cloud of their resources.
const customKind = "custom"

// fleetID matches ids of fleets.
var fleetID = lazyregexp.New(`^(asg|endpoint|custom)/[^/[:cntrl:]]{1,255}$`)

// IsFleetID reports whether a text is the id of a fleet.
func IsFleetID(id string) bool { return fleetID.MatchString(id) }

// IsFleet reports whether the policy keeps a serving fleet at the size that its demand needs.
func (p *Policy) IsFleet() bool { return p.Do.IsFleet() }

// IsFleet reports whether the action sets the size of a serving fleet by its demand.
func (d *Do) IsFleet() bool { return d.Fleet != "" }

// FleetResource returns the kind and ID of the fleet's resource.
func (d *Do) FleetResource() (inventory.Kind, string) {
	kind, id, _ := strings.Cut(d.Fleet, "/")
	return fleetKinds[kind], id
}

// IsCustomFleet reports whether a command or webhook of the owner sets the size.
func (d *Do) IsCustomFleet() bool { return strings.HasPrefix(d.Fleet, customKind+"/") }

// MatchesFleet reports whether a resource is the fleet.
func (d *Do) MatchesFleet(r *inventory.Resource) bool {
	kind, id := d.FleetResource()
	return r.Kind == kind && r.ID == id && (r.Cloud == customKind) == d.IsCustomFleet()
}

// FleetBounds returns the sizes that the owner of the fleet allows.
func (d *Do) FleetBounds() fleet.Bounds { return fleet.Bounds{Min: d.Min, Max: d.Max, Zero: d.Zero} }

// checkFleet returns an error for a fleet policy with keys of other policies, or with bounds that
// allow no size.
func (p *Policy) checkFleet(given map[string]ast.Node) error {
	for _, key := range []string{"select", "where", "when", "schedule"} {
		if given[key] != nil {
			return fmt.Errorf("do: scale with fleet goes by the demand for %s alone: leave %s out", p.Do.Fleet, key)
		}
	}
	if p.Warn != nil {
		return errors.New("do: scale with fleet takes no warn: two readings and stabilization come before fewer machines")
	}
	if err := p.Do.FleetBounds().Check(); err != nil {
		return fmt.Errorf("fleet %s: %w", p.Do.Fleet, err)
	}
	return nil
}

// fleetAnswer returns false for resources other than the fleet, and unknown for the fleet: its
// demand is not in the inventory, so that no round acts on it.
func (p *Policy) fleetAnswer(r *inventory.Resource) usage.Tristate {
	if !p.Do.MatchesFleet(r) {
		return usage.False
	}
	return usage.Unknown
}

// explainFleet explains why a fleet policy has an answer about a resource.
func (p *Policy) explainFleet(f *Facts) Outcome {
	answer := p.fleetAnswer(f.Resource)
	why := "it is another resource"
	if answer == usage.Unknown {
		why = "its size follows the demand for it, not rounds: curfew serve --enforce sets it, and tells it as " +
			"curfew_fleet_replicas; curfew audit --actor 'policy " + p.Name + "' lists the changes"
	}
	return Outcome{Answer: answer, Parts: []Part{{Name: "fleet", Text: p.Do.Fleet, Answer: answer, Why: why}}}
}

// readFleet reads the id of a fleet.
func (d *reader) readFleet(n ast.Node, do *Do) (err error) {
	document.Note(n, document.Shape{Pattern: fleetID.String()})
	if do.Fleet, err = d.Text(n, "fleet"); err == nil && !fleetID.MatchString(do.Fleet) {
		err = d.At(n, "fleet %q is not the id of a fleet, such as asg/NAME, endpoint/NAME or custom/NAME", do.Fleet)
	}
	return err
}

// readTarget reads a utilization.
func (d *reader) readTarget(n ast.Node, do *Do) error {
	usual := plain.Number(capacity.DefaultTarget, 1)
	document.Note(n, document.Shape{Type: document.Decimal, Over: true, Default: usual})
	v, err := strconv.ParseFloat(document.Scalar(n), 64)
	if err != nil || !(v > 0 && v <= 1) {
		return d.At(n, "target is a utilization over 0 and up to 1, such as 0.7")
	}
	do.Target = v
	return nil
}

// fleetKeys refuses the keys of fleets without one, and other keys with one.
func (d *reader) fleetKeys(n ast.Node, given map[string]ast.Node) error {
	if given["fleet"] == nil {
		for _, key := range []string{"min", "max", "zero", "target"} {
			if given[key] != nil {
				return d.At(given[key], "%s needs fleet: the one fleet that it is for", key)
			}
		}
		return nil
	}
	for _, key := range []string{"to", "even_if_busy", "even_if_unknown"} {
		if given[key] != nil {
			return d.At(given[key], "%s does not go with fleet, which is sized by its demand", key)
		}
	}
	for _, key := range []string{"min", "max"} {
		if given[key] == nil && (key != "min" || given["zero"] == nil) {
			return d.At(n, "do: scale with fleet needs min and max: the sizes that its owner allows")
		}
	}
	return nil
}
