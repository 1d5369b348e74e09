package round

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Test runs the test cases of policies: each case is an account that a round evaluates at each of
// the case's times. The setting supplies the price book.
func Test(ctx context.Context, s Setting, set *policy.Set, tests *policy.Tests) []policy.CaseResult {
	return policy.RunTests(set, tests, CaseFacts(ctx, s, set))
}

// CaseFacts returns a function that evaluates a case's resources at a time.
func CaseFacts(ctx context.Context, s Setting, set *policy.Set) policy.FactsFunc {
	s.Policies = set
	for _, p := range set.Policies { // include samples at the edges
		s.LookBack = max(s.LookBack, p.Horizon()+p.Horizon()/5)
	}
	return func(c policy.Case, at time.Time) ([]*policy.Facts, error) {
		s := s
		s.Clock = func() time.Time { return at }
		s.Lister, s.Sources = caseAccount{c}, []usage.Source{caseAccount{c}}
		s.Duty, s.AddFacts = c.Duty(), c.AddFacts
		r, err := New(s).Round(ctx)
		if err != nil {
			return nil, err
		}
		return r.Facts, nil
	}
}

// caseAccount is the account of a test case.
type caseAccount struct{ policy.Case }

// List implements [Lister].
func (w caseAccount) List(ctx context.Context, _ Query) (*Observation, error) {
	resources, err := w.Resources()
	if err != nil {
		return nil, err
	}
	return &Observation{
		Inventory: inventory.Inventory{Resources: resources}, Accounts: []string{""}, Regions: []string{""},
	}, ctx.Err()
}

// Name implements [usage.Source].
func (caseAccount) Name() string { return "case" }

// Measure implements [usage.Source]; a sample at the time of the round counts.
func (w caseAccount) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	for _, r := range resources {
		sink := open(r, usage.SourceInfo{Step: w.Step(), Source: w.Name()})
		if sink == nil {
			continue
		}
		w.Samples(r.ID, func(at time.Time, gpu string, s usage.Signal, v float64) {
			if !at.Before(iv.From) && !at.After(iv.To) {
				sink.Add(gpu, s, usage.Point{Time: at, Mean: v, Max: v})
			}
		})
	}
	return usage.MeasureResult{}, ctx.Err()
}
