package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
)

// wire returns the setting for the rounds of one account.
func (v *server) wire(ctx context.Context, cfg config.Config, f clouds.Source, set *policy.Set) (round.Setting,
	error) {
	setting, err := act.EnforceSetting(ctx, v.req.Fresh(), cfg, v.store, act.EnforceOptions{
		Source: f, Window: v.o.Window, Enforce: v.o.Enforce,
	}, set)
	if err != nil {
		return setting, err
	}
	setting.Source, setting.Query.Kinds = "serve", kindsOf(set)
	return setting, nil
}

// open returns the rounds of an account under a lease.
func (v *server) open(ctx context.Context, cfg config.Config, f clouds.Source, set *policy.Set, lease store.Lease) (
	scheduler.Rounds, error) {
	setting, err := v.wire(ctx, cfg, f, set)
	if err != nil {
		return nil, err
	}
	setting.Ladder = under(setting.Ladder, v.store, lease, v.scheduler.Metrics)
	setting.Books = v.books(cfg, set)
	var clock func() time.Time
	setting.Clock = func() time.Time { return clock() }
	begin := func(ctx context.Context) (err error) {
		clock, err = v.req.StateClock(ctx, v.store)
		return err
	}
	return &accountRounds{
		engine: round.New(setting), store: v.store, profile: f.Profile, tags: cfg.Tags, pace: v.pace, begin: begin,
		ended: v.mirrored, refusals: &v.refusals,
		carrier: &act.Carrier{Process: v.req.Process, Store: v.store, Log: v.log},
	}, nil
}

// mirrored updates the witness of the state after a round, and reports whether the state holds back
// actions.
func (v *server) mirrored(ctx context.Context) {
	if !v.o.Enforce {
		return
	}
	v.store.Flush(ctx)
	if err := v.store.HeldBack(ctx); err == nil || errors.Is(err, action.ErrFrozen) {
		v.scheduler.Problem(scheduler.ProblemState, err)
	}
}

// wholeEvery is the longest time between two rounds of an account that are posted completely.
const wholeEvery = 15 * time.Minute

// books returns what charges for the rounds of one account. All rounds are posted completely if
// policies use charges, or if accounts are read more often than every minute.
func (v *server) books(cfg config.Config, set *policy.Set) round.Books {
	if cfg.Serve.Interval < time.Minute || slices.ContainsFunc(set.Policies, (*policy.Policy).UsesCharges) {
		return ledger.Journal{Store: v.store.Ledger()}
	}
	return &ledger.Sparing{Store: v.store.Ledger(), Every: wholeEvery}
}

// under binds a ladder to a lease: it stops writing and calling once another process has taken the
// lease.
func under(
	ladders func(string) *action.Ladder, s *store.Store, lease store.Lease, m *scheduler.Metrics,
) func(string) *action.Ladder {
	return func(account string) *action.Ladder {
		l := ladders(account)
		l.Store, l.Cloud = s.Under(lease), leased{l.Cloud, s.Leases(), lease}
		l.Notifier = counted{l.Notifier, m}
		return l
	}
}

// counted counts messages to people.
type counted struct {
	action.Notifier
	metrics *scheduler.Metrics
}

// Notify implements action.Notifier.
func (c counted) Notify(ctx context.Context, recipient string, m action.Message) (string, error) {
	accepted, err := c.Notifier.Notify(ctx, recipient, m)
	c.metrics.Told(err == nil && accepted != "")
	return accepted, err
}

// leased makes calls only while the lease is held. The write before each call has checked that too,
// but the process may have been suspended in between.
type leased struct {
	action.Cloud
	leases store.Leases
	lease  store.Lease
}

// Do implements action.Cloud.
func (c leased) Do(ctx context.Context, t action.Task) (string, error) {
	if err := c.leases.Holds(ctx, c.lease); err != nil {
		return "", fmt.Errorf("nothing was called: %w", err)
	}
	return c.Cloud.Do(ctx, t)
}

// accountRounds makes the rounds of one account and keeps state between them.
type accountRounds struct {
	engine  *round.Engine
	store   *store.Store
	profile string
	tags    inventory.TagMapping
	pace    *pace // nil if reading is free
	// begin, if set, synchronizes a round with the time of the state. It is an error if this
	// machine's clock differs, because charges would have wrong times.
	begin func(context.Context) error
	// ended, if set, is called after each round.
	ended func(context.Context)
	// refusals receives each round; nil without alerts.
	refusals *act.Refusals
	// carrier continues fixes; nil leaves them to the requester.
	carrier *act.Carrier
	// foldAt is the time of the next check for something to fold.
	foldAt time.Time
	// said holds the results of the newest round, so that they are reported once.
	said map[action.Line]bool
}

