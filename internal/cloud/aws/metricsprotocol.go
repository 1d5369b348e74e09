package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/schemas"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/aws/smithy-go/transport/http/protocol/awsquery"
)

// metricsProtocol makes a client of CloudWatch speak the protocol of its endpoint: the SDK begins
// with AWS's CBOR, and other implementations of the API have the Query protocol. A call in CBOR
// that gets another kind of answer is made again as a query, and after one successful query all
// calls are queries.
func metricsProtocol(o *cloudwatch.Options) {
	both := &metricsProtocols{ClientProtocol: o.Protocol, query: awsquery.New(schemas.GraniteServiceVersion20100801)}
	o.Protocol = both
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		// Last, so that a repeated call is one call for the middleware before.
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("CurfewProtocol", both.call), middleware.After)
	})
}

// metricsProtocols is CBOR, and the Query protocol for calls whose context says so.
type metricsProtocols struct {
	smithyhttp.ClientProtocol
	query smithyhttp.ClientProtocol
	// speaksQuery is true once the endpoint has answered a query.
	speaksQuery atomic.Bool
}

// queryKey marks a call that is made as a query.
type queryKey struct{}

// call makes a call in the protocol of the endpoint.
func (p *metricsProtocols) call(
	ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
) (middleware.InitializeOutput, middleware.Metadata, error) {
	if !p.speaksQuery.Load() {
		out, meta, err := next.HandleInitialize(ctx, in)
		if !unspoken(err) {
			return out, meta, err
		}
	}
	out, meta, err := next.HandleInitialize(middleware.WithStackValue(ctx, queryKey{}, true), in)
	if err == nil {
		p.speaksQuery.Store(true)
	}
	return out, meta, err
}

// unspoken reports whether an endpoint that does not know CBOR refused a call in it. CloudWatch marks
// each of its answers with their protocol, refusals included.
func unspoken(err error) bool {
	var inXML *xmlError
	if errors.As(err, &inXML) {
		return true
	}
	var answer *smithyhttp.ResponseError
	if !errors.As(err, &answer) || answer.Response == nil || answer.Response.Header.Get("Smithy-Protocol") != "" {
		return false
	}
	switch status := answer.HTTPStatusCode(); status {
	case http.StatusTooManyRequests:
		return false
	case http.StatusNotImplemented:
		return true
	default:
		return status/100 == 4
	}
}

func (p *metricsProtocols) of(ctx context.Context) smithyhttp.ClientProtocol {
	if asQuery, _ := middleware.GetStackValue(ctx, queryKey{}).(bool); asQuery {
		return p.query
	}
	return p.ClientProtocol
}

// SerializeRequest implements [smithyhttp.ClientProtocol].
func (p *metricsProtocols) SerializeRequest(
	ctx context.Context, schema *smithy.OperationSchema, in smithy.Serializable, req *smithyhttp.Request,
) error {
	return p.of(ctx).SerializeRequest(ctx, schema, in, req)
}

// DeserializeResponse implements [smithyhttp.ClientProtocol].
func (p *metricsProtocols) DeserializeResponse(
	ctx context.Context, schema *smithy.OperationSchema, types *smithy.TypeRegistry,
	resp *smithyhttp.Response, out smithy.Deserializable,
) error {
	protocol := p.of(ctx)
	if protocol == p.ClientProtocol && resp.StatusCode >= http.StatusInternalServerError &&
		resp.Header.Get("Smithy-Protocol") == "" && strings.Contains(resp.Header.Get("Content-Type"), "xml") {
		return &xmlError{resp.StatusCode}
	}
	return protocol.DeserializeResponse(ctx, schema, types, resp, out)
}

// xmlError is the failure of an endpoint that took a call in CBOR for a query without an action:
// LocalStack answers so. The same call would fail again.
type xmlError struct{ status int }

func (e *xmlError) Error() string {
	return fmt.Sprintf("HTTP %d in XML to a call in CBOR", e.status)
}
func (*xmlError) RetryableError() bool { return false }
