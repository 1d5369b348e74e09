package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/curfew-dev/curfew/internal/approval"
)

// operation is one operation of the API and who may call it: this table is all there is.
type operation struct {
	// ID names it; Method and Path are where it is.
	ID, Method, Path string
	// Role is the least role of who may call it.
	Role string
	// Scoped says that a role in one team is enough, because the operation shows or changes
	// only what belongs to that team.
	Scoped bool
	// Summary is a sentence about it, Schema the document that it answers.
	Summary, Schema string
	// Example is a body where those of its fields do not make one together; nil is none.
	Example map[string]any
}

// teams are the teams for which the caller may do what needs a role; all says every team.
func (c *call) teams(role string) (teams []string, all bool) {
	if c.local {
		return nil, true
	}
	return approval.TeamsOf(c.roles, approval.AtLeast(role))
}

// may says whether the caller has the role of an operation, in all teams or, where that is
// enough, in some.
func (c *call) may(o operation) bool {
	teams, all := c.teams(o.Role)
	return all || o.Scoped && len(teams) > 0
}

// sees says whether something of a team is for the caller, whose role counts for it.
func (c *call) sees(role, team string) bool {
	teams, all := c.teams(role)
	return all || team != "" && slices.ContainsFunc(teams, func(t string) bool { return strings.EqualFold(t, team) })
}

// forbidden is the answer to who lacks a role.
func (c *call) forbidden(o operation) *problem {
	p := problemOf(http.StatusForbidden, "forbidden", c.who.Name+" may not do this: it needs the role "+o.Role, "an admin gives roles in the people section of the configuration")
	if teams, _ := c.teams(o.Role); len(teams) > 0 {
		p.Detail += " in all teams, and " + c.who.Name + " has it in " + strings.Join(teams, ", ")
	}
	return p
}

// add registers an operation. Its input is what do takes, its output the document of view.
func add[I any](s *server, o operation, do func(context.Context, *call, *I) (answer, error)) {
	stream(s, o, "application/json", func(ctx huma.Context, c *call, in *I) {
		a, err := do(ctx.Context(), c, in)
		if err != nil {
			writeError(ctx, s.failed(ctx.Context(), err))
			return
		}
		a.write(ctx)
	})
}

// stream registers an operation that writes its answer itself.
func stream[I any](s *server, o operation, kind string, do func(huma.Context, *call, *I)) {
	s.ops[o.ID] = o
	collection, _, _ := strings.Cut(strings.TrimPrefix(o.Path, "/api/v1/"), "/")
	event := huma.Schema{Type: huma.TypeString}
	schema := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"id": &event, "event": &event, "data": &event}, Required: []string{"id", "event", "data"}}
	if o.Schema != "" {
		schema = &huma.Schema{Ref: schemaRef + component(o.Schema)}
	}
	description := "Needs the role " + o.Role
	if o.Scoped {
		description += ", in all teams or in the team that it is about"
	}
	ok := &huma.Response{Description: "The document.", Content: map[string]*huma.MediaType{kind: {Schema: schema}}}
	responses := map[string]*huma.Response{"200": ok}
	if o.Method == http.MethodGet && kind == "application/json" {
		responses["304"] = &huma.Response{Description: "The document is the one of If-None-Match."}
	}
	op := huma.Operation{OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary, Description: description + ".", Tags: []string{collection},
		Responses: responses, MaxBodyBytes: maxBody, BodyReadTimeout: -1, Errors: []int{400, 401, 403, 404, 409, 413, 415, 424, 429, 503}}
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		c := callOf(ctx.Context())
		if c == nil {
			writeError(ctx, unauthenticated("no one is signed in"))
			return
		}
		if !c.may(o) {
			writeError(ctx, c.forbidden(o))
			return
		}
		next(ctx)
	}}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		c := callOf(ctx)
		return &huma.StreamResponse{Body: func(ctx huma.Context) { do(ctx, c, in) }}, nil
	})
	if o.Example != nil {
		s.api.OpenAPI().Paths[o.Path].Post.RequestBody.Content["application/json"].Example = o.Example
	}
}
