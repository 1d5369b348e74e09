package spot

import (
	"math"
	"slices"
)

// The grid of slack: a quarter of a step apart, and coarser the more there is.
const (
	slackUnit  = 0.25
	slackGrain = 24
)

// infiniteCost is more than any case costs, in hours on-demand of a step.
const infiniteCost = float32(1e9)

// The modes of a case in the program.
const (
	idle         = iota
	modeOnDemand // on-demand
	modeSpot     // spot
	modes
)

// policy holds the best decision by steps left, slack, mode and state, for every case that
// starts within the window: the state of the market is an outage or a run by bucket of
// its age, outages first.
type policy struct {
	steps, states int
	slack         []float64
	best          []uint8
}

// point is a position between two points of the grid: the lower one, and the weight of the upper one.
// ok is false below all of them.
type point struct {
	j  int
	f  float32
	ok bool
}

// program is the dynamic program of a case under a model of the market: over the steps
// left, the slack (time left less work left, in steps) and the state. A case that has no
// slack over a restart left stays on-demand, so that no choice misses the deadline.
// Its tables are used again by the next.
type program struct {
	m     *hazardModel
	n     int // buckets
	slack []float64
	// afterIdle and afterStart are where the slack is after a step without progress,
	// and after a restart.
	afterIdle, afterStart []point
	restart               float64
	spot                  float32 // its price, of that on-demand
	// end, stay and next are the probabilities of a state: that it ends, that it stays
	// in its bucket, and that it goes on to the next.
	end, stay, next []float32
	value, expected []float32
	waits, starts   []float32 // of one slack
}

// solve finds the best choices. The restart is in steps, the price of spot a share of that
// on-demand. The table, of choices that are no longer needed, is written over.
func (p *program) solve(m *hazardModel, steps int, slack, restart, spot float64, table []uint8) *policy {
	p.m, p.n, p.restart, p.spot = m, len(m.first), restart, float32(spot)
	p.slack = []float64{0} // that of earlier choices is theirs
	for s := slackUnit; s < slack; s += max(slackUnit, math.Floor(s/slackGrain/slackUnit)*slackUnit) {
		p.slack = append(p.slack, s)
	}
	p.slack = append(p.slack, max(slack, slackUnit))
	p.afterIdle, p.afterStart = p.afterIdle[:0], p.afterStart[:0]
	for _, s := range p.slack {
		p.afterIdle, p.afterStart = append(p.afterIdle, p.find(s-1)), append(p.afterStart, p.find(s-restart))
	}
	p.end, p.stay, p.next = p.end[:0], p.stay[:0], p.next[:0]
	for k := range 2 {
		for b := range p.n {
			end := min(1-math.Exp(-m.ends[k][b]), surest)
			next := 0.0
			if b+1 < p.n {
				next = (1 - end) / m.width(b)
			}
			p.end, p.next, p.stay = append(p.end, float32(end)), append(p.next, float32(next)), append(p.stay,
				float32(1-end-next))
		}
	}
	row := modes * 2 * p.n
	c := &policy{steps: steps, states: 2 * p.n, slack: p.slack, best: resize(table, (steps+1)*len(p.slack)*row)}
	p.value, p.expected = resize(p.value, len(p.slack)*row), resize(p.expected, len(p.slack)*row)
	p.waits, p.starts = resize(p.waits, 2*p.n), resize(p.starts, p.n)
	clear(p.value)
	todo := 0 // how many slacks leave work to do; from there on every value stays 0
	for t := 1; t <= steps; t++ {
		for todo < len(p.slack) && p.slack[todo] < float64(t) {
			todo++
		}
		for j := range todo {
			p.expect(j)
		}
		for j := range todo {
			p.choose(j, float64(t), c.best[(t*len(p.slack)+j)*row:][:row])
		}
	}
	return c
}

// resize is a slice of a length, in the memory of another if that will do.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// find returns where a slack is on the grid.
func (p *program) find(s float64) point {
	if s < -1e-9 {
		return point{}
	}
	j, exact := slices.BinarySearch(p.slack, s)
	if !exact {
		j--
	}
	j = min(max(j, 0), len(p.slack)-2)
	return point{j, float32((s - p.slack[j]) / (p.slack[j+1] - p.slack[j])), true}
}

func (p *program) row(of []float32, j, mode int) []float32 {
	return of[(j*modes+mode)*2*p.n:][: 2*p.n : 2*p.n]
}

