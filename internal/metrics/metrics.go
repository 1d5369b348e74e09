// Package metrics counts the units that a service produced, such as requests or tokens, from a
// server with Prometheus's HTTP API. The ledger divides cost by them.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/metrics/httpapi"
)

// ErrUnknown is returned when there is no series or its value is not a number. A count of zero is
// no error.
var ErrUnknown = errors.New("not known")

// Range is the placeholder in a query for the range to count over: "[$range]".
const Range = "$range"

// day is the length of a UTC day.
const day = 24 * time.Hour

const (
	// DefaultTimeout bounds a query; Prometheus's own bound is two minutes
	// (query.timeout, https://prometheus.io/docs/prometheus/latest/command-line/prometheus/).
	DefaultTimeout = 30 * time.Second
	// maxAnswer bounds the size of a response in bytes; it holds one number.
	maxAnswer = 1 << 20
	// maxDays bounds the days of one CountByDay: ten years.
	maxDays = 3660
)

// Options locate the server.
type Options struct {
	// URL is the server's address without /api/v1: "http://prometheus:9090".
	URL string
	// Token is sent as a bearer token if it is not empty; then URL must be https or loopback.
	Token string
	// Timeout bounds each query with its retries; zero means DefaultTimeout.
	Timeout time.Duration
	// Transport sends requests and Wait waits between attempts; nil: as [httpclient.New] does.
	Transport http.RoundTripper
	Wait      func(ctx context.Context, d time.Duration) error
}

// Client queries one server.
type Client struct {
	api     *httpapi.Client
	timeout time.Duration
}

// Day is the count of one UTC day, or of the part of it within the requested range.
type Day struct {
	// From and To bound the half-open interval.
	From, To time.Time
	// Units is the count, at least zero; it is meaningless unless Known.
	Units float64
	Known bool
}

// New returns a client. It makes no request. Errors contain neither the token nor the URL.
func New(o Options) (*Client, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	access := httpapi.Access{
		URL:       o.URL,
		Token:     o.Token,
		Timeout:   o.Timeout,
		Transport: o.Transport,
		Wait:      o.Wait,
	}
	api, err := httpapi.New(access, httpapi.Limits{Bytes: maxAnswer, Series: maxAnswer})
	if err != nil {
		return nil, fmt.Errorf("count units: %w", err)
	}
	return &Client{api: api, timeout: o.Timeout}, nil
}

// Count returns the units that a query counts over [from, to). The query is either a counter, such
// as `http_requests_total{job="embed"}`, whose increase is summed over all series, or an expression
// with [Range] that yields one number, such as `sum(increase(tokens_total[$range])) / 1e6`.
// Prometheus extrapolates increases to the ends of the range, so they need not be whole
// (https://prometheus.io/docs/prometheus/latest/querying/functions/#increase). Count returns
// ErrUnknown if nothing was measured, and an error if the response has several series, is negative,
// or carries a warning that it is partial.
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
	var got []httpapi.Series
	q := httpapi.Query{Expression: asked, At: to, NonFinite: true}
	result, err := c.api.Instant(ctx, q, func(s httpapi.Series) error {
		got = append(got, s)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count %s at %s: %w", shown(query), c.api.Host(), c.failure(ctx, err))
	}
	if len(result.Warnings) > 0 {
		return 0, fmt.Errorf("count %s at %s: the server warns that its answer may be partial: %s",
			shown(query), c.api.Host(), result.Warnings[0])
	}
	units, err := single(result.Type, got)
	if err != nil {
		return 0, fmt.Errorf("count %s at %s until %s: %w", shown(query), c.api.Host(), stamp(to), err)
	}
	return units, nil
}

// CountByDay counts each UTC day of [from, to) separately; the first and last may be partial. A day
// without measurements is not Known.
func (c *Client) CountByDay(ctx context.Context, query string, from, to time.Time) ([]Day, error) {
	from, to = from.UTC(), to.UTC()
	if to.Sub(from) > maxDays*day {
		return nil, fmt.Errorf("count %s: from %s to %s is over %d days", shown(query),
			stamp(from), stamp(to), maxDays)
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

// expression returns the expression to evaluate: the query with its range, or the increase of a
// counter.
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

// single returns the one number of a response.
func single(kind string, all []httpapi.Series) (float64, error) {
	switch {
	case kind != "vector" && kind != "scalar":
		return 0, errors.New("the answer is neither a number nor series of them; is there a range too many?")
	case len(all) == 0:
		return 0, fmt.Errorf("%w: there is no such series", ErrUnknown)
	case len(all) > 1:
		return 0, fmt.Errorf("the answer is %d series, not one number; put sum(…) around the query", len(all))
	case all[0].Histogram:
		return 0, errors.New("the answer is a histogram, not a number; use histogram_count(…) or histogram_sum(…)")
	case len(all[0].Points) != 1:
		return 0, fmt.Errorf("%w: the series has no value", ErrUnknown)
	}
	units := all[0].Points[0].V
	switch {
	case math.IsNaN(units) || math.IsInf(units, 0):
		return 0, fmt.Errorf("%w: the answer is %v", ErrUnknown, units)
	case units < 0:
		return 0, fmt.Errorf("the answer is %v, and there are no fewer units than none; is it a counter?", units)
	}
	return units, nil
}

// failure turns an error of the client into a one-line message.
func (c *Client) failure(ctx context.Context, err error) error {
	var (
		said        *httpapi.Error
		timeout     *httpclient.TimeoutError
		unreachable *httpapi.UnreachableError
	)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil, errors.As(err, &timeout):
		return fmt.Errorf("no answer within %s: %w", c.timeout, context.DeadlineExceeded)
	case errors.As(err, &said):
		return refusalError(said)
	case errors.As(err, &unreachable) && unreachable.Certificate:
		return fmt.Errorf("the server's certificate is not trusted: %w", err)
	case errors.As(err, &unreachable):
		return fmt.Errorf("the server is not reached: %w", err)
	case errors.Is(err, httpapi.ErrTooLarge):
		return fmt.Errorf("the answer is not that of Prometheus's API: %w", err)
	}
	return err
}

// refusalError explains an error response and the next step. The kinds are listed at
// https://prometheus.io/docs/prometheus/latest/querying/api/#format-overview.
func refusalError(e *httpapi.Error) error {
	switch e.Kind {
	case "bad_data":
		return fmt.Errorf("the server does not understand the query: %w "+
			"(where it is no plain counter, write [%s] where its range goes)", e, Range)
	case "execution", "timeout", "canceled":
		return fmt.Errorf("the server gave the query up: %w", e)
	case "":
		side := "server"
		switch {
		case e.Status < http.StatusBadRequest:
			return fmt.Errorf("the answer is not that of Prometheus's API: bad response code %d", e.Status)
		case e.Status < http.StatusInternalServerError:
			side = "client"
		}
		return fmt.Errorf("the server answered with a %s error: %d; is its address right, and is a token needed?",
			side, e.Status)
	}
	return fmt.Errorf("the answer is not that of Prometheus's API: %w", e)
}

func shown(query string) string {
	if r := []rune(query); len(r) > httpapi.MaxMessage {
		query = string(r[:httpapi.MaxMessage]) + "…"
	}
	return fmt.Sprintf("%q", query)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
