// Package gateway stands in front of model servers. It gathers the rows of requests into batches
// where that pays, sheds what cannot be answered in time, and measures what a prediction costs.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/money"
)

// The values of Pool.Batch.
const (
	batchAuto   = "auto"
	batchAlways = "always"
	batchNever  = "never"
)

// defaultSilence is longer than the timeout of a batch: a completion that is no stream shows nothing
// until all its tokens are written.
const defaultSilence = 10 * time.Minute

// Price is what one server of a pool costs an hour; 0 with the reason where it is not known.
type Price struct {
	Hourly  money.Amount
	Unknown string
}

// Options are what a gateway needs of the process.
type Options struct {
	// Price returns the price of a server of a pool.
	Price func(Pool) Price
	// Transport makes the connections to model servers.
	Transport http.RoundTripper
	// GRPC makes those to gRPC servers, by HTTP/2 with and without TLS.
	GRPC    http.RoundTripper
	Log     *slog.Logger
	Version string
	// KeyUsage is what keys had used of their budgets when the gateway stopped last, by their hash.
	// Keep stores it while the gateway runs; nil keeps nothing.
	KeyUsage map[string]KeyUsage
	Keep     func(map[string]KeyUsage) error
	// ColdStarts are the cold starts that were measured before, by pool; KeepColdStarts stores all of
	// them after each new one. nil keeps nothing.
	ColdStarts     map[string][]time.Duration
	KeepColdStarts func(map[string][]time.Duration) error
	// Metrics, when set, are served with those of the gateway.
	Metrics prometheus.Collector
	// Run runs the command that wakes a pool, which may leave processes behind.
	Run func(ctx context.Context, pool string, command []string) error
}

// KeyUsage is what a key used of its budget in a period.
type KeyUsage struct {
	PeriodStart time.Time    `json:"period_start"`
	Spent       money.Amount `json:"spent_usd"`
	Tokens      int64        `json:"tokens"`
}

// Gateway serves callers. It is safe for concurrent use.
type Gateway struct {
	o       Options
	meter   *meter
	counts  *counters
	started time.Time

	mu    sync.Mutex // of Configure and Close
	state atomic.Pointer[state]

	reading  atomic.Int64 // bytes of bodies that are read now
	draining atomic.Bool
	open     sync.WaitGroup
	registry *prometheus.Registry
	ctx      context.Context // of watch and of wakes
	stop     context.CancelFunc
	closing  chan struct{} // closed as Close begins
	probing  sync.WaitGroup
	kept     map[string]KeyUsage // what was stored last; of watch and Close
	// keptStarts are the cold starts that were stored last; of watch and Close.
	keptStarts map[string][]time.Duration
}

// state is what a configuration makes.
type state struct {
	config  Config
	callers *callers
	pools   []*pool
	forward []string // canonical names of forwarded headers
}

// pool is a group of servers with its queue.
type pool struct {
	name    string
	config  Pool
	queue   *batch.Pool
	models  *metadata
	urls    map[string]*url.URL
	plain   *balancer
	gateway *Gateway
	grpc    bool // the servers speak gRPC
	sleeper *sleeper
	price   Price
	// silence bounds the time in which a completion shows nothing.
	silence time.Duration
	// unbatchable are the models whose answers could not be divided, with the reason.
	unbatchable sync.Map
}

// New returns a gateway that serves a valid configuration.
func New(c Config, o Options) (*Gateway, error) {
	ctx, stop := context.WithCancel(context.Background())
	g := &Gateway{
		o: o, meter: newMeter(), started: time.Now(), ctx: ctx, stop: stop, closing: make(chan struct{}),
	}
	g.counts = newCounters(g.started)
	g.registry = prometheus.NewRegistry()
	g.registry.MustRegister(collector{g})
	if o.Metrics != nil {
		g.registry.MustRegister(o.Metrics)
	}
	if err := g.Configure(c); err != nil {
		stop()
		return nil, err
	}
	g.keptStarts = g.coldStarts()
	g.probing.Go(func() { g.watch(ctx) })
	return g, nil
}

