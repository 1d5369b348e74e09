package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Sleep lets the servers of a pool end, or unload their models, while no one asks. Requests are held
// until a server answers again.
type Sleep struct {
	// Hold is the longest time that a request is held; a shorter deadline of its own counts. 0: the pool
	// does not sleep.
	Hold time.Duration `yaml:"hold"`
	// HoldMiB bounds the bodies of held requests; 0 is 64.
	HoldMiB int `yaml:"hold_mib"`
	// WakeCommand is run once for each sleep; it starts a server and may end before that serves. Without
	// it and WakeURL, the one that sizes the fleet reads here that requests wait.
	WakeCommand []string `yaml:"wake_command"`
	// WakeURL gets a POST for each sleep, in place of a command.
	WakeURL string `yaml:"wake_url"`
	// Unload is the kind of servers whose models are unloaded while no one asks, on machines that stay:
	// llama.cpp (router mode), ollama or triton (model control mode explicit).
	Unload string `yaml:"unload"`
	// UnloadAfter is the time without a request after which models are unloaded; 0 is 15m.
	UnloadAfter time.Duration `yaml:"unload_after"`
}

const (
	defaultHoldMiB     = 64
	maxHoldMiB         = 64 << 10
	maxHold            = 24 * time.Hour
	defaultUnloadAfter = 15 * time.Minute
	// defaultColdStart is the Retry-After until a cold start was measured.
	defaultColdStart = 30 * time.Second
	// keptColdStarts bounds the measured cold starts of a pool.
	keptColdStarts = 50
	// wakeInterval is the time between two looks at servers that requests wait for.
	wakeInterval = 100 * time.Millisecond
	// wakeTimeout bounds a command or call that wakes, and abandonAfter the time for which a wake without
	// a held request goes on.
	wakeTimeout  = 5 * time.Minute
	abandonAfter = 10 * time.Minute
	// First and longest time until a wake that failed is tried again.
	firstWakeRetry = time.Second
	maxWakeRetry   = time.Minute
)

func (s Sleep) validate(at string, models []string) error {
	at += ".sleep"
	if s.Hold == 0 {
		if s.HoldMiB != 0 || len(s.WakeCommand) > 0 || s.WakeURL != "" || s.Unload != "" || s.UnloadAfter != 0 {
			return field(at+".hold", "sleep needs the longest time that a request is held, such as 5m")
		}
		return nil
	}
	switch {
	case s.Hold < 0 || s.Hold > maxHold:
		return field(at+".hold", "%s: expected a time up to %s", s.Hold, maxHold)
	case s.HoldMiB < 0 || s.HoldMiB > maxHoldMiB:
		return field(at+".hold_mib", "%d: expected 1 to %d", s.HoldMiB, maxHoldMiB)
	case len(s.WakeCommand) > 0 && s.WakeURL != "":
		return field(at+".wake_url", "a pool has wake_command or wake_url, and not both")
	case len(s.WakeCommand) > 0 && s.WakeCommand[0] == "":
		return field(at+".wake_command", "the command is empty")
	case s.UnloadAfter < 0 || s.UnloadAfter > 0 && s.Unload == "":
		return field(at+".unload_after", "%s: it needs unload, and a time over 0", s.UnloadAfter)
	case s.Unload != "" && unloaders[s.Unload] == nil:
		return field(at+".unload", "%q: expected llama.cpp, ollama or triton", s.Unload)
	case s.Unload != "" && len(models) == 0:
		return field(at+".unload", "the pool names no models: set models, so that they can be loaded again")
	}
	if s.WakeURL != "" {
		if u, err := url.Parse(s.WakeURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return field(at+".wake_url", "%q: expected a URL of http or https", s.WakeURL)
		}
	}
	return nil
}

// sleeper holds the requests of one pool while none of its servers can take them.
type sleeper struct {
	mu     sync.Mutex
	held   map[modelKey]int
	count  int
	bytes  int64
	waking *waking // nil while no request waits for a server to wake
	wakes  int64
	// starts are measured cold starts, the newest last.
	starts []time.Duration
	// drained has the servers that get no requests for the sake of their scaler, with the time at which
	// that ends; unloaded has those without their models.
	drained  map[string]time.Time
	unloaded map[string]bool
	quiet    time.Time // since when the pool has had no request
}

