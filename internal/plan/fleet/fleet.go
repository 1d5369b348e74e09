// Package fleet decides how many replicas a serving fleet should have, from the demand for it
// and the law of one replica. Decide is a pure function: a live service, a replay and a signal
// for other autoscalers take the same decisions from the same readings.
package fleet

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/capacity"
)

// Defaults of a fleet.
const (
	// DefaultAddTime is assumed until the time to add a replica has been measured.
	DefaultAddTime = 5 * time.Minute
	// DefaultInterval is the time between readings.
	DefaultInterval = 15 * time.Second
	// DefaultWindow is the time over which demand is averaged, as in Knative's stable window.
	DefaultWindow = time.Minute
	// DefaultStabilization is the least time that fewer replicas must have been enough, as in the
	// HorizontalPodAutoscaler.
	DefaultStabilization = 5 * time.Minute
	// maxCacheUse is the share of the KV cache above which a replica is full, whatever its rate.
	maxCacheUse = 0.9
	// learnedRises is the quantile of the rises seen while a replica was added that the headroom
	// covers.
	learnedRises = 0.9
	// lookBack is the span of the past from which rises are learned.
	lookBack = time.Hour
	// relearned is the time between two times that rises are learned.
	relearned = 5 * time.Minute
	// MaxReplicas bounds the sizes of fleets.
	MaxReplicas = 10_000
	// keptAdds bounds the measured times to add a replica that are kept.
	keptAdds = 20
)

// Bounds are the sizes that the owner of a fleet allows.
type Bounds struct {
	// Min is 1 or more, or 0 where Zero is set; Max is at least 1 and at least Min.
	Min, Max int
	// Zero allows a fleet without demand to have no replica.
	Zero bool
}

// Check returns an error for bounds that allow no size, or zero without Zero.
func (b Bounds) Check() error {
	switch {
	case b.Max < 1 || b.Max > MaxReplicas:
		return fmt.Errorf("max %d: expected 1 to %d", b.Max, MaxReplicas)
	case b.Min < 0 || b.Min > b.Max:
		return fmt.Errorf("min %d: expected 0 to max, %d", b.Min, b.Max)
	case b.Min == 0 && !b.Zero:
		return errors.New("min is 0: a fleet goes to zero only with zero: true")
	case b.Min > 0 && b.Zero:
		return fmt.Errorf("zero: true needs min 0, not %d", b.Min)
	}
	return nil
}

// Config is a fleet and how it scales.
type Config struct {
	Bounds
	Server Server
	// Target is the utilization to aim for, over 0 to 1; 0 is [capacity.DefaultTarget].
	Target float64
	// Interval is the time between readings; 0 is DefaultInterval. A gap of more than three of
	// them is unknown time.
	Interval time.Duration
	// Window is the time over which demand is averaged; 0 is DefaultWindow.
	Window time.Duration
	// Stabilization is the time throughout which fewer replicas have to be enough before the fleet
	// shrinks; 0 is the time to add a replica, and at least DefaultStabilization. A replica that is kept as
	// long as its return would take costs at most twice the optimum (Karlin and others, 1988).
	Stabilization time.Duration
	// AddTime is the time from a decision until a new replica serves, where it has not been
	// measured; 0 is DefaultAddTime.
	AddTime time.Duration
}

// Check returns an error for a fleet that cannot be decided about.
func (c Config) Check() error {
	if err := c.Bounds.Check(); err != nil {
		return err
	}
	if !(c.Target >= 0 && c.Target <= 1) {
		return fmt.Errorf("target %v: expected a utilization over 0 and at most 1", c.Target)
	}
	for _, d := range []time.Duration{c.Interval, c.Window, c.Stabilization, c.AddTime} {
		if d < 0 || d > 24*time.Hour {
			return fmt.Errorf("%s: expected a time from 0s to 24h", d)
		}
	}
	return c.Server.Check()
}

// withDefaults replaces zero values.
func (c Config) withDefaults() Config {
	set := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	set(&c.Interval, DefaultInterval)
	set(&c.Window, DefaultWindow)
	set(&c.AddTime, DefaultAddTime)
	if c.Target == 0 {
		c.Target = capacity.DefaultTarget
	}
	return c
}

// Reading is a fleet at a moment: its demand and its replicas.
type Reading struct {
	At     time.Time
	Demand Demand
	// Ready replicas serve. Actual is the size that the provider is asked for, replicas that start
	// included.
	Ready, Actual int
	// Stuck replicas were started and did not become healthy in time; they count in Actual.
	Stuck int
}

