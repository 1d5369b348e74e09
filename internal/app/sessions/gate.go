package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// sessionEntry is an entry of the audit log about a session.
func sessionEntry(a *Sessions, s session.Session, actor, outcome string) action.Entry {
	return action.Entry{
		At: a.now(), Account: s.Provider + "/" + s.Account, Actor: actor, What: action.EventSession,
		Resource: "session/" + s.Name, Item: s.ID, Verb: string(s.State), Outcome: outcome,
	}
}

// EstimateSession says what a session will cost at a provider.
func (a *Sessions) EstimateSession(ctx context.Context, sp *spec.Spec, cloud string) (*estimate.Estimate, error) {
	if cloud == clouds.ProviderAWS {
		return estimateAWS(ctx, a, sp)
	}
	l := a.Keeper.Launchers[cloud]
	if l == nil {
		return nil, noLauncher(cloud)
	}
	pools, err := l.Pools(ctx, sp)
	if err != nil {
		return nil, &runtime.Error{Code: "no_machine", Err: fmt.Errorf("look for a place for session %s: %w", sp.Name, err)}
	}
	if len(pools) == 0 {
		return nil, &runtime.Error{Code: "no_machine", Err: fmt.Errorf("there is no place for session %s", sp.Name)}
	}
	return estimate.At(sp, estimate.Place{
		Machine: cmp.Or(pools[0].Type, "this machine"), Region: pools[0].Region, Hourly: pools[0].Rate,
		Source: "rates of curfew.yaml", AsOf: a.now(),
	})
}

// leeway is how many percent more than the cheapest machine another one may cost an hour that
// is taken where the cheapest has no capacity.
const leeway = 50

// estimateAWS says what a session will cost in the regions that it may run in. Where a price is
// not known, the estimate says so and the gate asks.
func estimateAWS(ctx context.Context, a *Sessions, sp *spec.Spec) (*estimate.Estimate, error) {
	book, err := a.Request.PriceBook(a.Config)
	if err != nil {
		return nil, err
	}
	machines, err := a.aws.machines()
	if err != nil {
		return nil, err
	}
	regions, err := machines.Regions(ctx, sp)
	if err != nil {
		return nil, noPlace(sp, err)
	}
	where := *sp
	where.Regions = regions
	p := estimate.Params{Now: a.now(), Tags: &a.Config.Tags}
	if p.Defaults.Interruptions, err = a.Request.Interruptions(a.Config); err != nil {
		return nil, err
	}
	e, err := estimate.New(&where, book, p)
	switch {
	case errors.Is(err, price.ErrUnpriced):
		e, err = estimate.At(sp, estimate.Place{
			Machine: cmp.Or(sp.Resources.InstanceType, sp.Resources.GPU, "a machine"), Region: regions[0],
			Missing: "run `curfew price update`",
		})
	case err == nil && sp.Resources.InstanceType == "":
		err = e.Leeway(leeway)
	}
	if e != nil {
		e.SpecHash = sp.Hash()
	}
	return e, runtime.PlanError(err)
}

// admit asks the gate about a session that is recorded, and keeps the answer in its record.
func (a *Sessions) admit(ctx context.Context, s session.Session, who approval.Person) (*gate.Decision, error) {
	g := &sessionGate{a: a, who: who}
	k := *a.Keeper
	k.Gate = g
	// What fails after the gate has decided is tried again by the keeper.
	if _, err := k.Keep(ctx, s.ID); err != nil && g.decision == nil {
		return nil, runtime.StateError(err)
	}
	return g.decision, nil
}

// sessionGate is the gate for one person.
type sessionGate struct {
	a   *Sessions
	who approval.Person
	// decision is what was decided last.
	decision *gate.Decision
}

// Admit implements session.Gate.
func (g *sessionGate) Admit(ctx context.Context, s *session.Session) (session.Admission, error) {
	a := g.a
	sp, err := spec.Parse(s.Name, s.Spec)
	if err != nil {
		return session.Admission{}, err
	}
	e, err := a.EstimateSession(ctx, sp, s.Provider)
	if err != nil {
		return session.Admission{}, err
	}
	params, err := spend.GateParams(ctx, a.Request, a.Config, a.Decider, a.store)
	if err != nil {
		return session.Admission{}, err
	}
	c := &gate.Counter{Ask: gate.AskOf(e, g.who, s.ID), Params: params}
	d, err := c.Decide(ctx)
	if err != nil {
		return session.Admission{}, err
	}
	if r, err := c.Waiting(ctx, d); err == nil && r != nil && r.AskedAt.Equal(params.Now) {
		govern.TellApprovers(ctx, a.Request, a.Config, *r)
	}
	g.decision = &d
	return session.Admission{
		Verdict: d.Decision, HoldID: d.HoldID, ApprovalID: d.ApprovalID, Reasons: d.Reasons, HourlyLimit: e.Hourly,
	}, nil
}

