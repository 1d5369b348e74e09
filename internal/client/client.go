// Package client calls the HTTP API of a curfew service. It transports documents; the caller
// decides which operation to call.
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
	// DefaultTimeout bounds a call, including its retries.
	DefaultTimeout = time.Minute
	// maxAnswer bounds a response body in bytes.
	maxAnswer = 512 << 20
	// PageSize is the number of items requested per page of a collection.
	PageSize = 1000
	// ClockHeader is the response header with the time of the service's state.
	ClockHeader = "Curfew-Time"
)

// Options configure a client.
type Options struct {
	// URL is the URL of the service; only its scheme and host are used.
	URL *url.URL
	// Token is the bearer token; empty sends none. No error contains it.
	Token string
	// Owner marks Token as an owner token. It is sent only to a service on a loopback address that
	// has proven on the same connection that it knows the token.
	Owner bool
	// Roots are the trusted certificate authorities in PEM; empty uses those of the system.
	Roots []byte
	// Timeout bounds a call, including its retries; 0 is DefaultTimeout.
	Timeout time.Duration
	// Version is the program's version, sent in the User-Agent header.
	Version string
}

// Client calls a service. It is safe for concurrent use.
type Client struct {
	o    Options
	base string
	http *httpclient.Client
}

// New returns a client of the service at o.URL. It makes no call.
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

// Server returns the scheme and host of the service.
func (c *Client) Server() string { return c.base }

// Close closes idle connections.
func (c *Client) Close() { c.http.Close() }

// Path joins escaped parts below /api/v1.
func Path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/api/v1")
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// Meta is the metadata of a response.
type Meta struct {
	// Next is the cursor of the next page; empty on the last page.
	Next string
	// At is the time of the service's state; zero if the response has none.
	At time.Time
}

// Get reads a document of the given schema. It retries within the timeout if the service cannot be
// reached or is temporarily unavailable.
func Get[T any](ctx context.Context, c *Client, schema, path string, q url.Values) (T, Meta, error) {
	var doc T
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	meta, err := c.call(ctx, request{method: http.MethodGet, path: path}, schema, &doc)
	return doc, meta, err
}

// Pages reads every page of a collection and calls each with its document. It returns the Meta of
// the first page.
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

// Post calls an operation under an idempotency key and returns its document. If the response is
// lost, the call is retried and takes effect once.
func Post[T any](ctx context.Context, c *Client, schema, path string, body any) (T, error) {
	var doc T
	_, err := c.call(ctx, request{method: http.MethodPost, path: path, body: body, key: newKey()}, schema, &doc)
	return doc, err
}

// PostOnce is [Post] for operations that return a secret, which the service does not store. A call
// whose response is lost is not retried.
func PostOnce[T any](ctx context.Context, c *Client, schema, path string, body any) (T, error) {
	var doc T
	_, err := c.call(ctx, request{method: http.MethodPost, path: path, body: body}, schema, &doc)
	return doc, err
}

// SignIn exchanges a proof of an AWS identity for the service's response.
func SignIn[T any](ctx context.Context, c *Client, proof any) (T, error) {
	var doc T
	_, err := c.call(ctx, request{method: http.MethodPost, path: "/auth/aws", body: proof}, "", &doc)
	return doc, err
}

// EndSession revokes the client's token.
func (c *Client) EndSession(ctx context.Context) error {
	_, err := c.call(ctx, request{method: http.MethodPost, path: "/auth/logout", session: true}, "", nil)
	return err
}

func newKey() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // crypto/rand never fails
	return hex.EncodeToString(raw)
}

// request is one call, including its retries.
type request struct {
	method, path, key string
	body              any
	// session sends the token in the session cookie, as a browser does.
	session bool
}

// call sends a request within the client's timeout and decodes the response into doc.
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
	if ctx.Err() != nil { // canceled by the caller
		return Meta{}, ctx.Err()
	}
	if err != nil {
		return Meta{}, c.unreached(r, err)
	}
	return c.read(a, schema, doc)
}

// answer is a response with its whole body.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one call, including its retries.
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

// read decodes a response into doc, or returns its error.
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

// hidden returns text with the token redacted.
func (c *Client) hidden(text string) string {
	if c.o.Token == "" {
		return text
	}
	return strings.ReplaceAll(text, c.o.Token, "[redacted]")
}
