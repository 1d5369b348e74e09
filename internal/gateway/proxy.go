package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
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

// proxy returns a reverse proxy to one server.
func (g *Gateway) proxy(s *state, server string, change func(*http.Response) error) *httputil.ReverseProxy {
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
	server, ok := p.server(w, r, "", time.Time{})
	if !ok {
		return
	}
	defer p.plain.release(server)
	g.proxy(s, server, nil).ServeHTTP(w, r)
}

// sendAlone sends an inference request that shares no batch, with its deadline.
func (g *Gateway) sendAlone(w http.ResponseWriter, r *http.Request, s *state, c *call, body []byte, item *batch.Item) {
	server, ok := c.pool.server(w, r, c.model, item.Deadline)
	if !ok {
		return
	}
	defer c.pool.plain.release(server)
	until := time.Now().Add(c.pool.config.Timeout)
	if !item.Deadline.IsZero() && item.Deadline.Before(until) {
		until = item.Deadline
	}
	ctx, cancel := context.WithDeadline(r.Context(), until)
	defer cancel()
	if c.convert != nil || c.overGRPC {
		g.exchangeAlone(ctx, w, r, server, c, body)
		return
	}
	r = r.Clone(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil

	work := g.meter.begin(server, []part{{c.account(), int64(c.rows()), c.caller.limit}}, time.Now())
	answered := false
	defer func() {
		g.meter.end(server, work, answered, time.Now())
		if answered {
			g.counts.answered(c.pool.name, c.model, time.Since(c.at))
		} else {
			g.counts.failed(c.pool.name, c.model)
		}
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
	g.proxy(s, server, change).ServeHTTP(w, r)
}

// exchangeAlone exchanges a request that shares no batch by messages, and not by passing it on.
func (g *Gateway) exchangeAlone(ctx context.Context, w http.ResponseWriter, r *http.Request,
	server string, c *call, body []byte) {
	work := g.meter.begin(server, []part{{c.account(), int64(c.rows()), c.caller.limit}}, time.Now())
	answer, err := c.pool.send(ctx, server, c, body, false)
	g.meter.end(server, work, err == nil, time.Now())
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ctx.Err()
		}
		g.fail(w, r, c, err)
		return
	}
	g.counts.answered(c.pool.name, c.model, time.Since(c.at))
	c.write(w, answer.body)
}
