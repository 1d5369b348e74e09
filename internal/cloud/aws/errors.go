package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// RegionError is a region that does not exist, or that an account has not enabled.
type RegionError struct {
	Region string
	// Reason describes the error.
	Reason string
	// Known lists valid regions; nil if they could not be listed.
	Known []string
}

// Error returns `region "us-east-9": there is no such region; …`.
func (e *RegionError) Error() string {
	s := e.Reason
	if e.Region != "" {
		s = fmt.Sprintf("region %q: %s", e.Region, e.Reason)
	}
	if len(e.Known) > 0 {
		s += "; there are " + strings.Join(e.Known, ", ") + document.DidYouMean(e.Region, e.Known)
	}
	return s
}

// errRepeated is returned for a list with repeating pages, which cannot be read completely.
var errRepeated = errors.New("the list repeats a page")

// errorKinds maps response codes to kinds of errors. Services use many names for the same kind.
var errorKinds = map[string]error{
	"AccessDenied": inventory.ErrDenied, "AccessDeniedException": inventory.ErrDenied,
	"UnauthorizedOperation": inventory.ErrDenied,
	"AuthorizationError":    inventory.ErrDenied, "UnauthorizedAccess": inventory.ErrDenied,
	"Forbidden":                   inventory.ErrDenied,
	"AuthorizationErrorException": inventory.ErrDenied, "NotAuthorized": inventory.ErrDenied,
	"OptInRequired":                 inventory.ErrDenied,
	"SubscriptionRequiredException": inventory.ErrDenied, "AccountProblem": inventory.ErrDenied,
	"AllAccessDisabled": inventory.ErrDenied,

	"ExpiredToken": inventory.ErrUnauthenticated, "ExpiredTokenException": inventory.ErrUnauthenticated,
	"RequestExpired":       inventory.ErrUnauthenticated,
	"InvalidClientTokenId": inventory.ErrUnauthenticated, "UnrecognizedClientException": inventory.ErrUnauthenticated,
	"AuthFailure": inventory.ErrUnauthenticated, "SignatureDoesNotMatch": inventory.ErrUnauthenticated,
	"InvalidSignatureException": inventory.ErrUnauthenticated,
	"InvalidAccessKeyId":        inventory.ErrUnauthenticated, "InvalidToken": inventory.ErrUnauthenticated,
	"TokenRefreshRequired":                inventory.ErrUnauthenticated,
	"MissingAuthenticationToken":          inventory.ErrUnauthenticated,
	"MissingAuthenticationTokenException": inventory.ErrUnauthenticated,
	"IncompleteSignature":                 inventory.ErrUnauthenticated,
	"IncompleteSignatureException":        inventory.ErrUnauthenticated, "NotSignedUp": inventory.ErrUnauthenticated,

	"Throttling": inventory.ErrThrottled, "ThrottlingException": inventory.ErrThrottled,
	"ThrottledException":   inventory.ErrThrottled,
	"RequestLimitExceeded": inventory.ErrThrottled, "RequestThrottled": inventory.ErrThrottled,
	"RequestThrottledException": inventory.ErrThrottled,
	"TooManyRequestsException":  inventory.ErrThrottled, "SlowDown": inventory.ErrThrottled,
	"LimitExceededException":                 inventory.ErrThrottled,
	"ProvisionedThroughputExceededException": inventory.ErrThrottled, "BandwidthLimitExceeded": inventory.ErrThrottled,
	"PriorRequestNotComplete": inventory.ErrThrottled,
	"EC2ThrottledException":   inventory.ErrThrottled, "TransactionInProgressException": inventory.ErrThrottled,
}

// code returns the service's error code, or "" if the response was not the service's own.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// is reports whether the service responded with one of these codes.
func is(err error, codes ...string) bool {
	got := code(err)
	for _, c := range codes {
		if got == c {
			return true
		}
	}
	return false
}

// kindOf classifies an error as ErrDenied, ErrUnauthenticated, ErrThrottled or, for any other
// missing response, ErrUnavailable.
func kindOf(err error) error {
	if k := errorKinds[code(err)]; k != nil {
		return k
	}
	switch statusOf(err) {
	case http.StatusForbidden:
		return inventory.ErrDenied
	case http.StatusUnauthorized:
		return inventory.ErrUnauthenticated
	case http.StatusTooManyRequests:
		return inventory.ErrThrottled
	}
	return inventory.ErrUnavailable
}

// statusOf returns the HTTP status of a response, 0 without one.
func statusOf(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// canceled reports whether the caller canceled. A call that timed out while the caller still waits
// counts as unanswered.
func canceled(ctx context.Context) bool { return ctx.Err() != nil }

// maxReason is the maximum length of a provider's message in a blind spot.
const maxReason = 200

// reason returns the reason of a failed call in one line: the code with the service's message, or
// the failure of the connection.
func reason(err error) (code, detail string) {
	var api smithy.APIError
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, new(*slowError)):
		return "Timeout", oneLine(innermostOf[*slowError](err).Error())
	case errors.As(err, new(*foreignError)):
		return "HTTP 200", "the answer is not the service's"
	case errors.Is(err, errRepeated):
		return "IncompleteList", errRepeated.Error()
	case errors.As(err, &api) && errorKinds[api.ErrorCode()] != nil:
		return api.ErrorCode(), oneLine(api.ErrorMessage())
	case errors.As(err, &dns):
		return "Unreachable", "there is no host " + dns.Name
	case errors.As(err, &op):
		return "Unreachable", oneLine(op.Error())
	case statusOf(err) != 0 && (api == nil || notTheService(err)):
		return fmt.Sprintf("HTTP %d", statusOf(err)), "the answer is not the service's"
	case api != nil:
		return api.ErrorCode(), oneLine(api.ErrorMessage())
	}
	return "Unavailable", oneLine(innermost(err).Error())
}

// notTheService reports whether an error came in a format that the service does not use, such as an
// HTML page of a proxy.
func notTheService(err error) bool {
	var bad *smithy.DeserializationError
	return errors.As(err, &bad) || is(err, "UnknownError", "")
}

// innermost returns the root cause of an error.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// innermostOf returns the innermost error of a type in a chain.
func innermostOf[E error](err error) (found E) {
	errors.As(err, &found)
	return found
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= maxReason {
		return s
	}
	s = s[:maxReason]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// wrapped returns an error with the attempted operation, the kind of failure, and the provider's
// message in one line.
func wrapped(attempt string, err error) error {
	code, detail := reason(err)
	if detail != "" {
		code += ": " + detail
	}
	return fmt.Errorf("%s: %w (%s)", attempt, kindOf(err), code)
}
