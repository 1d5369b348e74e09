// Package httpclient makes the HTTP requests that curfew sends to other services. It bounds
// their time and the size of their answers, and repeats those that failed for a passing
// reason. A request is repeated only where repeating it changes nothing twice.
//
// The AWS SDK has a retryer of its own and is not called through this package.
package httpclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/curfew-dev/curfew/internal/wait"
)

// Defaults of [Options].
const (
	DefaultUserAgent     = "curfew"
	DefaultAttempts      = 4
	DefaultTotalTimeout  = 10 * time.Minute
	DefaultFirstWait     = 500 * time.Millisecond
	DefaultMaxWait       = 30 * time.Second
	DefaultHeaderTimeout = 2 * time.Minute
	DefaultMaxBody       = 64 << 20
)

// Bounds of what a connection may take before a request is sent.
const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
)

// keyHeader marks a request as idempotent. net/http knows it as well: a key without a value
// marks the request and is not sent.
const keyHeader = "Idempotency-Key"

// Options configure a [Client]. The zero value is valid.
type Options struct {
	// TLS holds trusted authorities and client certificates; nil: those of the system.
	TLS *tls.Config
	// Transport sends the requests; nil: a pooled transport with TLS, proxies from the
	// environment, and bounds for connecting and for headers.
	Transport http.RoundTripper
	// UserAgent is sent where a request names none.
	UserAgent string
	// Attempts is how often one request is sent at most.
	Attempts int
	// AttemptTimeout bounds one attempt with its whole answer; 0: no bound of its own.
	AttemptTimeout time.Duration
	// HeaderTimeout bounds the time between a sent request and the headers of its answer; 0:
	// that of the attempt, else DefaultHeaderTimeout. It does not apply to a given Transport.
	HeaderTimeout time.Duration
	// TotalTimeout bounds all attempts and the waits between them.
	TotalTimeout time.Duration
	// FirstWait is the wait before the second attempt; it doubles up to MaxWait, and up to a
	// quarter is added at random.
	FirstWait, MaxWait time.Duration
	// MaxRetryAfter is the longest Retry-After that is waited for; an answer that asks for
	// longer is returned. 0: MaxWait.
	MaxRetryAfter time.Duration
	// MaxBody bounds an answer in bytes.
	MaxBody int64
	// WholeBody reads each answer to its end as part of its attempt, so that an answer that
	// breaks off is asked for again. Without it the caller reads the answer as it arrives.
	WholeBody bool
	// Connected checks each new connection, after TLS, before a request is sent on it. Requests
	// then go by no proxy. It does not apply to a given Transport.
	Connected func(ctx context.Context, c net.Conn) error
	// Prepare completes a request before each of its attempts, for example signs it.
	Prepare func(*http.Request) error
	// Retry overrides the decision about a failed or refused attempt; nil keeps it.
	Retry func(Attempt, Decision) Decision
	// Wait waits between two attempts; nil sleeps.
	Wait func(ctx context.Context, d time.Duration) error
	// Now is the clock; nil is the system's.
	Now func() time.Time
}

// Attempt is a request that was sent once, with its answer or its error.
type Attempt struct {
	Request *http.Request
	// Number counts from 1.
	Number int
	// Response is nil if Err is set.
	Response *http.Response
	Err      error
}

// Peek returns the beginning of the answer's body, at most n bytes, and leaves it to be read.
func (a Attempt) Peek(n int64) []byte {
	from := a.Response.Body
	head, _ := io.ReadAll(io.LimitReader(from, n)) // the next read returns the error
	a.Response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), from), from}
	return head
}

// Decision reports whether a request is sent again. Wait 0 is the exponential backoff.
type Decision struct {
	Again bool
	Wait  time.Duration
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	o     Options
	retry *retryablehttp.Client
}

// New returns a client. It makes no request.
func New(o Options) *Client {
	orDefault(&o.UserAgent, DefaultUserAgent)
	orDefault(&o.Attempts, DefaultAttempts)
	if o.AttemptTimeout == 0 {
		orDefault(&o.HeaderTimeout, DefaultHeaderTimeout)
	}
	orDefault(&o.TotalTimeout, DefaultTotalTimeout)
	orDefault(&o.FirstWait, DefaultFirstWait)
	orDefault(&o.MaxWait, DefaultMaxWait)
	orDefault(&o.MaxRetryAfter, o.MaxWait)
	orDefault(&o.MaxBody, DefaultMaxBody)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == nil {
		o.Wait = sleep
	}
	if o.Transport == nil {
		o.Transport = newTransport(o)
	}
	c := &Client{o: o}
	c.retry = &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: &attemptTransport{&c.o}, CheckRedirect: lastResponse},
		RetryMax:     o.Attempts - 1,
		CheckRetry:   c.check,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
		// PrepareRetry waits instead, because it has the context.
		Backoff: func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return 0 },
		PrepareRetry: func(r *http.Request) error {
			return c.o.Wait(r.Context(), callOf(r.Context()).decided.Wait)
		},
	}
	return c
}

