package govern

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/mail"
	"github.com/curfew-dev/curfew/internal/notify/slack"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/view"
)

// router opens the channels of the configuration in force.
func router(ctx context.Context, req *runtime.Request) (*notify.Router, string, error) {
	cfg, _, s, err := req.InForce(ctx)
	if err != nil {
		return nil, "", err
	}
	defer s.Close()
	who, err := identity.Whoami(ctx, req)
	if err != nil {
		return nil, "", err
	}
	r, err := notify.New(cfg.Reached(), req.Lookup, slack.Open, mail.Open, webhook.Open)
	return r, who.Name, err
}

// Notifiers returns the configured addresses for messages.
func Notifiers(ctx context.Context, req *runtime.Request) (view.Notifiers, error) {
	doc := view.Notifiers{Schema: view.NotifiersSchema, Notifiers: []view.Notifier{}}
	r, _, err := router(ctx, req)
	if err != nil {
		return doc, err
	}
	for _, a := range r.Addresses() {
		doc.Notifiers = append(doc.Notifiers, view.Notifier{ID: a.String(), Channel: a.Channel})
	}
	return doc, nil
}

// TestNotifier sends a test message to a configured address.
func TestNotifier(ctx context.Context, req *runtime.Request, id string) (view.NotifierTest, error) {
	doc := view.NotifierTest{Schema: view.NotifierTestSchema}
	r, who, err := router(ctx, req)
	if err != nil {
		return doc, err
	}
	to, err := notify.ParseAddress(id)
	if err == nil {
		err = r.Send(ctx, to, action.Message{
			Kind: "notice", Because: "a test message that " + who + " asked for: messages arrive here",
		})
		if recorded := recordTest(ctx, req, who, to, err); recorded != nil {
			return doc, recorded
		}
	}
	switch {
	case errors.Is(err, notify.ErrNoRecipient):
		return doc, &runtime.Error{
			Code: "not_found", Err: err, Hint: "the section notify of curfew.yaml names addresses",
		}
	case err != nil:
		return doc, &runtime.Error{
			Class: runtime.Failed, Code: "not_delivered", Err: fmt.Errorf("send a test message to %s: %w", to, err),
			Hint: "docs/notifications.md describes each channel",
		}
	}
	doc.Notifier = view.Notifier{ID: to.String(), Channel: to.Channel}
	doc.Outcome = to.String() + " accepted a test message."
	return doc, nil
}

// recordTest writes the result of a test message to the audit log, except for an unknown address,
// to which nothing was sent.
func recordTest(ctx context.Context, req *runtime.Request, who string, to notify.Address, sent error) error {
	if errors.Is(sent, notify.ErrNoRecipient) {
		return nil
	}
	_, _, s, err := req.InForce(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	now, err := req.StateClock(ctx, s)
	if err != nil {
		return err
	}
	outcome := "accepted"
	if sent != nil {
		outcome = "not delivered: " + action.Redact(sent.Error())
	}
	return s.Actions().Record(ctx, action.Entry{
		At: now().UTC(), Actor: who, What: action.EventTestMessage, Resource: "notifier/" + to.String(),
		Outcome: outcome,
	})
}
