package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// HTTP makes the requests of channels. It follows no redirect, so that neither
// secrets nor messages go to an unconfigured host.
type HTTP struct {
	// Secrets are kept out of errors.
	Secrets Secrets
}

// maxBody bounds how much of an answer is read.
const maxBody = 1 << 20

// Do makes a request. An answer other than 2xx, or none, is an error: a *Failure,
// or that of a canceled context. The answer's body is in memory.
func (h *HTTP) Do(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "curfew")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, h.unanswered(req.Context(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := refusal(resp, time.Now()); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, h.unanswered(req.Context(), err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// unanswered says why there is no answer. The words for an answer that cannot be read
// are left out, because they repeat it, and with it perhaps the request.
func (h *HTTP) unanswered(ctx context.Context, err error) error {
	// A *url.Error repeats the URL.
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	if final, temporary := network(err); !final && !temporary && ctx.Err() == nil {
		return &Failure{Why: "the answer cannot be read as HTTP (is that the right URL?)"}
	}
	return h.Secrets.Unreachable(ctx, err)
}

// refusal is what an answer's status refuses a message for; nil for 2xx. The body
// and the reason phrase are left out, because a server may repeat the request there.
func refusal(resp *http.Response, now time.Time) error {
	code := resp.StatusCode
	f := &Failure{Why: strings.TrimSpace(fmt.Sprintf("answered %d %s", code, http.StatusText(code)))}
	switch {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400:
		f.Why += ": redirects are not followed, give the final URL"
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout,
		code >= 500 && code != http.StatusNotImplemented && code != http.StatusHTTPVersionNotSupported:
		f.Temporary = true
		f.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), now)
	}
	return f
}

// maxRetryAfter bounds, in seconds, what a server can ask for.
const maxRetryAfter = 24 * 60 * 60

// retryAfter reads Retry-After (RFC 9110, 10.2.3): seconds, or a date; from 0 to a
// day. What cannot be read, or is over, is no wish.
func retryAfter(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return time.Duration(min(n, maxRetryAfter)) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter*time.Second)
	}
	return 0
}
