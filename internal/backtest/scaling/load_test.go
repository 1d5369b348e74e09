package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// TestLoadsReplayAsArrivals compares replica hours of arrivals with those of the load that they are: the
// savings in audits are of loads, and rest on the arithmetic of a backtest.
func TestLoadsReplayAsArrivals(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	c := fleet.Config{
		Bounds: fleet.Bounds{Min: 1, Max: 20}, Interval: 5 * time.Minute, AddTime: 5 * time.Minute,
		Server: fleet.Server{
			Law: fleet.Batch, Limit: 1, Profile: capacity.Profile{PerItem: time.Second}, Objective: time.Hour,
		},
	}
	rates := []float64{0.5, 6, 2.2, 0.1, 4, 9}
	const part = 4 * time.Hour
	var loads []fleet.Load
	at, arrivals := 0.0, []float64{}
	for i, rate := range rates {
		loads = append(loads, fleet.Load{Replicas: inventory.Known(rate), For: part})
		for end := float64(i+1) * part.Seconds(); ; {
			if at += random.ExpFloat64() / rate; at >= end {
				at = end
				break
			}
			arrivals = append(arrivals, at)
		}
	}
	p := Params{Config: c, Arrivals: arrivals, ColdStart: 5 * time.Minute, Start: 1}
	r, err := Run(p, New(p))
	if err != nil {
		t.Fatal(err)
	}
	loaded := fleet.ReplayLoad(c, loads, 1)
	if share := r.ReplicaHours / loaded.Paid.Hours(); math.Abs(share-1) > 0.1 {
		t.Errorf("%.1f replica hours by arrivals, %.1f by their load", r.ReplicaHours, loaded.Paid.Hours())
	}
}
