package spot

import (
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

const (
	// relearnInterval is the time between updates of the model.
	relearnInterval = 6 * time.Hour
	// minHazardChange is the relative change of a hazard that triggers a new plan. On three zones
	// of the campaign, planning at every change saved no more.
	minHazardChange = 0.05
	// maxSteps is the maximum number of steps of a plan.
	maxSteps = 512
	// priceRatio is the ratio of prices with separate plans.
	priceRatio = 1.1
)

// planner is the strategy curfew. It learns how the hazards of runs and outages depend on age,
// solves a dynamic program for each case, and never makes a choice after which on-demand capacity
// could not meet the deadline.
//
// Among zones it follows one machine: it stays while it is up, then starts in the cheapest zone
// including restarts. The program models the runs of that machine, some of whose ends are followed
// by another zone at once.
type planner struct {
	gap    time.Duration
	window int
	p      Params

	now  []zoneOffer
	ages []int32 // of each zone's run or outage
	// outageLength is the time since any zone was up.
	outageLength int32
	// followed is the zone of the followed machine.
	followed machine
	past     marketHistory
	zones    []marketHistory
	// rates are the ratios of observed to expected ends of runs by zone.
	rates []float64
	// priors are the expected rates before any data, and starts the cost of a start besides the machine.
	priors []float64
	starts []money.Amount
	beats  beatDetector
	t      int

	m     hazardModel
	met   beatClock
	price money.Amount
	// plans are keyed by spot price; plan is the current one.
	plans   map[int]*policy
	plan    *policy
	program program
	// table is the memory of an obsolete plan for reuse.
	table  []uint8
	onBeat bool
	// noBeat reports that neither a beat nor a change occurred since the last sample.
	noBeat bool
}

func newPlanner(gap time.Duration, zones int, p Params) *planner {
	s := &planner{
		gap: gap, window: p.window(gap), p: p, ages: make([]int32, zones), zones: make([]marketHistory, zones),
		rates: make([]float64, zones), priors: make([]float64, zones), starts: make([]money.Amount, zones),
		plans: map[int]*policy{},
	}
	for z := range s.rates {
		s.rates[z], s.priors[z] = 1, 1
	}
	return s
}

// observe adds a sample, relearns when due, and plans.
func (s *planner) observe(now []zoneOffer) {
	s.learnFrom(now)
	s.solve()
}

// learnFrom adds a sample and relearns when due.
func (s *planner) learnFrom(now []zoneOffer) {
	first := s.t == 0
	up := false
	for z, o := range now {
		changed := !first && o.up != s.now[z].up
		s.ages[z]++
		if first || changed {
			s.ages[z] = 0
		}
		s.zones[z] = append(s.zones[z], historySample{o.up, changed, s.ages[z]})
		up = up || o.up
	}
	s.now = append(s.now[:0], now...)
	s.follow(up)
	wait := s.met.wait
	latest := s.past[len(s.past)-1]
	if s.onBeat {
		s.met.tick(latest.changed)
	}
	s.noBeat = s.onBeat && !latest.changed && s.met.wait < wait
	if s.t%max(1, int(relearnInterval/s.gap)) == 0 {
		s.learn()
	}
	s.price = s.known()
	s.t++
}

// follow updates the followed machine.
func (s *planner) follow(up bool) {
	was := s.followed
	if was == nothing || !s.now[was-inZone].up {
		s.followed = s.pick()
	}
	m := historySample{up: up, changed: s.t > 0 && was != s.followed}
	if up {
		s.outageLength, m.age = 0, s.ages[s.followed-inZone]
	} else {
		if m.age = s.outageLength; m.changed {
			m.age = 0
		}
		s.outageLength = m.age + 1
	}
	if m.changed {
		if n := s.past[len(s.past)-1].age + 1; int(n) < s.t { // the length of the first run is unknown
			s.beats.observe(int(n))
		}
	}
	s.past = append(s.past, m)
}

// known returns the spot price to plan with: of the followed machine, else the latest, else the
// on-demand price.
func (s *planner) known() money.Amount {
	switch {
	case s.followed != nothing:
		return s.now[s.followed-inZone].price
	case s.price > 0:
		return s.price
	}
	return s.p.OnDemandPrice
}

// learn fits the model. Plans stay valid if the model changes little.
func (s *planner) learn() {
	c := clock{step: math.Ceil(float64(s.window) / maxSteps)}
	if period, ok := s.beats.period(); ok && len(s.zones) == 1 && float64(s.window)/period <= maxSteps {
		c = clock{period, true}
	}
	m, met := s.past.fit(s.gap, c)
	if m.similar(&s.m) {
		return
	}
	s.m, s.met = m, met
	s.onBeat = c.beat
	for z, h := range s.zones {
		s.rates[z] = s.m.rate(h, s.priors[z])
	}
	for level, c := range s.plans {
		s.table = c.best
		delete(s.plans, level)
	}
}

// similar reports whether two models differ too little for a new plan.
func (m *hazardModel) similar(o *hazardModel) bool {
	if m.clock != o.clock || math.Abs(m.moved-o.moved) > minHazardChange {
		return false
	}
	for k := range 2 {
		for b, e := range m.ends[k] {
			if math.Abs(math.Log(e/o.ends[k][b])) > minHazardChange {
				return false
			}
		}
	}
	return true
}

// solve returns the plan for the current model and a constant price.
func (s *planner) solve() {
	level := int(math.Round(math.Log(float64(s.price)/float64(s.p.OnDemandPrice)) / math.Log(priceRatio)))
	plan := s.plans[level]
	if plan == nil {
		step, window := s.m.step*float64(s.gap), float64(s.window)*float64(s.gap)
		plan = s.program.solve(&s.m, int(math.Ceil(window/step)), (window-float64(s.p.Work))/step,
			float64(s.p.Restart)/step,
			float64(s.price)/float64(s.p.OnDemandPrice), s.table)
		s.table, s.plans[level] = nil, plan
	}
	s.plan = plan
}

// rate returns the ratio of a zone's observed to expected ends of runs, from that before any data.
func (m *hazardModel) rate(h marketHistory, before float64) float64 {
	at, _ := h.place(m)
	ended, due := before*scaleWeight, scaleWeight
	h.steps(at, func(_, k, b int, e float64) {
		if k == 1 {
			ended += e
			due += m.ends[1][b]
		}
	})
	return ended / due
}

// pick returns the cheapest available zone, restarts included.
func (s *planner) pick() machine {
	best, least := nothing, math.Inf(1)
	for z, o := range s.now {
		if m := inZone + machine(z); o.up && s.cost(m) < least {
			best, least = m, s.cost(m)
		}
	}
	return best
}

// cost returns the hourly cost in a zone with the restarts that its hazard implies.
func (s *planner) cost(m machine) float64 {
	hazard := s.hazard(m)
	return float64(s.now[m-inZone].price)*(1+hazard*s.p.Restart.Hours()) + s.startCost(int(m-inZone), hazard)
}

// hazard returns the expected ends per hour of spot in a zone.
func (s *planner) hazard(m machine) float64 {
	if len(s.m.first) == 0 {
		return 0
	}
	z := m - inZone
	return s.rates[z] * s.m.ends[1][s.m.bucket(int(s.ages[z])/int(s.m.step))] / (s.m.step * s.gap.Hours())
}

// decide returns the machine of a case.
func (s *planner) decide(a *caseState) machine {
	choice := a.on
	if a.gaps == a.window || !s.noBeat {
		choice = s.choose(a)
	}
	switch {
	case s.safe(a, choice):
		return choice
	case a.holdsSpot() && s.safe(a, a.on):
		return a.on
	}
	return onDemand
}

// choose looks a case up in the plan.
func (s *planner) choose(a *caseState) machine {
	spot, mode := s.pick(), idle
	slack := a.left() - a.work
	switch {
	case a.holdsSpot():
		spot, mode = a.on, modeSpot
		slack -= a.pending
	case a.on == onDemand:
		mode = modeOnDemand
		slack -= a.pending
	}
	step := s.m.step * float64(s.gap)
	switch s.plan.at(float64(a.left())/step, float64(slack)/step, mode, s.state(spot)) {
	case idle:
		return nothing
	case modeOnDemand:
		return onDemand
	}
	if mode == modeSpot {
		return s.move(a)
	}
	return spot
}

// state returns the market state of a case in a zone.
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

// move compares another zone with the current one, spreading the restart over the remaining work or
// the expected life of the machine.
func (s *planner) move(a *caseState) machine {
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

// safe reports whether, after one more gap on a machine, on-demand capacity could still meet the
// deadline with a restart.
func (s *planner) safe(a *caseState, m machine) bool {
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
