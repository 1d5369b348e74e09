package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
)

// credentials are headers that are forwarded only where the configuration lists them.
var credentials = []string{"Authorization", "X-Api-Key", "Cookie", "Proxy-Authorization"}

// ownHeaders are those that callers send to the gateway.
var ownHeaders = []string{deadlineHeader, priorityHeader}

// unreached returns a function that reports whether a request goes to another server, because no byte of
// it reached this one: the pool sleeps, or has another server.
func (p *pool) unreached(server string, to *bool) func(error) bool {
	return func(err error) bool {
		var dial *net.OpError
		if !errors.As(err, &dial) || dial.Op != "dial" {
			return false
		}
		p.setHealthy(server, false)
		*to = p.config.Sleep.Hold > 0 || p.usable()
		return *to
	}
}

// proxy returns a reverse proxy to one server. An error for which again, when set, returns true is not
// answered.
func (g *Gateway) proxy(s *state, server string, change func(*http.Response) error,
	again func(error) bool) *httputil.ReverseProxy {
	to, _ := url.Parse(server) // it is in the configuration, which was read
	return &httputil.ReverseProxy{
		Transport: g.o.Transport, FlushInterval: -1, ModifyResponse: change, ErrorLog: nil,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			for _, h := range slices.Concat(credentials, ownHeaders, []string{s.config.OwnerHeader}) {
				if !slices.Contains(s.forward, http.CanonicalHeaderKey(h)) {
					r.Out.Header.Del(h)
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), context.DeadlineExceeded) {
				return // the caller has gone
			}
			if again != nil && r.Context().Err() == nil && again(err) {
				return
			}
			status, message := http.StatusBadGateway, "send to "+server+": "+err.Error()
			if errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(context.Cause(r.Context()), context.DeadlineExceeded) {
				status, message = http.StatusGatewayTimeout, "the upstream did not answer in time"
			}
			refuse(w, status, 0, message)
		},
	}
}

// forward sends a request on as it is.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, s *state, p *pool) {
	if r.Method == http.MethodPost {
		p.asked(time.Now())
		if p.config.Sleep.Hold > 0 {
			g.forwardHeld(w, r, s, p)
			return
		}
	}
	server, ok := p.server(w, r, "", 0, time.Time{})
	if !ok {
		return
	}
	defer p.plain.release(server)
	g.proxy(s, server, nil, nil).ServeHTTP(w, r)
}

// forwardHeld reads a request, so that it can wait for a server of a pool that sleeps, and sends it on.
func (g *Gateway) forwardHeld(w http.ResponseWriter, r *http.Request, s *state, p *pool) {
	body, release, ok := g.readBody(w, r, s)
	if !ok {
		return
	}
	defer release()
	for unreached := true; unreached; {
		server, ok := p.server(w, r, "", int64(len(body)), time.Time{})
		if !ok {
			return
		}
		unreached = false
		next := r.Clone(r.Context())
		next.Body, next.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.TransferEncoding = nil
		g.proxy(s, server, nil, p.unreached(server, &unreached)).ServeHTTP(w, next)
		p.plain.release(server)
	}
}

// sendAlone sends an inference request that shares no batch, with its deadline.
func (g *Gateway) sendAlone(w http.ResponseWriter, r *http.Request, s *state, c *call, body []byte, item *batch.Item) {
	for sent := false; !sent; {
		server, ok := c.pool.server(w, r, c.model, int64(len(body)), item.Deadline)
		if !ok {
			return
		}
		sent = g.sendTo(w, r, s, c, body, item, server)
		c.pool.plain.release(server)
	}
}

// sendTo sends a request to a server. It returns false where no byte of it was sent.
func (g *Gateway) sendTo(w http.ResponseWriter, r *http.Request, s *state, c *call, body []byte, item *batch.Item,
	server string) (sent bool) {
	until := time.Now().Add(c.pool.config.Timeout)
	if !item.Deadline.IsZero() && item.Deadline.Before(until) {
		until = item.Deadline
	}
	ctx, cancel := context.WithDeadline(r.Context(), until)
	defer cancel()
	if c.convert != nil || c.overGRPC {
		return g.exchangeAlone(ctx, w, r, server, c, body)
	}
	r = r.Clone(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil

	work := g.meter.begin(server, []part{{c.account(), int64(c.rows()), c.caller.limit}}, time.Now())
	answered, unreached := false, false
	defer func() {
		g.meter.end(server, work, answered, time.Now())
		switch {
		case answered:
			g.counts.answered(c.pool.name, c.model, time.Since(c.at))
		case !unreached:
			g.counts.failed(c.pool.name, c.model)
		}
		sent = !unreached
	}()
	change := func(resp *http.Response) error {
		if resp.StatusCode != http.StatusOK || c.parsed == nil {
			answered = resp.StatusCode < 300
			return nil
		}
		// A success whose only content is an error is a failure.
		whole, err := readAll(resp, maxAnswer)
		if err != nil {
			return err
		}
		_ = resp.Body.Close() // it was read to its end
		resp.Body = io.NopCloser(bytes.NewReader(whole))
		if isError(whole) {
			resp.StatusCode, resp.Status = http.StatusBadGateway, ""
			return nil
		}
		answered = true
		return nil
	}
	g.proxy(s, server, change, c.pool.unreached(server, &unreached)).ServeHTTP(w, r)
	return true
}

// exchangeAlone exchanges a request that shares no batch by messages, and not by passing it on. It
// returns false where no byte of it was sent.
func (g *Gateway) exchangeAlone(ctx context.Context, w http.ResponseWriter, r *http.Request,
	server string, c *call, body []byte) (sent bool) {
	work := g.meter.begin(server, []part{{c.account(), int64(c.rows()), c.caller.limit}}, time.Now())
	answer, err := c.pool.send(ctx, server, c, body, false)
	g.meter.end(server, work, err == nil, time.Now())
	if err != nil {
		unreached := false
		if ctx.Err() == nil && c.pool.unreached(server, &unreached)(err) {
			return false
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ctx.Err()
		}
		g.fail(w, r, c, err)
		return true
	}
	g.counts.answered(c.pool.name, c.model, time.Since(c.at))
	c.write(w, answer.body)
	return true
}
