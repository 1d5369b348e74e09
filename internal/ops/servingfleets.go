package ops

import (
	"context"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

// maxFleetEntries bounds the newest entries of the audit log in the history of a fleet.
const maxFleetEntries = 1000

// ListFleets lists the serving fleets whose sizes policies decide.
var ListFleets = declare(Operation[Paging, view.ServingFleets]{
	Info: Info{ID: "list-fleets", Method: get, Path: "fleets", Role: approval.RoleViewer,
		Summary: "List the serving fleets of policies: size, bounds, demand, and why each is as it is",
		Schema:  view.ServingFleetsSchema, Command: "fleets", Why: "the service decides their sizes"},
	List: listOf(func(d *view.ServingFleets) *[]view.ServingFleet { return &d.Fleets },
		func(f view.ServingFleet) string { return f.ID }),
	Do: func(_ context.Context, c *Call, _ Paging) (Reply[view.ServingFleets], error) {
		return reply(govern.Fleets(c.Request))
	},
})

// GetFleetHistory shows what was done to the size of a serving fleet.
var GetFleetHistory = declare(Operation[ByID, view.FleetHistory]{
	Info: Info{ID: "get-fleet-history", Method: get, Path: "fleets/{id}/history", Role: approval.RoleViewer,
		Summary: "Show what was done to the size of a serving fleet, and what was refused, with the reasons",
		Schema:  view.FleetHistorySchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.FleetHistory], error) {
		if !policy.IsFleetID(in.ID) {
			return Reply[view.FleetHistory]{}, missing("fleet", in.ID)
		}
		r, err := c.entries(ctx, Paging{}, action.Query{
			Resource: view.FleetResource(in.ID), Limit: maxFleetEntries,
		})
		return Reply[view.FleetHistory]{Doc: view.NewFleetHistory(in.ID, r.Doc.Entries)}, err
	},
})
