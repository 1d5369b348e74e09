package aws

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/wait"
)

const (
	// attemptTimeout bounds one try of a call, its answer read to the end.
	attemptTimeout = 20 * time.Second
	// secondLook is how long after the first answer that something is not there it is
	// asked for again.
	secondLook = time.Second
)

// foreignError is an answer that says it is well and is not the service's: an empty body,
// or the page of something in between. The SDK would take it for an answer without
// anything in it.
type foreignError struct{ operation string }

func (e *foreignError) Error() string {
	return "the answer to " + e.operation + " is not the service's"
}

// slowError is a try that was given up. The SDK tries again what says that it timed out. It
// does not wrap what the try returned: that its context was canceled, which would read as if
// the caller had given up.
type slowError struct {
	operation string
	after     time.Duration
}

func (e *slowError) Error() string {
	return fmt.Sprintf("%s was not answered within %s", e.operation, e.after)
}
func (*slowError) Timeout() bool         { return true }
func (*slowError) RetryableError() bool  { return true }
func (*slowError) ConnectionError() bool { return true }

// attempted makes one try of a call, which is given up when its answer takes too long. The
// content of an object is read afterwards, and may take as long as it goes on.
func attempted(ctx context.Context, timeout time.Duration, in middleware.FinalizeInput,
	next middleware.FinalizeHandler) (
	out middleware.FinalizeOutput, meta middleware.Metadata, err error,
) {
	bounded, end := context.WithCancel(ctx)
	timer := time.AfterFunc(timeout, end)
	out, meta, err = next.HandleFinalize(bounded, in)
	late := !timer.Stop()
	if object, ok := out.Result.(*s3.GetObjectOutput); ok && err == nil && !late {
		object.Body = &stream{object.Body, timer, timeout, end}
		return out, meta, nil
	}
	end()
	if err != nil && late && ctx.Err() == nil {
		err = &slowError{awsmiddleware.GetOperationName(ctx), timeout}
	}
	return out, meta, err
}

// stream is the content of an object, each part of which has to come in time.
type stream struct {
	io.ReadCloser
	timer   *time.Timer
	timeout time.Duration
	end     context.CancelFunc
}

func (s *stream) Read(p []byte) (int, error) {
	s.timer.Reset(s.timeout)
	n, err := s.ReadCloser.Read(p)
	if late := !s.timer.Stop(); late && err != nil && !errors.Is(err, io.EOF) {
		err = &slowError{"GetObject", s.timeout}
	}
	return n, err
}

func (s *stream) Close() error {
	defer s.end()
	return s.ReadCloser.Close()
}

// genuine refuses answers that are not the service's.
func genuine(stack *middleware.Stack) error {
	check := func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
		middleware.DeserializeOutput, middleware.Metadata, error,
	) {
		out, meta, err := next.HandleDeserialize(ctx, in)
		answer, ok := out.RawResponse.(*smithyhttp.Response)
		if err != nil || !ok || answer.StatusCode/100 != 2 {
			return out, meta, err
		}
		asked, _ := in.Request.(*smithyhttp.Request)
		operation := awsmiddleware.GetOperationName(ctx)
		body := bufio.NewReader(answer.Body)
		if !speaks(awsmiddleware.GetServiceID(ctx), operation, asked, body) {
			_ = answer.Body.Close()
			return out, meta, &foreignError{operation}
		}
		answer.Body = readCloser{body, answer.Body}
		return out, meta, nil
	}
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("CurfewGenuine", check), middleware.After)
}

type readCloser struct {
	io.Reader
	io.Closer
}

// opening is how many bytes of an answer tell which service sent it.
const opening = 1024

// speaks reports whether an answer begins as the service's protocol has it. An answer to a
// call that only reads is never empty; the protocols with forms always name the operation.
func speaks(service, operation string, asked *smithyhttp.Request, body *bufio.Reader) bool {
	text, err := body.Peek(opening)
	if err != nil && !errors.Is(err, io.EOF) {
		return true // the SDK reports the failure
	}
	kind := ""
	if asked != nil {
		kind = asked.Header.Get("Content-Type")
		if asked.Method == "HEAD" || operation == "GetObject" { // it may hold anything
			return true
		}
	}
	head := strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff"))
	reads := false
	for _, verb := range []string{"Describe", "Get", "List", "BatchGet"} {
		reads = reads || strings.HasPrefix(operation, verb)
	}
	switch {
	case strings.Contains(kind, "form-urlencoded"):
		return root(head) == operation+"Response"
	case head == "":
		return !reads
	case strings.Contains(kind, "cbor"):
		return !strings.HasPrefix(head, "<")
	case service == "S3":
		return strings.HasPrefix(head, "{") || root(head) != "" && !strings.EqualFold(root(head), "html")
	}
	return strings.HasPrefix(head, "{")
}

// root returns the name of the first element of an XML document; empty where there is
// none.
func root(text string) string {
	for {
		_, rest, ok := strings.Cut(text, "<")
		if !ok {
			return ""
		}
		if text = rest; strings.HasPrefix(text, "?") || strings.HasPrefix(text, "!") {
			continue
		}
		if end := strings.IndexAny(text, " \t\r\n/>"); end > 0 {
			return text[:end]
		}
		return ""
	}
}

// unclear is the error for an answer that lacks the resource requested by name: its state is
// unknown, because the service has another answer for resources that do not exist.
func unclear(attempt string) error {
	return fmt.Errorf("%s: %w: the answer does not hold it, and does not say that it is gone", attempt,
		inventory.ErrUnavailable)
}

// twice asks again for a missing resource: only one that is missing twice is gone.
func twice[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	v, err := ask()
	if !errors.Is(err, inventory.ErrNotFound) {
		return v, err
	}
	if err := wait.For(ctx, secondLook); err != nil {
		return v, err
	}
	return ask()
}
