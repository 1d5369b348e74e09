package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// sessionEntry returns an audit entry about a session.
func sessionEntry(a *Sessions, s session.Session, actor, outcome string) action.Entry {
	return action.Entry{
		At: a.now(), Account: s.Provider + "/" + s.Account, Actor: actor, What: action.EventSession,
		Resource: "session/" + s.Name, Item: s.ID, Verb: string(s.State), Outcome: outcome,
	}
}

// EstimateSession estimates the cost of a session at a provider.
func (a *Sessions) EstimateSession(ctx context.Context, sp *spec.Spec, cloud string) (*estimate.Estimate, error) {
	if cloud == clouds.ProviderAWS && a.Keeper.Launchers[cloud] != nil {
		machines, err := a.aws.machines()
		if err != nil {
			return nil, err
		}
		regions, err := machines.Regions(ctx, sp)
		if err != nil {
			return nil, noBackboneError(sp, err)
		}
		return estimateByBook(ctx, a, sp, regions)
	}
	l := a.Keeper.Launchers[cloud]
	if l == nil {
		return nil, noLauncher(cloud)
	}
	if cloud == clouds.ProviderSimulated { // it has the prices of AWS
		regions := sp.Regions
		if len(regions) == 0 {
			regions = sim.Regions()
		}
		return estimateByBook(ctx, a, sp, regions)
	}
	pools, err := l.Pools(ctx, sp)
	if err != nil {
		return nil, &runtime.Error{
			Code: "no_machine", Err: fmt.Errorf("look for a place for %s %s: %w", sp.Kind, sp.Name, err),
		}
	}
	if len(pools) == 0 {
		return nil, &runtime.Error{
			Code: "no_machine", Err: fmt.Errorf("there is no place for %s %s", sp.Kind, sp.Name),
		}
	}
	return estimate.At(sp, estimate.Place{
		Machine: cmp.Or(pools[0].Type, "this machine"), Region: pools[0].Region, Hourly: pools[0].Rate,
		Source: "rates of curfew.yaml", AsOf: a.now(), Missing: missingRates(sp, a.now()),
	})
}

// missingRates returns the lines of curfew.yaml that price a machine of its owner, with figures to
// replace.
func missingRates(sp *spec.Spec, now time.Time) string {
	gpu := ""
	if sp.Resources.GPUs > 0 {
		gpu = fmt.Sprintf(`gpu_hour: {%s: "0.60"}, `, sp.Resources.GPU)
	}
	return fmt.Sprintf(`add to curfew.yaml, with what an hour costs you: `+
		`rates: {source: me, as_of: %s, %svcpu_hour: "0.04", memory_gib_hour: "0.005"}`,
		plain.Date(now.UTC()), gpu)
}

// rateLeewayPercent is how much more than the cheapest machine a replacement without capacity
// problems may cost.
const rateLeewayPercent = 50

// estimateByBook estimates the cost of a session in regions by the price book. An unknown price is
// stated in the estimate and makes the gate ask.
func estimateByBook(ctx context.Context, a *Sessions, sp *spec.Spec, regions []string) (*estimate.Estimate, error) {
	book, err := a.Request.PriceBook(a.Config)
	if err != nil {
		return nil, err
	}
	where := *sp
	where.Regions = regions
	p := estimate.Params{Now: a.now(), Tags: &a.Config.Tags}
	if p.Defaults.Interruptions, err = a.Request.Interruptions(a.Config); err != nil {
		return nil, err
	}
	if p.Defaults.Advisor, err = a.Request.Advisor(a.Config.Spot.Advisor); err != nil {
		return nil, err
	}
	if p.History, err = govern.PastRuns(ctx, a.store); err != nil {
		return nil, err
	}
	e, err := estimate.New(&where, book, p)
	switch {
	case errors.Is(err, price.ErrUnpriced):
		e, err = estimate.At(sp, estimate.Place{
			Machine: cmp.Or(sp.Resources.InstanceType, sp.Resources.GPU, "a machine"), Region: regions[0],
			Missing: "run `curfew price update --from aws`",
		})
	case err == nil && sp.Resources.InstanceType == "":
		err = e.Leeway(rateLeewayPercent)
	}
	if e != nil {
		e.SpecHash = sp.Hash()
	}
	return e, runtime.PlanError(err)
}

// admit asks the gate about a recorded session and stores the decision in the record.
func (a *Sessions) admit(ctx context.Context, s session.Session, who approval.Person) (*gate.Decision, error) {
	g := &sessionGate{sessions: a, person: who}
	k := *a.Keeper
	k.Gate = g
	// The keeper retries what fails after the decision.
	if _, err := k.Keep(ctx, s.ID); err != nil && g.decision == nil {
		return nil, runtime.StateError(err)
	}
	return g.decision, nil
}

// sessionGate implements session.Gate for one person.
type sessionGate struct {
	sessions *Sessions
	person   approval.Person
	// decision is the last decision.
	decision *gate.Decision
}

