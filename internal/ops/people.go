package ops

import (
	"context"
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

// ApprovalsInput selects requests for approval.
type ApprovalsInput struct {
	Paging
	All bool   `query:"all" doc:"Those decided, used and expired as well." flag:"all" help:"those decided, used and expired as well"`
	ID  string `query:"id" maxLength:"100" doc:"The beginning of the id of a request."`
}

// ListApprovals lists requests for approval.
var ListApprovals = declare(Operation[ApprovalsInput, view.Approvals]{
	Info: Info{ID: "list-approvals", Method: get, Path: "approvals", Role: approval.RoleViewer, Scoped: true,
		Summary: "List the requests for approval, with their plans", Schema: view.ApprovalsSchema,
		Command: "approvals", Why: "requests are in the state"},
	List: listOf(func(d *view.Approvals) *[]view.Request {
		return &d.Requests
	}, func(r view.Request) string { return r.ID }),
	Do: func(ctx context.Context, c *Call, in ApprovalsInput) (Reply[view.Approvals], error) {
		doc, now, err := govern.Approvals(ctx, c.Request, in.ID, in.All)
		if err == nil {
			doc.Requests = only(doc.Requests, func(r view.Request) bool { return c.Sees(approval.RoleViewer, r.Team) })
		}
		return Reply[view.Approvals]{Doc: doc, At: now}, err
	},
})

// request returns the request with a unique ID prefix, if the caller's role covers it.
func (c *Call) request(ctx context.Context, id, role string) (view.Request, error) {
	doc, _, err := govern.Approvals(ctx, c.Request, id, true)
	if err != nil {
		return view.Request{}, err
	}
	found := only(doc.Requests, func(r view.Request) bool { return c.Sees(role, r.Team) })
	if len(found) != 1 {
		return view.Request{}, &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("there is no request whose id begins with %q", id),
			Hint: "`curfew approvals` lists them",
		}
	}
	return found[0], nil
}

// GetApproval shows one request.
var GetApproval = declare(Operation[ByID, view.Decision]{
	Info: Info{ID: "get-approval", Method: get, Path: "approvals/{id}", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show one request for approval", Schema: view.DecisionSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.Decision], error) {
		r, err := c.request(ctx, in.ID, approval.RoleViewer)
		return reply(view.Decision{Schema: view.DecisionSchema, Request: r}, err)
	},
})

// Proof is the identity proof of an approver on the command line; a service knows its callers.
type Proof struct {
	Proof string `enum:"auto,aws,none" default:"auto" flag:"proof" help:"how to prove who you are: aws (your AWS credentials), none (a name alone), auto (aws for fixes)"`
}

// ApproveInput approves a request.
type ApproveInput struct {
	ByID
	Body struct {
		Reason string `json:"reason,omitempty" maxLength:"1000" example:"demo on Thursday" doc:"Why, for the requester." flag:"reason" help:"why, for the requester"`
		UpTo   string `json:"up_to,omitempty" maxLength:"40" example:"400" doc:"The most dollars that a job may cost, less than it asks for; without it what it asks for." flag:"up-to" help:"most <dollars> that a job may cost, less than it asks for"`
	}
	Proof
}

// upTo returns the amount; 0 if none is given.
func (in ApproveInput) upTo() (money.Amount, error) {
	text := strings.TrimSpace(in.Body.UpTo)
	if text == "" {
		return 0, nil
	}
	amount, err := money.ParseAmount(strings.ReplaceAll(strings.TrimPrefix(text, "$"), ",", ""))
	if err != nil || amount <= 0 {
		return 0, usage(fmt.Errorf("--up-to %q: it is an amount of dollars over 0, such as 400", text))
	}
	return amount, nil
}

// Approve approves a request.
var Approve = declare(Operation[ApproveInput, view.Decision]{
	Info: Info{ID: "approve", Method: post, Path: "approvals/{id}/approve", Role: approval.RoleApprover, Scoped: true,
		Summary: "Approve a request of another person", Schema: view.DecisionSchema,
		Command: "approve", Why: "requests are in the state",
		Flags: proofFlags},
	Send: func(_ context.Context, _ *Call, in *ApproveInput) error {
		_, err := in.upTo()
		return err
	},
	Do: func(ctx context.Context, c *Call, in ApproveInput) (Reply[view.Decision], error) {
		amount, err := in.upTo()
		if err != nil {
			return Reply[view.Decision]{}, err
		}
		return c.decide(ctx, in.ID, true, amount, in.Body.Reason, in.Proof)
	},
})

// DenyInput denies a request.
type DenyInput struct {
	ByID
	ReasonInput
	Proof
}

// Deny denies a request.
var Deny = declare(Operation[DenyInput, view.Decision]{
	Info: Info{ID: "deny", Method: post, Path: "approvals/{id}/deny", Role: approval.RoleApprover, Scoped: true,
		Summary: "Deny a request of another person", Schema: view.DecisionSchema,
		Command: "deny", Why: "requests are in the state",
		Flags: proofFlags},
	Do: func(ctx context.Context, c *Call, in DenyInput) (Reply[view.Decision], error) {
		return c.decide(ctx, in.ID, false, 0, in.Body.Reason, in.Proof)
	},
})

