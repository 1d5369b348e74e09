package spot

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// machine is the machine of a case: none, on-demand, or spot in the zone whose number is the
// machine's less inZone.
type machine int

const (
	nothing machine = iota
	onDemand
	inZone
)

// zoneOffer is the capacity and hourly price of one zone at one moment.
type zoneOffer struct {
	up    bool
	price money.Amount
}

// caseState is one case: the work, from one moment on, by one strategy.
type caseState struct {
	// gaps is how many are left, this one included; window how many there were.
	gaps, window  int
	gap, deadline time.Duration
	// work is the remaining work; pending is the remaining restart of the machine.
	work, all, pending, restart time.Duration
	on                          machine
}

// left is the time to the deadline.
func (a *caseState) left() time.Duration { return time.Duration(a.gaps) * a.gap }

// holdsSpot reports whether the case holds a spot machine.
func (a *caseState) holdsSpot() bool { return a.on >= inZone }

// strategy decides what runs. It is shown each sample once, in order, and then asked
// about every case that is under way: it cannot know what comes.
type strategy interface {
	observe(now []zoneOffer)
	// decide returns the machine for the gap that starts now: spot only where it is up.
	decide(a *caseState) machine
}

// market is the zones among which a case may move, over the samples that all of them
// have.
type market struct {
	name    string
	gap     time.Duration
	samples int
	zones   []Zone
	fixed   money.Amount
}

// markets are the markets to replay cases in: each zone by itself, or all at once.
func (tr Trace) markets(p Params) ([]market, error) {
	var out []market
	for _, z := range tr.Zones {
		out = append(out, market{z.Name, tr.Gap, len(z.Up), []Zone{z}, p.SpotPrice})
	}
	if p.AcrossZones {
		m := market{"all zones", tr.Gap, 0, slices.Clone(tr.Zones), p.SpotPrice}
		first, end := 0, tr.Zones[0].First+len(tr.Zones[0].Up)
		for _, z := range tr.Zones {
			first, end = max(first, z.First), min(end, z.First+len(z.Up))
		}
		if m.samples = end - first; m.samples <= 0 {
			return nil, fmt.Errorf("plan spot: no time at which all %d zones were recorded", len(tr.Zones))
		}
		for i, z := range m.zones {
			m.zones[i].Up = z.Up[first-z.First : end-z.First]
			if z.Prices != nil {
				m.zones[i].Prices = z.Prices[first-z.First : end-z.First]
			}
		}
		out = []market{m}
	}
	for _, m := range out {
		if m.samples < p.window(tr.Gap) {
			return nil, fmt.Errorf(
				"plan spot: %s has %d samples, and a case needs %d: use a longer trace or a shorter deadline", m.name,
				m.samples,
				p.window(tr.Gap))
		}
	}
	return out, nil
}

// at fills in what the zones have at a sample.
func (m market) at(t int, now []zoneOffer) {
	for i, z := range m.zones {
		now[i] = zoneOffer{z.Up[t], m.fixed}
		if z.Prices != nil {
			now[i].price = z.Prices[t]
		}
	}
}

// strategyOutcome is the outcome of the cases of one strategy.
type strategyOutcome struct {
	cost                  money.Amount
	misses, starts, cases int
	// sample is the machine of the case in the middle of the trace, gap by gap.
	sample []machine
	// first is the sample at which that case starts.
	first int
}

func (y *strategyOutcome) add(o strategyOutcome) error {
	cost, err := y.cost.Add(o.cost)
	if err != nil {
		return fmt.Errorf("add up cases: %w", err)
	}
	y.cost, y.misses, y.starts, y.cases = cost, y.misses+o.misses, y.starts+o.starts, y.cases+o.cases
	return nil
}

// caseRun is a case under way: what it paid, as prices for an hour added up over its gaps.
type caseRun struct {
	caseState
	paid   money.Amount
	sample bool
	// start is the sample at which it started, machines is its machine gap by gap.
	start    int
	machines []machine
}

// Case is one case of a replay: where it ran, gap by gap.
type Case struct {
	// Market names its zone, or all of them; Start is its first sample.
	Market   string
	Start    int
	Machines []Machine
}

// Cases returns the cases of the strategy curfew in a replay of a trace.
func Cases(tr Trace, p Params) (out []Case, err error) {
	if err := p.check(tr); err != nil {
		return nil, err
	}
	markets, err := tr.markets(p)
	if err != nil {
		return nil, err
	}
	for _, m := range markets {
		if _, err := m.replay(p, newPlanner(m.gap, len(m.zones), p), func(r *caseRun) {
			out = append(out, Case{m.name, r.start, r.machines})
		}); err != nil {
			return nil, fmt.Errorf("plan spot: %w", err)
		}
	}
	return out, nil
}

