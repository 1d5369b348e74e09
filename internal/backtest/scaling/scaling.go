// Package scaling replays recorded arrivals through scalers of serving fleets on a virtual clock:
// curfew's own decisions, and the published algorithms of other autoscalers. Every scaler sees the
// same requests, the same replicas and the past only.
package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// Observation is the input of a scaler: averages since the one before it, and the fleet now.
type Observation struct {
	At time.Time
	// InFlight is requests in service and waiting, Rate requests a second, both averaged over the
	// time since the last observation.
	InFlight, Rate float64
	// InFlightNow is requests in service and waiting at this moment.
	InFlightNow float64
	// Ready replicas serve. Actual counts the replicas that are paid and do not drain.
	Ready, Actual int
}

// Scaler sizes a fleet. It sees each observation once, in order.
type Scaler interface {
	// Name is the name in the report.
	Name() string
	// Interval is the time between its observations.
	Interval() time.Duration
	// Size returns how many replicas the fleet should have.
	Size(o Observation) int
}

// waker is a scaler that is told at once about a request that finds no replica.
type waker interface{ Wakes() bool }

// Params are a fleet and its recorded demand.
type Params struct {
	Config fleet.Config
	// Arrivals are seconds from the first one in order; Work is the work of each in requests of
	// mean size, nil if all are alike.
	Arrivals, Work []float64
	// ColdStart is from the start of a replica until it serves.
	ColdStart time.Duration
	// Start is the number of replicas that serve at the beginning.
	Start int
	// Decided is called with each decision of curfew; nil is not.
	Decided func(fleet.Reading, fleet.Decision)
}

// Bounds of a replay.
const maxArrivals = 20_000_000

func (p Params) check() error {
	switch {
	case len(p.Arrivals) < 2:
		return errors.New("a replay needs two arrivals or more")
	case len(p.Arrivals) > maxArrivals:
		return fmt.Errorf("%d arrivals: expected at most %d", len(p.Arrivals), maxArrivals)
	case !slices.IsSorted(p.Arrivals):
		return errors.New("arrivals must be sorted by time")
	case p.Work != nil && len(p.Work) != len(p.Arrivals):
		return errors.New("either all or none of the arrivals have work")
	case p.ColdStart < 0:
		return errors.New("a cold start must not be negative")
	case p.Start < 0 || p.Start > p.Config.Max:
		return fmt.Errorf("%d replicas at the start: expected 0 to max, %d", p.Start, p.Config.Max)
	}
	for _, w := range p.Work {
		if !(w > 0 && w <= 1e6) {
			return fmt.Errorf("work %v: expected over 0 to 1e6 requests of mean size", w)
		}
	}
	return p.Config.Check()
}

// Result is the outcome of one scaler.
type Result struct {
	Name string
	// ReplicaHours are paid hours, cold starts and draining included. Paid is the same as a time.
	ReplicaHours float64
	Paid         time.Duration
	// Late are requests whose latency exceeded the objective, times their work where that is
	// over 1. LateShare is of all requests.
	Late      int
	LateShare float64
	// ColdStarts are replicas that were started after the beginning.
	ColdStarts int
	// Ups and Downs are decisions that changed the size.
	Ups, Downs int
	// MaxReplicas and MeanReplicas are paid at a time.
	MaxReplicas  int
	MeanReplicas float64
	P50, P99     time.Duration
	Requests     int
}

// epoch dates the virtual clock.
var epoch = time.Unix(0, 0).UTC()

// replay is one fleet under one scaler.
type replay struct {
	Params
	scaler   Scaler
	places   int
	replicas []*replica
	queue    []request
	head     int
	now      float64
	// inFlight counts requests; its integral and arrivals are since the last observation.
	inFlight, arrived int
	integral, since   float64
	latencies         []float64
	out               Result
	paid              float64
}

// Run replays the arrivals through one scaler. A request is answered exactly once; the replay ends
// when all are.
func Run(p Params, s Scaler) (Result, error) {
	if err := p.check(); err != nil {
		return Result{}, fmt.Errorf("replay the arrivals: %w", err)
	}
	v := &replay{Params: p, scaler: s, places: p.Config.Server.Slots(), out: Result{Name: s.Name()}}
	for range p.Start {
		v.replicas = append(v.replicas, &replica{law: p.Config.Server})
	}
	v.out.MaxReplicas = p.Start
	interval := s.Interval().Seconds()
	if interval <= 0 {
		return Result{}, errors.New("replay the arrivals: a scaler needs an interval over 0")
	}
	tick, next := interval, 0
	last := p.Arrivals[len(p.Arrivals)-1]
	for next < len(p.Arrivals) || v.inFlight > 0 {
		at, kind := tick, observe
		if next < len(p.Arrivals) && p.Arrivals[next] < at {
			at, kind = p.Arrivals[next], arrive
		}
		busiest := -1
		for i, r := range v.replicas {
			if t := r.next(); t < at {
				at, kind, busiest = t, finish, i
			}
			if r.readyAt > v.now && r.readyAt < at {
				at, kind = r.readyAt, ready
			}
		}
		if at > last+24*3600 && v.inFlight > 0 {
			return Result{}, fmt.Errorf("replay the arrivals through %s: %d requests wait for a day", s.Name(), v.inFlight)
		}
		v.pass(at)
		switch kind {
		case arrive:
			q := request{at: at, work: 1}
			if p.Work != nil {
				q.work = p.Work[next]
			}
			next++
			v.arrived++
			v.inFlight++
			v.queue = append(v.queue, q)
			if w, ok := s.(waker); ok && w.Wakes() && v.actual() == 0 {
				v.resize(1)
			}
		case finish:
			v.replicas[busiest].finish(at, v.answered)
		case observe:
			tick += interval
			v.observe()
		}
		v.dispatch()
		v.drained()
	}
	return v.result(), nil
}

