package govern

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/mail"
	"github.com/curfew-dev/curfew/internal/notify/slack"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Decide approves or denies a request, by its id or a prefix of it. proof is how the person proves
// their identity, as in [identity.Approver].
//
// amount, if given, lowers the maximum cost of the run below what was requested.
func Decide(ctx context.Context, req *runtime.Request, id string, allow bool, amount money.Amount, reason,
	proof string) (view.Decision, error) {
	var none view.Decision
	cfg, _, s, err := req.InForce(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	r, err := s.Approvals().Request(ctx, id)
	if err != nil {
		return none, approvalFailure(id, err)
	}
	who, err := identity.Approver(ctx, req, cfg, r, proof, allow)
	if err != nil {
		return none, err
	}
	now, err := req.InTime(ctx, s)
	if err != nil {
		return none, err
	}
	desk := approval.Desk{Store: s.Approvals(), Known: cfg.Known}
	if allow && amount > 0 {
		r, err = desk.ApproveUpTo(ctx, r.ID, who, amount, action.Redact(reason), now)
	} else {
		r, err = desk.Decide(ctx, r.ID, who, allow, action.Redact(reason), now)
	}
	if err != nil {
		return none, approvalFailure(id, err)
	}
	return view.Decision{
		Schema:  view.DecisionSchema,
		Request: view.NewRequest(r, approval.Approvers(cfg.Holders(), r.Roles, r.Team, r.AskedBy), now),
	}, nil
}

// approvalFailure classifies a refused decision by its cause.
func approvalFailure(id string, err error) error {
	var refusal *approval.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Rule == approval.RuleWaits:
		return &runtime.Error{
			Class: runtime.Held, Code: "needs_approval", Err: err,
			Hint: "another person runs `curfew approve " + plain.Shell(id) + "`",
		}
	case errors.As(err, &refusal):
		return &runtime.Error{Class: runtime.Denied, Code: "not_approved", Err: err}
	case errors.Is(err, approval.ErrNotFound):
		return &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("there is no request whose id begins with %q", id),
			Hint: "`curfew approvals` lists them",
		}
	}
	return err
}

// Approvals returns the requests whose ids have a prefix, at the time of the state: those that wait
// or can be used, or all.
func Approvals(ctx context.Context, req *runtime.Request, id string, all bool) (view.Approvals, time.Time, error) {
	fail := func(err error) (view.Approvals, time.Time, error) { return view.Approvals{}, time.Time{}, err }
	cfg, s, err := req.State(ctx)
	if err != nil {
		return fail(err)
	}
	defer s.Close()
	cfg, by, err := identity.People(ctx, req, cfg, s)
	if err != nil {
		return fail(err)
	}
	requests, err := s.Approvals().Requests(ctx, "")
	if err != nil {
		return fail(fmt.Errorf("list the requests: %w", err))
	}
	now, err := req.StateTime(ctx, s)
	if err != nil {
		return fail(err)
	}
	shown := []view.Request{}
	for _, r := range requests {
		if state := r.At(now); strings.HasPrefix(r.ID, id) &&
			(all || state == approval.Pending || state == approval.Approved) {
			shown = append(shown,
				view.NewRequest(r, approval.Approvers(cfg.Holders(), r.Roles, r.Team, r.AskedBy), now))
		}
	}
	return view.NewApprovals(requests, shown, by, now), now, nil
}

// TeamOf returns the team that owns the resource of a proposal.
func TeamOf(p action.Proposal) string {
	if p.Resource == nil {
		return ""
	}
	return p.Resource.Owner.Team
}

// TellApprovers sends a request with its plan to the recipients in approvals.notify, or otherwise
// to the approvers known to notify.names. A failed delivery stops nothing: the request is listed by
// `curfew approvals`.
func TellApprovers(ctx context.Context, req *runtime.Request, cfg config.Config, r approval.Request) {
	router, err := notify.New(cfg.Reached(), req.Lookup, slack.Open, mail.Open, webhook.Open)
	if err != nil {
		plain.Fprintf(req.Log, "curfew: no approver was notified of request %s: %v\n", r.ID, err)
		return
	}
	recipients := cfg.Approvals.Notify
	if len(recipients) == 0 {
		for _, name := range approval.Approvers(cfg.Holders(), r.Roles, r.Team, r.AskedBy) {
			if router.Check(name) == nil && name != notify.Owner && name != notify.Team {
				recipients = append(recipients, name)
			}
		}
	}
	for _, to := range recipients {
		if _, err := router.Notify(ctx, to, approvalMessage(r)); err != nil {
			plain.Fprintf(req.Log, "curfew: %s was not notified of request %s: %v\n", to, r.ID, err)
		}
	}
}

// approvalMessage returns the message that asks an approver for a decision.
func approvalMessage(r approval.Request) action.Message {
	m := action.Message{
		Kind: "approval", Item: r.ID,
		Because: fmt.Sprintf("%s asks to %s, at most %s %s", r.AskedBy, r.Subject, r.Amount.Exact(), r.AmountUnit()),
	}
	if r.Kind != identity.FixKind {
		m.Because = fmt.Sprintf("%s asks to run %s, at most %s %s", r.AskedBy, r.Subject,
			r.Amount.Exact(), r.AmountUnit())
	}
	m.Plan = append(PlanLines(r), "expires "+r.ExpiresAt.UTC().Format(time.RFC3339),
		"asked by "+r.AskedBy+" ("+r.AskedProof.String()+")")
	return m
}

// PlanLines returns the plan of a request for people. Plans stored by older versions are shown
// unchanged.
func PlanLines(r approval.Request) []string {
	if plan, ok := r.Shown(); ok {
		return plan.Lines()
	}
	if r.Plan == "" {
		return nil
	}
	return strings.Split(r.Plan, "\n")
}
