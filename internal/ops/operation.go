// Package ops declares every operation of curfew once: its name, its place in the HTTP API, who
// may call it, its input with the names of flags, parameters and fields, and the function that
// carries it out. The command line, the API, its OpenAPI document and the calls of the command
// line to a service follow from these declarations.
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

// prefix begins the path of every operation.
const prefix = "/api/v1/"

// Info describes an operation.
type Info struct {
	// ID names the operation, such as get-costs; Method and Path are its place in the API.
	ID, Method, Path string
	// Role is the least role of a caller.
	Role string
	// Scoped is true if the role in one team is enough, because the operation shows or changes
	// only resources of that team.
	Scoped bool
	// Summary describes the operation in a sentence. Schema is that of its document.
	Summary, Schema string
	// Example is a request body, for operations whose field examples make no valid body together.
	Example map[string]any
	// HasSecret is true if the document holds a secret, so that no copy of the answer is stored.
	HasSecret bool
	// Command is the command line's name of the operation, without the program's; Why says why
	// it asks the state, and Flags are those with which the command runs elsewhere.
	Command, Why string
	Flags        map[string]Location
}

// Mutates reports whether the operation may change something.
func (o Info) Mutates() bool { return o.Method != get }

// Operation is one operation with the input I and the document D. The fields of I carry tags:
// path, query and json as huma reads them, and flag, short, default and help for [AddFlags].
// Fields without path, query or json are for this machine alone and are never sent.
type Operation[I, D any] struct {
	Info
	// Do carries the operation out where the state is.
	Do func(ctx context.Context, c *Call, in I) (Reply[D], error)
	// Send completes an input before it goes to a service: it refuses what the service would
	// refuse, and reads the files that are sent. It may be nil.
	Send func(ctx context.Context, c *Call, in *I) error
	// Public leaves out of a document what only the machine with the state may show. It may be nil.
	Public func(in I, doc D) D
	// List divides a document into pages; nil where the document is one whole.
	List *List[D]
	// FlagDefaults are defaults of the command line that differ from those of the API, by flag.
	FlagDefaults map[string]string
}

// Reply is the result of an operation.
type Reply[D any] struct {
	Doc D
	// Next is the cursor of the next page; empty on the last.
	Next string
	// At is the time of the state, where the document depends on it.
	At time.Time
	// Partial is true if Doc shows what was done although an error ended the operation.
	Partial bool
}

// Endpoint is an operation as the API serves it.
type Endpoint interface {
	Describe() Info
	// Register adds the operation to an API. Serve gets each request with its handler.
	Register(api huma.API, op huma.Operation, serve func(huma.Context, Handler))
}

// Handler carries out one request of a call.
type Handler func(ctx context.Context, c *Call) (Reply[any], error)

var endpoints []Endpoint

// All returns the operations of the API in the order of their declaration.
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

// serve carries the operation out for a caller of a service, who gets the public document.
func (o *Operation[I, D]) serve(ctx context.Context, c *Call, in I) (Reply[D], error) {
	r, err := o.carryOut(ctx, c, in)
	if o.Public != nil {
		r.Doc = o.Public(in, r.Doc)
	}
	return r, err
}

// Read carries an operation that changes nothing out for a caller of a service, as the API does:
// where the caller's role allows it.
func (o *Operation[I, D]) Read(ctx context.Context, c *Call, in I) (Reply[D], error) {
	switch {
	case o.Mutates():
		return Reply[D]{}, errors.New("read " + o.ID + ": it may change something")
	case !c.May(o.Info):
		return Reply[D]{}, c.Forbidden(o.Info)
	}
	return o.serve(ctx, c, in)
}

// carryOut does the operation here and cuts the page that the input asks for.
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

// Call carries the operation out at a place and returns its document. With an error comes the
// document of what was done all the same, where there is one.
func (o *Operation[I, D]) Call(ctx context.Context, at *Place, in I) (D, error) {
	r, err := o.Reply(ctx, at, in)
	return r.Doc, err
}

// Reply is [Operation.Call] with the time of the state.
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
