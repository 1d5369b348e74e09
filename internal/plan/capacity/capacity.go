// Package capacity says how many replicas of a model server a rate of requests needs,
// what latency and cost they have, and when to scale them. One replica with Poisson
// arrivals is computed, several are simulated, and recorded arrivals are replayed. It
// is a pure function of its parameters: the same ones give the same report.
package capacity

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// ErrOverload is wrapped where the replicas cannot serve the rate: the queue would
// grow without end.
var ErrOverload = errors.New("the queue grows without limit")

// ErrObjective is wrapped where no number of replicas meets the latency objective.
var ErrObjective = errors.New("the objective cannot be met")

// The utilization that suits most serving fleets is 60 to 80%, and above 85% one scales out: the
// wait for a free replica grows without limit towards 100%.
const (
	BandLow = 0.6
	// DefaultTarget is the middle of the band, to aim for where nothing else is wanted.
	DefaultTarget = 0.7
	BandHigh      = 0.8
	// CrowdedAbove is the share of capacity above which a plan has no room for a rise.
	CrowdedAbove = 0.85
)

// Bounds of what is planned for.
const (
	maxReplicas = 10_000
	minQPS      = 1e-6
	maxQPS      = 1e7
	maxBatchMax = 1_000_000
)

// Params are the demand, what a replica does with it, and what is wanted.
type Params struct {
	// QPS is requests a second, 1e-6 to 1e7. With Arrivals, 0 is their own rate, and
	// any other stretches or compresses their time to have it.
	QPS float64
	// Headroom is the share of capacity that is kept free, from 0 to below 1: the
	// replicas are enough for QPS / (1 - Headroom).
	Headroom float64
	// Target is the utilization to aim for, over 0 to 1: the replicas are the fewest that
	// stay at or under it. It goes without Headroom, P99 and Replicas; 0 is none.
	Target float64
	// Band aims for 60 to 80% instead: the number of replicas in it whose utilization is closest
	// to the middle, or the fewest at or under 80% where none is. It goes without the others.
	Band bool

	// QPSPerGPU is the throughput of one replica per second; 0 if Profile has it. It is 0 if
	// Profile says it.
	QPSPerGPU float64

	// Profile is how long a batch takes; zero if QPSPerGPU says what is served.
	Profile Profile
	// Law is the time of a request on replicas that run several at once; zero with Profile or QPSPerGPU.
	Law Law
	// MaxBatch is the maximum size of a batch; 0 is no limit: an idle replica takes the whole
	// queue.
	MaxBatch int
	// P99 is the latency, service included, that 99 of 100 requests must keep; 0 is none.
	P99 time.Duration
	// Replicas is how many there are; 0 finds the fewest.
	Replicas int
	// Arrivals are replayed in place of Poisson ones; nil if there are none.
	Arrivals *Arrivals

	// HourlyPrice is of one replica; 0 is unknown, and leaves the cost unknown.
	HourlyPrice money.Amount
	// ColdStart is from the decision to start a replica until it serves; 0 is unknown.
	ColdStart time.Duration
}

// Plan finds the replicas and what they mean. It returns an error that wraps
// [ErrOverload] where Replicas cannot serve the rate, [ErrObjective] where no number of
// them meets P99, and other errors for parameters out of range.
func Plan(p Params) (Report, error) {
	if err := p.check(); err != nil {
		return Report{}, fmt.Errorf("plan the capacity: %w", err)
	}
	if p.Arrivals != nil && p.QPS == 0 {
		p.QPS = p.Arrivals.Rate()
	}
	r := Report{Schema: Schema, QPS: p.QPS, Headroom: p.Headroom}
	var err error
	if p.QPSPerGPU > 0 {
		err = r.divide(p)
	} else {
		err = r.queue(p)
	}
	if err == nil {
		err = r.charge(p)
	}
	if err != nil {
		return Report{}, fmt.Errorf("plan the capacity: %w", err)
	}
	r.crowd()
	r.erlang()
	r.zero(p)
	r.explain(p)
	return r, nil
}

// shared reports whether a replica runs several requests at once.
func (p Params) shared() bool { return p.Law != Law{} }

