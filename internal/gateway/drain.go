package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// Bounds of a request to drain.
const (
	maxDrainBody = 1 << 20
	maxDrain     = time.Hour
)

// serveDrain keeps new requests from servers of a pool for some time, and tells how many they still
// have: a scaler ends them at none. Zero seconds give them requests again. It ends by itself for
// servers that end.
func (g *Gateway) serveDrain(w http.ResponseWriter, r *http.Request) {
	var in stats.DrainRequest
	d := json.NewDecoder(io.LimitReader(r.Body, maxDrainBody))
	d.DisallowUnknownFields()
	if r.Method != http.MethodPost {
		refuse(w, http.StatusMethodNotAllowed, 0, "servers are drained by POST")
		return
	}
	if err := d.Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, 0, "read the request: "+err.Error())
		return
	}
	lasts := time.Duration(in.Seconds) * time.Second
	i := slices.IndexFunc(g.state.Load().pools, func(p *pool) bool { return p.name == in.Pool })
	switch {
	case i < 0:
		refuse(w, http.StatusNotFound, 0, fmt.Sprintf("there is no pool %q", in.Pool))
		return
	case in.Seconds < 0 || lasts > maxDrain:
		refuse(w, http.StatusBadRequest, 0, fmt.Sprintf("seconds %d: expected 0 to %d", in.Seconds,
			maxDrain/time.Second))
		return
	}
	b, err := json.Marshal(g.state.Load().pools[i].drain(in.Hosts, lasts, time.Now()))
	if err != nil {
		refuse(w, http.StatusInternalServerError, 0, err.Error())
		return
	}
	write(w, http.StatusOK, b)
}

// drain pauses the servers of some hosts until a time, all without hosts.
func (p *pool) drain(hosts []string, lasts time.Duration, now time.Time) stats.Drained {
	out := stats.Drained{Schema: stats.DrainedSchema, Pool: p.name, Upstreams: []stats.Upstream{}}
	s := p.sleeper
	s.mu.Lock()
	for name, u := range p.urls {
		if len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return isHost(u, h) }) {
			continue
		}
		if lasts > 0 {
			s.drained[name] = now.Add(lasts)
		} else {
			delete(s.drained, name)
		}
		p.queue.SetPaused(name, lasts > 0 || s.unloaded[name])
	}
	s.mu.Unlock()
	p.plain.wake()
	for _, u := range p.upstreams() {
		to := p.urls[u.URL]
		if to == nil || len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return isHost(to, h) }) {
			continue
		}
		out.Upstreams = append(out.Upstreams, u)
		out.Running += u.Running
	}
	out.Waiting, _, _ = p.queue.Queued()
	out.Waiting += p.plain.waits()
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Waiting += s.count
	return out
}

// isHost reports whether a URL is of a host, or of a host with a port.
func isHost(u *url.URL, host string) bool { return u.Hostname() == host || u.Host == host }

// endDrains gives servers requests again whose time is over.
func (p *pool) endDrains(now time.Time) {
	s := p.sleeper
	s.mu.Lock()
	for name, until := range s.drained {
		if now.After(until) {
			delete(s.drained, name)
			p.queue.SetPaused(name, s.unloaded[name])
		}
	}
	s.mu.Unlock()
	p.plain.wake()
}

// ended forgets the drain of a server that does not answer any more.
func (p *pool) ended(server string) {
	s := p.sleeper
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, drained := s.drained[server]; drained {
		delete(s.drained, server)
		p.queue.SetPaused(server, s.unloaded[server])
	}
}
