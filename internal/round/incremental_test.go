package round_test

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestIncrementalEngineMatchesFreshOne checks that an engine that keeps what it knows from one
// round to the next, and reads only what is new, proposes in every round what one proposes that
// reads everything.
func TestIncrementalEngineMatchesFreshOne(t *testing.T) {
	set, err := policy.Parse("p.yaml", []byte(`
apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance}
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("1h")
    then: [{warn: {notify: [owner], grace: 15m}}, {do: stop}]
`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	cloud := sim.New(sim.Options{Seed: 7, Now: now})
	s := round.Setting{Clock: func() time.Time {
		return now
	}, Lister: cloud, Sources: []usage.Source{cloud}, Prices: book, Duty: duty.DefaultThresholds(),
		Query: round.Query{Kinds: set.Kinds()}, Policies: set, LookBack: 12 * time.Hour}
	e := round.New(s)
	for i, step := range []time.Duration{
		0, 2 * time.Minute, time.Minute, 10 * time.Minute, 3 * time.Minute, time.Hour, 2 * time.Minute,
	} {
		now = now.Add(step)
		got, err := e.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want, err := round.New(s).Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for k, f := range want.Facts {
			g := got.Facts[k]
			if (f.Duty == nil) != (g.Duty == nil) {
				t.Fatalf("round %d: %s is judged %v and %v", i, f.Resource.ID, f.Duty, g.Duty)
			}
			if f.Duty != nil && (f.Duty.State != g.Duty.State || !f.Duty.Since.Equal(g.Duty.Since) ||
				!f.Duty.Until.Equal(g.Duty.Until)) {
				t.Errorf("round %d at %s: %s is %s since %s until %s, want %s since %s until %s (%s)", i,
					now.Format("15:04"),
					f.Resource.ID, g.Duty.State, g.Duty.Since.Format("15:04"),
					g.Duty.Until.Format("15:04"), f.Duty.State,
					f.Duty.Since.Format("15:04"), f.Duty.Until.Format("15:04"), g.Duty.Why)
			}
		}
		if len(got.Proposals) != len(want.Proposals) {
			t.Errorf("round %d at %s: %d proposals, a fresh engine has %d", i, now.Format("15:04"), len(got.Proposals),
				len(want.Proposals))
		}
	}
}