type event int

const (
	observe event = iota
	arrive
	finish
	ready
)

// pass advances the time.
func (v *replay) pass(to float64) {
	d := to - v.now
	v.integral += d * float64(v.inFlight)
	v.paid += d * float64(len(v.replicas))
	v.now = to
}

func (v *replay) actual() int {
	n := 0
	for _, r := range v.replicas {
		if !r.draining {
			n++
		}
	}
	return n
}

func (v *replay) ready() int {
	n := 0
	for _, r := range v.replicas {
		if !r.draining && r.readyAt <= v.now {
			n++
		}
	}
	return n
}

func (v *replay) observe() {
	span := v.now - v.since
	o := Observation{
		At: epoch.Add(time.Duration(v.now * float64(time.Second))), InFlight: v.integral / span,
		Rate: float64(v.arrived) / span, InFlightNow: float64(v.inFlight), Ready: v.ready(), Actual: v.actual(),
	}
	v.integral, v.arrived, v.since = 0, 0, v.now
	v.resize(v.scaler.Size(o))
}

// resize starts replicas, or drains them: those that start first, then those with the fewest
// requests. A replica that drains comes back before another one is started.
func (v *replay) resize(to int) {
	actual := v.actual()
	switch {
	case to > actual:
		v.out.Ups++
	case to < actual:
		v.out.Downs++
	}
	for ; actual < to; actual++ {
		if i := slices.IndexFunc(v.replicas, func(r *replica) bool { return r.draining }); i >= 0 {
			v.replicas[i].draining = false
			continue
		}
		v.replicas = append(v.replicas, &replica{
			law: v.Config.Server, started: v.now, readyAt: v.now + v.ColdStart.Seconds(), at: v.now,
		})
		v.out.ColdStarts++
	}
	if actual > to {
		left := slices.DeleteFunc(slices.Clone(v.replicas), func(r *replica) bool { return r.draining })
		slices.SortStableFunc(left, func(a, b *replica) int {
			return cmp.Or(-cmp.Compare(a.readyAt, b.readyAt), cmp.Compare(len(a.requests), len(b.requests)))
		})
		for _, r := range left[:actual-to] {
			r.draining = true
		}
	}
	v.out.MaxReplicas = max(v.out.MaxReplicas, len(v.replicas))
}

// drained ends the replicas that drain and have no request.
func (v *replay) drained() {
	v.replicas = slices.DeleteFunc(v.replicas, func(r *replica) bool { return r.draining && len(r.requests) == 0 })
}

// dispatch gives waiting requests to the replicas with the most free places, in order of arrival.
func (v *replay) dispatch() {
	for v.head < len(v.queue) {
		var best *replica
		free := 0
		for _, r := range v.replicas {
			if n := r.free(v.now, v.places); n > free {
				best, free = r, n
			}
		}
		if best == nil {
			return
		}
		n := 1
		if best.law.Law == fleet.Batch {
			n = min(free, len(v.queue)-v.head)
		}
		best.take(v.now, v.queue[v.head:v.head+n])
		v.head += n
	}
	v.queue, v.head = v.queue[:0], 0
}

func (v *replay) answered(q request) {
	latency := v.now - q.at
	v.inFlight--
	v.latencies = append(v.latencies, latency)
	if latency > v.Config.Server.Objective.Seconds()*max(1, q.work)+1e-9 {
		v.out.Late++
	}
}

func (v *replay) result() Result {
	out := v.out
	out.ReplicaHours, out.Requests = v.paid/3600, len(v.latencies)
	out.Paid = time.Duration(v.paid * float64(time.Second))
	out.LateShare = float64(out.Late) / float64(len(v.latencies))
	out.MeanReplicas = v.paid / v.now
	slices.Sort(v.latencies)
	at := func(share float64) time.Duration {
		i := max(0, int(math.Ceil(share*float64(len(v.latencies))))-1)
		return time.Duration(v.latencies[i] * float64(time.Second)).Round(time.Millisecond)
	}
	out.P50, out.P99 = at(0.5), at(0.99)
	return out
}

// curfew is the scaler of this program.
type curfew struct {
	p     Params
	state fleet.State
	name  string
}

// New returns the scaler that decides as a live fleet does.
func New(p Params) Scaler { return &curfew{p: p, name: "curfew"} }

func (c *curfew) Name() string { return c.name }

func (c *curfew) Interval() time.Duration {
	if c.p.Config.Interval > 0 {
		return c.p.Config.Interval
	}
	return fleet.DefaultInterval
}

func (c *curfew) Wakes() bool { return c.p.Config.Zero }

func (c *curfew) Size(o Observation) int {
	r := fleet.Reading{At: o.At, Ready: o.Ready, Actual: o.Actual, Demand: fleet.Sum(o.At, []fleet.Sample{{
		Source: "arrivals", At: o.At, Step: c.Interval(),
		InFlight: inventory.Known(o.InFlight), Rate: inventory.Known(o.Rate),
	}})}
	var d fleet.Decision
	c.state, d = fleet.Decide(c.p.Config, c.state, r)
	if c.p.Decided != nil {
		c.p.Decided(r, d)
	}
	return d.Wanted
}
