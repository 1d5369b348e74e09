package round

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Rechecker reads a few resources again: their state, tags, protection, and what was
// measured of them. What is not there any more is absent; what could not be read is
// an error or an unread kind, never absence.
type Rechecker interface {
	Recheck(ctx context.Context, refs []inventory.Ref, q Query) (*Observation, error)
}

// Live is one pass of the policies over an account as it is now.
type Live struct {
	Observer   Observer
	Rechecker  Rechecker
	Query      Query
	Recordings []Recording
	Prices     *price.Book
	Duty       duty.Thresholds
	Policies   *policy.Set
	Governance policy.Governance
	// Budget returns the state of the budgets that an owner spends from; nil is
	// unknown.
	Budget func(r *inventory.Resource) *policy.Budget
	// Drift returns how far what is paid for a resource is off its list price: 0.1 is a
	// tenth more; nil is unknown.
	Drift func(r *inventory.Resource) inventory.Fact[float64]
	// Ladder returns the ladder of an account ("aws/123456789012").
	Ladder func(account string) *action.Ladder
	// Now is read again for the verification at act time.
	Now func() time.Time
}

// Pass is what came of a pass.
type Pass struct {
	Observation
	// Facts is what the policies saw, in the order of the resources.
	Facts []*policy.Facts
	// Proposals is what the policies want.
	Proposals []action.Proposal
	// Reports is what the ladder did, for each account.
	Reports []action.Report
}

// Lines are those of all accounts.
func (p *Pass) Lines() []action.Line {
	var out []action.Line
	for _, r := range p.Reports {
		out = append(out, r.Lines...)
	}
	return out
}

// NextAt is when there is something to do again; zero is not before something changes.
func (p *Pass) NextAt() time.Time {
	var next time.Time
	for _, r := range p.Reports {
		if next.IsZero() || (!r.NextAt.IsZero() && r.NextAt.Before(next)) {
			next = r.NextAt
		}
	}
	return next
}

// Frozen is the freeze that held everything back; nil is none.
func (p *Pass) Frozen() *action.Freeze {
	for _, r := range p.Reports {
		if r.Frozen != nil {
			return r.Frozen
		}
	}
	return nil
}

// Partial says that something failed or could not be read.
func (p *Pass) Partial() bool {
	return len(p.BlindSpots) > 0 || slices.ContainsFunc(p.Reports, func(r action.Report) bool { return r.Partial })
}

