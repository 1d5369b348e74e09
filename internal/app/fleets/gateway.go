package fleets

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/serving"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// gatewayKind is the server of a source of demand that is a gateway.
const gatewayKind = "gateway"

// gatewayReader reads the demand for a pool of a gateway.
type gatewayReader struct {
	name, pool string
	step       time.Duration
	ask        func(ctx context.Context) (*stats.Stats, error)
	drain      func(ctx context.Context, in stats.DrainRequest) (*stats.Drained, error)
}

// newGatewayReader returns the reader of a source; a gateway in serve.gateways is asked with its key.
func newGatewayReader(req *runtime.Request, cfg config.Config, d config.FleetDemand) *gatewayReader {
	g := config.ServedGateway{URL: d.URL}
	same := func(o config.ServedGateway) bool {
		return strings.TrimRight(o.URL, "/") == strings.TrimRight(d.URL, "/")
	}
	if i := slices.IndexFunc(cfg.Serve.Gateways, same); i >= 0 {
		g = cfg.Serve.Gateways[i]
	}
	r := &gatewayReader{name: "gateway " + d.URL, pool: d.Select, step: d.Step}
	if r.step == 0 {
		r.step = fleet.DefaultInterval
	}
	r.ask = func(ctx context.Context) (*stats.Stats, error) { return spend.AskGateway(ctx, req.Fresh(), g) }
	r.drain = func(ctx context.Context, in stats.DrainRequest) (*stats.Drained, error) {
		return spend.DrainGateway(ctx, req.Fresh(), g, in)
	}
	return r
}

// Drain implements drainer.
func (g *gatewayReader) Drain(ctx context.Context, hosts []string, lasts time.Duration) (open int, err error) {
	in := stats.DrainRequest{Pool: g.pool, Hosts: hosts, Seconds: int(lasts / time.Second)}
	out, err := g.drain(ctx, in)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", g.name, err)
	}
	open = out.Waiting
	for _, u := range out.Upstreams {
		open += u.Running
		if !quiet(u) {
			open++ // it says so itself
		}
	}
	return open, nil
}

// Read implements reader. A gateway counts the requests that wait in it as well, so that it knows of
// callers that no replica serves.
func (g *gatewayReader) Read(ctx context.Context, now time.Time) serving.Reading {
	out := serving.Reading{Sample: fleet.Sample{Source: g.name, Step: g.step}}
	told, err := g.ask(ctx)
	if err != nil {
		out.Sample.Problem = err.Error()
		return out
	}
	i := slices.IndexFunc(told.Pools, func(p stats.Pool) bool { return p.Name == g.pool })
	if i < 0 {
		out.Sample.Problem = fmt.Sprintf("it has no pool %q", g.pool)
		return out
	}
	pool := told.Pools[i]
	// The answer is of this moment; the clock of the gateway may differ.
	out.Sample.At, out.Replicas = now, true
	out.Sample.InFlight = inventory.Known(float64(pool.WaitingRequests + pool.RunningRequests))
	rate, rated := 0.0, true
	for _, m := range told.Models {
		if m.Pool != g.pool {
			continue
		}
		if m.Demand.ArrivalsPerSecond == nil {
			rated = false // in its first seconds
			continue
		}
		rate += *m.Demand.ArrivalsPerSecond
	}
	if rated {
		out.Sample.Rate = inventory.Known(rate)
	}
	out.Idle = map[string]bool{}
	for _, u := range pool.Upstreams {
		hosts := []string{u.URL}
		if parsed, err := url.Parse(u.URL); err == nil && parsed.Hostname() != "" {
			hosts = []string{parsed.Hostname(), parsed.Host}
		}
		slices.Sort(hosts)
		for _, host := range slices.Compact(hosts) {
			others, known := out.Idle[host]
			out.Idle[host] = quiet(u) && (others || !known)
		}
		if u.Healthy && !u.Draining {
			out.Servers = append(out.Servers, u.URL)
		}
	}
	return out
}

// quiet reports whether a server has no request, by the gateway and, where it tells, by itself.
func quiet(u stats.Upstream) bool {
	if u.Running > 0 {
		return false
	}
	if u.Server == nil {
		return true
	}
	for _, n := range []*float64{u.Server.Running, u.Server.Waiting} {
		if n != nil && *n > 0 {
			return false
		}
	}
	return true
}
