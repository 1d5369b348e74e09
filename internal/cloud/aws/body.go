package aws

import (
	"io"
	"net/http"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
)

// plainBody hides [io.WriterTo] of a request's body. smithy-go closes the body when the
// answer begins, and the body's WriteTo then returns io.EOF: where the answer came before
// net/http looked for the end of the body, net/http takes that for an error and closes the
// connection in the middle of the answer. Its Read has no such fault.
type plainBody struct{ awssdk.HTTPClient }

// Do implements awssdk.HTTPClient.
func (c plainBody) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context()) // a copy: smithy-go closes the body of the request that it made
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.HTTPClient.Do(r)
}
