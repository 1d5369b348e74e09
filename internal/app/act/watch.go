package act

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
)

// AlertLadder returns the ladder for alerts, which only notifies.
func AlertLadder(req *runtime.Request, cfg config.Config, s *store.Store) (*action.Ladder, error) {
	cfg.Enforce.MirrorTag = false // there is no resource to tag
	ladders, err := clouds.Ladders(req, cfg, s, notifyOnly("an alert is about no resource of a provider"), true)
	if err != nil {
		return nil, err
	}
	l := ladders(alert.LadderAccount)
	l.KeepByHand = nil
	l.Verify = func(context.Context, []action.Item) (map[string]action.Proposal, error) { return nil, nil }
	l.Know = func(*inventory.Resource, policy.Do) (undo, know string) { return "none", "" }
	return l, nil
}

// Watch finds the current alerts and notifies people of those that are new, have doubled, have
// lasted another day, or are over. rounds holds the newest rounds of accounts.
func Watch(ctx context.Context, cfg config.Config, s *store.Store, l *action.Ladder, rounds *Refusals,
	now time.Time) (action.Report, error) {
	facts, err := spend.AlertFacts(ctx, cfg, s, now)
	if err != nil {
		return action.Report{}, fmt.Errorf("find alerts: %w", err)
	}
	if facts.Refused, facts.Judged, err = rounds.facts(ctx, s, now); err != nil {
		return action.Report{}, fmt.Errorf("find alerts: %w", err)
	}
	found := alert.Find(facts)
	return l.Round(ctx, action.Scope{
		Proposals: found.Proposals, Sources: alert.Sources,
		Unknown: found.IsUnknown,
	})
}

// LookForAlerts finds alerts once, after passes, at the time of the state. It does nothing if there
// was no pass.
func LookForAlerts(ctx context.Context, req *runtime.Request, passes *Refusals) error {
	if passes.none() {
		return nil
	}
	cfg, s, err := req.State(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg, _, err = req.Governed(ctx, cfg, s); err != nil {
		return err
	}
	l, err := AlertLadder(req, cfg, s)
	if err != nil {
		return err
	}
	now, err := req.StateTime(ctx, s)
	if err == nil {
		_, err = Watch(ctx, cfg, s, l, passes, now)
	}
	if err != nil {
		return runtime.StateError(clouds.CloudError(err))
	}
	return nil
}

// notifyOnly is a cloud that carries out nothing, so that policies can only notify; its text is the
// reason.
type notifyOnly string

func (n notifyOnly) refuse() error { return &action.Refusal{Rule: "verb", Why: string(n)} }

func (n notifyOnly) Plan(context.Context, *inventory.Resource, policy.Do) ([]action.Step, error) {
	return nil, n.refuse()
}

func (n notifyOnly) Do(context.Context, action.Task) (string, error) { return "", n.refuse() }

func (n notifyOnly) Look(context.Context, action.Task) (p action.Progress, receipt string, err error) {
	return p, "", n.refuse()
}

func (n notifyOnly) Undo(context.Context, action.Task) error { return n.refuse() }

func (n notifyOnly) Rehearse(context.Context, action.Task) (string, error) { return "", n.refuse() }
