package fleets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	// classDemand is the class of evidence of sizes that follow demand.
	classDemand = "demand"
	// stuckAfter is the least age of a machine that does not serve from which it counts as stuck, and
	// stuckAdds the number of times to add a replica after which it does.
	stuckAfter = 10 * time.Minute
	stuckAdds  = 3
	// findTimeout bounds the search for a fleet.
	findTimeout = time.Minute
	// maxDecisionAge is the age from which a decision is too old to be carried out.
	maxDecisionAge = 2 * fleet.DefaultInterval
)

// Provider is the resource of a fleet in its cloud.
type Provider struct {
	Ref   inventory.Ref
	Cloud Cloud
	// Machine returns the cost and the size of a machine of a type.
	Machine func(machineType, region string) Machine
}

// machine returns the machine of a fleet; of several types the most expensive, so that budgets and limits hold
// whichever starts. Its price is unknown where that of one type is.
func (p *Provider) machine(at action.Fleet) Machine {
	if len(at.Types) == 0 {
		return p.Machine(at.Resource.Type, p.Ref.Region)
	}
	var out Machine
	for i, name := range at.Types {
		m := p.Machine(name, p.Ref.Region)
		hourly, priced := m.Hourly.Get()
		if !priced {
			return Machine{}
		}
		if i == 0 || hourly > out.Hourly.Or(0) {
			out = m
		}
	}
	return out
}

// Cloud reads fleets and sets their sizes.
type Cloud interface {
	action.Cloud
	action.FleetCloud
}

// Machine is a type of machine.
type Machine struct {
	// Hourly is unknown without a price.
	Hourly inventory.Fact[money.Amount]
	Size   inventory.Size
}

// Growth is machines that a fleet grows by.
type Growth struct {
	Policy string
	Fleet  action.Fleet
	// Machine is the type of the new machines.
	Machine Machine
	// Size is the number of machines after it.
	Size int
	// Hourly is the cost of the new machines together.
	Hourly money.Amount
	At     time.Time
}

// Machines returns the number of new machines.
func (g Growth) Machines() int { return g.Size - g.Fleet.Desired }

// Acting carries decisions out.
type Acting struct {
	// Ladder returns the ladder of the account of a fleet, under a lease that one process holds.
	Ladder func(p *Provider) (*action.Ladder, error)
	// Admit reserves the cost of a growth in the budgets, or returns a *action.Refusal. Release gives
	// the reservation back where nothing was started.
	Admit func(ctx context.Context, g Growth) (release func(context.Context) error, err error)
}

// provided returns where a fleet that is acted on is set and what it is there; nil for one that is not.
func (w *Watcher) provided(ctx context.Context, one *watched) (*Provider, action.Fleet, error) {
	if w.Find == nil || one.policy == nil || one.policy.Mode != policy.Enforce {
		return nil, action.Fleet{}, nil
	}
	p := one.provider
	var err error
	if p == nil {
		finding, stop := context.WithTimeout(ctx, findTimeout)
		defer stop()
		if p, err = w.Find(finding, &one.policy.Do); err != nil {
			return nil, action.Fleet{}, err
		}
	}
	reading, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	f, err := p.Cloud.Fleet(reading, p.Ref)
	if errors.Is(err, inventory.ErrNotFound) {
		p = nil // it may have been made again in another place
	}
	return p, f, err
}

// decideAt decides about a fleet from what it is at its provider.
func (w *Watcher) decideAt(one *watched, r fleet.Reading, at action.Fleet, idle []string) {
	r.Actual, r.Stuck = at.Desired, one.stuck(at, r.At)
	r.Ready = min(r.Ready, r.Actual)
	one.seen, one.idle = at, idle
	one.status.Replicas, one.status.ReplicasKnown = at.Desired, true
	z := resize{fleet: one, provider: one.provider, at: at}
	one.status.Hourly, one.status.Unpriced = one.provider.machine(at).Hourly, ""
	if _, priced := one.status.Hourly.Get(); !priced {
		one.status.Unpriced = z.noPrice()
	}
	w.decide(one, one.within(at), r)
	if d := one.status.Decision; d.Wanted == d.Actual {
		w.blocked(one, "")
	}
}

// within returns the configuration of a fleet with the bounds of its provider as well.
func (one *watched) within(at action.Fleet) fleet.Config {
	c := one.config
	if least, most := max(c.Min, at.Min), min(c.Max, at.Max); least <= most && most > 0 {
		c.Min, c.Max, c.Zero = least, most, c.Zero && least == 0
	}
	return c
}

