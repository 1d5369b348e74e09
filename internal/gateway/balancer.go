package gateway

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/gateway/fit"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// maxWaiting bounds the requests that wait for a server.
const maxWaiting = 4096

// balancer gives out requests that are not batched, to the server that has the fewest. Requests
// wait in order while every server has as many as it may.
type balancer struct {
	mu      sync.Mutex
	limit   int // of each server, by the configuration
	order   []string
	servers map[string]*unbatched
	waiting []*waiter
	healthy func(string) bool
	openAI  bool
}

// unbatched is what a server has next to its batches.
type unbatched struct {
	running int
	// limit is what the server's own metrics allow, at most that of the configuration.
	limit int
	load  *stats.Load
	laws  map[string]*fit.Concurrency // time by running requests, for each model

	// area is the running requests by time up to at, in request-seconds: those of this gateway, and
	// foreign ones that the server's metrics showed.
	area    float64
	at      time.Time
	foreign int
	// queued counts the readings of the metrics in which requests waited in the server.
	queued int
}

// advance moves the area of running requests to a time.
func (s *unbatched) advance(now time.Time) {
	if !now.After(s.at) {
		return // another request has moved it further
	}
	if !s.at.IsZero() {
		s.area += float64(s.running+s.foreign) * now.Sub(s.at).Seconds()
	}
	s.at = now
}

// change adds to the running requests.
func (s *unbatched) change(by int, now time.Time) {
	s.advance(now)
	s.running += by
}

// begun is a server as a request begins there.
type begun struct {
	at      time.Time
	running int
	area    float64
	queued  int
}

// waiter is a request that waits for a server.
type waiter struct {
	model string
	got   chan string
}

var errNoneFree = errors.New("every upstream has as many requests as it may")

func newBalancer() *balancer { return &balancer{servers: map[string]*unbatched{}} }

// set configures the servers; those that are known keep their measurements.
func (b *balancer) set(servers []string, limit int, healthy func(string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order, b.limit, b.healthy = servers, limit, healthy
	for _, name := range servers {
		if b.servers[name] == nil {
			b.servers[name] = &unbatched{limit: limit, laws: map[string]*fit.Concurrency{}}
		}
		b.servers[name].limit = limit
	}
	b.forget()
	b.hand()
}

// forget drops servers that are gone and have no request.
func (b *balancer) forget() {
	for name, s := range b.servers {
		if s.running == 0 && !slices.Contains(b.order, name) {
			delete(b.servers, name)
		}
	}
}

// free returns the healthy server below its limit that has the fewest requests.
func (b *balancer) free() string {
	best := ""
	for _, name := range b.order {
		s := b.servers[name]
		if s.running < s.limit && (best == "" || s.running < b.servers[best].running) && b.healthy(name) {
			best = name
		}
	}
	return best
}

// take returns a server for a request of a model, and waits for one.
func (b *balancer) take(ctx context.Context, model string) (string, error) {
	b.mu.Lock()
	if len(b.waiting) == 0 {
		if name := b.free(); name != "" {
			b.servers[name].change(1, time.Now())
			b.mu.Unlock()
			return name, nil
		}
	}
	if len(b.waiting) >= maxWaiting {
		b.mu.Unlock()
		return "", errNoneFree
	}
	if !slices.ContainsFunc(b.order, b.healthy) {
		b.mu.Unlock()
		return "", batch.ErrNoServer
	}
	me := &waiter{model, make(chan string, 1)}
	b.waiting = append(b.waiting, me)
	b.mu.Unlock()
	select {
	case name := <-me.got:
		if name == "" {
			return "", batch.ErrNoServer
		}
		return name, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, me); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else if name := <-me.got; name != "" { // it came at the same time
		b.servers[name].change(-1, time.Now())
		b.hand()
	}
	return "", context.Cause(ctx)
}

// hand gives free servers to requests that wait. The caller holds the lock.
func (b *balancer) hand() {
	for len(b.waiting) > 0 {
		name := b.free()
		if name == "" {
			break
		}
		b.servers[name].change(1, time.Now())
		b.waiting[0].got <- name
		b.waiting = b.waiting[1:]
	}
	if len(b.waiting) > 0 && !slices.ContainsFunc(b.order, b.healthy) {
		for _, w := range b.waiting {
			w.got <- ""
		}
		b.waiting = nil
	}
}

// wake looks again for servers, after health or limits changed.
func (b *balancer) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hand()
}

func (b *balancer) release(server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers[server].change(-1, time.Now())
	b.forget()
	b.hand()
}

// count returns how many requests a server has.
func (b *balancer) count(server string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.servers[server]; s != nil {
		return s.running
	}
	return 0
}

// waits returns how many requests wait for a server.
func (b *balancer) waits() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// countWaiting adds the requests that wait, by model.
func (b *balancer) countWaiting(pool string, to map[modelKey]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.waiting {
		to[modelKey{pool, w.model}]++
	}
}

// watch begins to read the servers' metrics.
func (b *balancer) watch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.openAI = true
}