// prolongHold lets the hold of a session last until a time; nil where it has none.
func (a *Sessions) prolongHold(ctx context.Context, s session.Session, until time.Time, who approval.Person) (
	*gate.Decision, error) {
	if s.HoldID == "" {
		return nil, nil
	}
	params, err := spend.GateParams(ctx, a.Request, a.Config, a.Decider, a.store)
	if err != nil {
		return nil, err
	}
	params.AskedProof = who.Proof
	h, err := a.store.Budgets().Hold(ctx, s.HoldID)
	if err != nil {
		return nil, err
	}
	amount := h.Amount
	if more := until.Sub(s.LeaseUntil); more > 0 {
		cost, err := h.Hourly.Mul(int64(more), int64(time.Hour))
		if err == nil {
			amount, err = amount.Add(cost)
		}
		if err != nil {
			return nil, err
		}
	}
	d, err := gate.Extend(ctx, h.ID, amount, until, who.Name, params)
	if err != nil {
		return nil, runtime.StateError(err)
	}
	return &d, nil
}

// sessionHolds closes the holds of sessions.
type sessionHolds struct{ a *Sessions }

// Close implements session.Holds. It finds them by the run's key, because a process may have
// died between the hold and the record that names it.
func (h sessionHolds) Close(ctx context.Context, s *session.Session, actual money.Amount, ran bool) error {
	st := h.a.store.Budgets()
	all, err := st.Holds(ctx, s.RequestedAt.Add(-time.Hour), h.a.now().Add(budget.MaxRun))
	if err != nil {
		return err
	}
	desk, by := budget.Desk{Store: st}, cmp.Or(s.EndedBy, s.RequestedBy)
	for _, hold := range all {
		if hold.Run != s.ID && (s.HoldID == "" || hold.ID != s.HoldID) || hold.State != budget.Live &&
			hold.State != budget.Pending {
			continue
		}
		if ran && hold.State == budget.Live {
			_, err = desk.Settle(ctx, hold.ID, actual, by, h.a.now())
		} else {
			_, err = desk.Release(ctx, hold.ID, by, h.a.now())
		}
		if err != nil && !errors.Is(err, budget.ErrConflict) {
			return err
		}
	}
	return nil
}

// sessionBooks charge for local sessions: a round observes the machines of a cloud, and
// no one else knows those of this one.
type sessionBooks struct{ a *Sessions }

// Charge implements session.Ledger. What is charged is from the launch, which is observed
// itself, to the end; a second before the end the machine still ran.
func (b sessionBooks) Charge(ctx context.Context, s *session.Session, at time.Time, ended bool) error {
	if s.Provider != clouds.ProviderLocal || len(s.Machines) == 0 {
		return nil
	}
	at = whole(at)
	if s.ChargedUntil.IsZero() || ended {
		if err := b.post(ctx, s, whole(s.LaunchedAt), inventory.StateRunning); err != nil {
			return err
		}
	}
	if !ended {
		return b.post(ctx, s, at, inventory.StateRunning)
	}
	if before := at.Add(-time.Second); before.After(s.LaunchedAt) {
		if err := b.post(ctx, s, before, inventory.StateRunning); err != nil {
			return err
		}
	}
	return b.post(ctx, s, at, inventory.StateDeleting)
}

// whole is a time in whole seconds, as the ledger keeps it.
func whole(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// post tells the ledger what the machines of a session were at a time.
func (b sessionBooks) post(ctx context.Context, s *session.Session, at time.Time, state inventory.State) error {
	var seen []ledger.Observation
	for _, m := range s.Machines {
		o := ledger.Observation{
			At: at, Ref: inventory.Ref{
				Cloud: s.Provider, Account: s.Account, Region: cmp.Or(m.Pool.Region, local.Site), Kind: inventory.KindInstance,
				ID: m.ID,
			},
			Attributes: ledger.Attributes{
				Name: s.Name, Type: m.Pool.Type, Owner: s.Owner, Purpose: inventory.Experimentation,
				Lifetime: inventory.Ephemeral, Hold: s.HoldID,
			},
			State: state, StateSince: whole(m.LaunchedAt), CreatedAt: whole(m.LaunchedAt)}
		if state == inventory.StateRunning {
			meter := ledger.Meter{
				Name: "compute", Category: ledger.Compute, Source: "rates of curfew.yaml", AsOf: whole(m.LaunchedAt),
			}
			if m.Pool.Rate == nil {
				meter.Unpriced = "no rate is configured"
			} else if monthly, err := m.Pool.Rate.Times(money.HoursPerMonth); err != nil {
				return err
			} else {
				meter.Monthly = monthly
			}
			o.Meters = []ledger.Meter{meter}
		} else {
			o.StateSince = at
		}
		seen = append(seen, o)
	}
	if _, err := ledger.Post(ctx, b.a.store.Ledger(), ledger.Round{
		Account: ledger.Account{Cloud: s.Provider, ID: s.Account}, At: at, Source: "session",
	}, seen); err != nil {
		return fmt.Errorf("charge session %s: %w", s.Name, err)
	}
	return nil
}

// noLauncher says that sessions cannot be started at a provider, and what to do.
func noLauncher(cloud string) error {
	return &runtime.Error{
		Class: runtime.Usage, Code: "no_launcher", Err: fmt.Errorf("sessions cannot be started at %q here", cloud),
		Hint: "see docs/sessions.md",
	}
}