// waking is one return of a pool from its sleep.
type waking struct {
	since time.Time
	// cold is set if no server answered at the start, or models were loaded: the time is a cold start.
	cold bool
	// isAccepted is set once a command or call has been accepted.
	isAccepted bool
	retryAt    time.Time
	retry      time.Duration
	abandoned  time.Time // since when no request has been held; zero while one is
	done       chan struct{}
}

func newSleeper(starts []time.Duration, now time.Time) *sleeper {
	return &sleeper{
		held: map[modelKey]int{}, starts: slices.Clone(starts), drained: map[string]time.Time{},
		unloaded: map[string]bool{}, quiet: now,
	}
}

// asleepError is a request that is not held until a server wakes.
type asleepError struct {
	why   string
	retry time.Duration
}

// Error implements error.
func (e *asleepError) Error() string { return "the model server is asleep and was woken: " + e.why }

// coldStarts returns the median and the 95th percentile of the measured cold starts; false without one.
func (s *sleeper) coldStarts() (p50, p95 time.Duration, known bool) {
	if len(s.starts) == 0 {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(s.starts))
	at := func(share float64) time.Duration { return sorted[int(math.Ceil(share*float64(len(sorted))))-1] }
	return at(0.5), at(0.95), true
}

// retryAfter returns the time in which a server is expected, by the slowest of 20 cold starts.
func (s *sleeper) retryAfter(now time.Time) time.Duration {
	_, expected, known := s.coldStarts()
	if !known {
		expected = defaultColdStart
	}
	if s.waking != nil {
		expected -= now.Sub(s.waking.since)
	}
	return max(time.Second, expected)
}

// usable reports whether a server of the pool takes requests.
func (p *pool) usable() bool { return slices.ContainsFunc(p.config.Upstreams, p.takes) }

func (p *pool) takes(upstream string) bool {
	u, _ := parseUpstream(upstream) // Validate has read it
	return p.isHealthy(u.String())
}

// awake returns once a server of the pool can take a request, which is held until then. An error is an
// *asleepError, or the end of the context.
func (p *pool) awake(ctx context.Context, model string, size int64, deadline time.Time) error {
	if p.config.Sleep.Hold == 0 || p.usable() {
		return nil
	}
	now := time.Now()
	until := now.Add(p.config.Sleep.Hold)
	if !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	w, err := p.hold(modelKey{p.name, model}, size, until, now)
	if err != nil {
		return err
	}
	defer p.letGo(modelKey{p.name, model}, size)
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	s := p.sleeper
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.gateway.closing:
		return &asleepError{"the gateway is shutting down", time.Second}
	case <-timer.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		waited := time.Since(now).Round(time.Second)
		return &asleepError{"no server answered in " + waited.String(), s.retryAfter(time.Now())}
	}
}

// hold counts a request as held and begins to wake the pool, or refuses it.
func (p *pool) hold(k modelKey, size int64, until, now time.Time) (*waking, error) {
	s := p.sleeper
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waking == nil {
		s.waking = &waking{since: now, abandoned: now, cold: !p.anyAnswers(), done: make(chan struct{})}
		s.wakes++
		w := s.waking
		p.gateway.o.Log.Info("waking", "pool", p.name, "model", k.model)
		p.gateway.probing.Go(func() { p.gateway.wake(p.name, s, w) })
	}
	limit := int64(p.config.Sleep.HoldMiB) << 20
	if limit == 0 {
		limit = defaultHoldMiB << 20
	}
	retry := s.retryAfter(now)
	if s.bytes+size > limit {
		return nil, &asleepError{fmt.Sprintf("%d MiB of requests wait for it", s.bytes>>20), retry}
	}
	if p50, _, known := s.coldStarts(); known {
		if left := p50 - now.Sub(s.waking.since); now.Add(left).After(until) {
			return nil, &asleepError{"its start takes longer than the deadline", retry}
		}
	}
	s.held[k]++
	s.count, s.bytes = s.count+1, s.bytes+size
	s.waking.abandoned = time.Time{}
	return s.waking, nil
}

// letGo ends the count of a held request.
func (p *pool) letGo(k modelKey, size int64) {
	s := p.sleeper
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.bytes = s.count-1, s.bytes-size
	if s.held[k]--; s.held[k] <= 0 {
		delete(s.held, k)
	}
	if s.count == 0 && s.waking != nil {
		s.waking.abandoned = time.Now()
	}
}

// anyAnswers reports whether a server answers, paused ones included.
func (p *pool) anyAnswers() bool {
	for _, s := range p.queue.Servers() {
		if s.Healthy {
			return true
		}
	}
	return false
}