// Enforce makes one pass: observe, judge, charge, decide, and act as far as the
// ladder lets it. It never sleeps. A pass beside an error holds what was done before it.
func Enforce(ctx context.Context, l Live) (*Pass, error) {
	p, err := Look(ctx, l)
	if err != nil {
		return nil, err
	}
	p.Proposals = l.propose(p.Facts, p.Unread)
	for _, account := range p.Accounts {
		report, err := l.act(ctx, p, account)
		p.Reports = append(p.Reports, report)
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// Look makes the part of a pass that decides nothing: observe, judge, charge.
func Look(ctx context.Context, l Live) (*Pass, error) {
	observed, err := l.Observer.Observe(ctx, l.Query)
	if err != nil {
		return nil, err
	}
	p := &Pass{Observation: *observed}
	if err := record(ctx, &p.Observation, Params{Query: l.Query, Recordings: l.Recordings}, nil); err != nil {
		return nil, err
	}
	p.Sort()
	p.Facts, err = l.facts(&p.Observation, l.Query.Now)
	return p, err
}

// act hands an account's ladder what is proposed there, and how many machines every
// policy selects.
func (l Live) act(ctx context.Context, p *Pass, account string) (action.Report, error) {
	selected := map[string]int{}
	for _, f := range p.Facts {
		for _, pol := range l.Policies.Policies {
			if f.Resource.Account == account && pol.Selects(f) == usage.True {
				selected[pol.Name]++
			}
		}
	}
	var proposals []action.Proposal
	for _, prop := range p.Proposals {
		if prop.Resource.Account == account {
			proposals = append(proposals, prop)
		}
	}
	ladder := l.Ladder(p.Cloud + "/" + account)
	ladder.Verify = func(ctx context.Context, items []action.Item) (map[string]action.Proposal, error) {
		return l.verify(ctx, p.Resources, items)
	}
	return ladder.Round(ctx, action.Look{Proposals: proposals, Selected: selected})
}

// facts joins what was observed, judged and charged of every resource.
func (l Live) facts(o *Observation, now time.Time) ([]*policy.Facts, error) {
	charges := ledger.RunRates(o.Resources, l.Prices)
	does := present(o, l.Prices, nil, l.Duty, now)
	out := make([]*policy.Facts, 0, len(o.Resources))
	for _, r := range o.Resources {
		ref := r.Ref()
		f := &policy.Facts{Now: now, Resource: r, Duty: does[ref].duty, Gang: does[ref].gang, Stale: does[ref].missing}
		if measurable(r.Kind) {
			if n := gpus(r, l.Prices, nil); n >= 0 {
				f.GPUs = inventory.Known(n)
			}
		}
		hourly, err := hourly(charges[ref])
		if err != nil {
			return nil, fmt.Errorf("price %s: %w", r.ID, err)
		}
		f.Hourly = hourly
		if l.Budget != nil {
			f.Budget = l.Budget(r)
		}
		if l.Drift != nil {
			f.PriceDrift = l.Drift(r)
		}
		out = append(out, f)
	}
	return out, nil
}

// hoursPerMonth is the month of a run rate.
const hoursPerMonth = 730

// hourly returns what a resource's meters cost an hour; a meter without a price
// makes it unknown.
func hourly(charges []ledger.Charge) (inventory.Fact[money.Amount], error) {
	var month money.Amount
	for _, c := range charges {
		if c.Unpriced != "" {
			return inventory.Fact[money.Amount]{}, nil
		}
		var err error
		if month, err = month.Add(c.ListCost); err != nil {
			return inventory.Fact[money.Amount]{}, err
		}
	}
	if len(charges) == 0 {
		return inventory.Fact[money.Amount]{}, nil
	}
	hour, err := month.Mul(1, hoursPerMonth)
	return inventory.Known(hour), err
}

// propose asks every policy about every resource. What could not be read proposes
// nothing.
func (l Live) propose(facts []*policy.Facts, unread map[string]bool) []action.Proposal {
	var out []action.Proposal
	for _, f := range facts {
		r := f.Resource
		if unread[r.Account+"/"+r.Region+"/"+string(r.Kind)] {
			continue
		}
		for _, pol := range l.Policies.Policies {
			o := pol.Evaluate(f)
			if o.Answer == usage.True {
				out = append(out, l.proposal(pol, f, o))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b action.Proposal) int {
		return cmp.Or(inventory.CompareRefs(a.Resource.Ref(), b.Resource.Ref()), cmp.Compare(a.Source, b.Source))
	})
	return out
}

// proposal is what a policy wants done to a resource.
func (l Live) proposal(pol *policy.Policy, f *policy.Facts, o policy.Outcome) action.Proposal {
	p := action.Proposal{
		Source: pol.Name, Resource: f.Resource, Do: pol.Do, Mode: pol.Mode, Limits: pol.Limits,
		Governed: l.Governance.Governs(f.Resource), Duty: f.Duty, Gang: f.Gang, Checkpoint: f.Checkpoint,
		Hourly: f.Hourly, Condition: o.Answer, ReadAt: f.Now, Class: pol.Class(), Because: because(pol, f),
	}
	if pol.Warn != nil {
		p.Notify, p.Grace = pol.Warn.Notify, pol.Warn.Grace
	}
	if f.Duty != nil {
		p.Evidence = f.Duty.Evidence
	}
	return p
}

// because says in one line why a policy applies.
func because(pol *policy.Policy, f *policy.Facts) string {
	if f.Duty != nil && pol.Class() == policy.ClassDuty {
		return f.Duty.State.String() + ": " + f.Duty.Why
	}
	return pol.When
}

// verify reads the resources of items again, with all that belong to their gangs among
// those that the pass saw, and returns the proposals that hold for them now.
func (l Live) verify(ctx context.Context, seen []*inventory.Resource, items []action.Item) (map[string]action.Proposal, error) {
	due, gangs := map[inventory.Ref]bool{}, map[string]bool{}
	var refs []inventory.Ref
	for _, it := range items {
		due[it.Ref] = true
		refs = append(refs, it.Ref)
		refs = append(refs, it.Gang...)
	}
	for _, r := range seen {
		if id, ok := gangID(r); ok && due[r.Ref()] {
			gangs[id] = true
		}
	}
	for _, r := range seen {
		if id, ok := gangID(r); ok && gangs[id] {
			refs = append(refs, r.Ref())
		}
	}
	slices.SortFunc(refs, inventory.CompareRefs)
	q := l.Query
	q.Now = l.Now().UTC()
	o, err := l.Rechecker.Recheck(ctx, slices.Compact(refs), q)
	if err != nil {
		return nil, err
	}
	if err := record(ctx, o, Params{Query: q, Recordings: l.Recordings}, seen); err != nil {
		return nil, err
	}
	o.Sort()
	facts, err := l.facts(o, q.Now)
	if err != nil {
		return nil, err
	}
	type key struct {
		ref    inventory.Ref
		source string
	}
	found := map[key]action.Proposal{}
	for _, p := range l.propose(facts, o.Unread) {
		found[key{p.Resource.Ref(), p.Source}] = p
	}
	out := map[string]action.Proposal{}
	for _, it := range items {
		if p, ok := found[key{it.Ref, it.Source}]; ok {
			out[it.ID] = p
		}
	}
	return out, nil
}