// stuck counts the machines that were launched long ago and do not serve.
func (one *watched) stuck(at action.Fleet, now time.Time) (n int) {
	after := max(stuckAfter, stuckAdds*one.config.AddTime)
	for _, r := range at.Replicas {
		if !r.Serving && !r.LaunchedAt.IsZero() && now.Sub(r.LaunchedAt) > after {
			n++
		}
	}
	return n
}

// blocked notes why a decision is not carried out, and logs it where that is news. It reports whether
// it is.
func (w *Watcher) blocked(one *watched, why string) bool {
	if one.status.Blocked == why {
		return false
	}
	one.status.Blocked = why
	if why != "" {
		w.log.Warn("the size of a fleet is not set", "fleet", one.status.ID, "policy", one.status.Policy, "why", why)
	}
	return true
}

// Act carries the newest decisions out, and looks up what is under way. It returns a line for each
// fleet with something to report.
func (w *Watcher) Act(ctx context.Context, a Acting) ([]action.Line, error) {
	var lines []action.Line
	var errs []error
	for _, s := range w.All() {
		out, err := w.act(ctx, a, s.ID)
		lines = append(lines, out...)
		if err != nil {
			errs = append(errs, fmt.Errorf("fleet %s: %w", s.ID, err))
		}
	}
	return lines, errors.Join(errs...)
}

// resize is one decision to carry out.
type resize struct {
	watcher  *Watcher
	fleet    *watched
	provider *Provider
	at       action.Fleet
	decision fleet.Decision
	do       policy.Do
	clock    func() action.Clock
}

func (w *Watcher) act(ctx context.Context, a Acting, id string) ([]action.Line, error) {
	w.mu.Lock()
	one := w.fleets[id]
	if one == nil || one.provider == nil || one.policy.Mode != policy.Enforce {
		w.mu.Unlock()
		return nil, nil
	}
	z := &resize{watcher: w, fleet: one, provider: one.provider, at: one.seen, decision: one.status.Decision}
	idle, done := one.idle, one.carriedOut.Equal(z.decision.At)
	w.mu.Unlock()
	if z.decision.Wanted >= z.at.Desired {
		if err := one.resume(ctx); err != nil {
			w.log.Warn("machines get requests again later", "fleet", id, "why", err)
		}
	}
	ladder, err := a.Ladder(z.provider)
	if err != nil {
		return nil, err
	}
	ladder.Verify, z.clock = z.verify, ladder.Clock
	open, err := ladder.Store.Items(ctx, ladder.Account, action.ItemQuery{
		Refs: []inventory.Ref{z.provider.Ref}, Sources: []string{one.policy.Name},
	})
	if err != nil {
		return nil, err
	}
	look := action.Scope{
		Sources: []string{one.policy.Name}, Evaluated: map[inventory.Ref]bool{z.provider.Ref: true},
		Selected: map[string]int{one.policy.Name: 1},
	}
	release := func(context.Context) error { return nil }
	underWay := slices.ContainsFunc(open, func(it action.Item) bool {
		return it.Phase == action.Acting || it.Phase == action.Confirming
	})
	if !underWay && !done {
		var p *action.Proposal
		if p, release, err = z.propose(ctx, a, ladder, idle); err != nil {
			return nil, err
		}
		if p != nil {
			look.Proposals = []action.Proposal{*p}
		}
	}
	if look.Proposals == nil && len(open) == 0 {
		return nil, nil
	}
	report, err := ladder.Round(ctx, look)
	return report.Lines, errors.Join(err, z.finish(ctx, report, release))
}

// finish notes what came of a round, and gives back what was reserved for machines that were not
// started.
func (z *resize) finish(ctx context.Context, report action.Report, release func(context.Context) error) error {
	why, called := "", false
	for _, l := range report.Lines {
		if l.Resource != z.provider.Ref || l.Source != z.fleet.policy.Name {
			continue
		}
		switch l.Result {
		case action.ResultActed, action.ResultConfirmed:
			called = true
		case action.ResultFailed: // it may have been carried out
			called, why = true, l.Why
		default:
			why = l.Why
		}
	}
	z.watcher.mu.Lock()
	z.watcher.blocked(z.fleet, why)
	if called {
		z.fleet.carriedOut = z.decision.At
	}
	z.watcher.mu.Unlock()
	if called {
		z.fleet.draining, z.fleet.drainsAll = nil, false // what was drained ends
		return nil
	}
	return release(context.WithoutCancel(ctx))
}

