package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/gateway/protocol"
)

// Headers that callers set.
const (
	deadlineHeader = "Curfew-Deadline"
	priorityHeader = "Curfew-Priority"
	binaryHeader   = "Inference-Header-Content-Length"
)

// maxAnswer bounds the answer to a batch.
const maxAnswer = 256 << 20

// call is one inference request.
type call struct {
	caller  caller
	pool    *pool
	codec   protocol.Codec
	model   string
	version string
	path    string // of the model server
	parsed  *protocol.Request
	headers http.Header // those that are forwarded
	at      time.Time
	// convert turns the server's answer into that of the caller's protocol; nil changes nothing.
	convert func([]byte) ([]byte, error)
	// overGRPC is true where the caller speaks gRPC.
	overGRPC bool
}

func (c *call) account() account { return account{c.pool.name, c.model, c.caller.owner} }

// route sends a request where its path leads.
func (g *Gateway) route(w http.ResponseWriter, r *http.Request, s *state, c caller) {
	codec, model, version := inferencePath(r)
	if model == "" {
		model = modelOf(r.URL.Path)
	}
	if codec == nil && strings.HasPrefix(r.URL.Path, "/v1/") && r.Method == http.MethodPost && openAIPath(r.URL.Path) {
		g.serveOpenAI(w, r, s, c)
		return
	}
	if strings.HasPrefix(r.URL.Path, grpcService) {
		g.serveGRPC(w, r, s, c)
		return
	}
	p := s.pool(model)
	switch {
	case model == "" && len(c.models) > 0 && r.URL.Path != "/v2" && !strings.HasPrefix(r.URL.Path, "/v2/health/"):
		refuse(w, http.StatusForbidden, 0, "the API key is for models "+strings.Join(c.models, ", "))
		return
	case model != "" && !c.may(model):
		g.counts.refused("model not allowed")
		refuse(w, http.StatusForbidden, 0, fmt.Sprintf("the API key is not for model %q", model))
		return
	case p == nil && len(s.pools) > 0 && model == "":
		p = s.pools[0]
	case p == nil:
		refuse(w, http.StatusNotFound, 0, fmt.Sprintf("no pool serves model %q", model))
		return
	}
	if codec == nil || r.Method != http.MethodPost {
		if !g.mayForward(w, r, c) {
			return
		}
		if p.grpc {
			g.askREST(w, r, p)
			return
		}
		g.forward(w, r, s, p)
		return
	}
	if !g.budget(w, c) {
		return
	}
	g.infer(w, r, s, &call{
		caller: c, pool: p, codec: codec, model: model, version: version, path: r.URL.EscapedPath(), at: time.Now(),
	})
}

// mayForward refuses what a key may not do by a path that the gateway does not understand.
func (g *Gateway) mayForward(w http.ResponseWriter, r *http.Request, c caller) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	reason := ""
	switch {
	case strings.HasPrefix(r.URL.Path, "/v2/repository/") && !c.admin:
		reason = "loading and unloading models needs an API key with admin: true"
	case c.limit != nil:
		reason = "the API key has a budget, and what this path uses is not counted"
	default:
		return true
	}
	g.counts.refused("path not allowed")
	refuse(w, http.StatusForbidden, 0, reason)
	return false
}

// inferencePath reads the path of an inference request; the codec is nil for others.
func inferencePath(r *http.Request) (protocol.Codec, string, string) {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if len(parts) < 3 || parts[1] != "models" {
		return nil, "", ""
	}
	last := len(parts) - 1
	var codec protocol.Codec
	switch parts[0] {
	case "v2":
		if parts[last] != "infer" {
			return nil, "", ""
		}
		codec, parts = protocol.V2{}, parts[:last]
	case "v1":
		name, predict := strings.CutSuffix(parts[last], ":predict")
		if !predict {
			return nil, "", ""
		}
		codec, parts[last] = protocol.V1{}, name
	default:
		return nil, "", ""
	}
	model, err := url.PathUnescape(parts[2])
	switch {
	case err != nil || model == "":
		return nil, "", ""
	case len(parts) == 3:
		return codec, model, ""
	case len(parts) == 5 && parts[3] == "versions":
		if version, err := url.PathUnescape(parts[4]); err == nil {
			return codec, model, version
		}
	}
	return nil, "", ""
}