// newTransport returns the pooled transport of a client.
func newTransport(o Options) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout, ControlContext: checkDialed}
	t.DialContext = dialer.DialContext
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = handshakeTimeout, o.HeaderTimeout
	if o.TLS != nil {
		t.TLSClientConfig = o.TLS
	}
	if o.Connected == nil {
		return t
	}
	t.Proxy = nil
	checked := func(ctx context.Context, c net.Conn, err error) (net.Conn, error) {
		if err != nil {
			return nil, err
		}
		if err := o.Connected(ctx, c); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		return checked(ctx, c, err)
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		bounded, cancel := context.WithTimeout(ctx, dialTimeout+handshakeTimeout)
		defer cancel()
		c, err := (&tls.Dialer{NetDialer: dialer, Config: o.TLS}).DialContext(bounded, network, address)
		return checked(ctx, c, err)
	}
	return t
}

// NewTransport returns a transport for a program that passes requests on: each is sent once, answers
// come as the server sent them, and no proxy is asked. It refuses link-local addresses as [New] does.
func NewTransport() *http.Transport {
	t := newTransport(Options{})
	t.Proxy, t.DisableCompression = nil, true
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 4096, 1024
	t.ForceAttemptHTTP2 = false
	t.WriteBufferSize, t.ReadBufferSize = 64<<10, 64<<10 // a batch of requests is written and read at once
	return t
}

// NewHTTP2Transport is [NewTransport] for gRPC: HTTP/2, with TLS where the URL says https.
func NewHTTP2Transport() *http.Transport {
	t := NewTransport()
	t.Protocols = &http.Protocols{}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func lastResponse(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close ends idle connections.
func (c *Client) Close() { c.retry.HTTPClient.CloseIdleConnections() }

// Standard returns a client for libraries that take an http.Client. It follows no redirect: that
// would carry credentials to a host that was not configured.
func (c *Client) Standard() *http.Client {
	return &http.Client{Transport: roundTripper{c}, CheckRedirect: lastResponse}
}

type roundTripper struct{ c *Client }

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.c.Do(req)
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err // the outer client adds the URL
	}
	return resp, err
}

// call is shared by the attempts of one request.
type call struct {
	request *http.Request
	number  int
	decided Decision
}

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// Do sends a request until it is answered for good, its attempts or its time are used up, or
// its context ends. The answer of the last attempt is returned whatever its status. The error
// of an ended context wraps its cause.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	parent := req.Context()
	state := &call{request: req}
	ctx := context.WithValue(parent, callKey{}, state)
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.TotalTimeout, &TimeoutError{Within: c.o.TotalTimeout})
	again, err := retryablehttp.FromRequest(req.Clone(ctx))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("read the body of a request: %w", err)
	}
	resp, err := c.retry.Do(again)
	if err != nil {
		defer cancel()
		if parent.Err() != nil {
			return nil, ended(parent, err)
		}
		return nil, timedOut(ctx, err)
	}
	resp.Body = &closingBody{resp.Body, cancel}
	return resp, nil
}

// ended adds the cause of an ended context to an error that hides it.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if ctx.Err() == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// closingBody ends the context of a call with its answer.
type closingBody struct {
	io.ReadCloser
	end context.CancelFunc
}

// Close implements io.Closer.
func (b *closingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// check decides after each attempt; it is the CheckRetry of the library.
func (c *Client) check(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, nil //nolint:nilerr // the error says it
	}
	s := callOf(ctx)
	s.number++
	a := Attempt{Request: s.request, Number: s.number, Response: resp, Err: err}
	d := c.decide(a)
	if c.o.Retry != nil {
		d = c.o.Retry(a, d)
	}
	if d.Wait <= 0 {
		d.Wait = c.backoff(a.Number)
	}
	if deadline, ok := ctx.Deadline(); ok && c.o.Now().Add(d.Wait).After(deadline) {
		d.Again = false
	}
	s.decided = d
	return d.Again, nil
}

// decide is the decision for any service: passing failures of idempotent requests, and
// requests that were never sent.
func (c *Client) decide(a Attempt) Decision {
	if a.Err != nil {
		return Decision{Again: !Final(a.Err) && (Idempotent(a.Request) || NotSent(a.Err))}
	}
	d := Decision{}
	switch a.Response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		wanted, _ := RetryAfter(a.Response.Header, c.o.Now())
		d.Again, d.Wait = Idempotent(a.Request) && wanted <= c.o.MaxRetryAfter, wanted
	}
	return d
}

// backoff is the wait after an attempt.
func (c *Client) backoff(number int) time.Duration {
	d := c.o.FirstWait
	for range number - 1 {
		if d *= 2; d >= c.o.MaxWait {
			break
		}
	}
	d = min(d, c.o.MaxWait)
	return d + rand.N(d/4+1)
}