// refuse records in the audit log why a decision is not carried out, where that is news.
func (z *resize) refuse(ctx context.Context, l *action.Ladder, to int, why string) error {
	z.watcher.mu.Lock()
	news := z.watcher.blocked(z.fleet, why)
	z.watcher.mu.Unlock()
	if !news {
		return nil
	}
	return l.Store.Record(ctx, action.Entry{
		At: l.Clock().Wall, Account: l.Account, Actor: "policy " + z.fleet.policy.Name, What: action.EventRefused,
		Resource: z.provider.Ref.String(), Verb: string(policy.Scale), Because: action.Redact(z.decision.Why),
		Outcome: action.Redact(fmt.Sprintf("from %d to %d: %s", z.at.Desired, to, why)),
	})
}

// propose returns the change of size that the newest decision asks for; nil without one, or where it
// may not be made.
func (z *resize) propose(ctx context.Context, a Acting, l *action.Ladder, idle []string) (*action.Proposal,
	func(context.Context) error, error) {
	none := func(context.Context) error { return nil }
	d := z.decision
	age := l.Clock().Wall.Sub(d.At)
	if d.Wanted == z.at.Desired || d.Actual != z.at.Desired || age < -time.Minute || age > maxDecisionAge {
		return nil, none, nil
	}
	z.do = z.fleet.policy.Do
	z.do.To = d.Wanted
	machine := z.provider.machine(z.at)
	hourly, priced := machine.Hourly.Get()
	if !priced {
		return nil, none, z.refuse(ctx, l, d.Wanted, z.noPrice())
	}
	if d.Wanted < z.at.Desired {
		why, err := z.chooseMembers(ctx, idle)
		if err != nil || why != "" {
			return nil, none, errors.Join(err, z.refuse(ctx, l, d.Wanted, why))
		}
	}
	p := z.proposal(z.at, z.do, d.At)
	if d.Wanted > z.at.Desired {
		p.Hourly = inventory.Known(money.Amount(0)) // nothing of what runs ends
		return z.admit(ctx, a, l, p, machine)
	}
	sum, err := hourly.Mul(int64(z.at.Desired-z.do.To), 1)
	if err != nil {
		return nil, none, err
	}
	p.Hourly = inventory.Known(sum)
	return &p, none, nil
}

// noPrice explains that machines of the fleet have no price.
func (z *resize) noPrice() string {
	if len(z.at.Types) > 0 {
		return fmt.Sprintf("not each of the machine types %s has a price in %s, so that neither budgets nor limits could "+
			"hold: run `curfew price update --from aws`", strings.Join(z.at.Types, ", "), z.provider.Ref.Region)
	}
	if z.at.Resource.Type == "" {
		return "the type of its machines is unknown, and so is their price, so that neither budgets nor limits could " +
			"hold: let it start one type of machine"
	}
	return fmt.Sprintf("machines of type %q in %s have no price, so that neither budgets nor limits could hold: run "+
		"`curfew price update --from aws`", z.at.Resource.Type, z.provider.Ref.Region)
}

// chooseMembers names the machines that end, without requests in flight, or says why there are none.
func (z *resize) chooseMembers(ctx context.Context, idle []string) (why string, err error) {
	switch {
	case chooses(z.at):
		return "", nil
	case z.fleet.empties(z.at, z.do.To):
		quiet, err := z.allDrained(ctx, drainLease)
		if err == nil && !quiet {
			why = "its requests in flight end first"
		}
		return why, err
	}
	if z.do.Members, err = z.drainFor(ctx, z.at.Desired-z.do.To, idle); err != nil {
		return "", err
	}
	if len(z.do.Members) == 0 {
		return "no machine is drained: each may have requests in flight, and no load balancer would wait for them", nil
	}
	z.do.To = z.at.Desired - len(z.do.Members)
	return "", nil
}

// admit asks the provider and then the budgets whether the fleet may grow.
func (z *resize) admit(ctx context.Context, a Acting, l *action.Ladder, p action.Proposal, machine Machine) (
	*action.Proposal, func(context.Context) error, error) {
	none := func(context.Context) error { return nil }
	var refusal *action.Refusal
	frozen, err := l.Store.Frozen(ctx)
	switch {
	case err != nil:
		return nil, none, err
	case frozen != nil:
		return nil, none, z.refuse(ctx, l, z.do.To, frozen.String())
	}
	if _, err := l.Cloud.Plan(ctx, p.Resource, z.do); errors.As(err, &refusal) {
		return nil, none, z.refuse(ctx, l, z.do.To, refusal.Rule+": "+refusal.Why)
	} else if err != nil {
		return nil, none, z.refuse(ctx, l, z.do.To, "ask the provider: "+err.Error())
	}
	g := Growth{
		Policy: z.fleet.policy.Name, Fleet: z.at, Machine: machine, Size: z.do.To, At: z.decision.At,
	}
	if g.Hourly, err = machine.Hourly.Or(0).Mul(int64(g.Machines()), 1); err != nil {
		return nil, none, err
	}
	release, err := a.Admit(ctx, g)
	if errors.As(err, &refusal) {
		return nil, none, z.refuse(ctx, l, z.do.To, refusal.Rule+": "+refusal.Why)
	}
	if err != nil {
		return nil, none, err
	}
	return &p, release, nil
}

