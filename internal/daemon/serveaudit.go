package daemon

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/service"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// auditPrefix begins the name of the source that audits the account of another one.
const auditPrefix = "audit "

// audited is the source that audits an account in the background, with rules in place of
// policies: its rounds are hours apart and may take long.
func (v *server) audited(cfg config.Config, a watched, made string) service.Source {
	name := auditPrefix + a.name
	every := func() time.Duration { return v.pace.auditEvery() }
	return service.Source{Name: name, Every: every, Deadline: max(cfg.Serve.Deadline, cfg.Serve.AuditInterval/2), Made: made, Background: true, Member: a.member,
		First: func(ctx context.Context) (time.Duration, error) {
			last, err := v.store.Audited(ctx, name)
			// What is there now is read by the passes first, also after a process died.
			soon := upTo(cfg.Serve.Interval/3, cfg.Serve.Interval)
			if last.IsZero() || err != nil {
				return soon, err
			}
			return max(soon, last.Add(upTo(every()*9/10, every())).Sub(v.rt.Now())), nil
		},
		Open: func(context.Context, store.Lease) (service.Rounds, error) {
			return &auditRounds{v: v, cfg: cfg, source: a.Source, name: name}, nil
		}}
}

// upTo is a time from one to another, so that accounts are not audited at once.
func upTo(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Float64()*float64(high-low)) //nolint:gosec // it spreads load
}

// auditRounds audits an account, each time from the beginning.
type auditRounds struct {
	v      *server
	cfg    config.Config
	source Source
	name   string
}

// Round implements service.Rounds.
func (a *auditRounds) Round(ctx context.Context) (service.Outcome, error) {
	rt := a.v.rt.For()
	setting, err := rt.Setting(ctx, a.cfg, a.source)
	if err != nil {
		return service.Outcome{}, err
	}
	setting.Books = ledger.Journal{Store: a.v.store.Ledger()}
	if err := rt.auditing(a.cfg, &setting, a.source.Cloud, nil); err != nil {
		return service.Outcome{}, err
	}
	return auditOnce(ctx, a.v.store, setting, view.ScanOptions{Version: a.v.o.Version, Profile: a.source.Profile}, a.cfg.Tags, a.name)
}

// auditOnce audits an account and keeps what was found, of which the audit log tells.
func auditOnce(ctx context.Context, s *store.Store, setting round.Setting, o view.ScanOptions, tags inventory.TagMapping, name string) (service.Outcome, error) {
	audit, err := round.New(setting).Round(ctx)
	if err != nil {
		return service.Outcome{}, CloudError(err)
	}
	out := service.Outcome{Resources: len(audit.Resources), Calls: audit.Calls, Missing: missingOf(audit)}
	if err := keepScan(ctx, s, audit, view.NewScan(audit, o), tags, true); err != nil {
		return out, err
	}
	return out, s.PutAudited(ctx, name, audit.StartedAt)
}

// missingOf is what a round could not read or record, in a line each.
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
