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

// unaffordable is more than any case costs, in hours on-demand of a step.
const unaffordable = float32(1e9)

// The modes of a case in the program.
const (
	idle = iota
	paid // on-demand
	held // spot
	modes
)

// choices are what is best by steps left, slack, mode and state, for every case that
// starts within the window: the state of the market is an outage or a run by bucket of
// its age, outages first.
type choices struct {
	steps, states int
	slack         []float64
	best          []uint8
}

// between two points of the grid: the lower, and the weight of the upper. ok is false
// below all of them.
type point struct {
	j  int
	f  float32
	ok bool
}

// program is the dynamic program of a case under a model of the market: over the steps
// left, the slack (time left less work left, in steps) and the state. A case that has no
// slack over a restart left stays on-demand, so that no choice misses the deadline.
type program struct {
	m     *model
	n     int // buckets
	slack []float64
	// afterIdle and afterStart are where the slack is after a step without progress,
	// and after a restart.
	afterIdle, afterStart []point
	restart               float64
	spot, onDemand        float32
	// end, stay and next are the probabilities of a state: that it ends, that it stays
	// in its bucket, and that it goes on to the next.
	end, stay, next []float32
	value, expected []float32
}

// solve finds the best choices. The restart is in steps; prices are of a step, in any
// unit.
func solve(m *model, steps int, slack, restart, spot, onDemand float64) *choices {
	p := program{m: m, n: len(m.first), slack: []float64{0}, restart: restart, spot: float32(spot), onDemand: float32(onDemand)}
	for s := slackUnit; s < slack; s += max(slackUnit, math.Floor(s/slackGrain/slackUnit)*slackUnit) {
		p.slack = append(p.slack, s)
	}
	p.slack = append(p.slack, max(slack, slackUnit))
	for _, s := range p.slack {
		p.afterIdle, p.afterStart = append(p.afterIdle, p.find(s-1)), append(p.afterStart, p.find(s-restart))
	}
	for k := range 2 {
		for b := range p.n {
			end := min(1-math.Exp(-m.ends[k][b]), surest)
			next := 0.0
			if b+1 < p.n {
				next = (1 - end) / m.width(b)
			}
			p.end, p.next, p.stay = append(p.end, float32(end)), append(p.next, float32(next)), append(p.stay, float32(1-end-next))
		}
	}
	states := 2 * p.n
	c := &choices{steps: steps, states: states, slack: p.slack, best: make([]uint8, (steps+1)*len(p.slack)*modes*states)}
	p.value, p.expected = make([]float32, len(p.slack)*modes*states), make([]float32, len(p.slack)*modes*states)
	for t := 1; t <= steps; t++ {
		for j := range p.slack {
			p.expect(j, float64(t))
		}
		for j := range p.slack {
			p.choose(j, float64(t), c.best[(t*len(p.slack)+j)*modes*states:][:modes*states])
		}
	}
	return c
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

// expect takes the mean of the values over what the market does in a step.
func (p *program) expect(j int, left float64) {
	if p.slack[j] >= left { // the work is done
		clear(p.expected[j*modes*2*p.n : (j+1)*modes*2*p.n])
		return
	}
	n, moved := p.n, float32(p.m.moved)
	for mode := range modes {
		v, e := p.row(p.value, j, mode), p.row(p.expected, j, mode)
		elsewhere := v[n]
		if mode == held { // what ran has ended, and starts again where another zone is up
			elsewhere = p.row(p.value, j, idle)[n]
		}
		after := [2]float32{v[n], (1-moved)*v[0] + moved*elsewhere}
		for k := range 2 {
			mean(e[k*n:][:n], v[k*n:][:n], p.end[k*n:][:n], p.stay[k*n:][:n], p.next[k*n:][:n], after[k])
		}
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

// choose fills in values and choices of one slack.
func (p *program) choose(j int, left float64, best []uint8) {
	states := 2 * p.n
	s := p.slack[j]
	vIdle, vPaid, vHeld := p.row(p.value, j, idle), p.row(p.value, j, paid), p.row(p.value, j, held)
	if s >= left {
		clear(vIdle)
		clear(vPaid)
		clear(vHeld)
		return
	}
	bIdle, bPaid, bHeld := best[idle*states:][:states], best[paid*states:][:states], best[held*states:][:states]
	part := float32(min(1, left-s)) // of the step that the work still takes
	ePaid, eHeld := p.row(p.expected, j, paid), p.row(p.expected, j, held)
	wait, start := p.afterIdle[j], p.afterStart[j]
	mayWait, mayStart, mayKeep := wait.ok && s-1 >= p.restart, start.ok && s >= 2*p.restart, s >= p.restart
	var wait0, wait1, paid0, paid1, held0, held1 []float32
	if wait.ok {
		wait0, wait1 = p.row(p.expected, wait.j, idle), p.row(p.expected, wait.j+1, idle)
	}
	if start.ok {
		paid0, paid1 = p.row(p.expected, start.j, paid), p.row(p.expected, start.j+1, paid)
		held0, held1 = p.row(p.expected, start.j, held), p.row(p.expected, start.j+1, held)
	}
	for i := range states {
		waits, starts, pays := unaffordable, unaffordable, unaffordable
		if mayWait {
			waits = (1-wait.f)*wait0[i] + wait.f*wait1[i]
		}
		if start.ok {
			pays = p.onDemand + (1-start.f)*paid0[i] + start.f*paid1[i]
		}
		up := i >= p.n
		if up && mayStart {
			starts = p.spot + (1-start.f)*held0[i] + start.f*held1[i]
		}
		v, b := pays, uint8(paid)
		if waits < v {
			v, b = waits, idle
		}
		vHeld[i], bHeld[i] = v, b
		if up && mayKeep {
			if keeps := p.spot*part + eHeld[i]; keeps < v {
				vHeld[i], bHeld[i] = keeps, held
			}
		}
		if starts < v {
			v, b = starts, held
		}
		vIdle[i], bIdle[i] = v, b
		if !up {
			vHeld[i], bHeld[i] = v, b
		}
		v, b = p.onDemand*part+ePaid[i], paid
		if waits < v {
			v, b = waits, idle
		}
		if starts < v {
			v, b = starts, held
		}
		vPaid[i], bPaid[i] = v, b
	}
}

// at returns the best mode nearest to a number of steps left and a slack.
func (c *choices) at(left, slack float64, mode, state int) int {
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
