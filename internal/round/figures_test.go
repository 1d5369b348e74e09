package round

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
)

// TestIncrementalEngineFigures checks that an engine that makes many rounds tells of the GPUs what
// one tells that has read nothing before, and wakes when a figure may change.
func TestIncrementalEngineFigures(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse("p.yaml", []byte(`apiVersion: curfew.policy/v1
policies:
  - name: little-used
    select: {kind: instance}
    when: gpu.util.mean("30m") < 40 && gpu.util.max("10m") > 1 || gpu.memory.share.mean("5m") > 0.5
    then: [{do: notify}]
`))
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(3)
	random := rand.New(rand.NewPCG(7, 1))
	f.worked = func(id string, at time.Time) bool { return (at.Unix()/60*int64(id[2])%17)%3 == 0 }
	s := f.setting(set, book)
	s.Ladder = nil
	running := New(s)
	answers := map[string]int{}
	for range 60 {
		f.clock.Advance(time.Duration(1+random.IntN(6)) * time.Minute)
		got, err := running.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want, err := New(s).Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, facts := range want.Facts {
			for _, figure := range set.Policies[0].Figures() {
				a, b := got.Facts[i].GPUs.Read(f.now(), figure, true), facts.GPUs.Read(f.now(), figure, true)
				if a != b || !a.Known {
					t.Fatalf("at %s %s of %s is %+v, and %+v of a new one", f.now(), figure.Name(),
						facts.Resource.ID, a, b)
				}
			}
			a, b := running.listed[i].answers[0].Tristate, set.Policies[0].Evaluate(facts).Answer
			if a != b {
				t.Fatalf("at %s the answer about %s is %s, and %s of a new one", f.now(), facts.Resource.ID, a, b)
			}
			answers[a.String()]++
		}
	}
	if answers["true"] == 0 || answers["false"] == 0 {
		t.Errorf("the answers are %v", answers)
	}
	if k := duty.NewTracker(s.Duty, s.Activity, 0).Watch(New(Setting{}).watch); (duty.Gauge{Tracker: k}).Read(f.now(),
		set.Policies[0].Figures()[0], true).Known {
		t.Error("a figure is known that nothing asks for")
	}
}
