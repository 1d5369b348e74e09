package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Advice is a choice of places at a time.
type Advice struct {
	At time.Time
	// Places are to be tried in this order. Without any, nothing is worth its price, and a running
	// attempt ends; with Stay it goes on.
	Places []session.Pool `json:",omitempty"`
	Stay   bool           `json:",omitempty"`
	// Why explains the choice to people.
	Why string
	// Next is the time of the next choice.
	Next time.Time
	// Options are the figures of all places, the cheapest first.
	Options []Option
}

// Option is a place with the figures by which it was judged.
type Option struct {
	Pool session.Pool
	// Hourly is the price of an hour of all machines, and Useful that of an hour of saved work: with the
	// restarts that its interruptions imply, and the transfer of its data at each start.
	Hourly, Useful money.Amount
	// Interruptions is the expected number per hour.
	Interruptions float64
	// Note describes its capacity, and its published interruptions.
	Note string
}

// Prior is the knowledge of a pool before its first use.
type Prior struct {
	spot.Prior
	// Note names its source for people.
	Note string
}

// DefaultLook is the time between two choices of a place.
const DefaultLook = 5 * time.Minute

// memory is the age at which news of capacity is forgotten.
const memory = 30 * 24 * time.Hour

// unboundedWork is the deadline, as a multiple of its work, by which a job without one is placed.
const unboundedWork = 4

// Placer chooses the places of jobs by the strategy of package spot. What it knows of capacity are the
// launches, refusals and interruptions in the records of sessions, or what Sight tells.
type Placer struct {
	Sessions  session.Store
	Launchers map[string]session.Launcher
	// Look is the time between choices; 0 is DefaultLook.
	Look time.Duration
	// Prior returns what is known of a pool beforehand; nil knows nothing.
	Prior func(ctx context.Context, sp *spec.Spec, p session.Pool) Prior
	// Sight reports whether a spot pool has machines at a time, since SightSince; nil learns by trying.
	Sight      func(p session.Pool, at time.Time) bool
	SightSince time.Time

	mu     sync.Mutex
	placed map[string]*placed
	news   news
}

// placed is the strategy of one job, and what it has seen.
type placed struct {
	live  *spot.Live
	spots []session.Pool
	// plain are the pools on demand, the cheapest first.
	plain  []session.Pool
	priors map[session.Pool]Prior
	params spot.Params
	nodes  int
	look   time.Duration
	// began is the time of sample 0; observed is the first sample that was not observed, below 0 for the
	// time before the job.
	began    time.Time
	observed int
	// known is the state of each spot place at the end of the last observed sample, and untried the number
	// of samples before it since the place was last tried without success.
	known   []bool
	untried []int
	// faults are the recent GPU faults in its places, unless they spare none.
	faults []session.PoolFault
	// advice is the last one, for a sample and a state of the job.
	advice *Advice
	sample int
	state  runState
}

// sighting is one observation of the capacity of a place.
type sighting struct {
	at   time.Time
	zone int
	up   bool
}

// Place returns the choice for a job now; nil where there is nothing to choose.
func (p *Placer) Place(ctx context.Context, v *Observation, now time.Time) (*Advice, error) {
	j, sp := &v.Job, v.Spec
	l := p.Launchers[j.Provider]
	if l == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.placed[j.ID]
	state, sample := stateOf(v), 0
	if k != nil {
		sample = k.sampleAt(now)
		if k.advice != nil && k.sample == sample && k.state == state {
			return k.advice, nil
		}
	}
	if k == nil || sample != k.sample && k.advice != nil { // prices and pools may have changed
		pools, err := l.Pools(ctx, sp)
		if errors.Is(err, session.ErrUnsupported) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if k == nil || !k.same(pools) {
			if k = p.prepare(ctx, j, sp, pools); k == nil {
				return nil, nil
			}
			if p.placed == nil {
				p.placed = map[string]*placed{}
			}
			p.placed[j.ID] = k
		}
		sample = k.sampleAt(now)
	}
	news, sessions, err := p.news.read(ctx, p.Sessions, now)
	if err != nil {
		return nil, err
	}
	seen := k.sightings(news, j)
	k.avoid(session.GPUFaults(sessions, j.Provider, j.Account, now))
	p.observe(k, seen, sample)
	k.advice, k.sample, k.state = k.choose(p, v, seen, sample, now), sample, state
	return k.advice, nil
}