// point is the demand of one reading. Load is in replicas at full rate, Mean its average over the
// window; Need is the size that it asked for.
type point struct {
	At   time.Time `json:"at"`
	Load float64   `json:"load"`
	Mean float64   `json:"mean"`
	Need int       `json:"need"`
	// Served is the work in service, and Arrived the work that arrived if each request has the
	// mean size; both in replicas at full rate.
	Served  float64 `json:"served"`
	Arrived float64 `json:"arrived"`
}

// growth is a decision to grow that has not been confirmed by ready replicas.
type growth struct {
	At     time.Time `json:"at"`
	Wanted int       `json:"wanted"`
}

// State is the memory of a fleet between readings. Its zero value knows nothing, and never lets a
// fleet shrink at the first reading.
type State struct {
	// Points are the known readings without a gap, oldest first.
	Points []point `json:"points,omitempty"`
	// Low counts the latest readings in a row that asked for fewer replicas.
	Low int `json:"low,omitempty"`
	// AddTimes are measured times from a decision to grow until the replicas served.
	AddTimes []time.Duration `json:"add_times,omitempty"`
	Growing  *growth         `json:"growing,omitempty"`
	// Rise is the rise of the averaged load while a replica could have been added, at the quantile
	// learnedRises of the past; it was learned at LearnedAt.
	Rise      float64   `json:"rise,omitempty"`
	LearnedAt time.Time `json:"learned_at,omitzero"`
}

// AddTime returns the 95th percentile of the measured times to add a replica, and false without
// one.
func (s State) AddTime() (time.Duration, bool) {
	if len(s.AddTimes) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(s.AddTimes))
	return sorted[int(math.Ceil(0.95*float64(len(sorted))))-1], true
}

// Decision is the size that a fleet should have.
type Decision struct {
	At time.Time `json:"at"`
	// Wanted is the size; equal to Actual where nothing changes.
	Wanted int `json:"wanted"`
	Actual int `json:"actual"`
	// Known is false where demand is unknown.
	Known bool `json:"known"`
	// Load is the demand in replicas at full rate, averaged; 0 where it is unknown.
	Load float64 `json:"load"`
	// Need is the size that the demand of this reading asks for, between the bounds.
	Need int `json:"need"`
	// Rule names the rule that decided: "unknown", "min", "max", "demand", "headroom", "cache",
	// "backlog", "stabilization", "second-reading", "idle", "steady".
	Rule string `json:"rule"`
	// Why explains the decision in a sentence.
	Why string `json:"why"`
}

// Decide returns the size that a fleet should have, and the state for the next reading. The size is
// never below Min; it is above Max only where the fleet is and its demand is unknown or fewer
// replicas were not confirmed yet. Unknown demand never makes a fleet smaller.
func Decide(c Config, s State, r Reading) (State, Decision) {
	c = c.withDefaults()
	d := Decision{At: r.At, Actual: r.Actual, Wanted: r.Actual, Known: r.Demand.Known}
	s = s.advance(c, r)
	if n := len(s.Points); n > 0 && !r.At.After(s.Points[n-1].At) {
		d.Known, r.Demand = false, Demand{Why: "the clock went back or the reading is a repeated one"}
		s.Points = nil
	}
	if !d.Known {
		s.Low = 0
		return s.decideUnknown(c, r, d)
	}
	p, rule := c.measure(&s, r)
	s.Points = append(s.Points, p)
	d.Load, d.Need, d.Rule = p.Mean, p.Need, rule
	return s.decideKnown(c, r, d)
}

// decideUnknown keeps the size, or grows to the minimum.
func (s State) decideUnknown(c Config, r Reading, d Decision) (State, Decision) {
	d.Rule, d.Why = "unknown", "demand is unknown: "+r.Demand.Why
	if r.Actual < c.Min {
		d.Wanted, d.Rule = c.Min, "min"
		d.Why = fmt.Sprintf("the minimum is %d; %s", c.Min, d.Why)
	}
	return s.noteGrowth(r, d), d
}

func (s State) decideKnown(c Config, r Reading, d Decision) (State, Decision) {
	d.Why = fmt.Sprintf("%.2f replicas of work at a target of %.0f%%", d.Load, 100*c.Target)
	if r.Actual == 0 && d.Need > c.Min {
		d.Why = "requests ask for a fleet without a replica; " + d.Why
	}
	if d.Need >= r.Actual {
		s.Low = 0
		switch {
		case d.Need == r.Actual:
			d.Rule = "steady"
		case d.Need == c.Min && d.Rule == "idle":
			d.Rule = "min"
		}
		d.Wanted = d.Need
		return s.noteGrowth(r, d), d
	}
	s.Low++
	stabilization := s.stabilization(c)
	held, covered := s.mostNeeded(r.At, stabilization)
	held = min(max(held, c.Min), c.Max) // bounds that their owner changed hold for the past too
	switch {
	case held >= r.Actual || !covered:
		d.Rule, d.Why = "stabilization", fmt.Sprintf("%s; fewer than %d were not enough throughout the last %s",
			d.Why, r.Actual, stabilization)
	case s.Low < 2:
		d.Rule, d.Why = "second-reading", d.Why+"; a second reading must confirm it"
	default:
		d.Wanted = held
	}
	return s.noteGrowth(r, d), d
}

