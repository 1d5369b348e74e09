package fleet

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
)

// TestSlackTakesThePlaceOfSpareReplicas gives a fleet regular bursts: where a request may wait until a new
// replica serves, no spare replica is kept for them.
func TestSlackTakesThePlaceOfSpareReplicas(t *testing.T) {
	for _, tc := range []struct {
		name      string
		objective time.Duration
		spare     bool
	}{
		{"requests that may not wait", 35 * time.Second, true},
		{"requests that may wait for a while", 70 * time.Second, true},
		{"requests that may wait for a replica", 3 * time.Minute, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Config{
				Bounds: Bounds{Min: 1, Max: 20}, AddTime: time.Minute, Server: Server{
					Law: Batch, Limit: 1, Objective: tc.objective, Profile: capacity.Profile{Base: 30 * time.Second},
				},
			}
			var s State
			for i := range 200 {
				rate := 0.02 // 0.6 replicas of work, and three in bursts
				if i%20 >= 15 {
					rate = 0.1
				}
				at := start.Add(time.Duration(i) * DefaultInterval)
				s, _ = Decide(c, s, Reading{
					At: at, Ready: 6, Actual: 6, Demand: Demand{Known: true, Rate: inventory.Known(rate)},
				})
			}
			if got := s.Rise > 0; got != tc.spare {
				t.Errorf("spare replicas for a rise of %.2f, lead %s", s.Rise, s.lead(c.withDefaults()))
			}
		})
	}
}
