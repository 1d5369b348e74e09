// Package prom reads metrics of machines and their GPUs from Prometheus-compatible servers:
// Prometheus, VictoriaMetrics, Thanos, Mimir and Amazon Managed Prometheus. It only sends instant
// queries and never writes to a server.
package prom

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/metrics/httpapi"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Limits of one query.
const (
	// DefaultTimeout bounds a query; Prometheus's own bound is two minutes.
	DefaultTimeout = 2 * time.Minute
	// maxBody is the maximum size of a response, uncompressed. A larger range is queried again in
	// two halves.
	maxBody = 256 << 20
	// maxSeries bounds the series of one response.
	maxSeries = 1_000_000
)

// Access is the address of a server and the credentials of the reader.
type Access = httpapi.Access

type (
	series = httpapi.Series
	point  = httpapi.Point
)

// errTooMuch is returned when a query is too large for the server; half of it may succeed.
var errTooMuch = httpapi.ErrTooLarge

// server queries one server.
type server struct {
	Access
	api *httpapi.Client
	// warning is the last warning of the server, or empty.
	warning string
}

// Asked is the cost of reading: requests sent and response bytes.
type Asked struct{ Queries, Bytes int64 }

func newServer(a Access) (*server, error) {
	if a.Timeout <= 0 {
		a.Timeout = DefaultTimeout
	}
	api, err := httpapi.New(a, httpapi.Limits{Bytes: maxBody, Series: maxSeries})
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w (see metrics.sources)", err)
	}
	return &server{Access: api.Access(), api: api}, nil
}

func (s *server) asked() Asked {
	queries, bytes := s.api.Asked()
	return Asked{queries, bytes}
}

// instant evaluates an instant query at a time and passes each series on. After an error, discard
// the series passed before it.
func (s *server) instant(ctx context.Context, query string, at time.Time, each func(series) error) error {
	result, err := s.api.Instant(ctx, httpapi.Query{Expression: query, At: at}, each)
	if n := len(result.Warnings); n > 0 {
		s.warning = result.Warnings[n-1]
	}
	var (
		refused     *httpapi.Error
		timeout     *httpclient.TimeoutError
		unreachable *httpapi.UnreachableError
		format      *httpapi.FormatError
	)
	switch {
	case ctx.Err() != nil:
		return err
	case errors.As(err, &timeout):
		return fmt.Errorf("no whole answer within %s: %w", plain.Duration(s.Timeout), errTooMuch)
	case errors.As(err, &unreachable) && unreachable.Certificate:
		return fmt.Errorf("its certificate is not trusted: %w", err)
	case errors.As(err, &unreachable):
		return fmt.Errorf("it is not reached: %w, %d times", err, httpapi.Attempts)
	case errors.As(err, &format) && format.HTML:
		return errors.New(
			"it answers with HTML and not as Prometheus's API; is its address right, and is a sign-in in between?")
	case errors.As(err, &refused):
		return refusal(refused)
	}
	return err
}

// refusal explains an error response.
func refusal(e *httpapi.Error) error {
	if e.Busy() {
		return fmt.Errorf("it is busy: %w, %d times", e, httpapi.Attempts)
	}
	switch e.Status {
	case http.StatusGatewayTimeout, http.StatusRequestEntityTooLarge:
		return fmt.Errorf("it gave the query up (%s): %w", e.Message, errTooMuch)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("it refuses to answer (%w); are its credentials configured under metrics.sources?", e)
	case http.StatusNotFound:
		return fmt.Errorf("it knows no such path (%w); give its address as it is before /api/v1", e)
	}
	lower := strings.ToLower(e.Message)
	for _, word := range limits {
		if strings.Contains(lower, word) {
			return fmt.Errorf("it refuses the query (%s): %w", e.Message, errTooMuch)
		}
	}
	return fmt.Errorf("it refuses the query: %w", e)
}

// limits are words in the messages of servers that refuse a query as too large.
var limits = []string{"too many", "limit", "exceed", "more than", "too much", "timed out"}
