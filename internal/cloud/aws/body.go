package aws

import (
	"io"
	"net/http"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
)

// plainBody hides [io.WriterTo] of a request's body. smithy-go closes the body when the response
// begins, and the body's WriteTo then returns io.EOF. If the response arrives before net/http has
// reached the end of the body, net/http treats that as an error and closes the connection in the
// middle of the response. Read does not have this problem.
type plainBody struct{ awssdk.HTTPClient }

// Do implements awssdk.HTTPClient.
func (c plainBody) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context()) // a copy, because smithy-go closes the body of its own request
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.HTTPClient.Do(r)
}
