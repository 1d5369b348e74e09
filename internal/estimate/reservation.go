package estimate

import (
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// reserved adds the cost of a capacity reservation, used or not: its machines on demand.
func (m *meter) reserved() {
	kind, state := m.at.text("instance_type")
	n, countState := m.at.number("instance_count")
	if state != knownValue || countState != knownValue || kind == "" {
		m.open("its machines are known only after the plan is applied")
		return
	}
	if platform, _ := m.at.text("instance_platform"); platform != "" && platform != linux {
		m.open("the price book holds %s, and its platform is %q", linux, platform)
	}
	if tenancy, _ := m.at.text("tenancy"); tenancy != "" && tenancy != "default" {
		m.open("the price book holds shared tenancy, and its tenancy is %q", tenancy)
	}
	m.machine(kind, false, n, n)
}

// linux is the platform of machines without a paid license.
const linux = "Linux/UNIX"

// reservation is a capacity reservation of the plan, at one side of it.
type reservation struct {
	address, id string
	kind, zone  string
	targeted    bool
	// isNew is true if the plan makes it, so that nothing else runs in it yet.
	isNew bool
	left  int64
}

// indexReservations collects the reservations that may cover machines of the plan.
func (c *planner) indexReservations() {
	for _, change := range c.plan.ResourceChanges {
		if change == nil || change.Change == nil || change.Mode == tfjson.DataResourceMode {
			continue
		}
		after := attributesOf(change.Change.After, change.Change.AfterUnknown)
		for i, at := range []attributes{attributesOf(change.Change.Before, nil), after} {
			switch change.Type {
			case "aws_subnet":
				id, _ := at.text("id")
				if zone, _ := at.text("availability_zone"); id != "" {
					c.subnets[id] = zone
				}
			case "aws_ec2_capacity_reservation":
				n, _ := at.number("instance_count")
				kind, _ := at.text("instance_type")
				zone, _ := at.text("availability_zone")
				id, _ := at.text("id")
				match, _ := at.text("instance_match_criteria")
				tenancy, _ := at.text("tenancy")
				platform, _ := at.text("instance_platform")
				ordinary := (tenancy == "" || tenancy == "default") && (platform == "" || platform == linux)
				if n > 0 && kind != "" && zone != "" && ordinary &&
					at.state("instance_match_criteria") != unknownValue {
					action := actionOf(change.Change.Actions)
					c.reservations[i] = append(c.reservations[i], &reservation{
						address: change.Address, id: id, kind: kind, zone: zone,
						targeted: match == "targeted", isNew: action == actionCreate ||
							action == actionReplace, left: n})
				}
			}
		}
	}
}

// cover returns how many of some machines on demand run in capacity reservations, which are charged for
// them: they have its type, platform, zone and tenancy (EC2 user guide, "Capacity Reservation
// matching").
func (m *meter) cover(l launch, n int64) (covered int64) {
	side := 1
	if m.readsCurrent {
		side = 0
	}
	if m.isTrial || l.zone == "" {
		return 0
	}
	for _, r := range m.reservations[side] {
		if r.left > 0 && r.kind == l.kind && r.zone == l.zone && m.runsIn(l.reservation, r) {
			k := min(r.left, n-covered)
			r.left, covered = r.left-k, covered+k
		}
	}
	m.planner.reserved = m.planner.reserved || covered > 0 && !m.readsCurrent
	return covered
}

// runsIn reports whether a machine certainly runs in a reservation with room. A machine that
// targets a reservation fails to start outside of it. Others run in any open one that has room
// (EC2 API, CapacityReservationSpecification); machines outside of the plan may fill one that
// was there before, so that it covers only what the plan leaves as it is.
func (m *meter) runsIn(by attributes, r *reservation) bool {
	if target := by.block("capacity_reservation_target"); len(target) > 0 {
		group, groupState := target[0].text("capacity_reservation_resource_group_arn")
		id, _ := target[0].text("capacity_reservation_id")
		if group != "" || groupState == unknownValue {
			return false
		}
		if id != "" {
			return id == r.id
		}
		exprs := nestedBlock(m.expressions(m.change), 0, "capacity_reservation_specification",
			"capacity_reservation_target")
		refs := chains(references(exprs["capacity_reservation_id"]))
		if len(refs) == 0 {
			return r.isNew && r.targeted && !isConfigured(exprs, "capacity_reservation_id")
		}
		address, isID := strings.CutSuffix(refs[0], ".id")
		return len(refs) == 1 && isID && join(m.change.ModuleAddress, address) == r.address
	}
	preference, state := by.text("capacity_reservation_preference")
	if r.targeted || preference == "none" || state == unknownValue &&
		m.configures("capacity_reservation_specification") {
		return false
	}
	return r.isNew || m.change.Change != nil && m.change.Change.Actions.NoOp()
}
