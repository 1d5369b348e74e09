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

// metricsProtocol makes a CloudWatch client use the protocol of its endpoint: the SDK uses AWS's
// CBOR, while other implementations of the API have the Query protocol. A CBOR call with a foreign
// response is repeated as a query, and after one successful query all calls are queries.
func metricsProtocol(o *cloudwatch.Options) {
	both := &metricsProtocols{ClientProtocol: o.Protocol, query: awsquery.New(schemas.GraniteServiceVersion20100801)}
	o.Protocol = both
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		// Last, so that a repeated call counts as one for earlier middleware.
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("CurfewProtocol", both.call), middleware.After)
	})
}

// metricsProtocols is CBOR, and the Query protocol for calls marked in their context.
type metricsProtocols struct {
	smithyhttp.ClientProtocol
	query smithyhttp.ClientProtocol
	// speaksQuery is true once the endpoint has responded to a query.
	speaksQuery atomic.Bool
}

// queryKey is the context key of calls made as a query.
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

// unspoken reports whether an endpoint without CBOR refused a call in it. CloudWatch marks each
// response with its protocol, including refusals.
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

// xmlError is the error of an endpoint that read a CBOR call as a query without an action, as
// LocalStack does. The same call would fail again.
type xmlError struct{ status int }

func (e *xmlError) Error() string {
	return fmt.Sprintf("HTTP %d in XML to a call in CBOR", e.status)
}
func (*xmlError) RetryableError() bool { return false }
