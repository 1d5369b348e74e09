package round

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Test runs the test cases of policies: each case is an account that a round looks at, at
// each of the times that the case asks about. The setting says what the cases do not: the
// price book.
func Test(ctx context.Context, s Setting, set *policy.Set, tests *policy.Tests) []policy.CaseResult {
	return policy.RunTests(set, tests, Look(ctx, s, set))
}

// Look returns what a round knows of a case's resources at a time.
func Look(ctx context.Context, s Setting, set *policy.Set) policy.Look {
	s.Policies = set
	for _, p := range set.Policies { // samples at the edges count
		s.LookBack = max(s.LookBack, p.Horizon()+p.Horizon()/5)
	}
	return func(c policy.Case, at time.Time) ([]*policy.Facts, error) {
		s := s
		s.Clock = func() time.Time { return at }
		s.Lister, s.Sources = written{c}, []usage.Source{written{c}}
		s.Duty, s.Facts = c.Duty(), c.Know
		r, err := New(s).Round(ctx)
		if err != nil {
			return nil, err
		}
		return r.Facts, nil
	}
}

// written is an account that a case of policies writes down.
type written struct{ policy.Case }

// List implements [Lister].
func (w written) List(ctx context.Context, _ Query) (*Observation, error) {
	resources, err := w.Resources()
	if err != nil {
		return nil, err
	}
	return &Observation{
		Inventory: inventory.Inventory{Resources: resources}, Accounts: []string{""}, Regions: []string{""},
	}, ctx.Err()
}

// Name implements [usage.Source].
func (written) Name() string { return "case" }

// Measure implements [usage.Source]: a sample at the very time of the round is known.
func (w written) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
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
