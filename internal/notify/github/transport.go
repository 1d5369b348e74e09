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
	// maxTries is how often one request is made at most.
	maxTries = 4
	// maxPause is the longest wait that a workflow is held up for.
	maxPause = 2 * time.Minute
	// secondaryPause is how long to wait where a limit names no time
	// (https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#handle-rate-limit-errors-appropriately).
	secondaryPause = time.Minute
	// firstPause is doubled with every try that the server or the network failed.
	firstPause = time.Second
	// DefaultTimeout bounds one try of a request with its whole answer.
	DefaultTimeout = 30 * time.Second
	// maxAnswer bounds how much is read of an answer; a page of what is asked for is far smaller.
	maxAnswer = 16 << 20
	// maxRefusal bounds how much is read of an answer that is an error.
	maxRefusal = 1 << 16
)

// waiter waits, or returns the context's error.
type waiter func(ctx context.Context, d time.Duration) error

// transport sends requests with the token. Rate limits are waited for whatever the request,
// since a limited request was not carried out.
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

// retry adds GitHub's rate limits and its failures to what is asked again. An edit, which is
// a PATCH, writes the whole text of a comment and may be repeated.
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

// limit reports whether an answer is a rate limit's, and how long to wait: what Retry-After
// asks, until the limit is reset, or the minute that GitHub advises.
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
