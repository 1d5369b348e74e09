package github

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
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
	// answerIn is how long one try may take, its whole answer included.
	answerIn = 30 * time.Second
	// maxAnswer bounds how much is read of an answer; a page of what is asked for is far smaller.
	maxAnswer = 16 << 20
	// maxRefusal bounds how much is read of an answer that is an error.
	maxRefusal = 1 << 16
)

// transport adds the token and tries again what may pass: rate limits always, since
// what they refuse was not done, and failures of the server or the network where the
// request can be made twice.
type transport struct {
	token string
	base  http.RoundTripper
	// within is how long one try may take.
	within time.Duration
	now    func() time.Time
	wait   func(context.Context, time.Duration) error
}

// slow is a try that was given up.
type slow struct{ within time.Duration }

func (e slow) Error() string { return fmt.Sprintf("no answer within %s", e.within) }
func (slow) Timeout() bool   { return true }
func (slow) Temporary() bool { return true }

// RoundTrip makes one request, at most maxTries times.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		attempt := req.Clone(req.Context())
		attempt.Header.Set("Authorization", "Bearer "+t.token)
		if try > 1 && req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			attempt.Body = body
		}
		resp, err := t.attempt(attempt)
		pause, again := t.again(req, resp, err, try)
		if !again || try == maxTries {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		if err := t.wait(req.Context(), pause); err != nil {
			return nil, err
		}
	}
}

// attempt makes one try, and reads its answer while it may still be given up.
func (t *transport) attempt(req *http.Request) (*http.Response, error) {
	ctx, end := context.WithTimeout(req.Context(), t.within)
	defer end()
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err == nil {
		var body []byte
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	switch {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil && req.Context().Err() == nil:
		return nil, slow{t.within}
	}
	return nil, err
}

// again says whether a request is worth another try, and after how long.
func (t *transport) again(req *http.Request, resp *http.Response, err error, try int) (time.Duration, bool) {
	backoff := firstPause << (try - 1)
	repeatable := req.Method != http.MethodPost && (req.Body == nil || req.GetBody != nil)
	if err != nil {
		return backoff, repeatable && req.Context().Err() == nil
	}
	pause, limited := t.limited(resp)
	switch {
	case limited:
		return pause, pause <= maxPause && (req.Body == nil || req.GetBody != nil)
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented:
		return max(backoff, pause), repeatable && pause <= maxPause
	}
	return 0, false
}

// limited says whether an answer is a rate limit's, and how long to wait: what
// Retry-After asks, until the limit is reset, or the minute that GitHub advises. The
// answer's body stays readable.
func (t *transport) limited(resp *http.Response) (time.Duration, bool) {
	var pause time.Duration
	asked := resp.Header.Get("Retry-After")
	if s, err := strconv.ParseUint(asked, 10, 32); err == nil {
		pause = time.Duration(s) * time.Second
	}
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
		return pause, false
	}
	if resp.Header.Get("X-RateLimit-Remaining") == "0" && asked == "" {
		if at, err := strconv.ParseInt(resp.Header.Get("X-RateLimit-Reset"), 10, 64); err == nil {
			return max(time.Unix(at, 0).Sub(t.now()), 0) + time.Second, true
		}
	}
	if asked != "" {
		return pause, true
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if resp.StatusCode == http.StatusTooManyRequests || strings.Contains(strings.ToLower(string(body)), "secondary rate limit") {
		return secondaryPause, true
	}
	return 0, false
}

// wait waits, or returns the context's error.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
