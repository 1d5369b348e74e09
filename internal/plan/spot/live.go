package spot

import (
	"cmp"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Machine is the machine of a run: none, on-demand, or spot in a zone, whose number is the machine's
// less InZone.
type Machine = machine

// The machines.
const (
	Nothing  = nothing
	OnDemand = onDemand
	InZone   = inZone
)

// Offer is the capacity and price of a zone in a sample.
type Offer struct {
	// Up reports that a machine can be had, and one that runs goes on. What no one tried is as it was.
	Up bool
	// Price is for an hour.
	Price money.Amount
}

// Running is the state of a run at a sample.
type Running struct {
	// Samples is the number of samples since it began.
	Samples int
	// Work is the rest of the work, Pending the rest of the restart of its machine.
	Work, Pending time.Duration
	On            Machine
}

// Prior is the knowledge of a zone before its first use.
type Prior struct {
	// Interruptions is the expected ratio of its interruptions to those of all zones; 0 is 1.
	Interruptions float64
	// Start is the cost of each start in addition to the machine, such as the transfer of its data.
	Start money.Amount
}

// Live is the strategy curfew for one run that is placed as it happens.
type Live struct{ planner *planner }

// NewLive returns the strategy for a run with these parameters, before any sample of its zones. Every
// is not used.
func NewLive(gap time.Duration, zones []Prior, p Params) *Live {
	s := newPlanner(gap, len(zones), p)
	for z, prior := range zones {
		s.priors[z] = cmp.Or(prior.Interruptions, 1)
		s.rates[z], s.starts[z] = s.priors[z], prior.Start
	}
	return &Live{s}
}

// Observe adds a sample that is over, from which no decision follows.
func (l *Live) Observe(sample []Offer) { l.planner.learnFrom(offers(sample)) }

// Decide returns the machine for the current sample, which is not added: more may become known of it.
func (l *Live) Decide(sample []Offer, r Running) Machine { return l.DecideUnseen(sample, nil, r) }

// DecideUnseen returns the machine for the current sample if the zones that come up with it were up for
// some samples already, unseen because no one tried them since. A machine of a zone that just came up is
// often taken soon, so that a try every few samples finds better ones than a try in each.
func (l *Live) DecideUnseen(sample []Offer, unseen []int, r Running) Machine {
	s := l.planner
	restore := s.save()
	defer restore()
	s.observe(offers(sample))
	for z, n := range unseen {
		if sample[z].Up && s.ages[z] == 0 {
			s.ages[z] = int32(n)
		}
	}
	return s.decide(s.caseOf(r))
}

// caseOf returns a run as a case.
func (s *planner) caseOf(r Running) *caseState {
	return &caseState{
		gaps: s.window - r.Samples, window: s.window, gap: s.gap, deadline: s.p.Deadline, work: r.Work, all: s.p.Work,
		pending: r.Pending, restart: s.p.Restart, on: r.On,
	}
}

// Hazard returns the expected interruptions per hour of a machine that starts in a zone, or runs there.
func (l *Live) Hazard(zone int) float64 { return l.planner.hazard(inZone + machine(zone)) }

// HourlyCost returns the cost of an hour in a zone, in dollars, with the restarts that its
// interruptions imply.
func (l *Live) HourlyCost(zone int, price money.Amount) float64 {
	s := l.planner
	hazard := l.Hazard(zone)
	return float64(price)*(1+hazard*s.p.Restart.Hours())/1e9 + s.startCost(zone, hazard)/1e9
}

func offers(sample []Offer) []zoneOffer {
	out := make([]zoneOffer, len(sample))
	for z, o := range sample {
		out[z] = zoneOffer{o.Up, o.Price}
	}
	return out
}

// save returns a function that takes back the samples since.
func (s *planner) save() (restore func()) {
	before := *s
	before.now, before.ages = append([]zoneOffer(nil), s.now...), append([]int32(nil), s.ages...)
	before.rates = append([]float64(nil), s.rates...)
	lengths := make([]int, len(s.zones))
	for z, h := range s.zones {
		lengths[z] = len(h)
	}
	before.beats.accord = append([]float64(nil), s.beats.accord...)
	return func() {
		plans, table, program, learned := s.plans, s.table, s.program, s.m
		*s = before
		for z, n := range lengths {
			s.zones[z] = s.zones[z][:n]
		}
		s.program = program
		if learned.similar(&before.m) && len(before.m.first) > 0 { // its plans are still of use
			s.plans, s.table = plans, table
		} else {
			s.plans, s.table = map[int]*policy{}, nil
		}
	}
}

// startCost returns the hourly cost of the starts in a zone: one for the work, and one for each end.
func (s *planner) startCost(zone int, hazard float64) float64 {
	if s.starts[zone] == 0 {
		return 0
	}
	return float64(s.starts[zone]) * (hazard + 1/math.Max(s.p.Work.Hours(), 1))
}
