package round

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/usage"
)

// largeAccount is an account of many machines with one GPU each. After the first round only one
// in a hundred has new samples.
type largeAccount struct {
	machines []*inventory.Resource
	rounds   int
}

func (l *largeAccount) List(context.Context, Query) (*Observation, error) {
	return &Observation{
		Inventory: inventory.Inventory{Resources: l.machines}, Cloud: "aws", Accounts: []string{"1"},
		Regions: []string{"us-east-1"}, CommitmentsKnown: true,
	}, nil
}

func (l *largeAccount) Name() string { return "bench" }

func (l *largeAccount) Measure(_ context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	const step = 5 * time.Minute
	l.rounds++
	for i, r := range resources {
		if l.rounds > 1 && i%100 > 0 {
			continue
		}
		to := open(r, usage.SourceInfo{Step: step, Source: "bench"})
		load := float64(i % 3 * 40)
		for at := iv.From.Truncate(step).Add(step); at.Before(iv.To); at = at.Add(step) {
			to.Add("0", usage.GPUUtil, usage.Point{Time: at, Mean: load, Max: load})
			to.Add("0", usage.MemUsed, usage.Point{Time: at, Mean: 1 << 20, Max: 1 << 20})
		}
	}
	return usage.MeasureResult{}, nil
}

// BenchmarkRounds makes the first round of a process over 100,000 machines, and the second,
// in which one in a hundred has new samples.
func BenchmarkRounds(b *testing.B) {
	book, err := price.Embedded()
	if err != nil {
		b.Fatal(err)
	}
	set, err := policy.Parse("idle.yaml", []byte(`apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance, lifetime: ephemeral}
    when: duty.state == "idle" && duty.lasting >= duration("30h")
    then: [{warn: {notify: [owner], grace: 15m}}, {do: terminate}]
`))
	if err != nil {
		b.Fatal(err)
	}
	var first, second time.Duration
	for b.Loop() {
		l := &largeAccount{}
		for i := range 100_000 {
			r := machine(fmt.Sprintf("i-%06d", i), "g6.2xlarge", 30*days)
			r.Lifetime = inventory.Ephemeral
			l.machines = append(l.machines, r)
		}
		aws.Attach(l.machines)
		at := now
		store := action.NewMemory()
		e := New(Setting{Clock: func() time.Time {
			return at
		}, Lister: l, Sources: []usage.Source{l}, Prices: book, Duty: duty.DefaultThresholds(),
			LookBack: 12 * time.Hour, Policies: set,
			Ladder: func(account string) *action.Ladder {
				return &action.Ladder{
					Store: store, Cloud: actiontest.NewCloud(func() time.Time {
						return at
					}), Notifier: actiontest.NewPeople(),
					Account: account,
					Clock:   func() action.Clock { return action.Clock{Wall: at} }}
			}})
		for _, took := range []*time.Duration{&first, &second} {
			began := time.Now()
			if _, err := e.Round(context.Background()); err != nil {
				b.Fatal(err)
			}
			*took += time.Since(began)
			at = at.Add(5 * time.Minute)
		}
	}
	b.ReportMetric(first.Seconds()/float64(b.N), "s/first")
	b.ReportMetric(second.Seconds()/float64(b.N), "s/second")
	b.ReportMetric(second.Seconds()/first.Seconds(), "second/first")
}