// runState is a state of a job, in each of which another place may be best.
type runState struct {
	launches               int64
	attempts, placings     int
	current, next          bool
	launched               bool
	unplaced, nextUnplaced bool
}

func stateOf(v *Observation) runState {
	j := &v.Job
	a, n := j.Current(), j.Next()
	s := runState{launches: j.launches(), attempts: len(j.Attempts), current: a != nil, next: n != nil}
	if a != nil {
		s.launched, s.placings = !a.LaunchedAt.IsZero(), a.Placings
		s.unplaced = v.Session != nil && v.Session.Unplaced
	}
	if n != nil {
		s.placings += n.Placings
		s.nextUnplaced = v.NextSession != nil && v.NextSession.Unplaced
	}
	return s
}

// prepare returns the strategy of a job over its pools; nil if there is nothing to choose.
func (p *Placer) prepare(ctx context.Context, j *Job, sp *spec.Spec, pools []session.Pool) *placed {
	k := &placed{priors: map[session.Pool]Prior{}, look: cmp.Or(p.Look, DefaultLook), began: j.AdmittedAt,
		nodes: max(1, sp.Resources.Nodes)}
	var priors []spot.Prior
	for _, pool := range pools {
		if pool.Rate == nil {
			continue // it cannot be compared
		}
		prior := Prior{}
		if p.Prior != nil {
			prior = p.Prior(ctx, sp, pool)
		}
		k.priors[place(pool)] = prior
		if pool.Spot {
			k.spots, priors = append(k.spots, pool), append(priors, prior.Prior)
		} else {
			k.plain = append(k.plain, pool)
		}
	}
	if len(k.spots)+len(k.plain) < 2 && len(k.spots) == 0 {
		return nil
	}
	k.params = k.runParams(j, sp)
	slices.SortStableFunc(k.plain, func(a, b session.Pool) int { return cmp.Compare(k.plainCost(a), k.plainCost(b)) })
	if len(k.plain) > 0 {
		k.params.OnDemandPrice = money.Amount(k.plainCost(k.plain[0]))
	}
	k.live = spot.NewLive(k.look, priors, k.params)
	k.known, k.untried = make([]bool, len(k.spots)), make([]int, len(k.spots))
	for z := range k.known {
		k.known[z] = true // until it is tried
	}
	return k
}

// runParams returns the work of a job and its bounds.
func (k *placed) runParams(j *Job, sp *spec.Spec) spot.Params {
	r := spot.Params{
		Work: cmp.Or(sp.Duration, j.Work, sp.MaxRuntime, sp.Deadline, 24*time.Hour), Restart: spot.Restart,
		OnDemandPrice: money.USD,
	}
	if sp.Checkpoint != nil {
		r.Restart = cmp.Or(sp.Checkpoint.Restart, r.Restart)
	}
	r.Deadline = unboundedWork * r.Work
	if sp.Deadline > 0 {
		r.Deadline = sp.Deadline - k.began.Sub(j.RequestedAt)
	}
	if j.OnDemandRate != nil {
		if hourly, err := j.OnDemandRate.Times(1); err == nil && hourly > 0 {
			r.OnDemandPrice = hourly
		}
	}
	return r
}

// place is a pool as a key, without its image and price.
func place(p session.Pool) session.Pool {
	return session.Pool{Type: p.Type, Region: p.Region, Zone: p.Zone, Spot: p.Spot}
}

// same reports whether these are the pools of the strategy; it takes their prices.
func (k *placed) same(pools []session.Pool) bool {
	n := 0
	for _, p := range pools {
		if p.Rate == nil {
			continue
		}
		list := k.plain
		if p.Spot {
			list = k.spots
		}
		i := slices.IndexFunc(list, p.SamePlace)
		if i < 0 || !p.Spot && *p.Rate != *list[i].Rate {
			return false
		}
		list[i] = p
		n++
	}
	return n == len(k.spots)+len(k.plain)
}

// hourly returns the price of an hour of all machines in a pool.
func (k *placed) hourly(p session.Pool) money.Amount {
	price, err := p.Rate.Times(int64(k.nodes))
	if err != nil {
		return money.Amount(math.MaxInt64 >> 10) // it costs too much to be counted
	}
	return price
}

// plainCost returns the cost of an hour on demand with the transfer of its data.
func (k *placed) plainCost(p session.Pool) float64 {
	return float64(k.hourly(p)) + float64(k.priors[place(p)].Start)/max(1, k.params.Work.Hours())
}