// MarkIdempotent marks a request as safe to repeat although its method is not, such as a query that
// is sent by POST.
func MarkIdempotent(r *http.Request) {
	if _, ok := r.Header[keyHeader]; !ok {
		r.Header[keyHeader] = nil
	}
}

// SetKey gives a request the key under which its service carries it out once.
func SetKey(r *http.Request, key string) { r.Header.Set(keyHeader, key) }

// Idempotent reports whether a request may be sent twice: by its method (RFC 9110, 9.2.2), its
// key, or [MarkIdempotent].
func Idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, ok := r.Header[keyHeader]
	return ok
}

// NotSent reports whether an error came before anything was sent.
func NotSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// Final reports whether an error comes again however often the request is sent.
func Final(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		invalid     x509.CertificateInvalidError
		plainHTTP   tls.RecordHeaderError
		tooLarge    *TooLargeError
		unprepared  *prepareError
		inward      *AddressError
	)
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &certificate) || errors.As(err, &authority) || errors.As(err, &host) ||
		errors.As(err, &invalid) ||
		errors.As(err, &plainHTTP) || errors.As(err, &tooLarge) ||
		errors.As(err, &unprepared) || errors.As(err, &inward)
}

// maxRetryAfter bounds the Retry-After of a server, in seconds: a day.
const maxRetryAfter = 24 * 60 * 60

// RetryAfter reads Retry-After (RFC 9110, 10.2.3), in seconds or as a date, from 0 to a day. ok is
// false if the header is missing or unreadable.
func RetryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(n, maxRetryAfter)) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter*time.Second), true
	}
	return 0, false
}

// TimeoutError is returned when an attempt, or all of them, took too long.
type TimeoutError struct{ Within time.Duration }

// Error implements error.
func (e *TimeoutError) Error() string { return fmt.Sprintf("no answer within %s", e.Within) }

// Timeout and Temporary implement net.Error.
func (*TimeoutError) Timeout() bool { return true }

// Temporary implements net.Error.
func (*TimeoutError) Temporary() bool { return true }

// TooLargeError is returned when an answer exceeds the bound.
type TooLargeError struct{ Limit int64 }

// Error implements error.
func (e *TooLargeError) Error() string {
	if e.Limit >= 1<<20 {
		return fmt.Sprintf("the answer is over %d MiB", e.Limit>>20)
	}
	return fmt.Sprintf("the answer is over %d bytes", e.Limit)
}

type prepareError struct{ error }

func (e *prepareError) Unwrap() error { return e.error }

// sleep lets time pass; its error is the cause by which the context ended.
func sleep(ctx context.Context, d time.Duration) error {
	if wait.For(ctx, d) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// attemptTransport sends a request once, within the bounds of one attempt.
type attemptTransport struct{ o *Options }

// CloseIdleConnections ends idle connections where the transport has them.
func (t *attemptTransport) CloseIdleConnections() {
	if c, ok := t.o.Transport.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *attemptTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := req.Context(), context.CancelFunc(func() {})
	if t.o.AttemptTimeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, t.o.AttemptTimeout, &TimeoutError{t.o.AttemptTimeout})
	}
	req = req.Clone(ctx)
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", t.o.UserAgent)
	}
	if t.o.Prepare != nil {
		if err := t.o.Prepare(req); err != nil {
			cancel()
			return nil, &prepareError{err}
		}
	}
	// A proxy or a given transport resolves names itself; an address in the URL is seen here.
	if err := checkAddress(req.URL.Hostname()); err != nil {
		cancel()
		return nil, err
	}
	resp, err := t.o.Transport.RoundTrip(req)
	if err != nil {
		defer cancel()
		return nil, timedOut(ctx, err)
	}
	body := &boundedBody{ctx: ctx, from: resp.Body, left: t.o.MaxBody, limit: t.o.MaxBody, end: cancel}
	resp.Body = body
	if !t.o.WholeBody {
		return resp, nil
	}
	whole, err := io.ReadAll(body)
	_ = body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(whole))
	return resp, nil
}

// timedOut returns the timeout that ended a context in place of the error that it caused.
func timedOut(ctx context.Context, err error) error {
	var timeout *TimeoutError
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &timeout) {
		return timeout
	}
	return err
}

// boundedBody reads an answer up to its bound and says whether it is larger or timed out.
type boundedBody struct {
	ctx   context.Context
	from  io.ReadCloser
	left  int64
	limit int64
	end   context.CancelFunc
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	// One byte past the bound tells an answer that ends there from a larger one.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.from.Read(p)
	if int64(n) > b.left {
		n = int(b.left)
		b.left = 0
		return n, &TooLargeError{b.limit}
	}
	b.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = timedOut(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	defer b.end()
	return b.from.Close()
}
