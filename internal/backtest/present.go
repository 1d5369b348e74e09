package backtest

import (
	"context"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Operation is a release of a resource of a trace.
type Operation struct {
	Resource string      `json:"resource"`
	At       time.Time   `json:"at"`
	End      time.Time   `json:"end"`
	Verb     policy.Verb `json:"verb"`
}

// Present is a trace as a process sees it at one time: the samples known by then, without those of
// earlier releases. It is a round.Lister and a usage.Source.
type Present struct {
	account    *Account
	now        func() time.Time
	operations []Operation
	save       func([]Operation) error
	cloud      *cloud
}

// Present returns the trace as it is at now, after operations that other processes did; save
// keeps them with those that are done in this one, before anybody relies on it.
func (a *Account) Present(now func() time.Time, operations []Operation, save func([]Operation) error) *Present {
	p := &Present{account: a, now: now, operations: operations, save: save}
	p.cloud = newCloud(a, p.release)
	return p
}

// Cloud carries out actions on the trace.
func (p *Present) Cloud() action.Cloud { return p.cloud }

// Know notes the duties of resources (see [round.Setting.AddFacts]).
func (p *Present) Know(f *policy.Facts) { p.cloud.know(f) }

func (p *Present) release(i int, stalled bool, do policy.Verb) error {
	now := p.now()
	r := p.account.Released(i, now, stalled)
	all := append(slices.Clone(p.operations), Operation{
		Resource: p.account.resources[i].name, At: now, End: r.End, Verb: do,
	})
	if err := p.save(all); err != nil {
		return err
	}
	p.operations = all
	return nil
}

// newest returns the newest release of a resource up to and at a time, the zero Operation if there
// is none.
func (p *Present) newest(i int, at time.Time) Operation {
	var newest Operation
	for _, d := range p.operations {
		if d.Resource == p.account.resources[i].name && d.End.After(newest.End) && !d.At.After(at) {
			newest = d
		}
	}
	return newest
}

// List implements [round.Lister].
func (p *Present) List(ctx context.Context, q round.Query) (*round.Observation, error) {
	o := &round.Observation{
		Cloud: Cloud, Accounts: []string{""}, Regions: []string{""}, Unread: map[string]bool{}, CommitmentsKnown: true,
	}
	for i := range p.account.resources {
		r := p.account.Resource(i, q.Now)
		switch {
		case r == nil:
		case q.Kinds != nil && !q.Kinds[r.Kind] || q.Only != nil && !q.Only[r.Ref()]:
		case q.Now.Before(p.newest(i, q.Now).End):
			o.Ended = append(o.Ended, round.EndedResource(r, p.newest(i, q.Now).At))
		default:
			o.Resources = append(o.Resources, r)
		}
	}
	return o, ctx.Err()
}

// Name implements [usage.Source].
func (p *Present) Name() string { return source }

// Measure implements [usage.Source].
func (p *Present) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	since := func(i int) time.Time { return p.newest(i, iv.To).End }
	return p.account.SourceAt(iv.To, since).Measure(ctx, resources, iv, open)
}
