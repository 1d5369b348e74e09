package api

import (
	"context"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/ops"
)

// register adds every operation and the stream of events.
func (s *Server) register() {
	for _, o := range ops.All() {
		info := o.Describe()
		o.Register(s.api, s.describe(info, "application/json"), func(hc huma.Context, carryOut ops.Handler) {
			c := callOf(hc.Context())
			r, err := carryOut(hc.Context(), c)
			if err != nil {
				p := s.failed(hc.Context(), err)
				if r.Partial {
					p.Document = r.Doc
				}
				writeError(hc, p)
				return
			}
			write(hc, r)
		})
		if info.Example != nil {
			s.api.OpenAPI().Paths[info.Path].Post.RequestBody.Content["application/json"].Example = info.Example
		}
	}
	s.registerEvents()
}

// describe converts an operation for the framework: only callers with its role pass.
func (s *Server) describe(o ops.Info, contentType string) huma.Operation {
	collection, _, _ := strings.Cut(strings.TrimPrefix(o.Path, "/api/v1/"), "/")
	event := huma.Schema{Type: huma.TypeString}
	schema := &huma.Schema{
		Type: huma.TypeObject, Properties: map[string]*huma.Schema{"id": &event, "event": &event, "data": &event},
		Required: []string{"id", "event", "data"},
	}
	if o.Schema != "" {
		schema = &huma.Schema{Ref: schemaRef + component(o.Schema)}
	}
	description := "Needs the role " + o.Role
	if o.Scoped {
		description += ", in all teams or in the team that it is about"
	}
	ok := &huma.Response{
		Description: "The document.", Content: map[string]*huma.MediaType{contentType: {Schema: schema}},
	}
	responses := map[string]*huma.Response{"200": ok}
	if !o.Mutates() && contentType == "application/json" {
		responses["304"] = &huma.Response{Description: "The document is the one of If-None-Match."}
	}
	if o.HasSecret {
		s.secrets[o.Path] = true
	}
	return huma.Operation{
		OperationID:     o.ID,
		Method:          o.Method,
		Path:            o.Path,
		Summary:         o.Summary,
		Description:     description + ".",
		Tags:            []string{collection},
		Responses:       responses,
		MaxBodyBytes:    maxBody,
		BodyReadTimeout: -1,
		Errors:          []int{400, 401, 403, 404, 409, 410, 413, 415, 424, 429, 503},
		Middlewares: huma.Middlewares{func(hc huma.Context, next func(huma.Context)) {
			c := callOf(hc.Context())
			if c == nil {
				writeError(hc, unauthenticated("no one is signed in"))
				return
			}
			if !c.May(o) {
				writeError(hc, s.problem(hc.Context(), c.Forbidden(o)).exits(0))
				return
			}
			next(hc)
		}},
	}
}

// headers returns the headers of a reply.
func headers(r ops.Reply[any]) map[string]string {
	out := map[string]string{}
	if !r.At.IsZero() {
		out[client.ClockHeader] = r.At.UTC().Format(time.RFC3339Nano)
	}
	if r.Next != "" {
		out["Next-Cursor"] = r.Next
	}
	return out
}

// callKey is the context key of a request's call.
type callKey struct{}

func callOf(ctx context.Context) *ops.Call {
	c, _ := ctx.Value(callKey{}).(*ops.Call)
	return c
}
