package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
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
	c.Args = oneArg("the id of one request; `curfew approvals` lists them")
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
	a.outputs(c, tableJSON...)
	c.Flags().StringVar(&proof, "proof", "auto", "how to prove who you are: aws (your AWS credentials), none (a name alone), auto (aws for fixes)")
	return c
}

func (a *app) decide(ctx context.Context, id string, allow bool, reason, proof string) error {
	doc, err := a.at.Decide(ctx, id, allow, reason, proof)
	if err != nil {
		return err
	}
	r := doc.Request
	if !allow {
		return a.say(doc, "%s %s: %s", r.ID, report.State("denied"), r.Subject)
	}
	return a.say(doc, "%s %s: %s, at most %s %s, until %s; by %s (%s)", r.ID, report.State("approved"), r.Subject, r.AtMost(), r.AmountUnit,
		plain.When(r.ExpiresAt, a.Now()), r.DecidedBy, r.Proof)
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
	doc, now, err := a.at.Approvals(ctx, id, all)
	switch {
	case err != nil:
		return err
	case a.format == "json":
		return a.printJSON(doc)
	}
	return report.Approvals(a.Stdout, doc, now, report.Options{Width: a.Width, Color: a.color()})
}