// Configure takes another configuration for requests that arrive from now on. Requests that are
// queued or on their way are answered as before.
func (g *Gateway) Configure(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var before *state
	if before = g.state.Load(); before == nil {
		before = &state{callers: newCallers(Config{}, nil, nil)}
	}
	next := &state{config: c, callers: newCallers(c, before.callers, g.o.KeyUsage)}
	for _, h := range c.ForwardHeaders {
		next.forward = append(next.forward, http.CanonicalHeaderKey(h))
	}
	slices.Sort(next.forward)
	now := time.Now()
	kept := map[string]bool{}
	for i, pc := range c.Pools {
		if pc.Name == "" {
			pc.Name = fmt.Sprint(i + 1)
		}
		p := g.configurePool(pc, c, before, now)
		next.pools = append(next.pools, p)
		for u := range p.urls {
			kept[u] = true
		}
	}
	for _, old := range before.pools {
		for u := range old.urls {
			if !kept[u] {
				g.meter.remove(u, now)
			}
		}
		if !slices.ContainsFunc(next.pools, func(p *pool) bool { return p.queue == old.queue }) {
			// Its requests are answered by the servers that it had.
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), c.DrainTimeout)
				defer cancel()
				_ = old.queue.Close(ctx) // what is left then ends with the timeout of its exchange
			}()
		}
	}
	g.state.Store(next)
	return nil
}

// configurePool returns a pool; its queue, measurements and metadata are those of the pool of the
// same name before.
func (g *Gateway) configurePool(pc Pool, c Config, before *state, now time.Time) *pool {
	p := &pool{name: pc.Name, config: pc, urls: map[string]*url.URL{}, gateway: g}
	setDefault(&p.config.Batch, batchAuto)
	setDefault(&p.config.MaxBatch, defaultMaxBatch)
	setDefault(&p.config.Slots, 1)
	setDefault(&p.config.Concurrency, defaultConcurrency)
	p.silence = p.config.Timeout
	setDefault(&p.silence, defaultSilence)
	setDefault(&p.config.Timeout, time.Minute)
	setDefault(&p.config.Aging, 100*time.Millisecond)
	setDefault(&p.config.HealthPath, "/v2/health/ready")
	p.price = g.o.Price(pc)
	names := make([]string, len(pc.Upstreams))
	for i, text := range pc.Upstreams {
		u, _ := parseUpstream(text) // Validate has read it
		names[i] = u.String()
		p.urls[names[i]] = u
		p.grpc = isGRPC(u.Scheme)
		g.meter.add(names[i], p.name, p.price.Hourly, p.price.Unknown, now)
	}
	options := batch.Options{
		MaxRows: p.config.MaxBatch, MaxBytes: int64(c.QueueMiB) << 20, Aging: p.config.Aging,
		Timeout:    p.config.Timeout,
		Idempotent: p.config.Idempotent, Exchange: p.exchange, Divide: p.divide, Observe: g.observe(p.name),
	}
	i := slices.IndexFunc(before.pools, func(old *pool) bool { return old.name == p.name })
	if i < 0 {
		p.queue, p.models, p.plain = batch.New(options), newMetadata(), newBalancer()
		p.sleeper = newSleeper(g.o.ColdStarts[p.name], now)
	} else {
		old := before.pools[i]
		p.queue, p.models, p.plain, p.sleeper = old.queue, old.models, old.plain, old.sleeper
		p.queue.Configure(options)
	}
	p.queue.SetServers(names, p.config.Slots)
	p.configureUnload(names, i < 0)
	p.plain.set(names, p.config.Concurrency, p.isHealthy)
	return p
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// pool returns the pool that serves a model; nil where none does.
func (s *state) pool(model string) *pool {
	var any *pool
	for _, p := range s.pools {
		if slices.Contains(p.config.Models, model) {
			return p
		}
		if len(p.config.Models) == 0 {
			any = p
		}
	}
	return any
}

// Close refuses new requests, and waits until the open ones are answered or the context ends.
func (g *Gateway) Close(ctx context.Context) error {
	g.draining.Store(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.closing)
	defer func() {
		g.stop()
		g.probing.Wait()
		g.keepUsage()
		g.keepColdStarts()
	}()
	for _, p := range g.state.Load().pools {
		if err := p.queue.Close(ctx); err != nil {
			return err
		}
	}
	done := make(chan struct{})
	go func() { g.open.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Handler serves callers.
func (g *Gateway) Handler() http.Handler { return http.HandlerFunc(g.serve) }

// serve answers one request.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	g.open.Add(1)
	defer g.open.Done()
	s := g.state.Load()
	switch r.URL.Path {
	case "/healthz":
		_, _ = w.Write([]byte("ok\n")) // who does not read it has gone
		return
	case "/readyz":
		g.ready(w, s)
		return
	}
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// net/http has dropped a Content-Length beside the chunks. What a proxy took for the rest of such a
		// body must not be read as the next request (RFC 9112, 6.1).
		w.Header().Set("Connection", "close")
	}
	if g.draining.Load() {
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusServiceUnavailable, time.Second, "the gateway is shutting down")
		return
	}
	if !cleanPath(r.URL) {
		refuse(w, http.StatusBadRequest, 0, "the path has empty parts, dots or escaped slashes")
		return
	}
	c, ok := s.callers.identify(r)
	if !ok {
		g.counts.refused("no API key")
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, 0, "an API key is needed: send Authorization: Bearer KEY")
		return
	}
	if g.serveOwn(w, r, c) {
		return
	}
	g.route(w, r, s, c)
}

