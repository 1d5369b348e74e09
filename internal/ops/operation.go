// Package ops declares every operation of curfew once: its name, its place in the HTTP API, its
// required role, its input with names of flags, parameters and fields, and its function. The
// command line, the API, its OpenAPI document and the client calls to a service follow from these
// declarations.
package ops

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Methods of operations. An operation with the method POST may change something.
const (
	get  = http.MethodGet
	post = http.MethodPost
)

// prefix is the path prefix of every operation.
const prefix = "/api/v1/"

// Info describes an operation.
type Info struct {
	// ID names the operation, such as get-costs; Method and Path are its place in the API.
	ID, Method, Path string
	// Role is the minimum role of a caller.
	Role string
	// Scoped is true if the role in one team is enough, because the operation shows or changes
	// only resources of that team.
	Scoped bool
	// Summary describes the operation in a sentence. Schema is the schema of its document.
	Summary, Schema string
	// Example is a request body, for operations whose field examples do not form a valid body
	// together.
	Example map[string]any
	// HasSecret is true if the document contains a secret, so that the response must not be stored.
	HasSecret bool
	// Command is the command line's name of the operation, without the program's; Why says why
	// it asks the state, and Flags are those with which the command runs elsewhere.
	Command, Why string
	Flags        map[string]Location
}

// Mutates reports whether the operation may change something.
func (o Info) Mutates() bool { return o.Method != get }

// Operation is one operation with the input I and the document D. The fields of I carry tags: path,
// query and json as huma reads them, and flag, short, default and help for [AddFlags]. Fields
// without path, query or json are local and never sent.
type Operation[I, D any] struct {
	Info
	// Do executes the operation where the state is.
	Do func(ctx context.Context, c *Call, in I) (Reply[D], error)
	// Send prepares an input for a service: it refuses what the service would refuse, and reads the
	// files to send. It may be nil.
	Send func(ctx context.Context, c *Call, in *I) error
	// Public removes content from a document that only the machine with the state may show. It may
	// be nil.
	Public func(in I, doc D) D
	// List divides a document into pages; nil if it has none.
	List *List[D]
	// FlagDefaults are defaults of the command line that differ from the API's, by flag.
	FlagDefaults map[string]string
}

// Reply is the result of an operation.
type Reply[D any] struct {
	Doc D
	// Next is the cursor of the next page; empty on the last.
	Next string
	// At is the time of the state, if the document depends on it.
	At time.Time
	// Partial is true if Doc shows partial results of a failed operation.
	Partial bool
}

// Endpoint is an operation as served by the API.
type Endpoint interface {
	Describe() Info
	// Register adds the operation to an API. Serve gets each request with its handler.
	Register(api huma.API, op huma.Operation, serve func(huma.Context, Handler))
}

// Handler executes one request of a call.
type Handler func(ctx context.Context, c *Call) (Reply[any], error)

var endpoints []Endpoint

// All returns the operations of the API in order of declaration.
func All() []Endpoint { return endpoints }

// declare adds an operation to [All].
func declare[I, D any](o Operation[I, D]) *Operation[I, D] {
	o.Path = prefix + o.Path
	endpoints = append(endpoints, &o)
	return &o
}

// Describe implements Endpoint.
func (o *Operation[I, D]) Describe() Info { return o.Info }

// Register implements Endpoint.
func (o *Operation[I, D]) Register(api huma.API, op huma.Operation, serve func(huma.Context, Handler)) {
	huma.Register(api, op, func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			serve(hc, func(ctx context.Context, c *Call) (Reply[any], error) {
				r, err := o.serve(ctx, c, *in)
				return Reply[any]{Doc: r.Doc, Next: r.Next, At: r.At, Partial: r.Partial}, err
			})
		}}, nil
	})
}

// serve executes the operation for a caller of a service, who gets the public document.
func (o *Operation[I, D]) serve(ctx context.Context, c *Call, in I) (Reply[D], error) {
	r, err := o.carryOut(ctx, c, in)
	if o.Public != nil {
		r.Doc = o.Public(in, r.Doc)
	}
	return r, err
}

// Read executes a read-only operation for a caller of a service, subject to the caller's role.
func (o *Operation[I, D]) Read(ctx context.Context, c *Call, in I) (Reply[D], error) {
	switch {
	case o.Mutates():
		return Reply[D]{}, errors.New("read " + o.ID + ": it may change something")
	case !c.May(o.Info):
		return Reply[D]{}, c.Forbidden(o.Info)
	}
	return o.serve(ctx, c, in)
}

// carryOut executes the operation locally and cuts the requested page.
func (o *Operation[I, D]) carryOut(ctx context.Context, c *Call, in I) (Reply[D], error) {
	r, err := o.Do(ctx, c, in)
	if err != nil || o.List == nil || o.List.cut == nil {
		return r, err
	}
	if p, ok := any(&in).(interface{ paging() Paging }); ok {
		r.Next, err = o.List.cut(p.paging(), &r.Doc)
	}
	return r, err
}

// Call executes the operation at a place and returns its document. An error may come with the
// document of partial results.
func (o *Operation[I, D]) Call(ctx context.Context, at *Place, in I) (D, error) {
	r, err := o.Reply(ctx, at, in)
	return r.Doc, err
}

// Reply is like [Operation.Call] with the time of the state.
func (o *Operation[I, D]) Reply(ctx context.Context, at *Place, in I) (Reply[D], error) {
	if at.Service == nil {
		return o.carryOut(ctx, at.Local, in)
	}
	if o.Send != nil {
		if err := o.Send(ctx, at.Local, &in); err != nil {
			return Reply[D]{}, err
		}
	}
	return o.send(ctx, at, in)
}

// reply wraps the results of a function that returns a document.
func reply[D any](doc D, err error) (Reply[D], error) { return Reply[D]{Doc: doc}, err }
