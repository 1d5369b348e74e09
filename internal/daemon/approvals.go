package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Decide approves or denies a request, by its id or the beginning of it. Proof is how the
// person proves who they are, as [Runtime.Approver] takes it.
func (rt *Runtime) Decide(ctx context.Context, id string, allow bool, reason, proof string) (view.Decision, error) {
	var none view.Decision
	cfg, _, s, err := rt.inForce(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	r, err := s.Approvals().Request(ctx, id)
	if err != nil {
		return none, approvalFailure(id, err)
	}
	who, err := rt.Approver(ctx, cfg, r, proof, allow)
	if err != nil {
		return none, err
	}
	now, err := rt.InTime(ctx, s)
	if err != nil {
		return none, err
	}
	desk := approval.Desk{Store: s.Approvals(), Known: cfg.Known}
	r, err = desk.Decide(ctx, r.ID, who, allow, action.Redact(reason), now)
	if err != nil {
		return none, approvalFailure(id, err)
	}
	return view.Decision{Schema: view.DecisionSchema, Request: view.NewRequest(r, approval.Approvers(cfg.Holders(), r.Roles, r.Team, r.AskedBy), now)}, nil
}

// approvalFailure says whose mistake it is what a desk refuses.
func approvalFailure(id string, err error) error {
	var refusal *approval.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Rule == approval.RuleWaits:
		return &Error{Class: Held, Code: "needs_approval", Err: err, Hint: "another person runs `curfew approve " + plain.Shell(id) + "`"}
	case errors.As(err, &refusal):
		return &Error{Class: Denied, Code: "not_approved", Err: err}
	case errors.Is(err, approval.ErrNotFound):
		return &Error{Code: "not_found", Err: fmt.Errorf("there is no request whose id begins with %q", id), Hint: "`curfew approvals` lists them"}
	}
	return err
}

// Approvals are the requests whose ids begin with a text, at the time of the state: those
// that wait or can be used, or all.
func (rt *Runtime) Approvals(ctx context.Context, id string, all bool) (view.Approvals, time.Time, error) {
	fail := func(err error) (view.Approvals, time.Time, error) { return view.Approvals{}, time.Time{}, err }
	cfg, s, err := rt.State(ctx)
	if err != nil {
		return fail(err)
	}
	defer s.Close()
	cfg, by, err := rt.People(ctx, cfg, s)
	if err != nil {
		return fail(err)
	}
	requests, err := s.Approvals().Requests(ctx, "")
	if err != nil {
		return fail(fmt.Errorf("list the requests: %w", err))
	}
	now, err := rt.StateTime(ctx, s)
	if err != nil {
		return fail(err)
	}
	shown := []view.Request{}
	for _, r := range requests {
		if state := r.At(now); strings.HasPrefix(r.ID, id) && (all || state == approval.Pending || state == approval.Approved) {
			shown = append(shown, view.NewRequest(r, approval.Approvers(cfg.Holders(), r.Roles, r.Team, r.AskedBy), now))
		}
	}
	return view.NewApprovals(requests, shown, by, now), now, nil
}
