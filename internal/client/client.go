// Package client speaks to a service of curfew over its HTTP API. It carries documents and
// decides nothing: which call a command is, is the caller's to say.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/httpclient"
)

// Bounds of calls.
const (
	// DefaultTimeout is how long a call may take, its repetitions included.
	DefaultTimeout = time.Minute
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 512 << 20
	// PageSize is how many items of a collection are asked for at a time.
	PageSize = 1000
	// ClockHeader is the header in which the service says the time that its answer is of.
	ClockHeader = "Curfew-Time"
)

// Options configure a client.
type Options struct {
	// URL is the service: a scheme and a host.
	URL *url.URL
	// Token is the bearer token; empty sends none. It is part of no error.
	Token string
	// Owner is true if Token is an owner token. It goes only to a service on this machine that has
	// proven on the same connection that it knows the token.
	Owner bool
	// Roots are the authorities whose certificates count, as PEM; empty is the system's.
	Roots []byte
	// Timeout is how long a call may take, its repetitions included; 0 is DefaultTimeout.
	Timeout time.Duration
	// Version is that of the program.
	Version string
}

// Client makes calls. It is safe for concurrent use.
type Client struct {
	o    Options
	base string
	http *httpclient.Client
}

// New returns a client of a service. It makes no call.
func New(o Options) (*Client, error) {
	if o.URL == nil || o.URL.Host == "" {
		return nil, errors.New("reach a service: it has no URL")
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(o.Roots) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(o.Roots) {
			return nil, errors.New("reach " + o.URL.String() + ": the file of authorities holds no certificate as PEM")
		}
	}
	c := &Client{o: o, base: o.URL.Scheme + "://" + o.URL.Host}
	options := httpclient.Options{
		TLS:           trust,
		UserAgent:     "curfew/" + o.Version,
		Attempts:      maxAttempts,
		HeaderTimeout: o.Timeout,
		TotalTimeout:  o.Timeout,
		FirstWait:     firstWait,
		MaxWait:       maxWait,
		MaxBody:       maxAnswer,
		WholeBody:     true,
		Retry:         retry,
	}
	if o.Owner {
		options.Connected = c.prove
	}
	c.http = httpclient.New(options)
	return c, nil
}

// Server is the URL of the service: scheme and host.
func (c *Client) Server() string { return c.base }

// Close ends idle connections.
func (c *Client) Close() { c.http.Close() }

// Path is the path of an item: its parts, each escaped, below /api/v1.
func Path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/api/v1")
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// Meta holds the metadata of an answer.
type Meta struct {
	// Next is the cursor of the next page; empty for the last.
	Next string
	// At is the time of the service's state; zero where the answer has none.
	At time.Time
}

// Get reads a document of a schema. The service is asked again where it cannot be reached or
// has no time, within the timeout.
func Get[T any](ctx context.Context, c *Client, schema, path string, q url.Values) (T, Meta, error) {
	var doc T
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	meta, err := c.call(ctx, request{method: http.MethodGet, path: path}, schema, &doc)
	return doc, meta, err
}

// Pages reads every page of a collection: each gets the document of one page. The Meta is that
// of the first.
func Pages[T any](ctx context.Context, c *Client, schema, path string, q url.Values, each func(T) error) (Meta,
	error) {
	asked := url.Values{}
	for k, v := range q {
		asked[k] = v
	}
	asked.Set("limit", fmt.Sprint(PageSize))
	var first Meta
	for n := 0; ; n++ {
		doc, meta, err := Get[T](ctx, c, schema, path, asked)
		if err != nil {
			return first, err
		}
		if n == 0 {
			first = meta
		}
		if err := each(doc); err != nil || meta.Next == "" {
			return first, err
		}
		if meta.Next == asked.Get("cursor") {
			return first, fmt.Errorf("read %s of %s: the next page is the same page", path, c.base)
		}
		asked.Set("cursor", meta.Next)
	}
}

// Post carries something out and returns its document. It is sent under an idempotency key,
// so where the answer is lost it is sent again, and done once.
func Post[T any](ctx context.Context, c *Client, schema, path string, body any) (T, error) {
	var doc T
	_, err := c.call(ctx, request{method: http.MethodPost, path: path, body: body, key: newKey()}, schema, &doc)
	return doc, err
}

// PostOnce is [Post] of what is answered with a secret, which the service does not keep: where
// the answer is lost it is not sent again.
func PostOnce[T any](ctx context.Context, c *Client, schema, path string, body any) (T, error) {
	var doc T
	_, err := c.call(ctx, request{method: http.MethodPost, path: path, body: body}, schema, &doc)
	return doc, err
}

// SignIn sends a proof of identity by AWS and returns what the service answers.
func SignIn[T any](ctx context.Context, c *Client, proof any) (T, error) {
	var doc T
	_, err := c.call(ctx, request{method: http.MethodPost, path: "/auth/aws", body: proof}, "", &doc)
	return doc, err
}

// EndSession revokes the token of the client.
func (c *Client) EndSession(ctx context.Context) error {
	_, err := c.call(ctx, request{method: http.MethodPost, path: "/auth/logout", session: true}, "", nil)
	return err
}

func newKey() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // it never fails
	return hex.EncodeToString(raw)
}

// request is one call, however often it is sent.
type request struct {
	method, path, key string
	body              any
	// session sends the token as browsers do.
	session bool
}

// call sends a request until it is answered, and decodes the document.
func (c *Client) call(ctx context.Context, r request, schema string, doc any) (Meta, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return Meta{}, fmt.Errorf("write the call %s: %w", r.path, err)
		}
	}
	within, stop := context.WithTimeout(ctx, c.o.Timeout)
	defer stop()
	a, err := c.send(within, r, body)
	if ctx.Err() != nil { // the person ended it
		return Meta{}, ctx.Err()
	}
	if err != nil {
		return Meta{}, c.unreached(r, err)
	}
	return c.read(a, schema, doc)
}

// answer is an answer as it came.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one call, as often as it takes.
func (c *Client) send(ctx context.Context, r request, body []byte) (answer, error) {
	var in io.Reader
	if body != nil {
		in = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, in)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case c.o.Token == "":
	case r.session:
		req.AddCookie(&http.Cookie{
			Name: "curfew_session", Value: c.o.Token,
		})
	default:
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	if r.key != "" {
		httpclient.SetKey(req, r.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, text}, err
}

// read decodes what was answered.
func (c *Client) read(a answer, schema string, doc any) (Meta, error) {
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if a.status >= http.StatusMultipleChoices {
		return Meta{}, c.problem(a, kind)
	}
	if doc == nil {
		return Meta{}, nil
	}
	var is struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(a.body, &is); kind != "application/json" || err != nil {
		return Meta{}, c.noService(a, kind)
	}
	if schema != "" && is.Schema != schema {
		return Meta{}, fmt.Errorf(
			"read the answer of %s: its schema is %q and this version reads %q: use the version of the service",
			c.base,
			is.Schema, schema)
	}
	if err := json.Unmarshal(a.body, doc); err != nil {
		return Meta{}, fmt.Errorf("read the answer of %s: %s", c.base, c.hidden(err.Error()))
	}
	m := Meta{Next: a.header.Get("Next-Cursor")}
	if at, err := time.Parse(time.RFC3339Nano, a.header.Get(ClockHeader)); err == nil {
		m.At = at.UTC()
	}
	return m, nil
}

// hidden is a text without the token.
func (c *Client) hidden(text string) string {
	if c.o.Token == "" {
		return text
	}
	return strings.ReplaceAll(text, c.o.Token, "[redacted]")
}