func (k *placed) sampleAt(t time.Time) int {
	d := t.Sub(k.began)
	n := int(d / k.look)
	if d < 0 && d%k.look != 0 {
		n--
	}
	return n
}

func (k *placed) zone(p session.Pool) int { return slices.IndexFunc(k.spots, p.SamePlace) }

// avoid takes note of GPU faults, unless no place is left without one.
func (k *placed) avoid(faults []session.PoolFault) {
	k.faults = faults
	for _, p := range slices.Concat(k.spots, k.plain) {
		if k.fault(p) == nil {
			return
		}
	}
	k.faults = nil
}

// fault returns the newest GPU fault that keeps a job from a pool; nil if there is none.
func (k *placed) fault(p session.Pool) *session.PoolFault {
	if i := slices.IndexFunc(k.faults, func(f session.PoolFault) bool { return f.Concerns(p) }); i >= 0 {
		return &k.faults[i]
	}
	return nil
}

// observe lets the strategy learn from the samples before one.
func (p *Placer) observe(k *placed, seen []sighting, sample int) {
	if k.advice == nil {
		since := k.began
		if len(seen) > 0 && seen[0].at.Before(since) {
			since = seen[0].at
		}
		if p.Sight != nil {
			since = p.SightSince
		}
		k.observed = min(0, k.sampleAt(since))
	}
	for ; k.observed < sample; k.observed++ {
		k.live.Observe(k.offersOf(p, seen, k.observed, true))
	}
}

// offersOf returns the offers of a sample. Of one that is not over, what was not tried is taken to be up.
func (k *placed) offersOf(p *Placer, seen []sighting, n int, over bool) []spot.Offer {
	offers := make([]spot.Offer, len(k.spots))
	at := k.began.Add(time.Duration(n) * k.look)
	for z, pool := range k.spots {
		offers[z] = spot.Offer{Up: k.known[z] || !over, Price: k.hourly(pool)}
		if p.Sight != nil {
			offers[z].Up = p.Sight(pool, at)
		}
	}
	if p.Sight != nil {
		return offers
	}
	end, tried := at.Add(k.look), make([]bool, len(offers))
	for _, s := range seen {
		if !s.at.Before(at) && s.at.Before(end) {
			offers[s.zone].Up, tried[s.zone] = s.up, true
		}
	}
	if over {
		for z := range offers {
			k.known[z] = offers[z].Up
			if k.untried[z]++; tried[z] || offers[z].Up {
				k.untried[z] = 0
			}
		}
	}
	return offers
}

// choose returns the advice for a sample.
func (k *placed) choose(p *Placer, v *Observation, seen []sighting, sample int, now time.Time) *Advice {
	a := &Advice{At: now, Next: k.began.Add(time.Duration(sample+1) * k.look)}
	offers := k.offersOf(p, seen, sample, false)
	on, running := k.running(v, sample, now)
	for z, pool := range k.spots {
		if on != spot.InZone+spot.Machine(z) && k.fault(pool) != nil {
			offers[z].Up = false
		}
	}
	ondemand := session.SoundFirst(k.plain, k.faults)
	a.Options = k.options(offers, seen, on)
	begun := k.began.Add(time.Duration(sample) * k.look)
	switch {
	case on != spot.Nothing && !v.Job.Current().LaunchedAt.Before(begun):
		a.Stay = true // it was launched by the choice for this sample
		return a
	case on >= spot.InZone && !offers[on-spot.InZone].Up:
		a.Stay = true // its machine is about to go
		return a
	case len(k.plain) == 0:
		k.chooseSpot(a, offers, on)
		return a
	case len(k.spots) == 0:
		a.Places, a.Stay, a.Why = ondemand, on != spot.Nothing, "it costs least"
		return a
	}
	if p.Sight == nil && on < spot.InZone {
		k.tryInTurn(a, offers, running)
	}
	for range len(k.spots) + 1 {
		m := k.live.Decide(offers, running)
		switch {
		case m == on && m != spot.Nothing:
			a.Stay = len(a.Places) == 0
			return a
		case m == spot.Nothing:
			if len(a.Places) == 0 {
				a.Why = "no spot machine is to be had, and there is time to wait for one"
			}
			return a
		case m == spot.OnDemand:
			if len(a.Places) == 0 || on == spot.Nothing {
				a.Places = append(a.Places, ondemand...)
				a.Why = cmp.Or(a.Why, k.whyOnDemand(running))
			}
			return a
		}
		z := int(m - spot.InZone)
		a.Places, offers[z].Up = append(a.Places, k.spots[z]), false
		a.Why = cmp.Or(a.Why, "its work costs least there")
		if p.Sight != nil {
			return a
		}
	}
	return a
}

