package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/httpclient"
)

// HTTP makes the requests of channels. It follows no redirect, so that neither
// secrets nor messages go to an unconfigured host. It sends each request once: [Router]
// repeats whole deliveries, those by mail as well.
type HTTP struct {
	secrets Secrets
	client  *httpclient.Client
}

// NewHTTP returns an HTTP that keeps secrets out of errors.
func NewHTTP(secrets Secrets) *HTTP {
	return &HTTP{secrets: secrets, client: httpclient.New(httpclient.Options{Attempts: 1})}
}

// maxBody bounds how much of an answer is read.
const maxBody = 1 << 20

// Do makes a request. An answer other than 2xx, or none, is an error: a *Failure,
// or that of a canceled context. The answer's body is in memory.
func (h *HTTP) Do(req *http.Request) (*http.Response, error) {
	resp, err := h.client.Do(req)
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

// unanswered explains why there is no answer. The text of a malformed answer is left out, because
// it may repeat the request.
func (h *HTTP) unanswered(ctx context.Context, err error) error {
	// A *url.Error repeats the URL.
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	if final, temporary := network(err); !final && !temporary && ctx.Err() == nil {
		return &Failure{Why: "the answer cannot be read as HTTP (is that the right URL?)"}
	}
	return h.secrets.Unreachable(ctx, err)
}

// refusal returns the error for the status of an answer; nil for 2xx. The body and the reason
// phrase are left out, because a server may repeat the request there.
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
		f.RetryAfter, _ = httpclient.RetryAfter(resp.Header, now)
	}
	return f
}
