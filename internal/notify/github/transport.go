package github

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/httpclient"
)

const (
	// maxTries is the maximum number of attempts of a request.
	maxTries = 4
	// maxPause is the longest wait within a workflow.
	maxPause = 2 * time.Minute
	// secondaryPause is the wait for a rate limit that names no time
	// (https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#handle-rate-limit-errors-appropriately).
	secondaryPause = time.Minute
	// firstPause is the first wait after a failure of the server or the network; it doubles with
	// every attempt.
	firstPause = time.Second
	// DefaultTimeout bounds one try of a request with its whole answer.
	DefaultTimeout = 30 * time.Second
	// maxAnswer limits the size of a response; real pages are far smaller.
	maxAnswer = 16 << 20
	// maxRefusal limits the size of an error response.
	maxRefusal = 1 << 16
)

// waiter waits, or returns the context's error.
type waiter func(ctx context.Context, d time.Duration) error

// transport returns a client that sends the token. It waits for rate limits on any request, since a
// limited request was not carried out.
func transport(token string, within time.Duration, wait waiter) *httpclient.Client {
	return httpclient.New(httpclient.Options{
		Attempts:       maxTries,
		AttemptTimeout: within,
		FirstWait:      firstPause,
		MaxRetryAfter:  maxPause,
		MaxBody:        maxAnswer,
		WholeBody:      true,
		Wait:           wait,
		Retry:          retry,
		Prepare: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		},
	})
}

// retry also retries after GitHub's rate limits and failures. An edit, which is a PATCH, replaces
// the whole text of a comment and may be repeated.
func retry(a httpclient.Attempt, d httpclient.Decision) httpclient.Decision {
	repeatable := httpclient.Idempotent(a.Request) || a.Request.Method == http.MethodPatch
	if a.Err != nil {
		d.Again = repeatable && !httpclient.Final(a.Err)
		return d
	}
	pause, limited := limit(a)
	switch {
	case limited:
		return httpclient.Decision{Again: pause <= maxPause, Wait: pause}
	case a.Response.StatusCode >= 500 && a.Response.StatusCode != http.StatusNotImplemented:
		return httpclient.Decision{Again: repeatable && pause <= maxPause, Wait: pause}
	}
	return httpclient.Decision{}
}

// limit reports whether a response is a rate limit, and how long to wait: as in Retry-After, until
// the limit is reset, or the minute that GitHub advises.
func limit(a httpclient.Attempt) (time.Duration, bool) {
	now, header, status := time.Now(), a.Response.Header, a.Response.StatusCode
	pause, asked := httpclient.RetryAfter(header, now)
	switch {
	case status != http.StatusForbidden && status != http.StatusTooManyRequests:
		return pause, false
	case asked:
		return pause, true
	case header.Get("X-RateLimit-Remaining") == "0":
		if at, err := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64); err == nil {
			return max(time.Unix(at, 0).Sub(now), 0) + time.Second, true
		}
	}
	text := strings.ToLower(string(a.Peek(maxRefusal)))
	if status == http.StatusTooManyRequests || strings.Contains(text, "secondary rate limit") {
		return secondaryPause, true
	}
	return 0, false
}
