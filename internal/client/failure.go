package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/httpclient"
)

// Error is the problem document of a failed call (RFC 9457), with the exit code and hint for the
// command line.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Exit is the exit code of the command line.
	Exit int
	// Code is the stable name of the error, Detail its description, Hint the suggested next step.
	Code, Detail, Hint string
	// Shown reports that Document alone describes the failure.
	Shown bool
	// Document is the partial result; nil if there is none.
	Document json.RawMessage
}

// CursorGone is the error code for a page whose cursor refers to an item that no longer exists.
const CursorGone = "cursor_gone"

// Error implements error.
func (e *Error) Error() string { return e.Detail }

// Unreached is returned if a service cannot be reached or does not answer in time.
type Unreached struct {
	// Server is the scheme and host of the service.
	Server string
	// Why is the cause. Certificate reports that the service's certificate was refused, and Sent
	// that the call may have been carried out.
	Why               string
	Certificate, Sent bool
}

// Error implements error.
func (e *Unreached) Error() string {
	text := "reach " + e.Server + ": " + e.Why
	if e.Sent {
		text += "; it may have been carried out"
	}
	return text
}

// exits maps HTTP statuses to exit codes for problem documents without a valid one; others exit
// with 1.
var exits = map[int]int{
	http.StatusUnauthorized: 4, http.StatusForbidden: 4, http.StatusConflict: 3, http.StatusBadRequest: 2,
	http.StatusRequestEntityTooLarge: 2,
	http.StatusUnprocessableEntity:   2}

// problem returns the error of a response with status 300 or higher.
func (c *Client) problem(a answer, kind string) error {
	var p struct {
		Code, Detail, Hint string
		Exit               int
		Shown              bool
		Document           json.RawMessage
		Errors             []struct{ Message, Location string }
	}
	if err := json.Unmarshal(a.body, &p); err != nil || kind != "application/problem+json" {
		return c.noService(a, kind)
	}
	if p.Exit < 1 || p.Exit > 5 {
		if p.Exit = exits[a.status]; p.Exit == 0 {
			p.Exit = 1
		}
	}
	for _, e := range p.Errors {
		p.Detail += ": " + e.Message + " (" + e.Location + ")"
	}
	if p.Detail == "" {
		p.Detail = fmt.Sprintf("%s answered %d %s", c.base, a.status, http.StatusText(a.status))
	}
	return &Error{
		Status: a.status, Exit: p.Exit, Code: p.Code, Detail: c.hidden(p.Detail),
		Hint: c.hidden(p.Hint), Shown: p.Shown,
		Document: p.Document,
	}
}

// noService returns the error for a response that does not come from a curfew service.
func (c *Client) noService(a answer, kind string) error {
	if kind == "" {
		kind = "nothing that can be read"
	}
	return fmt.Errorf("%s is no curfew service, or is behind a proxy: it answered %d with %s", c.base, a.status,
		c.hidden(kind))
}

// Bounds of the attempts of one call.
const (
	firstWait = 200 * time.Millisecond
	maxWait   = 10 * time.Second
	// lostTries bounds the attempts of a call that gets no response, or 502, 503 or 504.
	lostTries = 4
	// maxAttempts bounds the attempts of a call that the service defers; the timeout ends it
	// earlier.
	maxAttempts = 1000
	// maxProblem bounds the part of a problem document, in bytes, that retry reads.
	maxProblem = 64 << 10
)

// retry adjusts the decision to the service's error codes and its Retry-After header.
func retry(a httpclient.Attempt, d httpclient.Decision) httpclient.Decision {
	if a.Err != nil {
		var unproven *Unproven
		d.Again = d.Again && a.Number < lostTries && !errors.As(a.Err, &unproven)
		return d
	}
	var p struct{ Code string }
	switch a.Response.StatusCode {
	case http.StatusTooManyRequests: // the call had no effect
		d.Again = true
	case http.StatusConflict:
		d.Again = json.Unmarshal(a.Peek(maxProblem), &p) == nil && p.Code == "in_progress"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		_ = json.Unmarshal(a.Peek(maxProblem), &p) // a proxy's error page has no code
		d.Again = p.Code != "no_state" && httpclient.Idempotent(a.Request) && a.Number < lostTries
	}
	if s, err := strconv.Atoi(a.Response.Header.Get("Retry-After")); err == nil && s >= 0 {
		d.Wait = min(time.Duration(s)*time.Second, maxWait)
	}
	return d
}

// certificate returns the reason why a certificate was refused; empty for other errors.
func certificate(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var other *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is not signed by an authority that counts here"
	case errors.As(err, &host):
		return "its certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &other):
		return "its certificate does not count: " + other.Err.Error()
	}
	return ""
}

// unreached converts a transport error to the error of the call.
func (c *Client) unreached(r request, err error) error {
	var unproven *Unproven
	if errors.As(err, &unproven) {
		return unproven
	}
	e := &Unreached{Server: c.base, Sent: r.method != http.MethodGet && !httpclient.NotSent(err)}
	if why := certificate(err); why != "" {
		e.Why, e.Certificate, e.Sent = why, true, false
		return e
	}
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	var plainHTTP tls.RecordHeaderError
	var large *httpclient.TooLargeError
	var timeout *httpclient.TimeoutError
	switch {
	case errors.As(err, &large):
		e.Why = "its answer is over 512 MiB"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout):
		e.Why = "it did not answer within " + c.o.Timeout.String()
	case errors.As(err, &plainHTTP):
		e.Why, e.Sent = "no TLS there; is it http, or another port", false
	default:
		e.Why = c.hidden(err.Error())
	}
	return e
}
