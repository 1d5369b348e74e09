package notify

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Failure is why a channel did not take a message, in one line and without secrets.
// One that is not Temporary is final: trying again would be answered alike.
type Failure struct {
	Why       string
	Temporary bool
	// RetryAfter is how long the other side asks to wait; 0 is no wish.
	RetryAfter time.Duration
}

// Error returns the reason.
func (f *Failure) Error() string { return f.Why }

// Secrets are texts that a channel must never repeat, not even from a server's answer.
type Secrets []string

// hidden stands where a secret was.
const hidden = "[hidden]"

// maxAnswer bounds, in characters, how much of another side's words an error holds.
const maxAnswer = 200

// Clean makes text from the other side fit for an error: without the secrets, plain,
// quoted, escaped for URLs or in base64, in one line and not too long.
func (s Secrets) Clean(text string) string {
	for _, secret := range s {
		if secret == "" {
			continue
		}
		for _, form := range []string{
			secret, strings.Trim(strconv.Quote(secret), `"`), url.QueryEscape(secret), url.PathEscape(secret),
			base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret))} {
			text = strings.ReplaceAll(text, form, hidden)
		}
	}
	return plain.Cut(plain.Line(text), maxAnswer)
}

// Unreachable explains why a server was not reached or did not answer. What a name, a certificate
// or the protocol is refused for is final; the network's own failures are temporary. A context that
// was canceled is returned as it is.
func (s Secrets) Unreachable(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return &Failure{Why: "no answer in time", Temporary: true}
	}
	_, temporary := network(err)
	return &Failure{Why: s.Clean(err.Error()), Temporary: temporary}
}

// network reports whether the network or its names and certificates caused an error, finally or
// temporarily; both are false for other errors.
func network(err error) (final, temporary bool) {
	var (
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		other       net.Error
	)
	final = errors.As(err, &certificate) || errors.As(err, &name) && name.IsNotFound
	temporary = errors.As(err, &other) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed)
	return final, temporary && !final
}
