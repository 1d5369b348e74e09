package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Times of health checks.
const (
	healthInterval = 2 * time.Second
	healthTimeout  = 2 * time.Second
)

// watch asks the servers for their health until the context ends.
func (g *Gateway) watch(ctx context.Context) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var all sync.WaitGroup
		for _, p := range g.state.Load().pools {
			for server := range p.urls {
				all.Go(func() { p.check(ctx, server) })
			}
		}
		all.Wait()
		now := time.Now()
		for _, p := range g.state.Load().pools {
			p.endDrains(now)
			p.noteUse(now)
			p.unloadIdle(ctx, now)
		}
		g.meter.tick(now)
		g.keepUsage()
		g.keepColdStarts()
		g.keepUnits(now, keepUnitsInterval)
	}
}

// check asks a server for its health, unless it works on a request of this gateway, which shows it.
func (p *pool) check(ctx context.Context, server string) {
	if !p.isHealthy(server) || !p.busy(server) {
		if healthy := p.healthy(ctx, server); ctx.Err() == nil {
			p.setHealthy(server, healthy)
		}
	}
	if p.plain.watched() {
		load, err := p.readLoad(ctx, server)
		if err != nil {
			load = nil // without metrics the limit of the configuration counts
		}
		p.plain.adjust(server, load)
	}
	p.plain.wake()
}

// setHealthy records the health of a server, and logs changes.
func (p *pool) setHealthy(server string, healthy bool) {
	for _, s := range p.queue.Servers() {
		if s.Name == server && s.Healthy != healthy {
			p.gateway.o.Log.Info("upstream health changed", "pool", p.name, "upstream", server, "healthy", healthy)
			p.countServer(server, healthy)
		}
	}
	if !healthy {
		p.ended(server)
	}
	p.queue.SetHealthy(server, healthy)
}

// healthy reports whether a server answers. One without the path of the health check answers
// 404, which is an answer; one that is loading a model answers 503. A busy server that takes a
// connection and does not answer in time counts as healthy: some infer and answer in one thread.
func (p *pool) healthy(ctx context.Context, server string) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if p.grpc {
		_, err := p.callGRPC(ctx, server, "ServerLive", nil, nil)
		var answered *upstreamError
		return err == nil || errors.As(err, &answered) && answered.status != http.StatusServiceUnavailable ||
			ctx.Err() != nil && p.busy(server)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+p.config.HealthPath, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := p.gateway.o.Transport.RoundTrip(req)
	if err != nil {
		return ctx.Err() != nil && p.busy(server)
	}
	_ = resp.Body.Close() // the status is all
	return resp.StatusCode < 500
}

// countServer starts or ends the meter of a server: one of a pool that sleeps costs nothing while it
// does not answer.
func (p *pool) countServer(server string, runs bool) {
	switch {
	case p.config.Sleep.Hold == 0:
	case runs:
		p.gateway.meter.add(server, p.name, p.price.Hourly, p.price.Unknown, time.Now())
	default:
		p.gateway.meter.remove(server, time.Now())
	}
}

// busy reports whether a server works on a request of this gateway.
func (p *pool) busy(server string) bool {
	for _, s := range p.queue.Servers() {
		if s.Name == server && s.Running > 0 {
			return true
		}
	}
	return p.plain.count(server) > 0
}

// urlPath escapes a part of a path.
func urlPath(part string) string { return url.PathEscape(part) }
