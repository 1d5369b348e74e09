// Package fleets decides the sizes of serving fleets while the service runs, tells them to other
// autoscalers, and carries those of enforcing policies out on the safety ladder.
package fleets

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/serving"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
)

// readTimeout bounds one reading of a fleet, which is less than the time between two.
const readTimeout = 10 * time.Second

// Status is a fleet as it was decided last.
type Status struct {
	ID, Policy string
	Mode       policy.Mode
	Bounds     fleet.Bounds
	// Decision is the newest one; its time is zero before the first. Demand is what it was made of.
	Decision fleet.Decision
	Demand   fleet.Demand
	// ShrinksAfter is the time from which the fleet may become smaller; zero where unknown.
	ShrinksAfter time.Time
	// AddTime is the time to add a replica, the 95th percentile of those measured; 0 before the first.
	AddTime time.Duration
	// Hourly is the price of a replica, for which Unpriced is the reason where it is unknown.
	Hourly   inventory.Fact[money.Amount]
	Unpriced string
	// Target is the size that other autoscalers are told. It is false in Known until the replicas were
	// seen once.
	Target int
	Known  bool
	// Replicas serve or start, by their metrics, or are the size at the provider of a fleet that is
	// acted on; unknown where ReplicasKnown is false.
	Replicas      int
	ReplicasKnown bool
	// Blocked is why the newest decision was not carried out; empty where it was, or nothing is to do.
	Blocked string
}

// reader reads one source of demand.
type reader interface {
	Read(ctx context.Context, now time.Time) serving.Reading
}

// watched is one fleet with its memory.
type watched struct {
	config  fleet.Config
	readers []reader
	policy  *policy.Policy
	state   fleet.State
	status  Status
	// provider is nil until the fleet was found; seen is the fleet there and idle the hosts without
	// requests, at the newest decision.
	provider *Provider
	seen     action.Fleet
	idle     []string
	// draining are the hosts that gateways keep new requests from, all where drainsAll is set; of act.
	draining  []string
	drainsAll bool
	// carriedOut is the time of the newest decision that was carried out.
	carriedOut time.Time
}

// Watcher decides about the fleets of a configuration.
type Watcher struct {
	log *slog.Logger
	// Find, when set, finds where the size of a fleet is set, so that enforcing policies set it.
	Find func(ctx context.Context, d *policy.Do) (*Provider, error)
	// Locate, when set, finds the provider that measures the demand for a fleet; it changes nothing there.
	Locate func(ctx context.Context, d *policy.Do) (*Provider, error)
	// Decided, when set, is called with each decision and what it was made of.
	Decided func(id string, c fleet.Config, r fleet.Reading, d fleet.Decision)

	mu      sync.Mutex
	fleets  map[string]*watched
	changed chan struct{}
}

// NewWatcher returns a watcher of no fleets.
func NewWatcher(log *slog.Logger) *Watcher {
	return &Watcher{log: log, fleets: map[string]*watched{}, changed: make(chan struct{})}
}

// Configured are the fleets of a configuration and its policies.
type Configured map[string]*watched

// Configure makes the fleets that both the configuration and a policy name. A fleet that two
// policies name is an error: a fleet has one owner of its bounds.
func Configure(req *runtime.Request, cfg config.Config, set *policy.Set) (Configured, error) {
	out := Configured{}
	for _, p := range set.Policies {
		if !p.IsFleet() {
			continue
		}
		if other := out[p.Do.Fleet]; other != nil {
			return nil, runtime.Invalid("policies %s and %s both scale fleet %s: keep one", other.status.Policy, p.Name,
				p.Do.Fleet)
		}
		w, err := newWatched(req, cfg, p)
		if err != nil {
			return nil, runtime.Invalid("fleets: %s: %w", p.Do.Fleet, err)
		}
		out[p.Do.Fleet] = w
	}
	return out, nil
}

