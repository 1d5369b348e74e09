// Package metrics asks a server that speaks Prometheus's HTTP API how many units were
// made, for what one of them costs.
package metrics

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/curfew-dev/curfew/internal/plain"
)

// ErrUnknown says that nothing was measured: there is no series, or its value is not a
// number. It is not a count of zero, which a server says.
var ErrUnknown = errors.New("not known")

// Range stands in a query for the range that is counted over: "[$range]".
const Range = "$range"

// day is a day in UTC, which has no leap seconds here.
const day = 24 * time.Hour

const (
	// DefaultTimeout bounds a query; Prometheus's own bound is two minutes
	// (query.timeout, https://prometheus.io/docs/prometheus/latest/command-line/prometheus/).
	DefaultTimeout = 30 * time.Second
	// maxAnswer bounds the size of an answer, which is one number.
	maxAnswer = 1 << 20
	// maxMessage bounds, in characters, how much of a server's words an error holds.
	maxMessage = 300
	// maxDays bounds how many days are counted at once: ten years.
	maxDays = 3660
)

// Options say where the server is.
type Options struct {
	// URL is the server's address without /api/v1: "http://prometheus:9090".
	URL string
	// Token is sent as a bearer token where it is not empty; then URL has to be https,
	// or on this machine.
	Token string
	// Timeout bounds each query; zero means DefaultTimeout.
	Timeout time.Duration
}

// Client asks one server.
type Client struct {
	api     v1.API
	host    string
	token   string
	timeout time.Duration
}

// Day is the part of a day in UTC that was counted.
type Day struct {
	// From and To are its ends; it is half-open.
	From, To time.Time
	// Units is the count, at least zero; Known says whether there is one.
	Units float64
	Known bool
}

// New returns a client. It makes no request. Errors repeat neither token nor URL.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("count units: the server's address is no URL such as http://prometheus:9090")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("count units: the server's address may hold no user, query or fragment; give a token instead")
	case strings.ContainsFunc(o.Token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return nil, errors.New("count units: the token is not of one word")
	case o.Token != "" && u.Scheme == "http" && !local(u.Hostname()):
		return nil, errors.New("count units: http would send the token in the clear; use https")
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	return open(o, u.Host, http.DefaultTransport)
}

