// Package httpapi sends instant queries to servers with Prometheus's HTTP API
// (https://prometheus.io/docs/prometheus/latest/querying/api/): Prometheus, VictoriaMetrics,
// Thanos, Mimir, Amazon Managed Prometheus. It never writes to a server.
package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/plain"
)

const (
	// Attempts is the number of attempts if a server is busy or unreachable.
	Attempts = 4
	// LongestWait bounds the wait before another attempt, even if the server asks for more.
	LongestWait = 30 * time.Second
	// MaxMessage is the maximum length, in characters, of a server's message in an error.
	MaxMessage = 300
	// maxRefusal is the maximum number of bytes read of an error response.
	maxRefusal = 64 << 10
	// MaxSkew is the maximum clock difference to a server: two scrapes of a slow job.
	MaxSkew = 2 * time.Minute
)

// Access is the address of a server and the credentials of the reader. Secrets are sent only over
// https or to loopback.
type Access struct {
	// URL is the server's address without /api/v1: "http://prometheus:9090",
	// "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1".
	URL string
	// Token is a bearer token; User and Password are for basic authentication.
	Token, User, Password string
	// Headers are sent with every request: X-Scope-OrgID names a tenant of Mimir.
	Headers map[string]string
	// TLS holds the client certificate and the trusted authorities; nil means the system's.
	TLS *tls.Config
	// Sign signs a request whose body has the given SHA-256, as AWS requires; nil for no signature.
	Sign func(ctx context.Context, r *http.Request, bodySHA256 string) error
	// Timeout bounds each query; zero means the caller's default.
	Timeout time.Duration
	// Now is the clock of this machine; nil disables the comparison of clocks.
	Now func() time.Time
	// Transport sends requests and Wait waits between attempts; nil: as [httpclient.New] does.
	Transport http.RoundTripper
	Wait      func(ctx context.Context, d time.Duration) error
}

// Limits bound one response.
type Limits struct {
	// Bytes bounds the uncompressed size, Series the number of series.
	Bytes  int64
	Series int
}

// Client queries one server.
type Client struct {
	access Access
	limits Limits
	host   string
	http   *httpclient.Client

	queries, bytes atomic.Int64
}

// New returns a client. It makes no request. Errors contain neither secrets nor the URL.
func New(a Access, l Limits) (*Client, error) {
	u, err := url.Parse(a.URL)
	word := func(s string) bool {
		separates := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
		return !strings.ContainsFunc(s, separates)
	}
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the server's address is no URL such as http://prometheus:9090")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the address of %s may hold no user, query or fragment; configure credentials instead",
			u.Host)
	case !word(a.Token):
		return nil, fmt.Errorf("the token for %s is not one word", u.Host)
	case a.Token != "" && (a.User != "" || a.Sign != nil), a.User != "" && a.Sign != nil:
		return nil, fmt.Errorf("a bearer token, a password and a region of AWS for %s exclude one another", u.Host)
	case u.Scheme == "http" && !local(u.Hostname()) && (a.Token != "" || a.User != "" || a.Sign != nil):
		return nil, fmt.Errorf("http would send the credentials for %s in the clear; use https", u.Host)
	}
	a.URL = strings.TrimRight(a.URL, "/")
	c := &Client{access: a, limits: l, host: u.Host}
	c.http = httpclient.New(httpclient.Options{
		TLS:            a.TLS,
		Transport:      a.Transport,
		Attempts:       Attempts,
		AttemptTimeout: a.Timeout,
		TotalTimeout:   Attempts * (a.Timeout + LongestWait),
		MaxWait:        LongestWait,
		MaxBody:        l.Bytes,
		Prepare:        c.prepare,
		Retry:          retry,
		Wait:           a.Wait,
	})
	return c, nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Host returns the server's host and port.
func (c *Client) Host() string { return c.host }

// Access returns the access the client was made with, with a normalized URL.
func (c *Client) Access() Access { return c.access }

// Asked returns the number of requests sent and of uncompressed response bytes.
func (c *Client) Asked() (requests, bytes int64) { return c.queries.Load(), c.bytes.Load() }

// prepare completes a request before each attempt.
func (c *Client) prepare(r *http.Request) error {
	c.queries.Add(1)
	for k, v := range c.access.Headers {
		r.Header.Set(k, v)
	}
	switch {
	case c.access.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.access.Token)
	case c.access.User != "":
		r.SetBasicAuth(c.access.User, c.access.Password)
	case c.access.Sign != nil:
		sum := sha256.New()
		if r.GetBody != nil {
			body, err := r.GetBody()
			if err != nil {
				return err
			}
			if _, err := io.Copy(sum, body); err != nil {
				return err
			}
		}
		if err := c.access.Sign(r.Context(), r, hex.EncodeToString(sum.Sum(nil))); err != nil {
			return fmt.Errorf("sign the request: %w", err)
		}
	}
	return nil
}

// retry retries a busy server, after [LongestWait] at the latest. A query that timed out is not
// retried; a smaller one may succeed.
func retry(a httpclient.Attempt, d httpclient.Decision) httpclient.Decision {
	var timeout *httpclient.TimeoutError
	switch {
	case errors.As(a.Err, &timeout):
		return httpclient.Decision{}
	case a.Err != nil:
		return d
	case !busy(a.Response.StatusCode) || refusal(a.Response.Status, a.Peek(maxRefusal)).Kind == "timeout":
		return httpclient.Decision{}
	}
	d = httpclient.Decision{Again: true}
	if n, err := strconv.Atoi(a.Response.Header.Get("Retry-After")); err == nil && n > 0 && n < 3600 {
		d.Wait = min(time.Duration(n)*time.Second, LongestWait)
	}
	return d
}

