package spot

import (
	"math/bits"
	"time"
)

// greedy waits for spot and switches to on-demand for good when time runs out.
type greedy struct {
	now []zoneOffer
	// progress selects the strategy uniform progress: instead of waiting it uses on-demand while
	// progress is below the line from zero at the start to all work at the deadline, until it
	// reaches the line's value two restarts ahead.
	progress bool
}

func (g *greedy) observe(now []zoneOffer) { g.now = now }

func (g *greedy) decide(a *caseState) machine {
	if a.holdsSpot() {
		return a.on // keep a running machine
	}
	// Without progress the remaining time shrinks faster than the work, so a late case stays late.
	if a.left() <= a.work+2*a.restart+2*a.gap {
		return onDemand
	}
	spot, ahead := cheapest(g.now), time.Duration(0)
	if a.on == onDemand {
		ahead = 2 * a.restart
	}
	if g.progress && spot == nothing && a.all-a.work < a.line(ahead) {
		return onDemand
	}
	return spot
}

// line returns elapsed · work / deadline at a time ahead.
func (a *caseState) line(ahead time.Duration) time.Duration {
	elapsed := min(time.Duration(a.window-a.gaps)*a.gap+ahead, a.deadline)
	hi, lo := bits.Mul64(uint64(elapsed), uint64(a.all))
	q, _ := bits.Div64(hi, lo, uint64(a.deadline))
	return time.Duration(q)
}

// cheapest returns spot in the cheapest available zone, or nothing.
func cheapest(now []zoneOffer) machine {
	best := nothing
	for i, o := range now {
		if o.up && (best == nothing || o.price < now[best-inZone].price) {
			best = inZone + machine(i)
		}
	}
	return best
}