// replay runs the cases of a market, all that overlap at once. Each, if set, is called with each case
// that is over.
func (m market) replay(p Params, s strategy, each func(*caseRun)) (strategyOutcome, error) {
	var y strategyOutcome
	window, stride := p.window(m.gap), p.stride(m.gap)
	cases := (m.samples-window)/stride + 1
	now := make([]zoneOffer, len(m.zones))
	var open []*caseRun
	for t := range (cases-1)*stride + window {
		m.at(t, now)
		s.observe(now)
		if t%stride == 0 && t/stride < cases {
			r := &caseRun{
				caseState: caseState{
					gaps: window, window: window, gap: m.gap, deadline: p.Deadline, work: p.Work,
					all: p.Work, restart: p.Restart,
				},
				sample: t/stride == cases/2, start: t,
			}
			if r.sample {
				y.first = t
			}
			open = append(open, r)
		}
		rest := open[:0]
		for _, r := range open {
			if err := r.step(&y, now, s, p); err != nil {
				return y, err
			}
			if each != nil {
				r.machines = append(r.machines, r.on)
			}
			if r.work > 0 && r.gaps > 0 {
				rest = append(rest, r)
				continue
			}
			if each != nil {
				each(r)
			}
			cost, err := r.paid.Mul(int64(m.gap), int64(time.Hour))
			if err == nil {
				y.cost, err = y.cost.Add(cost)
			}
			if err != nil {
				return y, fmt.Errorf("price a case in %s: %w", m.name, err)
			}
			y.cases++
			if r.work > 0 {
				y.misses++
			}
		}
		open = rest
	}
	return y, nil
}

// step runs one gap: it is paid whole, and a new machine starts with the restart.
func (r *caseRun) step(y *strategyOutcome, now []zoneOffer, s strategy, p Params) error {
	if r.holdsSpot() && !now[r.on-inZone].up {
		r.on, r.pending = nothing, 0
	}
	m := s.decide(&r.caseState)
	if m >= inZone && !now[m-inZone].up {
		return fmt.Errorf("replay: spot was chosen in zone %d, which is not up", m-inZone)
	}
	if m != r.on {
		r.on, r.pending = m, 0
		if m != nothing {
			r.pending = p.Restart
			y.starts++
		}
	}
	if r.sample {
		y.sample = append(y.sample, m)
	}
	r.gaps--
	if m == nothing {
		return nil
	}
	price := p.OnDemandPrice
	if m >= inZone {
		price = now[m-inZone].price
	}
	var err error
	if r.paid, err = r.paid.Add(price); err != nil {
		return fmt.Errorf("add up a case: %w", err)
	}
	delay := min(r.gap, r.pending)
	r.pending -= delay
	r.work -= r.gap - delay
	return nil
}

// bound returns a lower bound of the cost of the cases: min(work, time up) at the lowest spot
// prices of the window and the rest on-demand, without restarts.
func (m market) bound(p Params) (strategyOutcome, error) {
	var y strategyOutcome
	window, stride := p.window(m.gap), p.stride(m.gap)
	cheapest := make([]money.Amount, m.samples) // the lower of on-demand and the lowest spot price
	now := make([]zoneOffer, len(m.zones))
	for t := range cheapest {
		m.at(t, now)
		cheapest[t] = p.OnDemandPrice
		for _, o := range now {
			if o.up {
				cheapest[t] = min(cheapest[t], o.price)
			}
		}
	}
	whole := int(p.Work / m.gap)
	for start := 0; start+window <= m.samples; start += stride {
		prices := slices.Sorted(slices.Values(cheapest[start : start+window]))
		paid, err := money.Sum(prices[:whole]...)
		if err == nil {
			paid, err = paid.Mul(int64(m.gap), int64(time.Hour))
		}
		var rest money.Amount
		if part := p.Work % m.gap; err == nil && part > 0 {
			rest, err = prices[whole].Mul(int64(part), int64(time.Hour))
		}
		if err == nil {
			paid, err = paid.Add(rest)
		}
		if err == nil {
			y.cost, err = y.cost.Add(paid)
		}
		if err != nil {
			return y, fmt.Errorf("price the bound in %s: %w", m.name, err)
		}
		y.cases++
	}
	return y, nil
}
