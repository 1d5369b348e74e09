package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestReplayLoadReachesTheNeededSizes replays loads that hold for a day each.
func TestReplayLoadReachesTheNeededSizes(t *testing.T) {
	const long = 24 * time.Hour
	c := Config{Bounds: Bounds{Min: 1, Max: 9}, Target: 0.7, AddTime: 5 * time.Minute}
	for _, tc := range []struct {
		name  string
		loads []Load
		mean  float64
	}{
		{"idle", []Load{{inventory.Known(0.0), long}}, 1},
		{"two at 70%", []Load{{inventory.Known(1.4), long}}, 2},
		{"over the maximum", []Load{{inventory.Known(20.0), long}}, 9},
		{"never measured", []Load{{For: long}}, 5},
		{"silent after it was idle", []Load{{inventory.Known(0.0), long}, {For: long}}, 1},
		{"half of the time", []Load{{inventory.Known(2.8), long}, {inventory.Known(0.1), long}}, 2.5},
	} {
		r := ReplayLoad(c, tc.loads, 5)
		if d := r.MeanReplicas() - tc.mean; d < -0.05 || d > 0.15 {
			t.Errorf("%s: %.2f replicas on average, want %.2f", tc.name, r.MeanReplicas(), tc.mean)
		}
	}
	rising := []Load{{inventory.Known(0.5), long}, {inventory.Known(4.0), long}}
	if r := ReplayLoad(c, rising, 1); r.Short < 5*time.Minute || r.Short > 10*time.Minute {
		t.Errorf("short for %s, want the reading and the time to add replicas", r.Short)
	}
}

// TestReplayLoadKeepsTheBounds replays random loads with gaps.
func TestReplayLoadKeepsTheBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := Config{Bounds: Bounds{Min: 1 + random.IntN(3), Max: 4 + random.IntN(8)}}
		var loads []Load
		for range 20 {
			l := Load{For: time.Duration(random.IntN(600)) * time.Minute}
			if random.IntN(3) > 0 {
				l.Replicas = inventory.Known(random.Float64() * 12)
			}
			loads = append(loads, l)
		}
		start := c.Min + random.IntN(c.Max-c.Min+1)
		if r := ReplayLoad(c, loads, start); r.Least < c.Min || r.Most > c.Max ||
			r.Paid < time.Duration(r.Least)*r.Span || r.Paid > time.Duration(r.Most)*r.Span {
			t.Fatalf("bounds %+v: %+v", c.Bounds, r)
		}
	}
}
