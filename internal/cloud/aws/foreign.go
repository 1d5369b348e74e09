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
	// attemptTimeout bounds one attempt of a call including its response.
	attemptTimeout = 20 * time.Second
	// secondLook is the delay before a resource reported missing is looked up again.
	secondLook = time.Second
)

// foreignError is returned for a successful response that is not from the service: an empty body,
// or a page of a proxy. The SDK would read it as an empty result.
type foreignError struct{ operation string }

func (e *foreignError) Error() string {
	return "the answer to " + e.operation + " is not the service's"
}

// slowError is returned for an attempt that timed out, which the SDK retries. It does not wrap the
// attempt's error, because a canceled context would look as if the caller had canceled.
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

// attempted makes one attempt of a call with a time limit. The content of an object is read
// afterwards, and may take as long as data keeps arriving.
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

// stream is the content of an object, with a time limit for each part.
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

// genuine refuses responses that are not from the service.
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

// opening is the number of bytes of a response that identify its protocol.
const opening = 1024

// speaks reports whether a response begins like the service's protocol. Responses to read calls are
// never empty; the query protocols always name the operation.
func speaks(service, operation string, asked *smithyhttp.Request, body *bufio.Reader) bool {
	text, err := body.Peek(opening)
	if err != nil && !errors.Is(err, io.EOF) {
		return true // the SDK reports the failure
	}
	kind := ""
	if asked != nil {
		kind = asked.Header.Get("Content-Type")
		if asked.Method == "HEAD" || operation == "GetObject" { // any content is valid
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

// root returns the name of the root element of an XML document, or "".
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

// unclear returns the error for a response without the resource requested by name: its state is
// unknown, because the service responds differently for missing resources.
func unclear(attempt string) error {
	return fmt.Errorf("%s: %w: the answer does not hold it, and does not say that it is gone", attempt,
		inventory.ErrUnavailable)
}

// twice looks up a missing resource again: only one that is missing twice is gone.
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
