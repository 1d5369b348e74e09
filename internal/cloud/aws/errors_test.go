package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// apiError is an error response of a service.
type apiError struct{ code, message string }

func (e *apiError) Error() string                 { return e.code + ": " + e.message }
func (e *apiError) ErrorCode() string             { return e.code }
func (e *apiError) ErrorMessage() string          { return e.message }
func (e *apiError) ErrorFault() smithy.ErrorFault { return smithy.FaultUnknown }

// answered wraps an error in an HTTP response, like the SDK.
func answered(status int, err error) error {
	return fmt.Errorf("operation error: %w", &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err,
	})
}

func TestReasons(t *testing.T) {
	for _, tc := range []struct {
		name         string
		err          error
		kind         error
		code, detail string
	}{
		{
			name: "denied", err: answered(403, &apiError{"AccessDeniedException", "User: x is not\n authorized"}),
			kind: inventory.ErrDenied,
			code: "AccessDeniedException", detail: "User: x is not authorized"},
		{
			name: "denied in EC2's words", err: answered(403, &apiError{"UnauthorizedOperation", "no"}),
			kind: inventory.ErrDenied, code: "UnauthorizedOperation", detail: "no",
		},
		{
			name: "throttled", err: answered(400, &apiError{"ThrottlingException", "Rate exceeded"}),
			kind: inventory.ErrThrottled, code: "ThrottlingException", detail: "Rate exceeded",
		},
		{
			name: "expired", err: answered(400, &apiError{"ExpiredTokenException", "too old"}),
			kind: inventory.ErrUnauthenticated, code: "ExpiredTokenException", detail: "too old",
		},
		{
			name: "forbidden without a code", err: answered(403, errors.New("?")), kind: inventory.ErrDenied,
			code: "HTTP 403", detail: "the answer is not the service's",
		},
		{
			name: "an HTML page",
			err:  answered(500, &smithy.DeserializationError{Err: errors.New("invalid character '<'")}),
			kind: inventory.ErrUnavailable,
			code: "HTTP 500", detail: "the answer is not the service's"},
		{
			name: "not offered", err: answered(400, &apiError{"InvalidAction", "no such action"}),
			kind: inventory.ErrUnavailable, code: "InvalidAction", detail: "no such action",
		},
		{
			name: "no host",
			err:  fmt.Errorf("send: %w", &net.DNSError{Err: "no such host", Name: "fsx.nowhere.amazonaws.com"}),
			kind: inventory.ErrUnavailable,
			code: "Unreachable", detail: "there is no host fsx.nowhere.amazonaws.com"},
		{
			name: "endless list", err: errRepeated, kind: inventory.ErrUnavailable, code: "IncompleteList",
			detail: "the list repeats a page",
		},
		{
			name: "anything else", err: fmt.Errorf("a: %w", errors.New("b")), kind: inventory.ErrUnavailable,
			code: "Unavailable", detail: "b",
		},
	} {
		code, detail := reason(tc.err)
		if code != tc.code || detail != tc.detail {
			t.Errorf("%s: the reason is %q, %q; want %q, %q", tc.name, code, detail, tc.code, tc.detail)
		}
		if got := kindOf(tc.err); !errors.Is(got, tc.kind) {
			t.Errorf("%s: it is %v, want %v", tc.name, got, tc.kind)
		}
		if err := wrapped("read x", tc.err); !errors.Is(err, tc.kind) || !strings.HasPrefix(err.Error(), "read x: ") {
			t.Errorf("%s: wrapped it is %v", tc.name, err)
		}
	}
}

func TestCanceledCallIsNoFailure(t *testing.T) {
	s := &scan{unread: map[string]bool{}, partial: map[partialKey]*partialFailure{}}
	p := &place{scan: s, region: "us-east-1", account: &account{id: "1"}}
	ctx, cancel := context.WithCancel(t.Context())
	p.failed(t.Context(), "ec2:DescribeVolumes", nil)
	cancel()
	p.failed(ctx, "ec2:DescribeVolumes", errors.New("x"))
	p.missed(ctx, "ecr:DescribeImages", "a", errors.New("x"))
	s.flushPartial()
	if len(s.blindSpots)+len(s.unread) != 0 {
		t.Errorf("got %v, %v; want nothing", s.blindSpots, s.unread)
	}
	p.failed(t.Context(), "ec2:DescribeVolumes", fmt.Errorf("a try was given up: %w", context.Canceled))
	if len(s.blindSpots) != 1 || len(s.unread) != 1 {
		t.Errorf("got %v, %v; want a call that was not answered, while its caller still waits", s.blindSpots, s.unread)
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine(" a\n\tb  c "); got != "a b c" {
		t.Errorf("got %q", got)
	}
	if got := oneLine(strings.Repeat("ä", maxReason)); len(got) > maxReason+len("…") || !strings.HasSuffix(got, "ä…") {
		t.Errorf("a long line ends in %q", got[len(got)-8:])
	}
}
