package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/gateway/protocol"
)

// openAIPaths are the paths of the OpenAI API that model servers batch by themselves.
var openAIPaths = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings"}

func openAIPath(path string) bool { return slices.Contains(openAIPaths, path) }

// completion is one request to an OpenAI-compatible path.
type completion struct {
	*protocol.Completion
	caller caller
	pool   *pool
	server string
	work   *work
	at     time.Time
	// begun is the server as this request began there.
	begun begun
}

func (c *completion) account() account { return account{c.pool.name, c.Model, c.caller.owner} }

// serveOpenAI passes a completion on. Its bytes are not changed, but for the usage that the
// gateway asks of streams.
func (g *Gateway) serveOpenAI(w http.ResponseWriter, r *http.Request, s *state, who caller) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		refuse(w, http.StatusUnsupportedMediaType, 0,
			fmt.Sprintf("Content-Encoding %q is not supported: send the body as it is", e))
		return
	}
	if !g.budget(w, who) {
		return
	}
	body, release, ok := g.readBody(w, r, s)
	if !ok {
		return
	}
	defer release()
	parsed, err := protocol.ParseCompletion(body)
	if err != nil {
		g.counts.refused("malformed")
		refuse(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	item := &batch.Item{}
	if !g.readSchedule(w, r, item) {
		return
	}
	c := &completion{Completion: parsed, caller: who, pool: s.pool(parsed.Model), at: time.Now()}
	switch {
	case !who.may(c.Model):
		g.counts.refused("model not allowed")
		refuse(w, http.StatusForbidden, 0, fmt.Sprintf("the API key is not for model %q", c.Model))
		return
	case c.pool == nil:
		refuse(w, http.StatusNotFound, 0, fmt.Sprintf("no pool serves model %q", c.Model))
		return
	}
	if c.pool.grpc {
		refuse(w, http.StatusNotImplemented, 0, "the model server speaks gRPC, which has no completions")
		return
	}
	g.counts.arrive(c.pool.name, c.Model, 1, c.at)
	c.pool.plain.watch()
	c.pool.asked(c.at)
	if parsed.Stream && !s.config.Shadow {
		body = parsed.WithUsage()
	}
	for sent := false; !sent; {
		if c.server, ok = c.pool.server(w, r, c.Model, int64(len(body)), item.Deadline); !ok {
			return
		}
		sent = g.complete(w, r, s, c, body, item.Deadline)
		c.pool.plain.release(c.server)
	}
}

// complete exchanges a completion with its server. It returns false where no byte of it was sent.
func (g *Gateway) complete(w http.ResponseWriter, r *http.Request, s *state, c *completion, body []byte,
	deadline time.Time) (sent bool) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	silent := time.AfterFunc(c.pool.silence, func() { cancel(context.DeadlineExceeded) })
	defer silent.Stop()
	if !deadline.IsZero() {
		late := time.AfterFunc(time.Until(deadline), func() { cancel(context.DeadlineExceeded) })
		defer late.Stop()
	}
	r = r.Clone(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	start := time.Now()
	c.begun = c.pool.plain.begin(c.server, start)
	c.work = g.meter.begin(c.server, []part{{c.account(), 1, c.caller.limit}}, start)
	tap := &usageTap{
		read:   func() { silent.Reset(c.pool.silence) },
		first:  func() { g.meter.firstToken(c.server, c.work, time.Now()) },
		events: protocol.Events{Remove: c.Stream && !c.WantsUsage && !s.config.Shadow},
	}
	answered, unreached := false, false
	defer func() {
		now := time.Now()
		sent = !unreached
		g.meter.end(c.server, c.work, answered && tap.ended(), now)
		if unreached {
			return
		}
		usage, told := tap.usage()
		g.meter.tokens(c.account(), c.work, usage.Input, usage.Output, told || !answered, now)
		c.caller.limit.charge(now, 0, usage.Input+usage.Output)
		if answered && tap.ended() {
			g.counts.answered(c.pool.name, c.Model, now.Sub(c.at))
			c.pool.plain.measure(c.server, c.Model, c.begun, now)
		} else {
			g.counts.failed(c.pool.name, c.Model)
		}
	}()
	change := func(resp *http.Response) error {
		tap.stream = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
		if resp.StatusCode < 300 {
			if err := refuseError(resp, tap.stream); err != nil {
				return err
			}
		}
		answered = resp.StatusCode < 300
		tap.from = resp.Body
		if tap.stream = tap.stream && answered; tap.stream && tap.events.Remove {
			resp.Header.Del("Content-Length") // an event is taken out
		}
		resp.Body = tap
		return nil
	}
	g.proxy(s, c.server, change, c.pool.unreached(c.server, &unreached)).ServeHTTP(w, r)
	return true
}

// refuseError turns a success whose only content is an error into a failure. It reads a whole answer up
// to maxUsage, so that one that is cut off is a failure too, and of a stream the first event.
func refuseError(resp *http.Response, stream bool) error {
	body := resp.Body
	var start []byte
	var err error
	if stream {
		start, err = protocol.FirstEvent(body)
	} else {
		start, err = io.ReadAll(io.LimitReader(body, maxUsage))
	}
	if err != nil {
		_ = body.Close() // the answer is broken
		return fmt.Errorf("read the answer: %w", err)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), body), body}
	content := start
	if stream {
		content = protocol.EventData(start)
	}
	if len(start) == maxUsage || !isError(content) {
		return nil
	}
	_ = body.Close() // its error is known
	resp.StatusCode, resp.Status, resp.Body = http.StatusBadGateway, "", io.NopCloser(bytes.NewReader(content))
	resp.Header.Set("Content-Type", "application/json")
	resp.Header.Set("Content-Length", strconv.Itoa(len(content)))
	resp.ContentLength = int64(len(content))
	return nil
}

