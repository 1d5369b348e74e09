package server

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
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

// auditPrefix begins the name of a source that audits the account of another source.
const auditPrefix = "audit "

// audited returns the source that audits an account in the background, with rules instead of
// policies: its rounds are hours apart and may take long.
func (v *server) audited(cfg config.Config, a account, made string) scheduler.Source {
	name := auditPrefix + a.name
	every := func() time.Duration { return v.pace.auditEvery() }
	accounts := &atomic.Pointer[[]string]{}
	return scheduler.Source{
		Name: name, Every: every, Deadline: max(cfg.Serve.Deadline, cfg.Serve.AuditInterval/2),
		Made: made, Background: true,
		First: func(ctx context.Context) (time.Duration, error) {
			last, err := v.store.Audited(ctx, name)
			// Passes read the current resources first, even after a process died.
			soon := scheduler.Jitter(cfg.Serve.Interval/3, cfg.Serve.Interval)
			if last.IsZero() || err != nil {
				return soon, err
			}
			return max(soon, last.Add(scheduler.Jitter(every()*9/10, every())).Sub(v.req.Now())), nil
		},
		Due: func(ctx context.Context) (bool, error) { return v.auditDue(ctx, name, accounts.Load()) },
		Open: func(context.Context, store.Lease) (scheduler.Rounds, error) {
			return &auditRounds{v: v, cfg: cfg, source: a.Source, name: name, accounts: accounts}, nil
		}}
}

// leastAuditInterval is the least time between two audits of an account.
const leastAuditInterval = 15 * time.Minute

// auditDue reports whether fixes were confirmed in the accounts of an audit since it began, so that its
// findings are outdated. Audits that CloudWatch's charges made less frequent are not made earlier.
func (v *server) auditDue(ctx context.Context, name string, accounts *[]string) (bool, error) {
	if accounts == nil || v.pace.auditsSlowed() {
		return false, nil
	}
	last, err := v.store.Audited(ctx, name)
	if err != nil || v.req.Now().Sub(last) < leastAuditInterval {
		return false, err
	}
	for _, account := range *accounts {
		if fixed, err := fixedSince(ctx, v.store, account, last); fixed || err != nil {
			return fixed, err
		}
	}
	return false, nil
}

// auditRounds audits an account, each time from scratch.
type auditRounds struct {
	v      *server
	cfg    config.Config
	source clouds.Source
	name   string
	// accounts holds those of the newest audit, such as aws/123456789012.
	accounts *atomic.Pointer[[]string]
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
	out, result, err := auditOnce(ctx, a.v.store, setting,
		view.ScanOptions{Version: a.v.o.Version, Profile: a.source.Profile}, a.cfg.Tags, a.name)
	if err == nil {
		accounts := make([]string, 0, len(result.Accounts))
		for _, id := range result.Accounts {
			accounts = append(accounts, a.source.Cloud+"/"+id)
		}
		a.accounts.Store(&accounts)
	}
	return out, err
}

// auditOnce audits an account, and stores the findings with their audit entries.
func auditOnce(ctx context.Context, s *store.Store, setting round.Setting, o view.ScanOptions,
	tags inventory.TagMapping, name string) (scheduler.Outcome, *round.Result, error) {
	result, err := round.New(setting).Round(ctx)
	if err != nil {
		return scheduler.Outcome{}, nil, clouds.CloudError(err)
	}
	out := scheduler.Outcome{Resources: len(result.Resources), Calls: result.Calls, Missing: missingOf(result)}
	doc := view.NewScan(result, o)
	in := audit.PlanInput{Result: result, Cloud: doc.Cloud, Book: setting.Prices, Ledger: s.Ledger()}
	if err := audit.AddPlan(ctx, in, &doc); err != nil {
		out.Missing = append(out.Missing, err.Error())
	}
	if err := audit.SaveScan(ctx, s, result, doc, tags, true); err != nil {
		return out, result, err
	}
	return out, result, s.PutAudited(ctx, name, result.StartedAt)
}

// fixedSince reports whether the fix of a finding was confirmed since a time, in an account such as
// aws/123456789012, or in any if it is empty.
func fixedSince(ctx context.Context, s *store.Store, account string, since time.Time) (bool, error) {
	var items []string
	err := s.Actions().Entries(ctx, action.Query{What: action.EventConfirmed, Account: account, Since: since},
		func(e action.Entry) error {
			items = append(items, e.Item)
			return nil
		})
	for _, id := range items {
		it, err := s.Actions().Item(ctx, id)
		if err != nil {
			return false, err
		}
		if strings.HasPrefix(it.Source, round.FindingSource("")) {
			return true, nil
		}
	}
	return false, err
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
