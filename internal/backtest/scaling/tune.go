package scaling

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
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

// Setting describes the setting.
func (t Tuned) Setting() string {
	return fmt.Sprintf("target %v, stabilization %s, window %s", t.Target, plain.ExactDuration(t.Stabilization),
		plain.ExactDuration(t.Window))
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
				tuned := Tuned{Target: target, Stabilization: stabilization, Window: window, Result: r}
				tuned.Result.Name = tuned.Setting()
				out = append(out, tuned)
			}
		}
	}
	return out, nil
}

// Fewest returns the setting with the fewest replica hours at no more late requests than a number,
// and false if none keeps it.
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

// Halves divides the arrivals at the middle of their number, so that a setting fitted on the first half
// is judged by the second. The second begins at its own first arrival. It returns false for fewer than
// two arrivals in a half.
func Halves(p Params) (first, second Params, ok bool) {
	n := len(p.Arrivals) / 2
	if n < 2 {
		return p, p, false
	}
	first, second = p, p
	first.Arrivals, second.Arrivals = p.Arrivals[:n], make([]float64, len(p.Arrivals)-n)
	for i, at := range p.Arrivals[n:] {
		second.Arrivals[i] = at - p.Arrivals[n]
	}
	if p.Work != nil {
		first.Work, second.Work = p.Work[:n], p.Work[n:]
	}
	return first, second, true
}

// Peers returns the other autoscalers with their defaults.
func Peers(p Params) []Scaler {
	return []Scaler{NewKeda(p), NewKnative(p), NewTargetTracking(p)}
}

// MeanLoad returns the mean load of the arrivals in replicas at full rate.
func MeanLoad(p Params) float64 {
	work := float64(len(p.Arrivals))
	if p.Work != nil {
		work = 0
		for _, w := range p.Work {
			work += w
		}
	}
	if last := p.Arrivals[len(p.Arrivals)-1]; last > 0 {
		return work / last / p.Config.Server.Rate()
	}
	return work / p.Config.Server.Rate()
}

// StartFor returns the replicas that the mean load of the arrivals needs at the target: the size at
// the beginning of every replay.
func StartFor(p Params) int {
	target := p.Config.Target
	if target == 0 {
		target = capacity.DefaultTarget
	}
	n := min(capacity.Replicas(MeanLoad(p), target), float64(p.Config.Max))
	return max(int(n), p.Config.Min)
}