// maxUsage bounds an answer whose usage is read.
const maxUsage = 16 << 20

// usageTap reads the usage out of an answer that passes.
type usageTap struct {
	from     io.ReadCloser
	read     func() // a part of the answer has come
	first    func() // the stream's first bytes have come; nil after that
	stream   bool
	events   protocol.Events
	whole    []byte
	over     bool // the answer is too large to be read for its usage
	complete bool // the answer came to its end
	pending  []byte
	piece    [16 << 10]byte
}

// Read implements io.Reader.
func (t *usageTap) Read(p []byte) (int, error) {
	for len(t.pending) == 0 {
		n, err := t.from.Read(t.piece[:])
		t.read()
		switch {
		case t.stream:
			if t.first != nil && n > 0 {
				t.first()
				t.first = nil
			}
			t.pending = t.events.Next(t.piece[:n])
		default:
			t.pending = t.piece[:n]
			if t.over = t.over || len(t.whole)+n > maxUsage; !t.over {
				t.whole = append(t.whole, t.piece[:n]...)
			}
		}
		if err == nil {
			continue
		}
		t.complete = err == io.EOF
		if t.stream {
			t.pending = append(t.pending, t.events.Rest()...)
		}
		t.from = failing{t.from, err}
		if len(t.pending) == 0 {
			return 0, err
		}
	}
	n := copy(p, t.pending)
	t.pending = t.pending[n:]
	return n, nil
}

// ended reports whether the answer came to its end without an error.
func (t *usageTap) ended() bool { return t.complete && !t.events.Failed }

// Close implements io.Closer.
func (t *usageTap) Close() error { return t.from.Close() }

// usage returns what the answer told; false where it did not.
func (t *usageTap) usage() (protocol.Usage, bool) {
	if t.stream {
		return t.events.Usage, t.events.Told
	}
	if t.over || !t.complete {
		return protocol.Usage{}, false
	}
	return protocol.ReadUsage(t.whole)
}

// failing is a body that has ended.
type failing struct {
	io.Closer
	err error
}

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
