package scaling

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/capacity"
)

// Settings that Tune tries.
var (
	triedTargets        = []float64{0.5, 0.6, 0.7, 0.8, 0.9, 1}
	triedStabilizations = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}
	triedWindows        = []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute}
)

// Tuned is a setting and what it does.
type Tuned struct {
	Target                float64
	Stabilization, Window time.Duration
	Result                Result
}

// Tune replays every combination of targets, stabilizations and windows, in that order.
func Tune(p Params) ([]Tuned, error) {
	var out []Tuned
	for _, target := range triedTargets {
		for _, stabilization := range triedStabilizations {
			for _, window := range triedWindows {
				p.Config.Target, p.Config.Stabilization, p.Config.Window = target, stabilization, window
				r, err := Run(p, New(p))
				if err != nil {
					return nil, err
				}
				r.Name = fmt.Sprintf("target %v, stabilization %s, window %s", target, stabilization, window)
				out = append(out, Tuned{Target: target, Stabilization: stabilization, Window: window, Result: r})
			}
		}
	}
	return out, nil
}

// Fewest returns the setting with the fewest replica hours at no more late requests than a number,
// and false where none keeps it.
func Fewest(tried []Tuned, late int) (Tuned, bool) {
	var best Tuned
	found := false
	for _, t := range tried {
		if t.Result.Late <= late && (!found || t.Result.ReplicaHours < best.Result.ReplicaHours) {
			best, found = t, true
		}
	}
	return best, found
}

// Peers returns the other autoscalers with their defaults.
func Peers(p Params) []Scaler {
	return []Scaler{NewKeda(p), NewKnative(p), NewTargetTracking(p)}
}

// StartFor returns the replicas that the mean load of the arrivals needs at the target: the size at
// the beginning of every replay.
func StartFor(p Params) int {
	work := float64(len(p.Arrivals))
	if p.Work != nil {
		work = 0
		for _, w := range p.Work {
			work += w
		}
	}
	last := p.Arrivals[len(p.Arrivals)-1]
	target := p.Config.Target
	if target == 0 {
		target = capacity.DefaultTarget
	}
	n := int(work/last/p.Config.Server.Rate()/target + 1 - 1e-9)
	return min(max(n, 1, p.Config.Min), max(1, p.Config.Max))
}