func (b *balancer) watched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.openAI
}

// begin notes a server as a request begins there that has been given it.
func (b *balancer) begin(server string, now time.Time) begun {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[server]
	s.advance(now)
	return begun{at: now, running: s.running + s.foreign, area: s.area, queued: s.queued}
}

// measure takes the time of a completion. One during which requests waited in the server is no
// measurement: its time is not that of the running requests alone.
func (b *balancer) measure(server, model string, from begun, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[server]
	if s == nil || s.queued != from.queued || !now.After(from.at) {
		return
	}
	s.advance(now)
	if s.laws[model] == nil {
		if len(s.laws) >= maxModels {
			clear(s.laws)
		}
		s.laws[model] = &fit.Concurrency{}
	}
	took := now.Sub(from.at)
	running := max(1, (s.area-from.area)/took.Seconds()) // the request itself ran all the time
	s.laws[model].Add(from.running, running, took, now)
}

// law is the measured concurrency law of a model on one server.
type law struct {
	server    string
	line      fit.Line
	fitted    bool
	levels    []fit.Level
	changes   int
	changedAt time.Time
}

// lawsOf returns the measured concurrency laws of a model by server.
func (b *balancer) lawsOf(model string) []law {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []law
	for _, name := range slices.Sorted(maps.Keys(b.servers)) {
		if e := b.servers[name].laws[model]; e != nil {
			one := law{server: name, levels: e.Levels(b.limit)}
			one.line, one.fitted = e.Line()
			one.changes, one.changedAt = e.Changes()
			out = append(out, one)
		}
	}
	return out
}

// models returns the models of which completions were measured.
func (b *balancer) models() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[string]bool{}
	for _, s := range b.servers {
		for model := range s.laws {
			seen[model] = true
		}
	}
	return sortedKeys(seen)
}

// load returns what the metrics of a server showed last; nil where it has none.
func (b *balancer) load(server string) *stats.Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[server]
	if s == nil || s.load == nil {
		return nil
	}
	out := *s.load
	out.Limit = s.limit
	return &out
}

// Bounds of a server's load that lower its limit.
const highCacheUse = 0.95

// adjust sets the limit of a server by its load: while requests wait in the server, or its KV
// cache is nearly full, more requests only wait there, where no deadline or priority counts.
func (b *balancer) adjust(server string, load *stats.Load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[server]
	if s == nil {
		return
	}
	s.advance(time.Now())
	s.foreign = 0
	if s.load = load; load == nil {
		s.limit = b.limit
		return
	}
	if load.Running != nil {
		s.foreign = max(0, int(*load.Running)-s.running)
	}
	if load.Waiting != nil && *load.Waiting > 0 {
		s.queued++
	}
	full := load.Waiting != nil && *load.Waiting > 0 || load.CacheUse != nil && *load.CacheUse >= highCacheUse
	switch {
	case full && load.Running != nil:
		s.limit = max(1, min(s.limit, int(*load.Running)))
	case full:
		s.limit = max(1, min(s.limit, s.running)-1)
	case s.running >= s.limit:
		s.limit = min(b.limit, s.limit+max(1, s.limit/4))
	}
	b.hand()
}

// server takes a server for a request of a size that is not batched, which is held while the pool
// sleeps. It answers the caller where none is free.
func (p *pool) server(w http.ResponseWriter, r *http.Request, model string, size int64,
	deadline time.Time) (string, bool) {
	ctx := r.Context()
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline, &batch.LateError{InQueue: true})
		defer cancel()
	}
	name, err := p.plain.take(ctx, model)
	for errors.Is(err, batch.ErrNoServer) && p.config.Sleep.Hold > 0 && r.Method == http.MethodPost {
		if err := p.awake(r.Context(), model, size, deadline); err != nil {
			p.gateway.refuseAsleep(w, err)
			return "", false
		}
		name, err = p.plain.take(ctx, model)
	}
	var late *batch.LateError
	switch {
	case err == nil:
		return name, true
	case errors.Is(err, batch.ErrNoServer):
		p.gateway.counts.refused("no upstream")
		retry := time.Second
		if p.config.Sleep.Hold > 0 {
			p.sleeper.mu.Lock()
			retry = p.sleeper.retryAfter(time.Now())
			p.sleeper.mu.Unlock()
		}
		refuse(w, http.StatusServiceUnavailable, retry, err.Error())
	case errors.Is(err, errNoneFree):
		p.gateway.counts.refused("concurrency")
		refuse(w, http.StatusTooManyRequests, time.Second, err.Error())
	case errors.As(err, &late):
		p.gateway.counts.refused("deadline")
		refuse(w, http.StatusGatewayTimeout, time.Second, err.Error())
	default:
		p.gateway.counts.refused("canceled by the caller")
	}
	return "", false
}

// isHealthy reports whether a server may get requests.
func (p *pool) isHealthy(name string) bool {
	return slices.ContainsFunc(p.queue.Servers(), func(s batch.ServerStatus) bool {
		return s.Name == name && s.Healthy && !s.Draining
	})
}