// modelOf returns the model that any other path of the protocols names.
func modelOf(path string) string {
	for _, prefix := range []string{"/v2/models/", "/v1/models/", "/v2/repository/models/"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			name, _, _ := strings.Cut(rest, "/")
			name, _, _ = strings.Cut(name, ":")
			return name
		}
	}
	return ""
}

// infer answers an inference request, in a batch where that is proven to change no answer.
func (g *Gateway) infer(w http.ResponseWriter, r *http.Request, s *state, c *call) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		g.counts.refused("content encoding")
		refuse(w, http.StatusUnsupportedMediaType, 0,
			"Content-Encoding "+strconv.Quote(e)+" is not supported: send the body as it is")
		return
	}
	body, release, ok := g.readBody(w, r, s)
	if !ok {
		return
	}
	defer release()
	if c.pool.grpc {
		g.inferToGRPC(w, r, s, c, body)
		return
	}
	g.answer(w, r, s, c, body)
}

// answer answers an inference request whose body was read.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, s *state, c *call, body []byte) {
	item := &batch.Item{Bytes: int64(len(body)), Payload: c}
	if !g.readSchedule(w, r, item) {
		return
	}
	reason := ""
	switch {
	case r.Header.Get(binaryHeader) != "":
		reason = "binary tensor extension"
	case r.URL.RawQuery != "":
		reason = "the request has a query"
	default:
		var err error
		if c.parsed, err = c.codec.Parse(body); err != nil {
			g.counts.refused("malformed")
			refuse(w, http.StatusBadRequest, 0, err.Error())
			return
		}
		reason = c.parsed.Reason
	}
	g.counts.arrive(c.pool.name, c.model, c.rows(), c.at)
	c.pool.asked(c.at)
	if err := c.pool.awake(r.Context(), c.model, item.Bytes, item.Deadline); err != nil {
		g.refuseAsleep(w, err)
		return
	}
	if c.parsed != nil && reason == "" {
		reason = c.pool.provenReason(r.Context(), c)
	}
	if s.config.Shadow {
		g.shadow(w, r, s, c, body, reason)
		return
	}
	if reason != "" {
		g.counts.passed(c.pool.name, c.model, reason)
		g.sendAlone(w, r, s, c, body, item)
		return
	}
	if c.parsed.Rows > c.pool.config.MaxBatch {
		g.counts.refused("too many rows")
		refuse(w, http.StatusRequestEntityTooLarge, 0,
			fmt.Sprintf("the request has %d rows and a batch at most %d: divide it",
				c.parsed.Rows, c.pool.config.MaxBatch))
		return
	}
	c.headers = http.Header{}
	for _, h := range s.forward {
		if v := r.Header.Values(h); len(v) > 0 {
			c.headers[h] = v
		}
	}
	item.Model, item.Rows = c.model+versionSuffix(c.version), c.parsed.Rows
	item.Key = batchKey(c)
	g.answerInBatch(w, r, c, item)
}

// answerInBatch answers a request that may share a batch.
func (g *Gateway) answerInBatch(w http.ResponseWriter, r *http.Request, c *call, item *batch.Item) {
	answer, err := c.pool.queue.Do(r.Context(), item)
	for {
		closed := errors.Is(err, batch.ErrClosed) && !g.draining.Load()
		if !closed && !c.pool.unsent(err) {
			break
		}
		// A reload removed the pool after this request had found it, or its last server went to sleep.
		if c.pool = g.state.Load().pool(c.model); c.pool == nil {
			refuse(w, http.StatusNotFound, 0, fmt.Sprintf("no pool serves model %q", c.model))
			return
		}
		if err := c.pool.awake(r.Context(), c.model, item.Bytes, item.Deadline); err != nil {
			g.refuseAsleep(w, err)
			return
		}
		answer, err = c.pool.queue.Do(r.Context(), item.Again())
	}
	if err != nil {
		g.fail(w, r, c, err)
		return
	}
	g.counts.answered(c.pool.name, c.model, time.Since(c.at))
	c.write(w, answer.([]byte))
}

