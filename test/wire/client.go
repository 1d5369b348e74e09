package wire

import (
	"io"
	"net/http"
)

// Client is the HTTP client for an SDK of a test that speaks to a Server. It hides
// io.WriterTo of a request's body, as curfew's own client does: smithy-go closes the body
// when the answer begins, and where net/http then still looks for the body's end, WriteTo
// makes it close the connection in the middle of the answer.
type Client struct{}

// Do implements the SDK's HTTPClient.
func (Client) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context()) // a copy, because smithy-go closes the body of its own
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return http.DefaultClient.Do(r)
}
