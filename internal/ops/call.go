package ops

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Call is one call of an operation, with its request and caller.
type Call struct {
	Request *runtime.Request
	// Who is the caller of a service; zero for the user of this process.
	Who approval.Person
	// Owner is true if the caller is the user of this process, who may do what the process may.
	Owner bool
	// Roles are the caller's, as operations name them.
	Roles []string
	// sessions are opened by the first operation that needs them.
	sessions *sessions.Sessions
}

// Close releases resources opened by operations of the call.
func (c *Call) Close() error {
	if c.sessions == nil {
		return nil
	}
	all := c.sessions
	c.sessions = nil
	return all.Close()
}

// Sessions returns the sessions of the state, opened once for the call.
func (c *Call) Sessions(ctx context.Context) (*sessions.Sessions, error) {
	if c.sessions == nil {
		all, err := sessions.Open(ctx, c.Request)
		if err != nil {
			return nil, err
		}
		c.sessions = all
	}
	return c.sessions, nil
}

// Teams returns the teams in which the caller has a role; all means every team.
func (c *Call) Teams(role string) (teams []string, all bool) {
	if c.Owner {
		return nil, true
	}
	return approval.TeamsOf(c.Roles, approval.AtLeast(role))
}

// May reports whether the caller has the role of an operation, in all teams or, for a scoped
// operation, in at least one.
func (c *Call) May(o Info) bool {
	teams, all := c.Teams(o.Role)
	return all || o.Scoped && len(teams) > 0
}

// Forbidden is the error of a caller who lacks the role of an operation.
func (c *Call) Forbidden(o Info) error {
	why := c.Who.Name + " may not do this: it needs the role " + o.Role
	if teams, _ := c.Teams(o.Role); len(teams) > 0 {
		why += " in all teams, and " + c.Who.Name + " has it in " + strings.Join(teams, ", ")
	}
	return denied("forbidden", why, "an admin gives roles in the people section of the configuration")
}

// Sees reports whether the caller has a role for resources of a team.
func (c *Call) Sees(role, team string) bool {
	teams, all := c.Teams(role)
	return all || team != "" && slices.ContainsFunc(teams, func(t string) bool { return strings.EqualFold(t, team) })
}

// InputError is an error caused by the content of an input, such as a file that cannot be
// estimated. A service shows its text to the caller.
type InputError struct {
	// Code is the stable name of the error.
	Code string
	Err  error
}

// Error implements error.
func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InputError) Unwrap() error { return e.Err }

// inputError marks an error as caused by the input, unless it already has a class.
func inputError(code string, err error) error {
	var classified *runtime.Error
	var invalid *document.Error
	if err == nil || errors.As(err, &classified) || errors.As(err, &invalid) {
		return err
	}
	return &InputError{Code: code, Err: err}
}

// usage marks an error in the values of an input.
func usage(err error) error { return &runtime.Error{Class: runtime.Usage, Code: "usage", Err: err} }

// denied returns the error for a caller who lacks a role for the object of a call.
func denied(code, why, hint string) error {
	return &runtime.Error{Class: runtime.Denied, Code: code, Err: errors.New(why), Hint: hint}
}

// missing returns the error for an item that does not exist, or that the caller must not see.
func missing(kind, id string) error {
	return &runtime.Error{
		Code: "not_found", Err: errors.New("there is no " + kind + " " + plain.Line(action.Redact(id))),
	}
}
