// Package prom reads what Prometheus-compatible servers recorded of machines and their
// GPUs: Prometheus, VictoriaMetrics, Thanos, Mimir, Amazon Managed Prometheus. It asks
// instant queries and nothing else; it never writes to a server.
package prom

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
	"time"
	"unicode"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Bounds of what one query may cost.
const (
	// DefaultTimeout bounds a query; Prometheus's own bound is two minutes.
	DefaultTimeout = 2 * time.Minute
	// maxBody is the largest answer that is read, unpacked. A longer one is asked for again
	// in two parts.
	maxBody = 256 << 20
	// maxSeries bounds the series of one answer.
	maxSeries = 1_000_000
	// tries is how often a busy server is asked, longestWait how long it may put off.
	tries       = 4
	longestWait = 30 * time.Second
	// maxMessage bounds how much of a server's words an error holds.
	maxMessage = 300
	// skew is how far a server's clock may be from ours: two scrapes of a slow job.
	skew = 2 * time.Minute
)

// Access says where a server is and how it knows the reader. Secrets are sent over https
// alone, or to this machine.
type Access struct {
	// URL is the server's address without /api/v1: "http://prometheus:9090",
	// "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1".
	URL string
	// Token is a bearer token; User and Password are for basic authentication.
	Token, User, Password string
	// Headers are sent with every request: X-Scope-OrgID names a tenant of Mimir.
	Headers map[string]string
	// TLS holds the client's certificate and the authorities that are trusted; nil: those
	// of the system.
	TLS *tls.Config
	// Sign signs a request whose body has that SHA-256, as AWS wants; nil: none.
	Sign func(ctx context.Context, r *http.Request, bodySHA256 string) error
	// Timeout bounds each query; zero means DefaultTimeout.
	Timeout time.Duration
	// Now is the clock of this machine; nil compares no clocks.
	Now func() time.Time
}

// server asks one server.
type server struct {
	Access
	client *http.Client
	host   string
	asked  Asked
	// warning is what the server warned of last; empty: nothing.
	warning string
	// wait waits between two tries.
	wait func(ctx context.Context, d time.Duration) error
}

// Asked is what reading has cost.
type Asked struct{ Queries, Bytes int64 }

func newServer(a Access) (*server, error) {
	u, err := url.Parse(a.URL)
	word := func(s string) bool {
		return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	}
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("read metrics: the server's address is no URL such as http://prometheus:9090")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("read metrics of %s: the address may hold no user, query or fragment; configure them under metrics.sources", u.Host)
	case !word(a.Token):
		return nil, fmt.Errorf("read metrics of %s: the token is not one word", u.Host)
	case a.Token != "" && (a.User != "" || a.Sign != nil), a.User != "" && a.Sign != nil:
		return nil, fmt.Errorf("read metrics of %s: a bearer token, a password and a region of AWS exclude one another", u.Host)
	case u.Scheme == "http" && !local(u.Hostname()) && (a.Token != "" || a.User != "" || a.Sign != nil):
		return nil, fmt.Errorf("read metrics of %s: http would send the credentials in the clear; use https", u.Host)
	}
	if a.Timeout <= 0 {
		a.Timeout = DefaultTimeout
	}
	a.URL = strings.TrimRight(a.URL, "/")
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = a.TLS
	return &server{Access: a, host: u.Host, wait: sleep, client: &http.Client{
		Transport: transport,
		// Credentials and queries go where they were configured and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// errTooMuch says that the server refused or could not answer one query because it is too
// large: half of it may be answered.
var errTooMuch = errors.New("the answer is too large")

// instant asks an instant query at a time and hands each the series of the answer. What
// was handed on before an error is not to be used.
func (s *server) instant(ctx context.Context, query string, at time.Time, each func(series) error) error {
	// Without nocache VictoriaMetrics moves the ends of long ranges.
	form := url.Values{"nocache": {"1"}, "query": {query}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)},
		"timeout": {strconv.FormatFloat(s.Timeout.Seconds(), 'f', 0, 64) + "s"}}
	body := []byte(form.Encode())
	for try := 1; ; try++ {
		again, err := s.ask(ctx, body, each)
		if again < 0 || err == nil {
			return err
		}
		if try == tries {
			return fmt.Errorf("%w, %d times", err, tries)
		}
		if again == 0 {
			again = time.Duration(1<<try) * 250 * time.Millisecond
		}
		if err := s.wait(ctx, min(again, longestWait)); err != nil {
			return err
		}
	}
}

