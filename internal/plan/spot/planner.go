package spot

import (
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

const (
	// replan is how often the planner learns again.
	replan = 6 * time.Hour
	// noticeable is by how much a hazard has to change, as a share, before there is a new
	// plan: on three zones of the campaign a plan at every change saves no more.
	noticeable = 0.05
	// maxSteps is how many steps a window is planned in at most.
	maxSteps = 512
	// priceStep is the ratio of prices that have a plan of their own.
	priceStep = 1.1
)

// planner is the strategy curfew. It learns from the past how the hazard of a run and
// of an outage changes with its age, solves the dynamic program of a case under that,
// and never lets a choice pass after which the work, a restart and nothing but on-demand
// would not meet the deadline.
//
// Among zones it follows one machine: kept while it is up, then started in the zone that
// costs least, restarts included. The program sees the runs of that machine, and that
// some of their ends are followed by another zone at once.
type planner struct {
	gap    time.Duration
	window int
	p      Params

	now  []offer
	ages []int32 // of each zone's run or outage
	// out is for how long no zone has been up.
	out int32
	// followed is the zone of the machine that is followed.
	followed machine
	past     history
	zones    []history
	// rates are by zone how many ends there were for one expected, in runs.
	rates []float64
	beats beats
	t     int

	m     model
	met   metronome
	price money.Amount
	// plans are by the price of spot; plan is the one for now.
	plans   map[int]*choices
	plan    *choices
	program program
	// table is that of a plan no longer needed.
	table  []uint8
	onBeat bool
	// still says that no beat has passed since the sample before, nor any change.
	still bool
}

func newPlanner(gap time.Duration, zones int, p Params) *planner {
	s := &planner{
		gap: gap, window: p.window(gap), p: p, ages: make([]int32, zones), zones: make([]history, zones),
		rates: make([]float64, zones), plans: map[int]*choices{},
	}
	for z := range s.rates {
		s.rates[z] = 1
	}
	return s
}

// observe takes in a sample, and learns again when it is time.
func (s *planner) observe(now []offer) {
	first := s.t == 0
	up := false
	for z, o := range now {
		changed := !first && o.up != s.now[z].up
		s.ages[z]++
		if first || changed {
			s.ages[z] = 0
		}
		s.zones[z] = append(s.zones[z], moment{o.up, changed, s.ages[z]})
		up = up || o.up
	}
	s.now = append(s.now[:0], now...)
	s.follow(up)
	wait := s.met.wait
	latest := s.past[len(s.past)-1]
	if s.onBeat {
		s.met.tick(latest.ended)
	}
	s.still = s.onBeat && !latest.ended && s.met.wait < wait
	if s.t%max(1, int(replan/s.gap)) == 0 {
		s.learn()
	}
	s.price = s.known()
	s.solve()
	s.t++
}

// follow moves the machine that is followed to where it is now.
func (s *planner) follow(up bool) {
	was := s.followed
	if was == nothing || !s.now[was-inZone].up {
		s.followed = s.pick()
	}
	m := moment{up: up, ended: s.t > 0 && was != s.followed}
	if up {
		s.out, m.age = 0, s.ages[s.followed-inZone]
	} else {
		if m.age = s.out; m.ended {
			m.age = 0
		}
		s.out = m.age + 1
	}
	if m.ended {
		if n := s.past[len(s.past)-1].age + 1; int(n) < s.t { // how long the first lasted is not known
			s.beats.observe(int(n))
		}
	}
	s.past = append(s.past, m)
}

// known is the spot price to plan with: that of the machine followed, the latest while
// there is none, and before the first that of on-demand.
func (s *planner) known() money.Amount {
	switch {
	case s.followed != nothing:
		return s.now[s.followed-inZone].price
	case s.price > 0:
		return s.price
	}
	return s.p.OnDemandPrice
}

// learn fits the model to the past. The plans stay while it says much the same.
func (s *planner) learn() {
	c := clock{step: math.Ceil(float64(s.window) / maxSteps)}
	if period, ok := s.beats.period(); ok && len(s.zones) == 1 && float64(s.window)/period <= maxSteps {
		c = clock{period, true}
	}
	m, met := s.past.fit(s.gap, c)
	if m.near(&s.m) {
		return
	}
	s.m, s.met = m, met
	s.onBeat = c.beat
	for z, h := range s.zones {
		s.rates[z] = s.m.rate(h)
	}
	for level, c := range s.plans {
		s.table = c.best
		delete(s.plans, level)
	}
}

// near says whether two models differ too little to plan again.
func (m *model) near(o *model) bool {
	if m.clock != o.clock || math.Abs(m.moved-o.moved) > noticeable {
		return false
	}
	for k := range 2 {
		for b, e := range m.ends[k] {
			if math.Abs(math.Log(e/o.ends[k][b])) > noticeable {
				return false
			}
		}
	}
	return true
}

// solve finds the plan for the model and the price of now, which is taken to last.
func (s *planner) solve() {
	level := int(math.Round(math.Log(float64(s.price)/float64(s.p.OnDemandPrice)) / math.Log(priceStep)))
	plan := s.plans[level]
	if plan == nil {
		step, window := s.m.step*float64(s.gap), float64(s.window)*float64(s.gap)
		plan = s.program.solve(&s.m, int(math.Ceil(window/step)), (window-float64(s.p.Work))/step, float64(s.p.Restart)/step,
			float64(s.price)/float64(s.p.OnDemandPrice), s.table)
		s.table, s.plans[level] = nil, plan
	}
	s.plan = plan
}

// rate is how many of a zone's runs ended for one that the model expects to.
func (m *model) rate(h history) float64 {
	at, _ := h.place(m)
	ended, due := scaleWeight, scaleWeight
	h.steps(at, func(_, k, b int, e float64) {
		if k == 1 {
			ended += e
			due += m.ends[1][b]
		}
	})
	return ended / due
}

// pick is the zone that is up and costs least, restarts included.
func (s *planner) pick() machine {
	best, least := nothing, math.Inf(1)
	for z, o := range s.now {
		if m := inZone + machine(z); o.up && s.cost(m) < least {
			best, least = m, s.cost(m)
		}
	}
	return best
}

// cost is what an hour in a zone comes to, with the restarts that its hazard brings.
func (s *planner) cost(m machine) float64 {
	return float64(s.now[m-inZone].price) * (1 + s.hazard(m)*s.p.Restart.Hours())
}

// hazard is how many ends an hour of spot in a zone brings.
func (s *planner) hazard(m machine) float64 {
	if len(s.m.first) == 0 {
		return 0
	}
	z := m - inZone
	return s.rates[z] * s.m.ends[1][s.m.bucket(int(s.ages[z])/int(s.m.step))] / (s.m.step * s.gap.Hours())
}

func (s *planner) decide(a *attempt) machine {
	choice := a.on
	if a.gaps == a.window || !s.still {
		choice = s.choose(a)
	}
	switch {
	case s.safe(a, choice):
		return choice
	case a.runs() && s.safe(a, a.on):
		return a.on
	}
	return onDemand
}

// choose looks the case up in the plan.
func (s *planner) choose(a *attempt) machine {
	spot, mode := s.pick(), idle
	slack := a.left() - a.work
	switch {
	case a.runs():
		spot, mode = a.on, held
		slack -= a.pending
	case a.on == onDemand:
		mode = paid
		slack -= a.pending
	}
	step := s.m.step * float64(s.gap)
	switch s.plan.at(float64(a.left())/step, float64(slack)/step, mode, s.state(spot)) {
	case idle:
		return nothing
	case paid:
		return onDemand
	}
	if mode == held {
		return s.move(a)
	}
	return spot
}

// state is that of the market for a case whose machine is, or would be, in a zone.
func (s *planner) state(spot machine) int {
	up, age := spot != nothing, 0
	switch {
	case s.onBeat:
		age = s.met.beats
	case up:
		age = int(s.ages[spot-inZone]) / int(s.m.step)
	default:
		age = int(s.past[len(s.past)-1].age) / int(s.m.step)
	}
	return index(up)*len(s.m.first) + s.m.bucket(age)
}

// move weighs another zone against the one that a case runs in: a restart there is
// spread over the work left, or over how long the machine is expected to last.
func (s *planner) move(a *attempt) machine {
	best := s.pick()
	if best == a.on {
		return a.on
	}
	hours := a.work.Hours()
	if h := s.hazard(best); h > 0 {
		hours = min(hours, 1/h)
	}
	if s.cost(best)+float64(s.now[best-inZone].price)*s.p.Restart.Hours()/hours < s.cost(a.on) {
		return best
	}
	return a.on
}

// safe says whether after a gap on a machine the work, from then on on-demand after a
// restart, would still meet the deadline.
func (s *planner) safe(a *attempt, m machine) bool {
	work := a.work
	switch {
	case m == onDemand:
		return true
	case m >= inZone:
		pending := a.restart
		if m == a.on {
			pending = a.pending
		}
		if work -= max(0, a.gap-pending); work <= 0 {
			return true
		}
	}
	return a.left()-a.gap >= work+a.restart
}