// Round implements scheduler.Rounds.
func (a *accountRounds) Round(ctx context.Context) (scheduler.Outcome, error) {
	if a.begin != nil {
		if err := a.begin(ctx); err != nil {
			return scheduler.Outcome{}, err
		}
	}
	r, err := a.engine.Round(ctx)
	if a.ended != nil {
		a.ended(ctx)
	}
	if r == nil {
		return scheduler.Outcome{}, clouds.CloudError(err)
	}
	if a.refusals != nil {
		a.refusals.Add(r)
	}
	out, err2 := a.outcome(r)
	if err != nil {
		return out, runtime.StateError(err)
	}
	if err2 != nil {
		return out, err2
	}
	looks, err := audit.Observations(r, a.profile, a.tags, false)
	if err == nil {
		err = a.store.Snapshots().Save(ctx, nil, looks...)
	}
	if err != nil {
		return out, err
	}
	if err := a.fold(ctx, r); err != nil {
		out.Missing = append(out.Missing, err.Error())
	}
	if a.carrier != nil {
		for _, account := range r.Accounts {
			if err := a.carrier.Carry(ctx, r.Cloud+"/"+account, r.StartedAt); err != nil {
				out.Missing = append(out.Missing, err.Error())
			}
		}
	}
	out.Next = earliest(r.NextAt(), a.engine.NextDue())
	if a.pace == nil {
		return out, nil
	}
	if err := a.pace.saw(r); err != nil {
		return out, err
	}
	if a.pace.slowed() {
		out.Next = time.Time{}
	}
	return out, nil
}

// foldEvery is the time between two checks for something to fold once everything is folded.
const foldEvery = time.Hour