// check refuses parameters that mean nothing.
func (p Params) check() error {
	outside := func(v, low, high float64) bool { return !(v >= low && v <= high) }
	byRate, byProfile, byLaw := p.QPSPerGPU != 0, p.Profile != Profile{}, p.Law != Law{}
	switch {
	case p.Arrivals != nil && len(p.Arrivals.Times) < 2:
		return errors.New("a replay needs two arrivals or more")
	case p.Arrivals != nil && !(p.Arrivals.Rate() <= maxQPS && p.Arrivals.Rate() >= minQPS):
		return fmt.Errorf("the arrivals have %v requests/s on average: expected %v to %v",
			p.Arrivals.Rate(), minQPS, maxQPS)
	case outside(p.QPS, minQPS, maxQPS) && (p.Arrivals == nil || p.QPS != 0):
		return fmt.Errorf("%v requests/s: expected %v to %v", p.QPS, minQPS, maxQPS)
	case !(p.Headroom >= 0 && p.Headroom < 1):
		return fmt.Errorf("headroom %v: expected a share from 0 to below 1", p.Headroom)
	case !(p.Target >= 0 && p.Target <= 1):
		return fmt.Errorf("target utilization %v: expected a share over 0 and at most 1", p.Target)
	case (p.Target > 0 || p.Band) && (p.Headroom > 0 || p.P99 > 0 || p.Replicas > 0) || p.Target > 0 && p.Band:
		return errors.New("give one of target utilization, headroom, latency objective and number of replicas")
	case byLaw && (byRate || byProfile):
		return errors.New("give one of the requests/s of one GPU, the batch profile and the profile of running requests")
	case byLaw && p.MaxBatch != 0:
		return errors.New("a maximum batch size needs a batch profile: running=… bounds the running requests")
	case byLaw && p.Law.check() != nil:
		return p.Law.check()
	case !byLaw && byRate == byProfile:
		return errors.New("give either the requests/s of one GPU or the batch profile, not both")
	case byRate && outside(p.QPSPerGPU, minQPS, maxQPS):
		return fmt.Errorf("%v requests/s on one GPU: expected %v to %v", p.QPSPerGPU, minQPS, maxQPS)
	case byRate && (p.P99 != 0 || p.MaxBatch != 0 || p.Arrivals != nil):
		return errors.New("a latency objective, a maximum batch size and arrivals need the batch profile")
	case p.Profile.PerItem < 0 || p.Profile.Base < 0 || p.Profile.PerItem > time.Hour || p.Profile.Base > time.Hour:
		return fmt.Errorf("a batch of n takes %s × n + %s: expected 0 to 1h each", p.Profile.PerItem, p.Profile.Base)
	case p.MaxBatch < 0 || p.MaxBatch > maxBatchMax:
		return fmt.Errorf("maximum batch size %d: expected 1 to %d, or 0 for no limit", p.MaxBatch, maxBatchMax)
	case p.Replicas < 0 || p.Replicas > maxReplicas:
		return fmt.Errorf("%d replicas: expected 1 to %d, or 0 to find the fewest", p.Replicas, maxReplicas)
	case p.P99 < 0 || p.ColdStart < 0:
		return errors.New("a latency objective and a cold start must not be negative")
	case p.HourlyPrice < 0:
		return errors.New("the price of a replica must not be negative")
	}
	if p.Arrivals == nil {
		return nil
	}
	if !slices.IsSorted(p.Arrivals.Times) || len(p.Arrivals.Sizes) > 0 &&
		(len(p.Arrivals.Sizes) != len(p.Arrivals.Times) || slices.Min(p.Arrivals.Sizes) < 1) {
		return errors.New("arrivals must be sorted by time, and either all or none have a size of 1 or more")
	}
	if byLaw && len(p.Arrivals.Sizes) > 0 && slices.Max(p.Arrivals.Sizes) > 1 {
		return errors.New("a profile of running requests counts requests: the arrivals have some of several items")
	}
	if p.MaxBatch > 0 {
		for i, n := range p.Arrivals.Sizes {
			if n > p.MaxBatch {
				return fmt.Errorf("request %d has %d items, more than the maximum batch size %d", i+1, n, p.MaxBatch)
			}
		}
	}
	return nil
}

// divide shares the rate among replicas that serve so much each.
func (r *Report) divide(p Params) error {
	r.Method = ByFormula
	if r.Replicas = p.Replicas; r.Replicas == 0 {
		need := replicasAt(p.QPS/p.QPSPerGPU, p.share())
		if p.Band {
			n := int(min(need, maxReplicas))
			need = float64(inBand(n, func(n int) float64 { return p.QPS / (p.QPSPerGPU * float64(n)) }))
		}
		if need > maxReplicas {
			return fmt.Errorf("the rate needs %v replicas; the planner supports up to %d", need, maxReplicas)
		}
		r.Replicas = int(need)
	}
	r.Load = p.QPS / (p.QPSPerGPU * float64(r.Replicas))
	if r.Load > 1 {
		return fmt.Errorf("%w: %s requests/s, and %s can serve %s", ErrOverload, plain.Number(p.QPS, 1),
			plain.Count(r.Replicas, "replica"), plain.Number(p.QPSPerGPU*float64(r.Replicas), 1))
	}
	aim := p.share()
	if p.Band {
		aim = DefaultTarget // a signal that scales at the upper end of the band is late
	}
	r.Utilization, r.Scaling = r.Load, signals(p, p.QPSPerGPU*aim)
	return nil
}

