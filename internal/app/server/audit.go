package server

import (
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// auditPrefix begins the name of the source that audits the account of another one.
const auditPrefix = "audit "

// audited is the source that audits an account in the background, with rules in place of
// policies: its rounds are hours apart and may take long.
func (v *server) audited(cfg config.Config, a account, made string) scheduler.Source {
	name := auditPrefix + a.name
	every := func() time.Duration { return v.pace.auditEvery() }
	return scheduler.Source{
		Name: name, Every: every, Deadline: max(cfg.Serve.Deadline, cfg.Serve.AuditInterval/2),
		Made: made, Background: true,
		First: func(ctx context.Context) (time.Duration, error) {
			last, err := v.store.Audited(ctx, name)
			// What is there now is read by the passes first, also after a process died.
			soon := scheduler.Jitter(cfg.Serve.Interval/3, cfg.Serve.Interval)
			if last.IsZero() || err != nil {
				return soon, err
			}
			return max(soon, last.Add(scheduler.Jitter(every()*9/10, every())).Sub(v.req.Now())), nil
		},
		Open: func(context.Context, store.Lease) (scheduler.Rounds, error) {
			return &auditRounds{v: v, cfg: cfg, source: a.Source, name: name}, nil
		}}
}

// auditRounds audits an account, each time from the beginning.
type auditRounds struct {
	v      *server
	cfg    config.Config
	source clouds.Source
	name   string
}

// Round implements scheduler.Rounds.
func (a *auditRounds) Round(ctx context.Context) (scheduler.Outcome, error) {
	req := a.v.req.Fresh()
	setting, err := clouds.Setting(ctx, req, a.cfg, a.source)
	if err != nil {
		return scheduler.Outcome{}, err
	}
	setting.Books = ledger.Journal{Store: a.v.store.Ledger()}
	if err := audit.SetAudit(req, a.cfg, &setting, a.source.Cloud, nil); err != nil {
		return scheduler.Outcome{}, err
	}
	return auditOnce(ctx, a.v.store, setting, view.ScanOptions{Version: a.v.o.Version, Profile: a.source.Profile},
		a.cfg.Tags, a.name)
}

// auditOnce audits an account and keeps what was found, of which the audit log tells.
func auditOnce(ctx context.Context, s *store.Store, setting round.Setting, o view.ScanOptions,
	tags inventory.TagMapping, name string) (scheduler.Outcome, error) {
	result, err := round.New(setting).Round(ctx)
	if err != nil {
		return scheduler.Outcome{}, clouds.CloudError(err)
	}
	out := scheduler.Outcome{Resources: len(result.Resources), Calls: result.Calls, Missing: missingOf(result)}
	if err := audit.SaveScan(ctx, s, result, view.NewScan(result, o), tags, true); err != nil {
		return out, err
	}
	return out, s.PutAudited(ctx, name, result.StartedAt)
}

// missingOf lists the parts of a round that could not be read or recorded.
func missingOf(r *round.Result) []string {
	var out []string
	for _, b := range r.BlindSpots {
		out = append(out, b.What+": "+b.Why)
	}
	for account, err := range r.Unposted {
		out = append(out, "the ledger of "+account+": "+err.Error())
	}
	slices.Sort(out)
	return out
}
