package sessions

import (
	"context"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/mail"
	"github.com/curfew-dev/curfew/internal/notify/slack"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// warnOrphanOwner notifies the owner of orphans of their end.
func (a *Sessions) warnOrphanOwner(ctx context.Context, s *session.Session) (accepted string, err error) {
	return a.notifyOwner(ctx, s, s.Why)
}

// leaseNotifier returns what notifies owners before a lease ends; nil where no channel is configured.
func (a *Sessions) leaseNotifier() func(context.Context, *session.Session) (string, error) {
	if n := a.Config.Notify; !n.Slack.Used() && !n.Mail.Used() && !n.Webhook.Used() {
		return nil
	}
	return func(ctx context.Context, s *session.Session) (string, error) {
		return a.notifyOwner(ctx, s, "the lease of session "+s.Name+" ends at "+plain.Time(s.LeaseUntil)+
			"; `curfew extend "+s.Name+" --for 2h` lets it run longer")
	}
}

// notifyOwner sends the owner of a session a message about its machine.
func (a *Sessions) notifyOwner(ctx context.Context, s *session.Session, why string) (accepted string, err error) {
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
	return router.Notify(ctx, notify.Owner, action.Message{Kind: "notice", Resource: r, Item: s.ID, Because: why})
}