// wake asks for a server and releases the held requests once one of the pool's can take them.
func (g *Gateway) wake(name string, s *sleeper, w *waking) {
	tick := time.NewTicker(wakeInterval)
	defer tick.Stop()
	defer close(w.done)
	for {
		now := time.Now()
		i := slices.IndexFunc(g.state.Load().pools, func(p *pool) bool { return p.name == name && p.sleeper == s })
		if i < 0 {
			return // a reload removed the pool
		}
		p := g.state.Load().pools[i]
		p.askToWake(g.ctx, w, now)
		p.wakeServers(g.ctx)
		if g.ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		usable := p.usable()
		abandoned := !w.abandoned.IsZero() && now.Sub(w.abandoned) > abandonAfter
		if usable && w.cold {
			s.starts = append(s.starts, time.Since(w.since))
			s.starts = s.starts[max(0, len(s.starts)-keptColdStarts):]
		}
		if usable || abandoned {
			s.waking = nil
		}
		held := s.count
		s.mu.Unlock()
		if usable || abandoned {
			g.o.Log.Info("woken", "pool", name, "after", time.Since(w.since).String(), "held", held, "usable", usable)
			return
		}
		select {
		case <-tick.C:
		case <-g.ctx.Done():
			return
		}
	}
}

// askToWake runs the command or makes the call that starts a server, once for each sleep; one that
// failed is repeated while no server answers.
func (p *pool) askToWake(ctx context.Context, w *waking, now time.Time) {
	c := p.config.Sleep
	if w.isAccepted || now.Before(w.retryAt) || len(c.WakeCommand) == 0 && c.WakeURL == "" || p.anyAnswers() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	var err error
	if c.WakeURL != "" {
		err = p.postWake(ctx, c.WakeURL)
	} else {
		err = p.gateway.o.Run(ctx, p.name, c.WakeCommand)
	}
	if err == nil {
		w.isAccepted = true
		return
	}
	w.retry = min(max(2*w.retry, firstWakeRetry), maxWakeRetry)
	w.retryAt = time.Now().Add(w.retry)
	p.gateway.o.Log.Error("the pool was not woken", "pool", p.name, "retry_in", w.retry.String(), "error", err.Error())
}

// maxWakeAnswer bounds what is read of the answer to a call.
const maxWakeAnswer = 4 << 10

func (p *pool) postWake(ctx context.Context, to string) error {
	body, err := json.Marshal(map[string]string{"pool": p.name})
	if err != nil {
		return err
	}
	return p.postJSON(ctx, to, body)
}

// postJSON posts a document and reads no more than the status.
func (p *pool) postJSON(ctx context.Context, to string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post to %s: %w", to, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "curfew-gateway")
	resp, err := p.gateway.o.Transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("post to %s: %w", to, err)
	}
	defer func() { _ = resp.Body.Close() }() // the status is all
	start, _ := io.ReadAll(io.LimitReader(resp.Body, maxWakeAnswer))
	if resp.StatusCode >= 300 {
		return fmt.Errorf("post to %s: it answered %s: %.200s", to, resp.Status, bytes.TrimSpace(start))
	}
	return nil
}

// refuseAsleep answers a request that was not held, or was held in vain.
func (g *Gateway) refuseAsleep(w http.ResponseWriter, err error) {
	var asleep *asleepError
	if !errors.As(err, &asleep) {
		g.counts.refused("canceled by the caller")
		return
	}
	g.counts.refused("asleep")
	refuse(w, http.StatusServiceUnavailable, asleep.retry, asleep.Error())
}

// keepColdStarts stores the measured cold starts, where there are new ones.
func (g *Gateway) keepColdStarts() {
	if g.o.KeepColdStarts == nil {
		return
	}
	now := g.coldStarts()
	if maps.EqualFunc(now, g.keptStarts, slices.Equal) {
		return
	}
	if err := g.o.KeepColdStarts(now); err != nil {
		g.o.Log.Error("measured cold starts are not kept", "error", err.Error())
		return
	}
	g.keptStarts = now
}

// coldStarts returns the measured cold starts of all pools by name.
func (g *Gateway) coldStarts() map[string][]time.Duration {
	out := map[string][]time.Duration{}
	for _, p := range g.state.Load().pools {
		p.sleeper.mu.Lock()
		if len(p.sleeper.starts) > 0 {
			out[p.name] = slices.Clone(p.sleeper.starts)
		}
		p.sleeper.mu.Unlock()
	}
	return out
}