// replicasAt is the fewest replicas, at least one, that carry a load in replicas at a share of
// what they can serve. A hair of tolerance keeps 400 / (200 * 0.5) at 4 in binary fractions.
func replicasAt(load, share float64) float64 { return max(1, math.Ceil(load/share*(1-1e-12)-1e-12)) }

// inBand is the number of replicas from the fewest on whose utilization is in the band and closest
// to its middle; the fewest where none is. Utilization falls with the number of replicas.
func inBand(fewest int, utilization func(n int) float64) int {
	off := func(u float64) float64 { return math.Abs(u - DefaultTarget) }
	n, u := fewest, utilization(fewest)
	for n < maxReplicas {
		next := utilization(n + 1)
		if next < BandLow-1e-9 || off(next) >= off(u) {
			break
		}
		n, u = n+1, next
	}
	return n
}

// share is the share of what a replica can serve at which it is to work.
func (p Params) share() float64 {
	switch {
	case p.Band:
		return BandHigh
	case p.Target > 0:
		return p.Target
	}
	return 1 - p.Headroom
}

// crowd notes that the plan is over 85% of capacity, with the replicas that have room for a rise.
func (r *Report) crowd() {
	if r.Load <= CrowdedAbove+1e-9 {
		return
	}
	n := int(replicasAt(r.Load*float64(r.Replicas), BandHigh))
	r.Crowded = &Crowded{Limit: CrowdedAbove, Replicas: n, Load: r.Load * float64(r.Replicas) / float64(n)}
}

// queue plans with the profile of a batch.
func (r *Report) queue(p Params) error {
	s, err := newSizing(p)
	if err != nil {
		return err
	}
	n := p.Replicas
	if n == 0 {
		if n, err = s.fewest(); err != nil {
			return err
		}
	} else if p.Arrivals == nil && s.load(n, p.QPS) >= 1 {
		return fmt.Errorf("%w: %s requests/s, and %s can serve at most %s: use %d replicas or more", ErrOverload,
			plain.Number(p.QPS, 1), plain.Count(n, "replica"),
			plain.Number(p.QPS/s.load(n, p.QPS), 1), s.stable(p.QPS))
	}
	f := s.figures(n, p.QPS, 0)
	r.Method, r.Replicas, r.Load = f.method, n, s.load(n, p.QPS)
	r.MeanLatencyMS, r.P99LatencyMS = known(millis(f.mean)), known(millis(f.p99))
	if p.shared() {
		r.MeanRunning = &f.running
	} else {
		r.MeanBatch = &f.meanBatch
	}
	r.Utilization, r.P99ErrorMS, r.Requests = f.utilization, millis(f.p99Error), f.requests
	if p.P99 > 0 {
		met := f.p99 <= p.P99.Seconds()+tick
		r.ObjectiveMS, r.Met = known(millis(p.P99.Seconds())), &met
		if met && !p.shared() {
			r.MaxWaitMS = known(millis(s.longestWait(n)))
		}
	}
	if p.Arrivals != nil {
		r.compare(s, n, f)
	}
	r.Curve = s.curve(n)
	r.scale(s, n)
	return nil
}

// charge adds the cost, where the price is known.
func (r *Report) charge(p Params) error {
	if p.HourlyPrice == 0 {
		return nil
	}
	hourly, err := p.HourlyPrice.Mul(int64(r.Replicas), 1)
	if err != nil {
		return fmt.Errorf("price an hour: %w", err)
	}
	// 1e6 requests take 1e6 / QPS seconds; QPS is exact to a millionth.
	million, err := hourly.Mul(10_000_000_000, 36*int64(math.Round(p.QPS*1e6)))
	if err != nil {
		return fmt.Errorf("price a million requests: %w", err)
	}
	r.CostUSDPerHour, r.CostUSDPerMillion = money.Known(hourly), money.Known(million)
	return nil
}

// tick is a nanosecond in seconds: latencies closer than that are the same.
const tick = 1e-9

// millis turns seconds into milliseconds, to the nanosecond.
func millis(seconds float64) float64 { return math.Round(seconds*1e9) / 1e6 }

// known is a figure that is not null.
func known(v float64) *float64 { return &v }