// expect returns the mean of the values over the market's changes in a step. No spot machine is
// held while none is available.
func (p *program) expect(j int) {
	n, moved := p.n, float32(p.m.moved)
	outage := p.row(p.value, j, idle)
	for mode := range modes {
		v, e := p.row(p.value, j, mode), p.row(p.expected, j, mode)
		down, elsewhere := v[0], v[n]
		if mode == modeSpot { // what ran has ended, and starts again where another zone is up
			down, elsewhere = outage[0], outage[n]
		} else {
			mean(e[:n], v[:n], p.end[:n], p.stay[:n], p.next[:n], v[n])
		}
		mean(e[n:], v[n:], p.end[n:], p.stay[n:], p.next[n:], (1-moved)*down+moved*elsewhere)
	}
}

// mean fills in e for the buckets of an outage or of a run; what follows its end has the
// value after. The last bucket goes on to no other.
func mean(e, v, end, stay, next []float32, after float32) {
	last := len(e) - 1
	v, end, stay, next = v[:len(e)], end[:len(e)], stay[:len(e)], next[:len(e)]
	for i := range last {
		e[i] = end[i]*after + stay[i]*v[i] + next[i]*v[i+1]
	}
	e[last] = end[last]*after + stay[last]*v[last]
}

// way fills in what something comes to that costs this much and leads to a point of the
// grid in a mode: for the states of out, the last ones of a row. It may not be open.
func (p *program) way(out []float32, cost float32, to point, mode int, open bool) {
	if !open || !to.ok {
		for i := range out {
			out[i] = infiniteCost
		}
		return
	}
	lower, upper := p.row(p.expected, to.j, mode), p.row(p.expected, to.j+1, mode)
	lower, upper = lower[len(lower)-len(out):][:len(out)], upper[len(upper)-len(out):][:len(out)]
	f, g := to.f, 1-to.f
	for i := range out {
		out[i] = cost + g*lower[i] + f*upper[i]
	}
}

// choose fills in values and choices of one slack.
func (p *program) choose(j int, left float64, best []uint8) {
	n, s := p.n, p.slack[j]
	part := float32(min(1, left-s)) // of the step that the work still takes
	start := p.afterStart[j]
	idles, pays, holds := p.row(p.value, j, idle), p.row(p.value, j, modeOnDemand), p.row(p.value, j, modeSpot)[n:]
	ePaid, eHeld := p.row(p.expected, j, modeOnDemand), p.row(p.expected, j, modeSpot)[n:]
	waits, starts := p.waits[:2*n], p.starts[:n]
	p.way(waits, 0, p.afterIdle[j], idle, s-1 >= p.restart)
	p.way(starts, p.spot, start, modeSpot, s >= 2*p.restart)
	p.way(idles, 1, start, modeOnDemand, true)
	bIdle, bPaid, bHeld := best[idle*2*n:][:2*n], best[modeOnDemand*2*n:][:2*n], best[modeSpot*2*n+n:][:n]
	// Whatever is up, on-demand or nothing.
	for i, w := range waits {
		bIdle[i], bPaid[i] = modeOnDemand, modeOnDemand
		if w < idles[i] {
			idles[i], bIdle[i] = w, idle
		}
		v := part + ePaid[i]
		if w < v {
			v, bPaid[i] = w, idle
		}
		pays[i] = v
	}
	idles, pays, bIdle, bPaid = idles[n:], pays[n:], bIdle[n:], bPaid[n:]
	copy(holds, idles)
	copy(bHeld, bIdle)
	if cost := p.spot * part; s >= p.restart {
		for i, e := range eHeld {
			if v := cost + e; v < holds[i] {
				holds[i], bHeld[i] = v, modeSpot
			}
		}
	}
	for i, v := range starts {
		if v < idles[i] {
			idles[i], bIdle[i] = v, modeSpot
		}
		if v < pays[i] {
			pays[i], bPaid[i] = v, modeSpot
		}
	}
}

// at returns the best mode nearest to a number of steps left and a slack.
func (c *policy) at(left, slack float64, mode, state int) int {
	t := min(max(int(math.Round(left)), 1), c.steps)
	j, _ := slices.BinarySearch(c.slack, slack)
	j = min(j, len(c.slack)-1)
	if j > 0 && slack-c.slack[j-1] < c.slack[j]-slack {
		j--
	}
	for j > 0 && c.slack[j] >= float64(t) { // there, the work would be done
		j--
	}
	return int(c.best[((t*len(c.slack)+j)*modes+mode)*c.states+state])
}