// fold folds a part of the ledger of a round's accounts if it is time.
func (a *accountRounds) fold(ctx context.Context, r *round.Result) error {
	if r.StartedAt.Before(a.foldAt) {
		return nil
	}
	a.foldAt = r.StartedAt.Add(foldEvery)
	more, err := audit.FoldLedger(ctx, a.store, r)
	if more {
		a.foldAt = r.StartedAt
	}
	return err
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// outcome converts the result of a round for the scheduler.
func (a *accountRounds) outcome(r *round.Result) (scheduler.Outcome, error) {
	out := scheduler.Outcome{Resources: len(r.Resources), Verdicts: map[string]int{}, Calls: r.Calls}
	var err error
	for _, f := range r.Facts {
		if !f.Resource.Kind.Traits().Compute || f.Resource.State != inventory.StateRunning {
			continue
		}
		state := duty.Unknown
		if f.Duty != nil {
			state = f.Duty.State
		}
		out.Verdicts[state.String()]++
		hourly, known := f.Hourly.Get()
		if !known {
			continue
		}
		if out.Running, err = out.Running.Add(hourly); err != nil {
			return out, err
		}
		if state != duty.Unknown && !state.Productive() {
			if out.Wasted, err = out.Wasted.Add(hourly); err != nil {
				return out, err
			}
		}
	}
	said := map[action.Line]bool{}
	out.Failed = map[policy.Verb]int{}
	for _, l := range r.Lines() {
		if l.Result == action.ResultFailed {
			out.Failed[l.Verb]++
		}
		switch l.Result {
		case action.ResultActed, action.ResultConfirmed, action.ResultFailed,
			action.ResultWarned, action.ResultWouldWarn,
			action.ResultUndone:
			key := action.Line{Resource: l.Resource, Source: l.Source, Verb: l.Verb, Result: l.Result}
			said[key] = true
			if !a.said[key] {
				out.Acts = append(out.Acts, scheduler.Act{
					Resource: l.Resource.ID, Verb: l.Verb, Result: string(l.Result),
				})
			}
		}
	}
	a.said = said
	out.Missing = missingOf(r)
	return out, nil
}

// asks counts the CloudWatch requests of one pass over an account.
type asks struct {
	machines int
	cost     money.Amount
}

// pace keeps the CloudWatch charges of rounds within a limit by making all rounds less frequent if
// necessary.
type pace struct {
	log *slog.Logger

	mu       sync.Mutex
	per      map[string]asks // by account
	interval time.Duration
	limit    money.Amount
	paced    time.Duration
	// audits is the time between two audits, as configured; 0 makes none.
	audits, auditsPaced time.Duration
}

// remember estimates the cost of passes by the machines in the state.
func (p *pace) remember(ctx context.Context, s *store.Store) error {
	resources, err := s.Snapshots().Resources(ctx, snapshot.Query{Cloud: "aws"})
	if err != nil {
		return err
	}
	groups := map[string]map[int]int{}
	for _, r := range resources {
		k, err := audit.KeptResource(r)
		if err != nil {
			return err
		}
		if k.Ref.Kind == inventory.KindInstance && k.State == inventory.StateRunning {
			gpus := 0
			if k.GPUs != nil {
				gpus = *k.GPUs
			}
			if groups[r.Ref.Account] == nil {
				groups[r.Ref.Account] = map[int]int{}
			}
			groups[r.Ref.Account][gpus]++
		}
	}
	for account, machines := range groups {
		if err := p.estimate(account, machines); err != nil {
			return err
		}
	}
	return nil
}

// saw replaces the known machines of a round's accounts, and replaces the estimate by the requests
// that the round made, if it read a single account completely: GPUs with metrics from elsewhere
// cause no requests.
func (p *pace) saw(r *round.Result) error {
	groups := map[string]map[int]int{}
	for _, account := range r.Accounts {
		groups[account] = map[int]int{}
	}
	for _, res := range r.Resources {
		if of := groups[res.Account]; of != nil && res.Kind == inventory.KindInstance &&
			res.State == inventory.StateRunning {
			of[res.Size.GPUs.Or(0)]++
		}
	}
	for account, machines := range groups {
		if err := p.estimate(account, machines); err != nil {
			return err
		}
	}
	if len(r.Accounts) == 1 && len(r.BlindSpots) == 0 {
		if err := p.asked(r.Accounts[0], r.Calls); err != nil {
			return err
		}
	}
	return p.settle()
}

// asked records the CloudWatch requests of a pass over an account, if there were any.
func (p *pace) asked(account string, calls []inventory.Calls) error {
	var sum money.Amount
	for _, c := range calls {
		if !strings.HasPrefix(c.API, "cloudwatch:") {
			continue
		}
		var err error
		if sum, err = sum.Add(c.Cost); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.per[account]; sum > 0 {
		of.cost = sum
		p.per[account] = of
	}
	return nil
}

// estimate prices a pass over machines by their number of GPUs.
func (p *pace) estimate(account string, machines map[int]int) error {
	var sum asks
	for gpus, n := range machines {
		one, err := clouds.WatchingPass(n, gpus)
		if err != nil {
			return err
		}
		sum.machines += n
		if sum.cost, err = sum.cost.Add(one.Cost); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.per[account] = sum
	return nil
}

// configure applies the interval and the limit of a configuration.
func (p *pace) configure(cfg config.Config) error {
	limit, err := money.ParseAmount(cfg.Metrics.CloudWatch.MaxUSDPerMonth)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.interval, p.limit = cfg.Serve.Interval, limit
	if p.audits = cfg.Serve.AuditInterval; cfg.Serve.SkipAudits {
		p.audits = 0
	}
	known := len(p.per) > 0
	p.mu.Unlock()
	if !known {
		p.log.Info("no machine is known yet: CloudWatch charges are estimated after the first pass",
			"max_usd_per_month", limit.Dollars())
	}
	return p.settle()
}

// settle determines the interval at which a month of rounds stays within the limit, and logs a
// change.
func (p *pace) settle() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all asks
	for _, x := range p.per {
		var err error
		if all.cost, err = all.cost.Add(x.cost); err != nil {
			return err
		}
		all.machines += x.machines
	}
	month := func(every time.Duration) (money.Amount, error) { return all.cost.Mul(int64(money.Month), int64(every)) }
	rounds, err := month(p.interval)
	if err != nil {
		return err
	}
	var audits money.Amount
	if p.audits > 0 {
		// An audit makes the requests of a pass. Audits take at most half of the limit.
		if audits, err = month(p.audits); err != nil {
			return err
		}
		p.auditsPaced = stretched(p.audits, audits, p.limit/2)
		audits = min(audits, p.limit/2)
	}
	paced := stretched(p.interval, rounds, p.limit-audits)
	both, err := rounds.Add(audits)
	if err != nil {
		return err
	}
	if was := p.paced; was == 0 || max(paced, was) > min(paced, was)*11/10 {
		p.paced = paced
		attrs := []any{
			"machines", all.machines, "usd_per_month", both.Dollars(), "max_usd_per_month",
			p.limit.Dollars(), "interval",
			paced,
		}
		switch {
		case paced > p.interval:
			p.log.Warn(
				"CloudWatch would cost more than metrics.cloudwatch.max_usd_per_month: passes are less frequent",
				attrs...)
		case all.machines > 0:
			p.log.Info("what CloudWatch charges is within its limit", attrs...)
		}
	}
	return nil
}

// stretched returns the interval at which a monthly cost stays within a limit.
func stretched(interval time.Duration, month, limit money.Amount) time.Duration {
	if month <= limit {
		return interval
	}
	return time.Duration(float64(interval) * float64(month) / float64(limit)).Round(time.Second)
}

// auditEvery is the time between two audits of an account.
func (p *pace) auditEvery() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.audits, p.auditsPaced)
}

// auditsSlowed reports whether audits are less frequent than configured.
func (p *pace) auditsSlowed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.auditsPaced > p.audits
}

// every is the time between two rounds.
func (p *pace) every() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paced
}

// slowed reports whether passes are less frequent than configured.
func (p *pace) slowed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paced > p.interval
}