// ask sends a query once. again is negative where asking again is no use, else after
// which time the server wants to be asked again, 0 where it does not say.
func (s *server) ask(ctx context.Context, body []byte, each func(series) error) (again time.Duration, err error) {
	const never = -1
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("no whole answer within %s: %w", plain.Duration(s.Timeout), errTooMuch))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/v1/query", bytes.NewReader(body))
	if err != nil {
		return never, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("User-Agent", "curfew")
	for k, v := range s.Headers {
		req.Header.Set(k, v)
	}
	switch {
	case s.Token != "":
		req.Header.Set("Authorization", "Bearer "+s.Token)
	case s.User != "":
		req.SetBasicAuth(s.User, s.Password)
	case s.Sign != nil:
		sum := sha256.Sum256(body)
		if err := s.Sign(ctx, req, hex.EncodeToString(sum[:])); err != nil {
			return never, fmt.Errorf("sign the request: %w", err)
		}
	}
	s.asked.Queries++
	resp, err := s.client.Do(req)
	if err != nil {
		return s.unreached(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := &bounded{r: resp.Body, left: maxBody}
	defer func() { s.asked.Bytes += maxBody - in.left }()
	if resp.StatusCode != http.StatusOK {
		return s.refused(resp, in)
	}
	if kind := resp.Header.Get("Content-Type"); strings.Contains(kind, "html") {
		return never, errors.New("it answers with HTML and not as Prometheus's API; is its address right, and is a sign-in in between?")
	}
	if err := s.sameTime(resp); err != nil {
		return never, err
	}
	err = decode(in, each, func(w string) {
		if !strings.HasPrefix(w, "PromQL info:") { // hints were warnings before version 3
			s.warning = s.clean(w)
		}
	})
	var said *apiError
	switch {
	case errors.Is(err, errTooMuch):
		return never, err
	case ctx.Err() != nil:
		return never, context.Cause(ctx)
	case errors.As(err, &said):
		return never, s.said(*said)
	case err != nil:
		return never, fmt.Errorf("the answer is not that of Prometheus's API: %s", s.clean(err.Error()))
	}
	return never, nil
}

// sameTime says whether the server's clock is ours. A server whose clock is ahead calls old
// samples new.
func (s *server) sameTime(resp *http.Response) error {
	// A proxy may leave the server's time out.
	if theirs, err := http.ParseTime(resp.Header.Get("Date")); err == nil && s.Now != nil {
		switch d := theirs.Sub(s.Now()).Round(time.Minute); {
		case d > skew:
			return fmt.Errorf("its clock is %s ahead of this machine's", plain.Duration(d))
		case d < -skew:
			return fmt.Errorf("its clock is %s behind this machine's", plain.Duration(-d))
		}
	}
	return nil
}

// unreached says why there is no answer.
func (s *server) unreached(ctx context.Context, err error) (again time.Duration, _ error) {
	if ctx.Err() != nil {
		return -1, context.Cause(ctx)
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return -1, fmt.Errorf("its certificate is not trusted: %s", s.clean(certificate.Err.Error()))
	}
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	return 0, fmt.Errorf("it is not reached: %s", s.clean(err.Error()))
}

// apiError is what the API says of a query that failed.
type apiError struct{ kind, message string }

// Error implements error.
func (e *apiError) Error() string { return e.kind + ": " + e.message }

// refused says what a status other than 200 means.
func (s *server) refused(resp *http.Response, in io.Reader) (again time.Duration, err error) {
	text, _ := io.ReadAll(io.LimitReader(in, 64<<10)) // what there is of it
	var body struct {
		Type    string `json:"errorType"`
		Message string `json:"error"`
	}
	said := apiError{message: resp.Status}
	if json.Unmarshal(text, &body) == nil && body.Message != "" {
		said = apiError{body.Type, body.Message}
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway:
		if said.kind == "timeout" {
			return -1, s.said(said)
		}
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 && n < 3600 {
			again = time.Duration(n) * time.Second
		}
		return again, fmt.Errorf("it is busy: %s", s.clean(said.message))
	case http.StatusGatewayTimeout, http.StatusRequestEntityTooLarge:
		return -1, fmt.Errorf("it gave the query up (%s): %w", s.clean(said.message), errTooMuch)
	case http.StatusUnauthorized, http.StatusForbidden:
		return -1, fmt.Errorf("it refuses to answer (%s); are its credentials configured under metrics.sources?", s.clean(said.message))
	case http.StatusNotFound:
		return -1, fmt.Errorf("it knows no such path (%s); give its address as it is before /api/v1", s.clean(said.message))
	}
	return -1, s.said(said)
}

// limits are words by which servers say that a query is too large.
var limits = []string{"too many", "limit", "exceed", "more than", "too much", "timed out"}

func (s *server) said(e apiError) error {
	message := s.clean(e.message)
	lower := strings.ToLower(message)
	for _, word := range limits {
		if strings.Contains(lower, word) {
			return fmt.Errorf("it refuses the query (%s): %w", message, errTooMuch)
		}
	}
	return fmt.Errorf("it refuses the query: %s", message)
}

// clean makes a server's words fit for an error: one line, not too long, no secret.
func (s *server) clean(text string) string {
	for _, secret := range []string{s.Token, s.Password} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[hidden]")
		}
	}
	return plain.Cut(plain.Line(text), maxMessage)
}

// bounded reads at most so many bytes and says that there are more.
type bounded struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("it is over %d MiB: %w", maxBody>>20, errTooMuch)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}
