package act

import (
	"cmp"
	"context"
	"slices"

	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

// Alerts lists the lasting conditions that people were notified of, and the troubles of actions and
// accounts.
func Alerts(ctx context.Context, req *runtime.Request) (view.Alerts, error) {
	state, err := DoctorState(ctx, req)
	if err != nil {
		return view.Alerts{}, err
	}
	_, s, err := req.State(ctx)
	if err != nil {
		return view.Alerts{}, err
	}
	defer s.Close()
	items, err := s.Notified(ctx)
	if err != nil {
		return view.Alerts{}, err
	}
	doc := view.Alerts{Schema: view.AlertsSchema, At: state.At, Alerts: []view.Alert{}}
	for _, it := range items {
		a := view.Alert{
			ID: it.ID, What: it.Source, Resource: it.Ref.String(), ResourceID: it.Ref.ID,
			Because: it.Because, Since: it.FirstAt.UTC(),
			NotifiedAt: it.WarnedAt.UTC(), Recipients: append([]string{}, it.Recipients...),
			Next: alert.Next(it.Ref),
		}
		if b := it.Briefing; b != nil {
			a.Name, a.Type, a.Owner = b.Name, b.Type, b.Owner
			if b.Spent != nil {
				a.SpentUSD = money.Known(*b.Spent)
			}
		}
		doc.Alerts = append(doc.Alerts, a)
	}
	for _, t := range state.Troubles {
		doc.Alerts = append(doc.Alerts, view.Alert{
			What: t.What, Because: t.Why, Since: t.Since, Recipients: []string{}, Next: t.Next,
		})
	}
	slices.SortStableFunc(doc.Alerts, func(x, y view.Alert) int {
		return cmp.Or(cmp.Compare(y.SpentUSD.Or(0), x.SpentUSD.Or(0)), x.Since.Compare(y.Since))
	})
	return doc, nil
}