func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == http.StatusBadGateway
}

// Query is an instant query.
type Query struct {
	Expression string
	At         time.Time
	// NonFinite keeps NaN and infinities, which are dropped otherwise.
	NonFinite bool
}

// Result describes a response apart from its series.
type Result struct {
	// Type is "vector", "matrix" or "scalar".
	Type string
	// Warnings are the server's warnings that the response may be partial, one line each, without
	// hints.
	Warnings []string
}

// Instant evaluates a query and passes each series on as it arrives. After an error, discard the
// series passed before it.
//
// Errors are an *[Error], a *[FormatError], an *[UnreachableError], a *[httpclient.TimeoutError], a
// *[ClockError], an error that wraps [ErrTooLarge], an error of each, or the cause of the canceled
// context.
func (c *Client) Instant(ctx context.Context, q Query, each func(Series) error) (Result, error) {
	form := url.Values{
		"nocache": {"1"}, // otherwise VictoriaMetrics rounds the ends of long ranges
		"query":   {q.Expression},
		"time":    {strconv.FormatFloat(float64(q.At.UnixMilli())/1000, 'f', 3, 64)},
	}
	if s := c.access.Timeout; s >= time.Second {
		form.Set("timeout", strconv.FormatInt(int64(s.Round(time.Second)/time.Second), 10)+"s")
	}
	resp, err := c.send(ctx, http.MethodPost, form)
	if err == nil && (resp.StatusCode == http.StatusMethodNotAllowed || resp.StatusCode == http.StatusNotImplemented) {
		_ = resp.Body.Close()
		resp, err = c.send(ctx, http.MethodGet, form)
	}
	if err != nil {
		return Result{}, c.unanswered(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := &counter{from: resp.Body, bytes: &c.bytes}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(in, maxRefusal)) // an incomplete body is still useful
		e := refusal(resp.Status, text)
		e.Status, e.Message = resp.StatusCode, c.clean(e.Message)
		return Result{}, e
	}
	if strings.Contains(resp.Header.Get("Content-Type"), "html") {
		return Result{}, &FormatError{Reason: "it is HTML", HTML: true}
	}
	if err := c.compareClocks(resp); err != nil {
		return Result{}, err
	}
	var refused error
	d := decoder{
		json:      json.NewDecoder(in),
		maxSeries: c.limits.Series,
		nonFinite: q.NonFinite,
		at:        q.At,
		each: func(s Series) error {
			refused = each(s)
			return refused
		},
	}
	err = d.decode()
	result := Result{Type: d.resultType}
	for _, w := range d.warnings {
		if !strings.HasPrefix(w, "PromQL info:") { // hints were warnings before version 3
			result.Warnings = append(result.Warnings, c.clean(w))
		}
	}
	return result, c.undecoded(ctx, err, refused)
}

func (c *Client) send(ctx context.Context, method string, form url.Values) (*http.Response, error) {
	address, body := c.access.URL+"/api/v1/query", []byte(form.Encode())
	if method == http.MethodGet {
		address, body = address+"?"+string(body), nil
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		httpclient.MarkIdempotent(req)
	}
	return c.http.Do(req)
}

// unanswered types the error of a request without a response.
func (c *Client) unanswered(ctx context.Context, err error) error {
	var (
		timeout     *httpclient.TimeoutError
		certificate *tls.CertificateVerificationError
		withURL     *url.Error
	)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &timeout):
		return timeout
	case errors.As(err, &certificate):
		return &UnreachableError{Reason: c.clean(certificate.Err.Error()), Certificate: true}
	case errors.As(err, &withURL):
		err = withURL.Err
	}
	return &UnreachableError{Reason: c.clean(err.Error())}
}

// undecoded types the error of a response that could not be read completely.
func (c *Client) undecoded(ctx context.Context, err, refused error) error {
	var (
		said    *Error
		timeout *httpclient.TimeoutError
		large   *httpclient.TooLargeError
	)
	switch {
	case err == nil || errors.Is(err, ErrTooLarge):
		return err
	case refused != nil:
		return refused
	case errors.As(err, &large):
		return fmt.Errorf("it is over %d MiB: %w", large.Limit>>20, ErrTooLarge)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &timeout):
		return timeout
	case errors.As(err, &said):
		said.Message = c.clean(said.Message)
		return said
	}
	return &FormatError{Reason: c.clean(err.Error())}
}

// compareClocks compares the server's clock with this machine's: with a server clock ahead, old
// samples would look current.
func (c *Client) compareClocks(resp *http.Response) error {
	// A proxy may drop the Date header.
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || c.access.Now == nil {
		return nil //nolint:nilerr // there is no time to compare
	}
	if d := theirs.Sub(c.access.Now()).Round(time.Minute); d > MaxSkew || d < -MaxSkew {
		return &ClockError{Ahead: d}
	}
	return nil
}

// clean makes a server's message fit for an error: one line, bounded, without secrets.
func (c *Client) clean(text string) string {
	for _, secret := range []string{c.access.Token, c.access.Password} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[hidden]")
		}
	}
	return plain.Cut(plain.Line(text), MaxMessage)
}

// counter counts the bytes read.
type counter struct {
	from  io.Reader
	bytes *atomic.Int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}