// unsent reports whether a pool that sleeps had no server for a request, no byte of which was sent.
func (p *pool) unsent(err error) bool {
	var unsent *batch.NotSentError
	return p.config.Sleep.Hold > 0 && (errors.Is(err, batch.ErrNoServer) || errors.As(err, &unsent))
}

// write answers the caller.
func (c *call) write(w http.ResponseWriter, answer []byte) {
	if c.convert != nil {
		var err error
		if answer, err = c.convert(answer); err != nil {
			refuse(w, http.StatusBadGateway, 0, "the upstream's answer: "+err.Error())
			return
		}
	}
	write(w, http.StatusOK, answer)
}

// rows returns the rows of a request, 1 where they cannot be counted.
func (c *call) rows() int {
	if c.parsed == nil || c.parsed.Rows == 0 {
		return 1
	}
	return c.parsed.Rows
}

func versionSuffix(version string) string {
	if version == "" {
		return ""
	}
	return "@" + version
}

// batchKey returns what the requests of one batch have in common: path with model and version,
// tensors, parameters and forwarded headers.
func batchKey(c *call) string {
	var b strings.Builder
	b.WriteString(c.path)
	b.WriteByte(0)
	b.WriteString(c.parsed.Key)
	for _, h := range sortedKeys(c.headers) {
		fmt.Fprintf(&b, "\x00%s:%q", h, c.headers[h])
	}
	return b.String()
}

// readSchedule reads the deadline and the priority of a request.
func (g *Gateway) readSchedule(w http.ResponseWriter, r *http.Request, item *batch.Item) bool {
	if nanoseconds, ok := protocol.GRPCTimeout(r.Header.Get("Grpc-Timeout")); ok {
		item.Deadline = time.Now().Add(time.Duration(nanoseconds))
	}
	if text := r.Header.Get(deadlineHeader); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			refuse(w, http.StatusBadRequest, 0,
				fmt.Sprintf("%s %q: expected a duration from now, such as 200ms", deadlineHeader, text))
			return false
		}
		item.Deadline = time.Now().Add(d)
	}
	if text := r.Header.Get(priorityHeader); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 9 {
			refuse(w, http.StatusBadRequest, 0,
				fmt.Sprintf("%s %q: expected 0 to 9, 9 is the most urgent", priorityHeader, text))
			return false
		}
		item.Priority = n
	}
	return true
}

// exchanged is the answer of a model server to a batch.
type exchanged struct{ body []byte }

// upstreamError is an answer of a model server that is no success.
type upstreamError struct {
	status int
	body   []byte
	header http.Header
	shared bool // several requests were in the batch
}

// Error implements error.
func (e *upstreamError) Error() string {
	return fmt.Sprintf("the upstream answered %d: %.200s", e.status, bytes.TrimSpace(e.body))
}

// brokenError is an answer that does not say what it must.
type brokenError struct{ err error }

// Error implements error.
func (e *brokenError) Error() string { return "the upstream's answer: " + e.err.Error() }