func open(o Options, host string, base http.RoundTripper) (*Client, error) {
	client, err := api.NewClient(api.Config{Address: o.URL, Client: &http.Client{
		Transport: &transport{token: o.Token, base: base},
		// The token and the queries go where it was configured and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil {
		return nil, fmt.Errorf("count units at %s: %w", host, err)
	}
	return &Client{api: v1.NewAPI(client), host: host, token: o.Token, timeout: o.Timeout}, nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// transport adds the token, and bounds what is read of an answer.
type transport struct {
	token string
	base  http.RoundTripper
}

// RoundTrip makes one request.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", "curfew")
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}

// Count returns how many units a query counts over [from, to). The query is a counter,
// such as `http_requests_total{job="embed"}`, whose increase over all of its series is
// taken; or, with [Range] in it, an expression that gives one number, such as
// `sum(increase(tokens_total[$range])) / 1e6`. The increase of a counter is
// extrapolated to the ends of the range and need not be whole
// (https://prometheus.io/docs/prometheus/latest/querying/functions/#increase).
// ErrUnknown where nothing was measured; an error where the answer is several series,
// negative, or partial by the server's own words.
func (c *Client) Count(ctx context.Context, query string, from, to time.Time) (float64, error) {
	over := to.Sub(from).Truncate(time.Millisecond)
	if over <= 0 {
		return 0, fmt.Errorf("count %s: the time from %s to %s is none", shown(query), stamp(from), stamp(to))
	}
	asked, err := expression(query, over)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	v, warnings, _, err := c.api.Query(ctx, asked, to)
	if err != nil {
		return 0, fmt.Errorf("count %s at %s: %w", shown(query), c.host, c.failure(ctx, err))
	}
	for _, w := range warnings {
		// Before version 3, hints were warnings too.
		if !strings.HasPrefix(w, "PromQL info:") {
			return 0, fmt.Errorf("count %s at %s: the server warns that its answer may be partial: %s", shown(query), c.host, c.clean(w))
		}
	}
	units, err := single(v)
	if err != nil {
		return 0, fmt.Errorf("count %s at %s until %s: %w", shown(query), c.host, stamp(to), err)
	}
	return units, nil
}

// CountByDay counts each day in UTC apart, and the parts of the first and the last one
// that [from, to) has. A day of which nothing was measured is one that is not known.
func (c *Client) CountByDay(ctx context.Context, query string, from, to time.Time) ([]Day, error) {
	from, to = from.UTC(), to.UTC()
	if to.Sub(from) > maxDays*day {
		return nil, fmt.Errorf("count %s: from %s to %s is over %d days", shown(query), stamp(from), stamp(to), maxDays)
	}
	var days []Day
	for at := from; at.Before(to); {
		d := Day{From: at, To: at.Truncate(day).Add(day)}
		if d.To.After(to) {
			d.To = to
		}
		units, err := c.Count(ctx, query, d.From, d.To)
		if err != nil && !errors.Is(err, ErrUnknown) {
			return nil, err
		}
		d.Units, d.Known = units, err == nil
		days = append(days, d)
		at = d.To
	}
	if len(days) == 0 {
		return nil, fmt.Errorf("count %s: the time from %s to %s is none", shown(query), stamp(from), stamp(to))
	}
	return days, nil
}

// expression is what is asked: the query with its range, or the increase of a counter.
func expression(query string, over time.Duration) (string, error) {
	if strings.TrimSpace(query) == "" {
		return "", errors.New("count units: the query is empty; name a counter, such as http_requests_total")
	}
	length := fmt.Sprintf("%dms", over.Milliseconds())
	if over%time.Second == 0 {
		length = fmt.Sprintf("%ds", int64(over/time.Second))
	}
	if !strings.Contains(query, Range) {
		query = "sum(increase(" + query + "[" + Range + "]))"
	}
	return strings.ReplaceAll(query, Range, length), nil
}

// single returns the one number that an answer is.
func single(v model.Value) (float64, error) {
	var units float64
	switch v := v.(type) {
	case model.Vector:
		switch {
		case len(v) == 0:
			return 0, fmt.Errorf("%w: there is no such series", ErrUnknown)
		case len(v) > 1:
			return 0, fmt.Errorf("the answer is %d series, not one number; put sum(…) around the query", len(v))
		case v[0].Histogram != nil:
			return 0, errors.New("the answer is a histogram, not a number; use histogram_count(…) or histogram_sum(…)")
		}
		units = float64(v[0].Value)
	case *model.Scalar:
		units = float64(v.Value)
	default:
		return 0, errors.New("the answer is neither a number nor series of them; is there a range too many?")
	}
	switch {
	case math.IsNaN(units) || math.IsInf(units, 0):
		return 0, fmt.Errorf("%w: the answer is %v", ErrUnknown, units)
	case units < 0:
		return 0, fmt.Errorf("the answer is %v, and there are no fewer units than none; is it a counter?", units)
	}
	return units, nil
}

// failure says in one line why there is no answer.
func (c *Client) failure(ctx context.Context, err error) error {
	var (
		said        *v1.Error
		withURL     *url.Error
		certificate *tls.CertificateVerificationError
	)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("no answer within %s: %w", c.timeout, ctx.Err())
	case errors.As(err, &said):
		return c.refusal(said)
	case errors.As(err, &certificate):
		return fmt.Errorf("the server's certificate is not trusted: %s", c.clean(certificate.Err.Error()))
	case errors.As(err, &withURL):
		err = withURL.Err
	}
	return fmt.Errorf("the server is not reached: %s", c.clean(err.Error()))
}

// refusal says what the server answered, and what to do.
func (c *Client) refusal(e *v1.Error) error {
	// Of other statuses than 400 and 422 the client leaves the server's words unread; a
	// timeout's is 503.
	var said struct {
		Type    v1.ErrorType `json:"errorType"`
		Message string       `json:"error"`
	}
	kind, message := e.Type, c.clean(e.Msg)
	if json.Unmarshal([]byte(e.Detail), &said) == nil && said.Message != "" {
		kind, message = said.Type, c.clean(said.Message)
	}
	switch kind {
	case v1.ErrBadData:
		return fmt.Errorf("the server does not understand the query: %s (where it is no plain counter, write [%s] where its range goes)", message, Range)
	case v1.ErrExec, v1.ErrTimeout, v1.ErrCanceled:
		return fmt.Errorf("the server gave the query up: %s", message)
	case v1.ErrClient, v1.ErrServer:
		return fmt.Errorf("the server answered with a %s; is its address right, and is a token needed?", message)
	}
	return fmt.Errorf("the answer is not that of Prometheus's API: %s", message)
}

// clean makes a server's words fit for an error: one line, not too long, no token.
func (c *Client) clean(s string) string {
	if c.token != "" {
		s = strings.ReplaceAll(s, c.token, "[hidden]")
	}
	return plain.Cut(plain.Line(s), maxMessage)
}

func shown(query string) string {
	if r := []rune(query); len(r) > maxMessage {
		query = string(r[:maxMessage]) + "…"
	}
	return fmt.Sprintf("%q", query)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
