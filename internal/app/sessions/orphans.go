package sessions

import (
	"context"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/mail"
	"github.com/curfew-dev/curfew/internal/notify/slack"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/session"
)

// warnOrphanOwner notifies the owner of orphans of their end.
func (a *Sessions) warnOrphanOwner(ctx context.Context, s *session.Session) (accepted string, err error) {
	router, err := notify.New(a.Config.Reached(), a.Request.Lookup, slack.Open, mail.Open, webhook.Open)
	if err != nil {
		return "", err
	}
	r := &inventory.Resource{
		Name: s.Name, Kind: inventory.KindInstance, Cloud: s.Provider, Account: s.Account, Region: s.Region,
		Owner: s.Owner,
	}
	if len(s.Machines) > 0 {
		r.ID, r.Type = s.Machines[0].ID, s.Machines[0].Pool.Type
	}
	return router.Notify(ctx, notify.Owner, action.Message{Kind: "notice", Resource: r, Item: s.ID, Because: s.Why})
}