// tryInTurn adds the spot places that are worth a try: it costs nothing where it finds no machine, and is
// how capacity becomes known. What follows is decided as if none was found.
func (k *placed) tryInTurn(a *Advice, offers []spot.Offer, r spot.Running) {
	for range offers {
		m := k.live.DecideUnseen(offers, k.untried, r)
		if m < spot.InZone {
			break
		}
		z := int(m - spot.InZone)
		a.Places, offers[z].Up = append(a.Places, k.spots[z]), false
		a.Why = "its work costs least there"
	}
	for z := range offers {
		offers[z].Up = false
	}
}

// chooseSpot orders the places of a job that takes spot machines alone.
func (k *placed) chooseSpot(a *Advice, offers []spot.Offer, on spot.Machine) {
	if on != spot.Nothing {
		a.Stay = true
		return
	}
	for _, o := range a.Options {
		if z := k.zone(o.Pool); z >= 0 && offers[z].Up {
			a.Places = append(a.Places, k.spots[z])
		}
	}
	a.Why = "its work costs least there"
	if len(a.Places) == 0 {
		a.Why = "no spot machine is to be had"
	}
}

func (k *placed) whyOnDemand(r spot.Running) string {
	left := time.Duration(int(k.params.Deadline/k.look)-r.Samples) * k.look
	if left < r.Work+2*k.params.Restart+2*k.look {
		return fmt.Sprintf("%s of work are left, and %s until the deadline", plain.Duration(r.Work.Round(time.Minute)),
			plain.Duration(left.Round(time.Minute)))
	}
	return "waiting for spot would cost more than it saves"
}

// running returns where a job runs, and what is left of its work, in whole seconds.
func (k *placed) running(v *Observation, sample int, now time.Time) (spot.Machine, spot.Running) {
	j := &v.Job
	r := spot.Running{Samples: sample}
	if v.Spec.Deadline == 0 {
		r.Samples = 0 // there is always as much time left
	}
	done := j.Worked()
	if a := j.Current(); a != nil && !a.LaunchedAt.IsZero() {
		r.On = spot.OnDemand
		if z := k.zone(a.Pool); z >= 0 {
			r.On = spot.InZone + spot.Machine(z)
		}
		if !a.CommandAt.IsZero() {
			done += max(0, now.Sub(a.CommandAt)).Round(time.Second)
		} else {
			r.Pending = max(0, k.params.Restart-now.Sub(a.LaunchedAt).Round(time.Second))
		}
	}
	if r.Work = k.params.Work - done; r.Work <= 0 {
		r.Work = k.look // it takes longer than expected
	}
	return r.On, r
}

// options returns the figures of all places, the cheapest first.
func (k *placed) options(offers []spot.Offer, seen []sighting, on spot.Machine) []Option {
	var out []Option
	for z, pool := range k.spots {
		o := Option{
			Pool: pool, Hourly: offers[z].Price, Interruptions: k.live.Hazard(z),
			Useful: money.Amount(k.live.HourlyCost(z, offers[z].Price) * float64(money.USD)), Note: "not tried",
		}
		for _, s := range seen {
			if s.zone == z {
				o.Note = "had machines at " + plain.Time(s.at)
				if !s.up {
					o.Note = "no machine at " + plain.Time(s.at)
				}
			}
		}
		if on == spot.InZone+spot.Machine(z) {
			o.Note = "runs there"
		}
		out = append(out, o)
	}
	for i, pool := range k.plain {
		o := Option{
			Pool: pool, Hourly: k.hourly(pool), Useful: money.Amount(k.plainCost(pool)), Note: "not interrupted",
		}
		if on == spot.OnDemand && i == 0 {
			o.Note = "runs there"
		}
		out = append(out, o)
	}
	for i := range out {
		if f := k.fault(out[i].Pool); f != nil {
			out[i].Note += "; avoided after the GPU fault at " + plain.Time(f.At)
		}
		if note := k.priors[place(out[i].Pool)].Note; note != "" {
			out[i].Note += "; " + note
		}
	}
	slices.SortStableFunc(out, func(a, b Option) int { return cmp.Compare(a.Useful, b.Useful) })
	return out
}