// Admit implements session.Gate.
func (g *sessionGate) Admit(ctx context.Context, s *session.Session) (session.Admission, error) {
	a := g.sessions
	sp, err := spec.Parse(s.Name, s.Spec)
	if err != nil {
		return session.Admission{}, err
	}
	e, err := a.EstimateSession(ctx, sp, s.Provider)
	if err != nil {
		return session.Admission{}, err
	}
	admission, d, err := a.Decide(ctx, e, g.person, s.ID)
	if err == nil {
		g.decision = &d
	}
	return admission, err
}

// Decide asks the gate about the estimate of a run and tells approvers of a new request.
func (a *Sessions) Decide(ctx context.Context, e *estimate.Estimate, who approval.Person, key string) (
	session.Admission, gate.Decision, error) {
	params, err := spend.GateParams(ctx, a.Request, a.Config, a.Decider, a.store)
	if err != nil {
		return session.Admission{}, gate.Decision{}, err
	}
	ask := gate.NewAsk(e, who, key)
	ask.Bounded = approval.Request{Kind: e.Kind}.Bounded() // its keeper ends it in time
	c := &gate.Counter{Ask: ask, Params: params}
	d, err := c.Decide(ctx)
	if err != nil {
		return session.Admission{}, d, err
	}
	if r, err := c.Waiting(ctx, d); err == nil && r != nil && r.AskedAt.Equal(params.Now) {
		govern.TellApprovers(ctx, a.Request, a.Config, *r)
	}
	return session.Admission{
		Verdict: d.Decision, HoldID: d.HoldID, ApprovalID: d.ApprovalID, Reasons: d.Reasons, HourlyLimit: e.Hourly,
	}, d, nil
}

