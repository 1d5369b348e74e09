package web

import (
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// fleetsDoc is the content of the page of serving fleets.
type fleetsDoc struct {
	doc   view.ServingFleets
	sheet layout.Sheet
}

// fleetsPage shows the serving fleets of policies with their newest decisions.
func fleetsPage(v *visit) (templ.Component, error) {
	doc, err := read(v, ops.ListFleets, ops.Paging{})
	if err != nil {
		return nil, err
	}
	return fleetsContent(&fleetsDoc{doc: doc, sheet: report.ServingFleets(doc)}), nil
}

// fleetDoc is the content of the page of one serving fleet.
type fleetDoc struct {
	id string
	// fleet is nil for one that no policy names any more.
	fleet   *view.ServingFleet
	history layout.Sheet
}

// fleetPage shows one serving fleet: what it is, why, and what was done to its size.
func fleetPage(v *visit) (templ.Component, error) {
	d := fleetDoc{id: v.r.PathValue("id")}
	if !policy.IsFleetID(d.id) {
		return nil, notFound(v.r.URL.Path)
	}
	all, err := read(v, ops.ListFleets, ops.Paging{})
	if err != nil {
		return nil, err
	}
	for i := range all.Fleets {
		if all.Fleets[i].ID == d.id {
			d.fleet = &all.Fleets[i]
		}
	}
	history, err := read(v, ops.GetFleetHistory, ops.ByID{ID: d.id})
	if err != nil {
		return nil, err
	}
	if d.fleet == nil && len(history.Changes) == 0 {
		return nil, notFound(v.r.URL.Path)
	}
	d.history = report.FleetHistory(history)
	return fleetContent(&d), nil
}

// fleetAddress returns the address of the page of a serving fleet.
func fleetAddress(id string) templ.SafeURL {
	parts := strings.Split(id, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return templ.SafeURL("/fleets/" + strings.Join(parts, "/"))
}
