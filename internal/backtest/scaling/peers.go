package scaling

import (
	"fmt"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// Fixed is a fleet that does not scale.
type Fixed int

// Name returns the name in the report.
func (f Fixed) Name() string { return fmt.Sprintf("fixed-%d", int(f)) }

// Interval returns the time between observations.
func (f Fixed) Interval() time.Duration { return time.Minute }

// Size returns the number of replicas.
func (f Fixed) Size(Observation) int { return int(f) }

// bounded keeps a size between the bounds of the fleet.
func bounded(n float64, b fleet.Bounds) int { return int(min(max(n, float64(b.Min)), float64(b.Max))) }

// targetInFlight is the average of requests in flight for each replica that the other autoscalers
// aim for: the share of its places that is curfew's target as well.
func targetInFlight(p Params) float64 {
	target := p.Config.Target
	if target == 0 {
		target = capacity.DefaultTarget
	}
	return max(1, target*float64(p.Config.Server.Slots()))
}

// Keda is a ScaledObject with its defaults and one trigger of type AverageValue: requests in
// flight. KEDA 2.22: pollingInterval 30 s, cooldownPeriod 300 s until zero
// (keda.sh/docs/2.22/reference/scaledobject-spec). The HorizontalPodAutoscaler that it makes reads
// every 15 s, ignores ratios within 10% of 1, grows by the larger of 4 pods and 100% in 15 s, and
// shrinks to the most that it wanted in the last 300 s
// (kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale).
type Keda struct {
	p          Params
	recent     []wanted
	lastActive time.Time
	lastPoll   time.Time
}

type wanted struct {
	at time.Time
	n  int
}

// NewKeda returns the scaler.
func NewKeda(p Params) *Keda { return &Keda{p: p} }

// Name returns the name in the report.
func (k *Keda) Name() string { return "keda" }

// Interval returns the sync period of the HorizontalPodAutoscaler.
func (k *Keda) Interval() time.Duration { return 15 * time.Second }

// Size returns the number of replicas.
func (k *Keda) Size(o Observation) int {
	const poll, coolDown, stabilization = 30 * time.Second, 300 * time.Second, 300 * time.Second
	if o.InFlightNow > 0 {
		k.lastActive = o.At
	}
	if o.Actual == 0 {
		if o.At.Sub(k.lastPoll) < poll {
			return 0
		}
		k.lastPoll = o.At
		if o.InFlightNow == 0 {
			return 0
		}
		return 1
	}
	least := max(1, k.p.Config.Min)
	current := float64(o.Actual)
	n := current
	if ratio := o.InFlightNow / (targetInFlight(k.p) * current); math.Abs(ratio-1) > 0.1 {
		n = math.Ceil(o.InFlightNow / targetInFlight(k.p))
	}
	n = min(n, max(current+4, 2*current))
	size := max(least, bounded(n, k.p.Config.Bounds))
	k.recent = append(k.recent, wanted{o.At, size})
	for o.At.Sub(k.recent[0].at) > stabilization {
		k.recent = k.recent[1:]
	}
	if size < o.Actual {
		most := size
		for _, w := range k.recent {
			most = max(most, w.n)
		}
		size = min(o.Actual, most)
	}
	if k.p.Config.Min == 0 && size == 1 && o.At.Sub(k.lastActive) >= coolDown {
		return 0
	}
	return size
}

// Knative is the Knative Pod Autoscaler with its defaults, for the concurrency limit of the
// replica: target 70% of it, averages over 60 s, panic over 6 s at twice the capacity, at least half of
// the pods stay in a step, 30 s until zero, ticks of 2 s
// (knative.dev/docs/serving/autoscaling/kpa-specific, pkg/autoscaler/scaling/autoscaler.go).
type Knative struct {
	p          Params
	recent     []Observation
	panicUntil time.Time
	mostPanic  int
	idleSince  time.Time
}

// NewKnative returns the scaler.
func NewKnative(p Params) *Knative { return &Knative{p: p} }

// Name returns the name in the report.
func (k *Knative) Name() string { return "knative" }

// Interval returns the tick of the autoscaler.
func (k *Knative) Interval() time.Duration { return 2 * time.Second }

// Wakes reports that the activator starts the first pod at once.
func (k *Knative) Wakes() bool { return k.p.Config.Min == 0 }

// Size returns the number of replicas.
func (k *Knative) Size(o Observation) int {
	const stable, panicWindow, grace, share, threshold = 60 * time.Second, 6 * time.Second, 30 * time.Second, 0.7, 2.0
	k.recent = append(k.recent, o)
	for o.At.Sub(k.recent[0].At) >= stable {
		k.recent = k.recent[1:]
	}
	mean := func(span time.Duration) float64 {
		sum, n := 0.0, 0.0
		for i := len(k.recent) - 1; i >= 0 && o.At.Sub(k.recent[i].At) < span; i-- {
			sum, n = sum+k.recent[i].InFlight, n+1
		}
		return sum / n
	}
	target := share * float64(k.p.Config.Server.Slots())
	readyPods := max(1, float64(o.Ready))
	const upRate, downRate = 1000.0, 2.0
	limited := func(n float64) float64 {
		return min(max(n, math.Floor(readyPods/downRate)), math.Ceil(upRate*readyPods))
	}
	wantStable := limited(math.Ceil(mean(stable) / target))
	wantPanic := limited(math.Ceil(mean(panicWindow) / target))
	if wantPanic/readyPods >= threshold {
		k.panicUntil = o.At.Add(stable)
	}
	size := wantStable
	if o.At.Before(k.panicUntil) {
		k.mostPanic = max(k.mostPanic, int(max(wantPanic, wantStable)), o.Ready)
		size = float64(k.mostPanic)
	} else {
		k.mostPanic = 0
	}
	if mean(stable) > 0 {
		k.idleSince = time.Time{}
		size = max(1, size)
	} else {
		if k.idleSince.IsZero() {
			k.idleSince = o.At
		}
		if o.At.Sub(k.idleSince) < grace && o.Actual > 0 {
			size = 1
		} else {
			size = 0
		}
	}
	return bounded(size, k.p.Config.Bounds)
}

// TargetTracking is an AWS target tracking policy on the average of requests in flight for each
// replica, in its default alarms: it grows after three minutes above the target and shrinks after
// fifteen below 90% of it, from one-minute averages, with cooldowns of 300 s
// (docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html;
// the periods are those of the alarms that AWS makes). Its minimum is one replica.
type TargetTracking struct {
	p                Params
	high, low        int
	lastUp, lastDown time.Time
}

// NewTargetTracking returns the scaler.
func NewTargetTracking(p Params) *TargetTracking { return &TargetTracking{p: p} }

// Name returns the name in the report.
func (t *TargetTracking) Name() string { return "target-tracking" }

// Interval returns the period of the alarms.
func (t *TargetTracking) Interval() time.Duration { return time.Minute }

// Size returns the number of replicas.
func (t *TargetTracking) Size(o Observation) int {
	const coolDown, highPeriods, lowPeriods, lowShare = 300 * time.Second, 3, 15, 0.9
	target := targetInFlight(t.p)
	each := o.InFlight / max(1, float64(o.Ready))
	if each > target {
		t.high++
	} else {
		t.high = 0
	}
	if each < lowShare*target {
		t.low++
	} else {
		t.low = 0
	}
	least := max(1, t.p.Config.Min)
	size := o.Actual
	wantedSize := math.Ceil(o.InFlight / target)
	switch {
	case t.high >= highPeriods && o.At.Sub(t.lastUp) >= coolDown:
		if n := bounded(wantedSize, t.p.Config.Bounds); n > size {
			size, t.lastUp = n, o.At
		}
	case t.low >= lowPeriods && o.At.Sub(t.lastUp) >= coolDown && o.At.Sub(t.lastDown) >= coolDown:
		if n := bounded(wantedSize, t.p.Config.Bounds); n < size {
			size, t.lastDown = n, o.At
		}
	}
	return max(least, size)
}