// newWatched makes one fleet; one that the configuration does not have has no source of demand.
func newWatched(req *runtime.Request, cfg config.Config, p *policy.Policy) (*watched, error) {
	w := &watched{policy: p, status: Status{
		ID: p.Do.Fleet, Policy: p.Name, Mode: p.Mode, Bounds: p.Do.FleetBounds(),
		Unpriced: "curfew does not set its size, so that the type of its machines is unknown",
	}}
	i := slices.IndexFunc(cfg.Fleets, func(f config.Fleet) bool { return f.ID == p.Do.Fleet })
	if i < 0 {
		return w, nil
	}
	one := cfg.Fleets[i]
	var err error
	if w.config, err = one.Decided(); err != nil {
		return nil, err
	}
	w.config.Bounds, w.config.Target = w.status.Bounds, p.Do.Target
	metrics := func(d config.FleetDemand) bool { return d.Server != gatewayKind }
	if w.config.Zero && slices.ContainsFunc(one.Demand, metrics) {
		// Metrics of model servers end with the last of them: nothing would say that callers wait.
		w.config.Bounds = fleet.Bounds{Min: 1, Max: w.config.Max}
	}
	for _, d := range one.Demand {
		if d.Server == gatewayKind {
			w.readers = append(w.readers, newGatewayReader(req, cfg, d))
			continue
		}
		if d.Server == providerKind {
			w.readers = append(w.readers, &providerReader{do: p.Do})
			continue
		}
		access, err := clouds.MetricsAccess(req, cfg.Metrics.Source(d.URL))
		if err != nil {
			return nil, err
		}
		step := d.Step
		if step == 0 {
			step = fleet.DefaultInterval
		}
		r, err := serving.New(serving.Options{Access: access, Server: d.Server, Select: d.Select, Step: step})
		if err != nil {
			return nil, err
		}
		w.readers = append(w.readers, r)
	}
	return w, w.config.Check()
}

// keepsOne reports whether a fleet that may go to zero cannot, for lack of a gateway that counts callers.
func (one *watched) keepsOne() bool { return one.status.Bounds.Zero && !one.config.Zero }

// Set puts fleets in force. Those that were there keep their memory.
func (w *Watcher) Set(c Configured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, one := range c {
		for _, r := range one.readers {
			if p, ok := r.(*providerReader); ok {
				p.locate = w.Locate
			}
		}
		switch old := w.fleets[id]; {
		case old != nil:
			one.state, one.carriedOut = old.state, old.carriedOut
			one.seen, one.idle, one.provider = old.seen, old.idle, old.provider
			if one.policy != nil && one.policy.Do.IsCustomFleet() {
				one.provider = nil // it is in the configuration, which may have changed
			}
			one.draining, one.drainsAll = old.draining, old.drainsAll
			status := old.status
			status.Policy, status.Mode, status.Bounds = one.status.Policy, one.status.Mode, one.status.Bounds
			one.status = status
		case len(one.readers) == 0:
			w.log.Warn("the demand for a fleet is unknown: fleets in curfew.yaml does not have it", "fleet", id)
		case one.keepsOne():
			w.log.Warn("a fleet keeps one replica: its metrics end with the last one", "fleet", id)
		}
	}
	w.fleets = c
}