// cleanPath reports whether all servers divide a path in the same way.
func cleanPath(u *url.URL) bool {
	return !strings.Contains(u.Path+"/", "/../") && !strings.Contains(u.Path, "//") &&
		!strings.Contains(u.Path, "\\") &&
		!strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// serveOwn answers what the gateway says of itself, and reports whether that was asked for.
func (g *Gateway) serveOwn(w http.ResponseWriter, r *http.Request, c caller) bool {
	if r.URL.Path != "/metrics" && !strings.HasPrefix(r.URL.Path, "/curfew/") {
		return false
	}
	if !c.admin {
		refuse(w, http.StatusForbidden, 0, "the API key may not read statistics: set admin: true for it")
		return true
	}
	switch r.URL.Path {
	case "/metrics":
		g.serveMetrics(w, r)
	case "/curfew/stats":
		g.serveStats(w)
	case "/curfew/profile":
		g.serveProfile(w, r)
	case "/curfew/drain":
		g.serveDrain(w, r)
	case "/curfew/arrivals":
		g.serveArrivals(w, r)
	default:
		refuse(w, http.StatusNotFound, 0, "the gateway has no "+r.URL.Path)
	}
	return true
}

// ready tells whether each pool has a healthy server, or holds requests until it has one.
func (g *Gateway) ready(w http.ResponseWriter, s *state) {
	for _, p := range s.pools {
		if p.config.Sleep.Hold == 0 && !slices.ContainsFunc(p.queue.Servers(), func(x batch.ServerStatus) bool {
			return x.Healthy && !x.Draining
		}) {
			refuse(w, http.StatusServiceUnavailable, time.Second, "pool "+p.name+" has no healthy upstream")
			return
		}
	}
	if g.draining.Load() || len(s.pools) == 0 {
		refuse(w, http.StatusServiceUnavailable, time.Second, "the gateway is shutting down or has no pool")
		return
	}
	_, _ = w.Write([]byte("ok\n")) // who does not read it has gone
}

// budget refuses a request whose key has used up its budget, and warns before that.
func (g *Gateway) budget(w http.ResponseWriter, c caller) bool {
	refusal, warning, retry := c.limit.check(time.Now())
	if refusal != "" {
		g.counts.refused("budget")
		refuse(w, http.StatusTooManyRequests, retry, refusal)
		return false
	}
	if warning != "" {
		w.Header().Set("Curfew-Budget-Warning", warning)
	}
	return true
}

// observe counts batches.
func (g *Gateway) observe(pool string) func(batch.Exchange) {
	return func(x batch.Exchange) {
		g.counts.exchange(pool, x)
		if x.Err != nil && !errors.Is(x.Err, context.Canceled) {
			g.o.Log.Warn("batch failed", "upstream", x.Server, "model", x.Model, "rows",
				x.Rows, "error", x.Err.Error())
		}
	}
}