// extendHold extends the hold of a session to a time; nil if it has none.
func (a *Sessions) extendHold(ctx context.Context, s session.Session, until time.Time, who approval.Person) (
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

// sessionHolds implements session.Holds.
type sessionHolds struct{ sessions *Sessions }

// Close implements session.Holds.
func (h sessionHolds) Close(ctx context.Context, s *session.Session, actual money.Amount, ran bool) error {
	run := heldRun{s.ID, s.HoldID, cmp.Or(s.EndedBy, s.RequestedBy), s.RequestedAt}
	return h.sessions.closeHolds(ctx, run, actual, ran)
}

// heldRun is a session or job whose holds are closed.
type heldRun struct {
	id, hold, by string
	requestedAt  time.Time
}

// closeHolds closes the holds of a run. It finds them by the run's key, because a process may crash
// between the hold and the record that names it.
func (a *Sessions) closeHolds(ctx context.Context, run heldRun, actual money.Amount, ran bool) error {
	st := a.store.Budgets()
	all, err := st.Holds(ctx, run.requestedAt.Add(-time.Hour), a.now().Add(budget.MaxRun))
	if err != nil {
		return err
	}
	desk := budget.Desk{Store: st}
	for _, hold := range all {
		if hold.Run != run.id && (run.hold == "" || hold.ID != run.hold) || hold.State != budget.Live &&
			hold.State != budget.Pending {
			continue
		}
		if ran && hold.State == budget.Live {
			_, err = desk.Settle(ctx, hold.ID, actual, run.by, a.now())
		} else {
			_, err = desk.Release(ctx, hold.ID, run.by, a.now())
		}
		if err != nil && !errors.Is(err, budget.ErrConflict) {
			return err
		}
	}
	return nil
}

// sessionLedger charges for local sessions. Rounds charge for cloud machines, but do not see local
// ones.
type sessionLedger struct{ sessions *Sessions }

// Charge implements session.Ledger. It charges from the launch to the end; one second before the
// end the machine still ran.
func (b sessionLedger) Charge(ctx context.Context, s *session.Session, at time.Time, ended bool) error {
	if s.Provider != clouds.ProviderLocal || len(s.Machines) == 0 {
		return nil
	}
	at = wholeSeconds(at)
	measured, err := b.measured(ctx, s, at)
	if err != nil {
		return err
	}
	for _, m := range s.Former {
		if err := b.chargeFormer(ctx, s, m, at); err != nil {
			return err
		}
	}
	if s.ChargedUntil.IsZero() || ended {
		if err := b.post(ctx, s, wholeSeconds(s.LaunchedAt), inventory.StateRunning, nil); err != nil {
			return err
		}
	}
	if !ended {
		return b.post(ctx, s, at, inventory.StateRunning, measured)
	}
	if before := at.Add(-time.Second); before.After(s.LaunchedAt) {
		if err := b.post(ctx, s, before, inventory.StateRunning, measured); err != nil {
			return err
		}
	}
	return b.post(ctx, s, at, inventory.StateDeleting, measured)
}

// chargeFormer charges for a machine that was replaced, from its launch to its end.
func (b sessionLedger) chargeFormer(ctx context.Context, s *session.Session, m session.Machine, at time.Time) error {
	until, of := at, *s
	of.Machines = []session.Machine{m}
	if !m.EndedAt.IsZero() && m.EndedAt.Before(at) {
		until = wholeSeconds(m.EndedAt)
	}
	if err := b.post(ctx, &of, wholeSeconds(m.LaunchedAt), inventory.StateRunning, nil); err != nil {
		return err
	}
	if before := until.Add(-time.Second); before.After(m.LaunchedAt) {
		if err := b.post(ctx, &of, before, inventory.StateRunning, nil); err != nil {
			return err
		}
	}
	if m.EndedAt.IsZero() {
		return nil
	}
	return b.post(ctx, &of, until, inventory.StateDeleting, nil)
}

// measured returns the duty spans of a session's first machine by node. From the launch until it
// was ready it warms up; later spans come from the journal of its agent.
func (b sessionLedger) measured(ctx context.Context, s *session.Session, until time.Time) (map[int][]ledger.Span,
	error) {
	events, err := b.sessions.store.Sessions().Events(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	all := map[int][]ledger.Span{}
	for _, m := range s.Machines {
		var spans []ledger.Span
		next := func(at time.Time, state duty.State) {
			at = wholeSeconds(at)
			if n := len(spans); n > 0 {
				if spans[n-1].To = at; !at.After(spans[n-1].From) {
					spans = spans[:n-1]
				}
			}
			if at.Before(until) {
				spans = append(spans, ledger.Span{From: at, To: until, State: state})
			}
		}
		began := s.LaunchedAt
		if m.Round > 0 {
			began = m.LaunchedAt
		}
		next(began, duty.Warming)
		for _, e := range events {
			if e.Node != s.HostNumber(m.Node) || e.At.Before(began) {
				continue
			}
			if state, ok := stateOfEvent(e.Event); ok {
				next(e.At, state)
			}
		}
		all[m.Node] = slices.DeleteFunc(spans, func(p ledger.Span) bool { return p.State == duty.Unknown })
	}
	return all, nil
}

// stateOfEvent returns the state that an event of an agent's journal begins.
func stateOfEvent(e session.Event) (duty.State, bool) {
	switch e.Kind {
	case "ready":
		return duty.Busy, true // until it is measured
	case "idle", "busy":
		word, _, _ := strings.Cut(e.Text, ":")
		for _, state := range []duty.State{duty.Busy, duty.Idle, duty.Held, duty.Unknown} {
			if word == state.String() {
				return state, true
			}
		}
	}
	return duty.Unknown, false
}

// wholeSeconds truncates a time to seconds, the resolution of the ledger.
func wholeSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// post records the state of a session's machines at a time in the ledger.
func (b sessionLedger) post(ctx context.Context, s *session.Session, at time.Time, state inventory.State,
	measured map[int][]ledger.Span) error {
	purpose := inventory.Experimentation
	if sp, err := spec.Parse(s.Name, s.Spec); err == nil && sp.Purpose != "" {
		purpose = sp.Purpose
	}
	var seen []ledger.Observation
	for _, m := range s.Machines {
		o := ledger.Observation{
			At: at, Ref: inventory.Ref{
				Cloud: s.Provider, Account: s.Account, Region: cmp.Or(m.Pool.Region, local.Site),
				Kind: inventory.KindInstance,
				ID:   m.ID,
			},
			Attributes: ledger.Attributes{
				Name: s.Name, Type: m.Pool.Type, Owner: s.Owner, Purpose: purpose,
				Lifetime: inventory.Ephemeral, Hold: s.HoldID,
			},
			State: state, StateSince: wholeSeconds(m.LaunchedAt), CreatedAt: wholeSeconds(m.LaunchedAt),
			Duty: measuredBefore(measured[m.Node], at)}
		if state == inventory.StateRunning {
			meter := ledger.Meter{
				Name: "compute", Category: ledger.Compute, Source: "rates of curfew.yaml",
				AsOf: wholeSeconds(m.LaunchedAt),
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
	if _, err := ledger.Post(ctx, b.sessions.store.Ledger(), ledger.Round{
		Account: ledger.Account{Cloud: s.Provider, ID: s.Account}, At: at, Source: "session",
	}, seen); err != nil {
		return fmt.Errorf("charge session %s: %w", s.Name, err)
	}
	return nil
}

// measuredBefore returns the parts of some spans before a time.
func measuredBefore(spans []ledger.Span, at time.Time) (out []ledger.Span) {
	for _, p := range spans {
		if p.From.Before(at) {
			p.To = minTime(p.To, at)
			out = append(out, p)
		}
	}
	return out
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// noLauncher returns the error for a provider without sessions.
func noLauncher(cloud string) error {
	return &runtime.Error{
		Class: runtime.Usage, Code: "no_launcher", Err: fmt.Errorf("sessions cannot be started at %q here", cloud),
		Hint: "see docs/sessions.md",
	}
}