// stabilization returns the time throughout which fewer replicas have to be enough.
func (s State) stabilization(c Config) time.Duration {
	if c.Stabilization > 0 {
		return c.Stabilization
	}
	return max(s.addTime(c), DefaultStabilization)
}

// ShrinksAfter returns the time after which a fleet of a size may become smaller, if its demand asks for
// fewer replicas until then. It is zero before the first known reading.
func ShrinksAfter(c Config, s State, size int) time.Time {
	if len(s.Points) == 0 {
		return time.Time{}
	}
	since := s.Points[0].At
	for _, p := range s.Points {
		if min(max(p.Need, c.Min), c.Max) >= size {
			since = p.At
		}
	}
	return since.Add(s.stabilization(c.withDefaults()))
}

// Holds reports whether a size that Decide wanted, which led to the state, is right at a later reading
// too: it is between the bounds, and demand still asks for more replicas than there are, or has asked
// for no more than the size throughout the stabilization.
func Holds(c Config, s State, r Reading, size int) bool {
	c = c.withDefaults()
	s = s.advance(c, r)
	for n := len(s.Points); n > 0 && !s.Points[n-1].At.Before(r.At); n-- {
		s.Points = s.Points[:n-1]
	}
	switch {
	case size < c.Min || size > c.Max:
		return false
	case !r.Demand.Known:
		return size > r.Actual && size == c.Min
	}
	p, _ := c.measure(&s, r)
	if size > r.Actual {
		return p.Need > r.Actual
	}
	held, covered := s.mostNeeded(r.At, s.stabilization(c))
	return covered && p.Need <= size && held <= size
}

// advance drops what a gap or age has made useless, and measures the time to add replicas.
func (s State) advance(c Config, r Reading) State {
	s.Points = slices.Clone(s.Points)
	if n := len(s.Points); n > 0 && r.At.Sub(s.Points[n-1].At) > staleSteps*c.Interval {
		s.Points, s.Low = nil, 0
	}
	old := 0
	for old < len(s.Points) && r.At.Sub(s.Points[old].At) > lookBack {
		old++
	}
	s.Points = s.Points[old:]
	if s.Growing != nil && r.Ready >= s.Growing.Wanted {
		if took := r.At.Sub(s.Growing.At); took > 0 {
			s.AddTimes = append(slices.Clone(s.AddTimes), took)
			s.AddTimes = s.AddTimes[max(0, len(s.AddTimes)-keptAdds):]
		}
		s.Growing = nil
	}
	if s.Growing != nil && r.Actual < s.Growing.Wanted {
		s.Growing = &growth{At: r.At, Wanted: s.Growing.Wanted} // not started: refused, or no capacity
	}
	return s
}

// noteGrowth remembers the decision to grow, to measure how long it takes.
func (s State) noteGrowth(r Reading, d Decision) State {
	switch {
	case d.Wanted > r.Actual && s.Growing == nil:
		s.Growing = &growth{At: r.At, Wanted: d.Wanted}
	case d.Wanted < r.Actual:
		s.Growing = nil
	}
	return s
}

// addTime returns the time to add a replica: measured, else configured.
func (s State) addTime(c Config) time.Duration {
	if took, measured := s.AddTime(); measured {
		return took
	}
	return c.AddTime
}

