package server

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/store"
)

// The source that finds alerts, and the time between two searches. The ledger has whole hours.
const (
	alertsSource = "alerts"
	alertsEvery  = 15 * time.Minute
)

// watched returns the source that finds alerts in the state, for all accounts.
func (v *server) watched(cfg config.Config, made string) scheduler.Source {
	return scheduler.Source{
		Name: alertsSource, Every: func() time.Duration { return alertsEvery }, Deadline: cfg.Serve.Deadline,
		Made: made, Background: true,
		// The accounts are read first, so that their charges are known.
		First: func(context.Context) (time.Duration, error) { return cfg.Serve.Interval, nil },
		Open: func(_ context.Context, lease store.Lease) (scheduler.Rounds, error) {
			l, err := act.AlertLadder(v.req.Fresh(), cfg, v.store)
			if err != nil {
				return nil, err
			}
			l = under(func(string) *action.Ladder { return l }, v.store, lease, v.scheduler.Metrics)(l.Account)
			return &alertRounds{v: v, cfg: cfg, ladder: l}, nil
		}}
}

// alertRounds finds alerts. It keeps no state between rounds.
type alertRounds struct {
	v      *server
	cfg    config.Config
	ladder *action.Ladder
}

// Round implements scheduler.Rounds.
func (a *alertRounds) Round(ctx context.Context) (scheduler.Outcome, error) {
	now, err := a.v.req.StateTime(ctx, a.v.store)
	if err != nil {
		return scheduler.Outcome{}, err
	}
	_, err = act.Watch(ctx, a.cfg, a.v.store, a.ladder, &a.v.refusals, now)
	a.v.mirrored(ctx)
	return scheduler.Outcome{}, err // undelivered notices are listed by `curfew doctor state`
}