// exchange sends a batch to a server and reads the whole answer.
func (p *pool) exchange(ctx context.Context, server string, items []*batch.Item) (any, error) {
	first := items[0].Payload.(*call)
	requests := make([]*protocol.Request, len(items))
	parts := make([]part, len(items))
	for i, it := range items {
		c := it.Payload.(*call)
		requests[i] = c.parsed
		parts[i] = part{account: c.account(), rows: int64(it.Rows), limit: c.caller.limit}
	}
	m := p.gateway.meter
	work := m.begin(server, parts, time.Now())
	answer, err := p.send(ctx, server, first, first.codec.Merge(requests), len(items) > 1)
	m.end(server, work, err == nil, time.Now())
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// send posts a body to a model server.
func (p *pool) send(ctx context.Context, server string, c *call, body []byte, shared bool) (*exchanged, error) {
	if p.grpc {
		answer, err := p.callGRPC(ctx, server, "ModelInfer", body, c.headers)
		var upstream *upstreamError
		if errors.As(err, &upstream) {
			upstream.shared = shared
		}
		if err != nil {
			return nil, err
		}
		return &exchanged{body: answer}, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+c.path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("send to %s: %w", server, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "curfew-gateway")
	for h, v := range c.headers {
		req.Header[h] = v
	}
	resp, err := p.gateway.o.Transport.RoundTrip(req)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return nil, &batch.NotSentError{Err: fmt.Errorf("connect to %s: %w", server, err)}
		}
		return nil, fmt.Errorf("send to %s: %w", server, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	answer, err := readAll(resp, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", server, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &upstreamError{resp.StatusCode, answer, resp.Header, shared}
	}
	return &exchanged{body: answer}, nil
}

func readAll(resp *http.Response, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= limit {
		b.Grow(int(min(n, 4<<20)) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(resp.Body, limit+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, fmt.Errorf("it is larger than %d MiB", limit>>20)
	}
	return b.Bytes(), nil
}

// divide turns the answer to a batch into the answers to its requests.
func (p *pool) divide(items []*batch.Item, answer any) ([]any, error) {
	requests := make([]*protocol.Request, len(items))
	for i, it := range items {
		requests[i] = it.Payload.(*call).parsed
	}
	first := items[0].Payload.(*call)
	parts, err := first.codec.Split(requests, answer.(*exchanged).body)
	if err != nil {
		if len(items) > 1 {
			if _, known := p.unbatchable.LoadOrStore(first.model, err.Error()); !known {
				p.gateway.o.Log.Warn("model is no longer batched", "pool", p.name, "model",
					first.model, "error", err.Error())
			}
		}
		return nil, &brokenError{err}
	}
	out := make([]any, len(parts))
	for i, b := range parts {
		out[i] = b
	}
	return out, nil
}

// fail tells a caller why there is no answer.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, c *call, err error) {
	status, retry, reason := http.StatusBadGateway, time.Duration(0), "upstream failed"
	message := err.Error()
	var late *batch.LateError
	var upstream *upstreamError
	switch {
	case r.Context().Err() != nil && !errors.As(err, &late):
		g.counts.refused("canceled by the caller")
		return
	case errors.As(err, &late):
		reason, status, retry = "deadline", http.StatusServiceUnavailable, max(time.Second, late.Expected)
		if late.Expected == 0 {
			status = http.StatusGatewayTimeout
		}
	case errors.Is(err, batch.ErrQueueFull):
		reason, status, retry = "queue full", http.StatusTooManyRequests, time.Second
	case errors.Is(err, batch.ErrNoServer), errors.Is(err, batch.ErrClosed):
		reason, status, retry = "no upstream", http.StatusServiceUnavailable, time.Second
	case errors.Is(err, context.DeadlineExceeded):
		status, message = http.StatusGatewayTimeout, "the upstream did not answer in time"
	case errors.As(err, &upstream):
		if !upstream.shared {
			copyAnswer(w, upstream)
			g.counts.failed(c.pool.name, c.model)
			return
		}
		if upstream.status >= 500 {
			status = upstream.status
		}
		message = "the batch of this request failed: " + message
	}
	if reason == "upstream failed" {
		g.counts.failed(c.pool.name, c.model)
	} else {
		g.counts.refused(reason)
	}
	refuse(w, status, retry, message)
}

// copyAnswer hands the answer to a request that was alone in its batch to its caller.
func copyAnswer(w http.ResponseWriter, e *upstreamError) {
	for _, h := range []string{"Content-Type", "Retry-After"} {
		if v := e.header.Get(h); v != "" {
			w.Header().Set(h, v)
		}
	}
	status := e.status
	if status < 300 {
		status = http.StatusBadGateway // a success without an answer is none
	}
	w.WriteHeader(status)
	_, _ = w.Write(e.body) // who does not read it has gone
}
