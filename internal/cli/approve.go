package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
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
request; the approvers section of curfew.yaml lists the approvers.

--up-to approves a job for less than it asks for: curfew run ends it, with its work saved,
before it costs more.`,
		Example: "  curfew approvals\n  curfew approve 4f1c\n  curfew approve 4f1c --up-to 400",
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
	var in ops.ApproveInput
	c.Args = oneArg("the id of one request; `curfew approvals` lists them")
	c.RunE = func(c *cobra.Command, args []string) error {
		if in.ID = args[0]; !allow && strings.TrimSpace(in.Body.Reason) == "" {
			return usageError("curfew deny %s: give --reason", in.ID)
		}
		return a.decide(c.Context(), in, allow)
	}
	a.outputs(c, tableJSON...)
	ops.Approve.AddFlags(c.Flags(), &in)
	return c
}

func (a *app) decide(ctx context.Context, in ops.ApproveInput, allow bool) (err error) {
	var doc view.Decision
	if allow {
		doc, err = ops.Approve.Call(ctx, a.at, in)
	} else {
		deny := ops.DenyInput{ByID: in.ByID, Proof: in.Proof}
		deny.Body.Reason = in.Body.Reason
		doc, err = ops.Deny.Call(ctx, a.at, deny)
	}
	if err != nil {
		return err
	}
	r := doc.Request
	if !allow {
		return a.say(doc, "%s %s: %s", r.ID, report.State("denied"), r.Subject)
	}
	return a.say(doc, "%s %s: %s, at most %s %s, until %s; by %s (%s)", r.ID, report.State("approved"), r.Subject,
		r.AtMost(), r.AmountUnit,
		plain.When(r.ExpiresAt, a.Now()), r.DecidedBy, r.Proof)
}

func (a *app) newApprovals() *cobra.Command {
	var in ops.ApprovalsInput
	c := &cobra.Command{
		Use:   "approvals [REQUEST]",
		Short: "Show what waits for an approval, with its plan",
		Long: `Lists the requests that wait for an approval or can be used, each with the plan to approve:
every resource, the exact change as a diff of documents, the commands, the dollars with
their units, the data that is lost, and how far it can be undone.`,
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
			in.ID, in.All = strings.Join(args, ""), in.All || len(args) > 0
			return a.approvals(c.Context(), in)
		},
	}
	ops.ListApprovals.AddFlags(c.Flags(), &in)
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) approvals(ctx context.Context, in ops.ApprovalsInput) error {
	r, err := ops.ListApprovals.Reply(ctx, a.at, in)
	switch {
	case err != nil:
		return err
	case a.format == "json":
		return a.printJSON(r.Doc)
	}
	return report.Approvals(a.Stdout, r.Doc, r.At, report.Options{Width: a.Width, Color: a.color()})
}
