package spot

import (
	"math/bits"
	"time"
)

// greedy waits for spot, and goes on-demand for good when the time runs out.
type greedy struct {
	now []offer
	// progress makes it uniform progress: in place of waiting, on-demand while it is
	// behind the line from nothing at the start to all of the work at the deadline, and
	// from then on until it is where the line is two restarts later.
	progress bool
}

func (g *greedy) observe(now []offer) { g.now = now }

func (g *greedy) decide(a *attempt) machine {
	if a.runs() {
		return a.on // a machine that is up is kept
	}
	// Without progress the time left falls faster than the work, and with it as fast:
	// what is late once stays late.
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

// line is elapsed · work / deadline, some time ahead.
func (a *attempt) line(ahead time.Duration) time.Duration {
	elapsed := min(time.Duration(a.window-a.gaps)*a.gap+ahead, a.deadline)
	hi, lo := bits.Mul64(uint64(elapsed), uint64(a.all))
	q, _ := bits.Div64(hi, lo, uint64(a.deadline))
	return time.Duration(q)
}

// cheapest is spot at the lowest price, nothing where no zone is up.
func cheapest(now []offer) machine {
	best := nothing
	for i, o := range now {
		if o.up && (best == nothing || o.price < now[best-inZone].price) {
			best = inZone + machine(i)
		}
	}
	return best
}
