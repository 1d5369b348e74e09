package audit

import (
	"context"
	"slices"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// AddRunProgress adds to a run that has not ended what the newest audit saw of the progress of its machines.
func AddRunProgress(ctx context.Context, s *store.Store, tags inventory.TagMapping, r *view.Run) error {
	if r.EndedAt != nil {
		return nil
	}
	var machines []view.SeenResource
	for _, id := range r.ResourceIDs {
		seen, err := working(ctx, s, snapshot.Query{Cloud: r.Provider, ID: id})
		if err != nil {
			return err
		}
		machines = append(machines, seen...)
	}
	// A machine that is launched again under its id starts other work.
	machines = slices.DeleteFunc(machines, func(m view.SeenResource) bool {
		return r.LaunchedAt != nil && m.At.Before(*r.LaunchedAt)
	})
	if p, known := view.LastProgress(tags, machines...); known {
		r.Progress = &p
	}
	return nil
}

// AddCostProgress adds to costs by resource what the newest audit saw of the progress of the machines.
func AddCostProgress(ctx context.Context, s *store.Store, tags inventory.TagMapping, doc *view.Costs) error {
	at := slices.Index(doc.By, ledger.ByResource)
	if at < 0 || len(doc.Rows) == 0 {
		return nil
	}
	rows := make(map[string]bool, len(doc.Rows))
	for _, r := range doc.Rows {
		rows[r.Key[at]] = true
	}
	machines, err := working(ctx, s, snapshot.Query{})
	for _, m := range machines {
		if p, known := view.LastProgress(tags, m); known && rows[m.Ref.String()] {
			doc.Progress = append(doc.Progress, view.CostsProgress{Resource: m.Ref.String(), SeenProgress: p})
		}
	}
	return err
}

// working returns the machines of a query that were at work at their newest audit.
func working(ctx context.Context, s *store.Store, q snapshot.Query) ([]view.SeenResource, error) {
	resources, err := s.Snapshots().Resources(ctx, q)
	if err != nil {
		return nil, err
	}
	var out []view.SeenResource
	for _, r := range resources {
		if r.Duty != duty.Busy.String() && r.Duty != duty.Stalled.String() {
			continue
		}
		k, err := KeptResource(r)
		if err != nil {
			return nil, err
		}
		out = append(out, view.SeenResource{KeptResource: k, Duty: r.Duty, At: r.SeenAt})
	}
	return out, nil
}
