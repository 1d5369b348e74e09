package round_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/finding/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

func audit(t testing.TB, seed uint64, now time.Time) (*round.Result, *sim.Cloud) {
	t.Helper()
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	cloud := sim.New(sim.Options{Seed: seed, Now: now, Tags: inventory.DefaultTagMapping()})
	a, err := round.New(round.Setting{
		Lister: cloud, Sources: []usage.Source{cloud}, Query: round.Query{Window: 14 * 24 * time.Hour}, Prices: book,
		Duty:  duty.DefaultThresholds(),
		Audit: &round.Audit{Thresholds: finding.DefaultThresholds(), Rules: aws.Rules(), Required: sim.RequiredTags},
		Clock: func() time.Time { return now },
	}).Round(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return a, cloud
}

// TestSimulatedAccount compares the rules with what was planted in the simulated account, whatever
// the seed, the weekday and the hour: every piece of waste is found and honest work never is.
func TestSimulatedAccount(t *testing.T) {
	start := time.Date(2026, 11, 16, 3, 0, 0, 0, time.UTC) // a Monday
	for seed := uint64(1); seed <= 3; seed++ {
		for _, after := range []time.Duration{0, 31 * time.Hour, 64 * time.Hour, 108 * time.Hour, 154 * time.Hour} {
			now := start.Add(after)
			t.Run(fmt.Sprintf("seed %d %s", seed, now.Format("Mon 15:04")), func(t *testing.T) {
				a, cloud := audit(t, seed, now)
				fired := map[inventory.Ref]map[string]finding.Finding{}
				for _, f := range a.Findings {
					ref := f.Resource.Ref()
					if fired[ref] == nil {
						fired[ref] = map[string]finding.Finding{}
					}
					fired[ref][f.Rule] = f
				}
				for _, p := range cloud.Truth() {
					for _, rule := range p.Rules {
						if _, ok := fired[p.Ref][rule]; !ok {
							t.Errorf("%s of %s was missed (%s)", rule, p.Ref, p.Note)
						}
					}
					for rule, f := range fired[p.Ref] {
						if p.Honest && f.Waste > 0 {
							t.Errorf("%s calls %s of honest %s waste (%s): %s", rule, f.Waste,
								p.Ref, p.Note, f.Because)
						}
					}
				}
				if a.Totals.Now.Wasted > a.Totals.Now.Running {
					t.Errorf("waste %s of a cost of %s", a.Totals.Now.Wasted, a.Totals.Now.Running)
				}
			})
		}
	}
}

func BenchmarkSimulatedAudit(b *testing.B) {
	now := time.Date(2026, 11, 16, 3, 0, 0, 0, time.UTC)
	for b.Loop() {
		audit(b, 1, now)
	}
}