// decide decides a request. The desk checks the caller again, by the roles of the request.
func (c *Call) decide(ctx context.Context, id string, allow bool, amount money.Amount, reason string, p Proof) (
	Reply[view.Decision], error) {
	if _, all := c.Teams(approval.RoleApprover); !all {
		if _, err := c.request(ctx, id, approval.RoleApprover); err != nil {
			return Reply[view.Decision]{}, err
		}
	}
	if p.Proof == "" {
		p.Proof = "auto"
	}
	return reply(govern.Decide(ctx, c.Request, id, allow, amount, reason, p.Proof))
}

// ListPeople lists the people of the configuration.
var ListPeople = declare(Operation[Paging, view.People]{
	Info: Info{ID: "list-people", Method: get, Path: "people", Role: approval.RoleViewer,
		Summary: "List the people of the configuration", Schema: view.PeopleSchema},
	List: listOf(func(d *view.People) *[]view.Person {
		return &d.People
	}, func(p view.Person) string { return p.Name }),
	Do: func(ctx context.Context, c *Call, _ Paging) (Reply[view.People], error) {
		return reply(identity.Directory(ctx, c.Request))
	},
})

// Whoami shows the caller's identity.
var Whoami = declare(Operation[None, view.Whoami]{
	Info: Info{ID: "whoami", Method: get, Path: "people/me", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show who you are, and how that is proven", Schema: view.WhoamiSchema,
		Command: "whoami", Why: "the server says whom it takes the user for"},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.Whoami], error) {
		return reply(identity.Whoami(ctx, c.Request))
	},
})

// ListTokens lists tokens without their secrets.
var ListTokens = declare(Operation[Paging, view.Tokens]{
	Info: Info{ID: "list-tokens", Method: get, Path: "tokens", Role: approval.RoleAdmin,
		Summary: "List the tokens, without their secrets", Schema: view.TokensSchema,
		Command: "token list", Why: "tokens are in the state"},
	List: listOf(func(d *view.Tokens) *[]view.Token { return &d.Tokens }, func(t view.Token) string { return t.ID }),
	Do: func(ctx context.Context, c *Call, _ Paging) (Reply[view.Tokens], error) {
		return reply(identity.Tokens(ctx, c.Request))
	},
})

// TokenInput describes a new token.
type TokenInput struct {
	Body struct {
		Name  string   `json:"name" minLength:"1" maxLength:"200" example:"dashboard" doc:"The person or program of the token."`
		Roles []string `json:"roles" minItems:"1" maxItems:"50" nullable:"false" example:"[\"viewer\"]" doc:"The most that it may do: viewer, approver@vision." flag:"role" help:"<ROLE>, or ROLE@TEAM; repeatable"`
		For   string   `json:"for,omitempty" maxLength:"20" example:"30d" doc:"How long it counts, at most 366d; 90d without it." flag:"for" help:"how long it counts, at most 366d (default: 90d)"`
	}
}

func (in TokenInput) options() identity.TokenOptions {
	return identity.TokenOptions{Name: in.Body.Name, Roles: in.Body.Roles, For: in.Body.For}
}

// CreateToken creates a token.
var CreateToken = declare(Operation[TokenInput, view.NewToken]{
	Info: Info{ID: "create-token", Method: post, Path: "tokens", Role: approval.RoleAdmin, HasSecret: true,
		Summary: "Create a token; its secret is shown once", Schema: view.NewTokenSchema,
		Command: "token create", Why: "tokens are in the state"},
	Send: func(_ context.Context, _ *Call, in *TokenInput) error { return in.options().Check() },
	Do: func(ctx context.Context, c *Call, in TokenInput) (Reply[view.NewToken], error) {
		return reply(identity.CreateToken(ctx, c.Request, in.options()))
	},
})

// RevokeToken revokes a token.
var RevokeToken = declare(Operation[ByID, view.OneToken]{
	Info: Info{ID: "revoke-token", Method: post, Path: "tokens/{id}/revoke", Role: approval.RoleAdmin,
		Summary: "End a token", Schema: view.TokenSchema,
		Command: "token revoke", Why: "tokens are in the state"},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.OneToken], error) {
		return reply(identity.RevokeToken(ctx, c.Request, in.ID))
	},
})

// ListNotifiers lists the configured addresses for messages.
var ListNotifiers = declare(Operation[Paging, view.Notifiers]{
	Info: Info{ID: "list-notifiers", Method: get, Path: "notifiers", Role: approval.RoleOperator,
		Summary: "List the addresses that the configuration names for messages", Schema: view.NotifiersSchema},
	List: listOf(func(d *view.Notifiers) *[]view.Notifier {
		return &d.Notifiers
	}, func(n view.Notifier) string { return n.ID }),
	Do: func(ctx context.Context, c *Call, _ Paging) (Reply[view.Notifiers], error) {
		return reply(govern.Notifiers(ctx, c.Request))
	},
})

// TestNotifier sends a test message.
var TestNotifier = declare(Operation[ByID, view.NotifierTest]{
	Info: Info{ID: "test-notifier", Method: post, Path: "notifiers/{id}/test", Role: approval.RoleOperator,
		Summary: "Send a test message to an address that the configuration names", Schema: view.NotifierTestSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.NotifierTest], error) {
		return reply(govern.TestNotifier(ctx, c.Request, in.ID))
	},
})