// measure returns the demand of a reading, the size that it asks for between the bounds, and the
// rule that asked for most.
func (c Config) measure(s *State, r Reading) (point, string) {
	p, backlog := c.load(s, r)
	sum, n := p.Load, 1.0
	for _, o := range slices.Backward(s.Points) {
		if r.At.Sub(o.At) >= c.Window {
			break
		}
		sum, n = sum+o.Load, n+1
	}
	p.Mean = sum / n
	need, rule := 0, "idle"
	atLeast := func(n int, by string) {
		if n > need {
			need, rule = n, by
		}
	}
	atLeast(sized(p.Mean, c.Target), "demand")
	if p.Mean > 0 {
		s.learnRise(c, r.At)
		atLeast(sized(p.Mean+s.Rise, max(c.Target, capacity.CrowdedAbove)), "headroom")
	}
	if rate, rated := r.Demand.Rate.Get(); !rated || rate > 0 {
		// Requests in flight alone miss those between two readings.
		atLeast(1, "demand")
	}
	switch {
	case backlog > 0 && c.Server.Law == Batch:
		// A replica helps only what still waits once it serves: the fleet is to have served the
		// backlog by then, or within the objective.
		horizon := max(s.addTime(c), c.Server.Objective).Seconds()
		slots := c.Server.Slots()
		atLeast(sized(p.Mean+backlog*c.Server.Profile.Batch(slots)/horizon, 1), "backlog")
	case backlog > 0:
		atLeast(sized(p.Served+backlog, 1), "backlog")
	}
	if use, ok := r.Demand.CacheUse.Get(); ok {
		// Each replica less raises the use of the others in proportion.
		atLeast(min(sized(use*float64(r.Ready), maxCacheUse), r.Ready+1), "cache")
	}
	atLeast(c.Min, "min")
	if r.Stuck > 0 && need > 0 {
		need += r.Stuck
	}
	if need > c.Max {
		need, rule = c.Max, "max"
	}
	p.Need = need
	return p, rule
}

// sized returns the fewest replicas for a load, within what an int holds.
func sized(load, share float64) int {
	if load <= 0 {
		return 0
	}
	return int(min(capacity.Replicas(load, share), MaxReplicas+1))
}

// load returns the demand of a reading in replicas at full rate, and the requests that no replica
// has a place for, in replicas with all places taken. Of a server that works on many requests side
// by side the law says what is served, whatever the size of the requests, and the backlog counts
// whole. Of one that serves batches the arrivals say more; the mean work of its lone requests is
// learned from what was served.
func (c Config) load(s *State, r Reading) (p point, backlog float64) {
	p.At = r.At
	slots, ready := float64(c.Server.Slots()), float64(r.Ready)
	inFlight, counted := r.Demand.InFlight.Get()
	rate, rated := r.Demand.Rate.Get()
	p.Arrived = rate / c.Server.Rate()
	if counted {
		places := slots * ready
		if c.Server.Law == Batch && slots > 1 {
			places *= 2 // one batch is served while the next one gathers
		}
		backlog = max(0, inFlight-places) / slots
		if ready > 0 {
			each := min(inFlight/ready, slots)
			p.Served = ready * each / c.Server.time(each) / c.Server.Rate()
		}
	}
	switch {
	case counted && (c.Server.Law == Concurrency || !rated):
		p.Load = p.Served + backlog
	case counted && slots == 1:
		p.Load = p.Arrived * s.work(p)
	default:
		p.Load = p.Arrived
	}
	return p, backlog
}

// work returns the mean work of a request in requests of mean size, learned from the past and a
// reading; 1 while the past is too short.
func (s *State) work(p point) float64 {
	served, arrived, n := p.Served, p.Arrived, 0
	for _, o := range s.Points {
		served, arrived = served+o.Served, arrived+o.Arrived
		if o.Arrived > 0 {
			n++
		}
	}
	if n < 4 || arrived <= 0 {
		return 1
	}
	return served / arrived
}

// mostNeeded returns the largest size asked for since a time ago, and whether readings cover it.
func (s State) mostNeeded(now time.Time, ago time.Duration) (most int, covered bool) {
	for _, p := range slices.Backward(s.Points) {
		age := now.Sub(p.At)
		if age > ago {
			return most, true
		}
		most = max(most, p.Need)
		covered = covered || age == ago
	}
	return most, covered
}

// lead returns the time for which spare replicas have to carry a rise: from a reading until a new replica
// serves, less what a request may wait within its objective. 0 needs no spare replica.
func (s State) lead(c Config) time.Duration {
	wait := c.Server.Objective - seconds(c.Server.latency(c.Server.Slots()))
	return max(0, s.addTime(c)+c.Interval-max(0, wait))
}

// learnRise learns the rise again now and then; it keeps it while the past is too short to tell.
func (s *State) learnRise(c Config, now time.Time) {
	if now.Sub(s.LearnedAt) < relearned {
		return
	}
	if s.lead(c) == 0 {
		s.Rise, s.LearnedAt = 0, now
		return
	}
	add := s.lead(c)
	var rises []float64
	from := 0
	for _, p := range s.Points {
		for from < len(s.Points) && p.At.Sub(s.Points[from].At) > add {
			from++
		}
		if from > 0 {
			rises = append(rises, max(0, p.Mean-s.Points[from-1].Mean))
		}
	}
	if len(rises) < 10 {
		return
	}
	slices.Sort(rises)
	s.Rise, s.LearnedAt = rises[int(math.Ceil(learnedRises*float64(len(rises))))-1], now
}