// Run decides until the context ends, and calls looked after each look.
func (w *Watcher) Run(ctx context.Context, now func() time.Time, looked func()) {
	tick := time.NewTicker(asleepInterval)
	defer tick.Stop()
	const ticks = int(fleet.DefaultInterval / asleepInterval) // between two looks at every fleet
	for i := 0; ; i++ {
		switch {
		case i%ticks == 0:
			w.Look(ctx, now())
			looked()
		case w.Hurries():
			w.lookAt(ctx, now(), (*watched).hurries)
			looked()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Look reads every fleet and decides once.
func (w *Watcher) Look(ctx context.Context, now time.Time) {
	w.lookAt(ctx, now, func(*watched) bool { return true })
}

// lookAt reads those fleets that are due, and decides once.
func (w *Watcher) lookAt(ctx context.Context, now time.Time, due func(*watched) bool) {
	w.mu.Lock()
	var ids []string
	for id, one := range w.fleets {
		if due(one) {
			ids = append(ids, id)
		}
	}
	w.mu.Unlock()
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() { w.look(ctx, id, now) })
	}
	wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *Watcher) look(ctx context.Context, id string, now time.Time) {
	w.mu.Lock()
	one := w.fleets[id]
	w.mu.Unlock()
	if one == nil || len(one.readers) == 0 {
		return
	}
	provider, at, err := w.provided(ctx, one)
	bounded, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	reading, replicas, seen, idle := one.read(bounded, now)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fleets[id] != one {
		return // another configuration is in force
	}
	one.provider = provider
	switch {
	case err != nil:
		one.status.ReplicasKnown, one.status.Known = false, false
		w.blocked(one, "its size at the provider is unknown: "+err.Error())
		return
	case provider != nil:
		w.decideAt(one, reading, at, idle)
		return
	}
	one.status.Replicas, one.status.ReplicasKnown = replicas, seen
	if !one.status.Known {
		if !seen {
			w.log.Warn("the size of a fleet is unknown", "fleet", id, "why", reading.Demand.Why)
			return
		}
		one.status.Target = replicas
	}
	reading.Actual = one.status.Target // others were told so, and follow in their time
	w.decide(one, one.config, reading)
}

// decide takes the decision of a reading, and logs it where it is another one.
func (w *Watcher) decide(one *watched, c fleet.Config, reading fleet.Reading) {
	before, id := one.status, one.status.ID
	var d fleet.Decision
	one.state, d = fleet.Decide(c, one.state, reading)
	one.status.Decision, one.status.Target, one.status.Known = d, d.Wanted, true
	one.status.Demand, one.status.ShrinksAfter = reading.Demand, fleet.ShrinksAfter(c, one.state, reading.Actual)
	one.status.AddTime, _ = one.state.AddTime()
	if w.Decided != nil {
		w.Decided(id, c, reading, d)
	}
	if d.Wanted != before.Target || d.Known != before.Decision.Known || before.Decision.At.IsZero() {
		w.log.Info("fleet", "fleet", id, "policy", one.status.Policy, "wanted", d.Wanted, "from", before.Target,
			"rule", d.Rule, "why", d.Why)
	}
}

// read asks all sources. Seen is false where the number of replicas is unknown; idle are the hosts
// without requests.
func (one *watched) read(ctx context.Context, now time.Time) (r fleet.Reading, replicas int, seen bool,
	idle []string) {
	r.At, seen = now, true
	readings := make([]serving.Reading, len(one.readers))
	var wg sync.WaitGroup
	for i, source := range one.readers {
		wg.Go(func() { readings[i] = source.Read(ctx, now) })
	}
	wg.Wait()
	var samples []fleet.Sample
	quietHosts := map[string]bool{} // to all sources that know the host
	servers := map[string]bool{}    // of gateways, of which several may know one
	for _, got := range readings {
		samples = append(samples, got.Sample)
		seen = seen && got.Replicas
		r.Ready += got.Ready
		replicas += got.Ready + got.Starting
		for _, server := range got.Servers {
			servers[server] = true
		}
		for host, quiet := range got.Idle {
			others, known := quietHosts[host]
			quietHosts[host] = quiet && (others || !known)
		}
	}
	r.Ready, replicas = r.Ready+len(servers), replicas+len(servers)
	r.Demand = fleet.Sum(now, samples)
	for host, quiet := range quietHosts {
		if quiet && host != "" {
			idle = append(idle, host)
		}
	}
	return r, replicas, seen, idle
}

// All returns the fleets, ordered by id.
func (w *Watcher) All() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Status
	for _, id := range slices.Sorted(maps.Keys(w.fleets)) {
		out = append(out, w.fleets[id].status)
	}
	return out
}

// Sizes returns the sizes of the fleets for metrics. Those that are unknown are left out.
func (w *Watcher) Sizes() []scheduler.FleetReplicas {
	var out []scheduler.FleetReplicas
	for _, s := range w.All() {
		add := func(kind string, n int) {
			out = append(out, scheduler.FleetReplicas{Fleet: s.ID, Kind: kind, Replicas: n})
		}
		add("min", s.Bounds.Min)
		add("max", s.Bounds.Max)
		if s.Known {
			add("wanted", s.Target)
		}
		if s.ReplicasKnown {
			add("actual", s.Replicas)
		}
	}
	return out
}

// One returns a fleet, and false where there is none of the id.
func (w *Watcher) One(id string) (Status, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.fleets[id]
	if one == nil {
		return Status{}, false
	}
	return one.status, true
}

// Changed returns a channel that is closed after the next look.
func (w *Watcher) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}