// proposal returns the change of size as the ladder takes it.
func (z *resize) proposal(at action.Fleet, do policy.Do, read time.Time) action.Proposal {
	d := z.decision
	return action.Proposal{
		Source: z.fleet.policy.Name, Resource: at.Resource, Do: do, Mode: z.fleet.policy.Mode,
		Limits: z.fleet.policy.Limits, Condition: usage.True, Class: classDemand, ReadAt: read,
		Because: fmt.Sprintf("from %d to %d by %s: %s", at.Desired, do.To, d.Rule, d.Why),
		Evidence: []usage.Evidence{
			usage.Fact("load", plain.Number(d.Load, 2), "replicas at full rate"),
			usage.Fact("need", plain.Number(float64(d.Need), 0), "replicas"),
		},
	}
}

// verify implements the ladder's Verify: it reads the fleet and its demand again. A change of the
// configuration, of the size or of demand meanwhile, and a machine that took a request, end the
// proposal.
func (z *resize) verify(ctx context.Context, items []action.Item) (map[string]action.Proposal, error) {
	out := map[string]action.Proposal{}
	for _, it := range items {
		if it.Ref != z.provider.Ref || it.Source != z.fleet.policy.Name {
			continue
		}
		at, err := z.provider.Cloud.Fleet(ctx, z.provider.Ref)
		if err != nil {
			return nil, err
		}
		if at.Desired > it.Do.To && !chooses(at) {
			if quiet, err := z.stillDrained(ctx, at, it.Do.To, it.Do.Members); err != nil || !quiet {
				z.watcher.log.Info("machines are not drained", "fleet", z.fleet.status.ID, "error", err)
				continue
			}
		}
		now := z.clock().Wall
		reading, _, _, idle := z.fleet.read(ctx, now)
		reading.Actual, reading.Stuck = at.Desired, z.fleet.stuck(at, now)
		reading.Ready = min(reading.Ready, reading.Actual)
		z.watcher.mu.Lock()
		inForce := z.watcher.fleets[z.fleet.status.ID] == z.fleet
		holds := inForce && fleet.Holds(z.fleet.within(at), z.fleet.state, reading, it.Do.To)
		z.watcher.mu.Unlock()
		drained := z.fleet.empties(at, it.Do.To) || areDrained(at, idle, it.Do)
		if !holds || at.Desired == it.Do.To || at.Desired > it.Do.To && !drained {
			continue
		}
		p := z.proposal(at, it.Do, now)
		hourly, priced := z.provider.machine(at).Hourly.Get()
		sum, err := hourly.Mul(int64(max(0, at.Desired-it.Do.To)), 1)
		if err != nil || !priced {
			continue
		}
		p.Hourly = inventory.Known(sum)
		out[it.ID] = p
	}
	return out, nil
}

// drained returns up to n machines that may end, those without requests first. Others only follow
// where the manager waits for their requests.
func drained(at action.Fleet, idle []string, n int) []string {
	var quiet, busy []string
	for _, r := range at.Replicas {
		switch {
		case r.Protected || !r.Serving:
		case isIdle(r, idle):
			quiet = append(quiet, r.ID)
		case at.Drains:
			busy = append(busy, r.ID)
		}
	}
	slices.Sort(quiet)
	slices.Sort(busy)
	all := append(quiet, busy...)
	out := all[:min(n, len(all))]
	slices.Sort(out)
	return out
}

// areDrained reports whether the machines of an action may still end.
func areDrained(at action.Fleet, idle []string, do policy.Do) bool {
	if chooses(at) {
		return len(do.Members) == 0
	}
	if at.Desired-do.To != len(do.Members) {
		return false
	}
	for _, id := range do.Members {
		i := slices.IndexFunc(at.Replicas, func(r action.Replica) bool { return r.ID == id })
		if i < 0 {
			return false
		}
		if r := at.Replicas[i]; !r.Serving || r.Protected || !at.Drains && !isIdle(r, idle) {
			return false
		}
	}
	return true
}

// chooses reports whether the manager of a fleet chooses which machines end, and drains them.
func chooses(at action.Fleet) bool { return at.Drains && len(at.Replicas) == 0 }

// isIdle reports whether metrics name a machine among those without requests.
func isIdle(r action.Replica, idle []string) bool {
	return slices.ContainsFunc(r.Hosts, func(host string) bool { return slices.Contains(idle, host) })
}
