package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newApprove() *cobra.Command {
	return a.newDecision(true, &cobra.Command{
		Use:   "approve REQUEST",
		Short: "Approve a request of another person",
		Long: `Approves a request by its id or the beginning of it. An approval is for exactly that
plan at no more than that amount, expires, and is used once. You cannot approve your own
request; the approvers section of curfew.yaml lists the approvers.`,
		Example: "  curfew approvals\n  curfew approve 4f1c",
	})
}

func (a *app) newDeny() *cobra.Command {
	return a.newDecision(false, &cobra.Command{
		Use:     "deny REQUEST --reason TEXT",
		Short:   "Deny a request of another person",
		Example: `  curfew deny 4f1c --reason "use the reserved machines"`,
	})
}

func (a *app) newDecision(allow bool, c *cobra.Command) *cobra.Command {
	var reason, proof string
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError("%s takes the id of one request; `curfew approvals` lists them", c.CommandPath())
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if !allow && strings.TrimSpace(reason) == "" {
			return usageError("curfew deny %s: give --reason", args[0])
		}
		if err := oneOf("proof", proof, "auto", "aws", "none"); err != nil {
			return err
		}
		return a.decide(c.Context(), args[0], allow, reason, proof)
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever asked")
	c.Flags().StringVar(&proof, "proof", "auto", "how to prove who you are: aws (your AWS credentials), none (a name alone), auto (aws for fixes)")
	return c
}

func (a *app) decide(ctx context.Context, id string, allow bool, reason, proof string) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg, _, err = a.governed(ctx, cfg, s); err != nil {
		return err
	}
	r, err := s.Approvals().Request(ctx, id)
	if err != nil {
		return approvalFailure(id, err)
	}
	who, err := a.rt.Approver(ctx, cfg, r, proof, allow)
	if err != nil {
		return err
	}
	now, err := a.inTime(ctx, s)
	if err != nil {
		return err
	}
	desk := approval.Desk{Store: s.Approvals()}
	r, err = desk.Decide(ctx, r.ID, who, allow, action.Redact(reason), now)
	if err != nil {
		return approvalFailure(id, err)
	}
	entry := auditEntry(now, who.Name, string(r.State), r)
	if err := s.Actions().Record(ctx, entry); err != nil {
		return fmt.Errorf("record the decision on %s: %w", r.ID, err)
	}
	if allow {
		plain.Fprintf(a.Stdout, "%s approved: %s, at most %s %s, until %s; by %s (%s)\n", r.ID, r.Subject, r.Amount.Exact(), r.AmountUnit(), plain.When(r.ExpiresAt, a.Now()), who.Name, who.Proof)
	} else {
		plain.Fprintf(a.Stdout, "%s denied: %s\n", r.ID, r.Subject)
	}
	return nil
}

// approvalFailure gives what a desk refuses its exit code.
func approvalFailure(id string, err error) error {
	var refusal *approval.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Rule == "state" && strings.Contains(refusal.Why, "waits"):
		return &failure{exit: ExitHeld, code: "needs_approval", err: err, hint: "another person runs `curfew approve " + plain.Shell(id) + "`"}
	case errors.As(err, &refusal):
		return &failure{exit: ExitDenied, code: "not_approved", err: err}
	case errors.Is(err, approval.ErrNotFound):
		return &failure{exit: ExitError, code: "not_found", err: fmt.Errorf("there is no request whose id begins with %q", id), hint: "`curfew approvals` lists them"}
	}
	return err
}

func (a *app) newApprovals() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "approvals [REQUEST]",
		Short: "Show what waits for an approval, with its plan",
		Long: `Lists the requests that wait for an approval or can be used. Under each stands the plan
that an approval is for: every resource, the exact change as the difference of documents,
the commands, the dollars with their units, what is lost and how far it can be undone.`,
		Example: `  curfew approvals
  curfew approvals 4f1c
  curfew approvals --all -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("%s takes the id of one request at most", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.approvals(c.Context(), strings.Join(args, ""), all || len(args) > 0)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "those decided, used and expired as well")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) approvals(ctx context.Context, id string, all bool) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	cfg, by, err := a.rt.People(ctx, cfg, s)
	if err != nil {
		return err
	}
	requests, err := s.Approvals().Requests(ctx, "")
	if err != nil {
		return fmt.Errorf("list the requests: %w", err)
	}
	now, err := a.stateTime(ctx, s)
	if err != nil {
		return err
	}
	views := []view.Request{}
	for _, r := range requests {
		if state := r.At(now); strings.HasPrefix(r.ID, id) && (all || state == approval.Pending || state == approval.Approved) {
			views = append(views, view.NewRequest(r, approval.Approvers(cfg.Approvers, r.Roles, r.AskedBy), now))
		}
	}
	doc := view.NewApprovals(requests, views, by, now)
	if a.format == "json" {
		return a.printJSON(doc)
	}
	return report.Approvals(a.Stdout, doc, now)
}
