package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newBudget() *cobra.Command {
	c := &cobra.Command{
		Use:   "budget",
		Short: "Show each budget: spent, reserved, remaining, and the forecast",
		Long: `Shows the budgets of curfew.yaml: charged, reserved for admitted work, and left, with a
forecast to the end of the period and its range.`,
		Example: `  curfew budget --demo
  curfew budget
  curfew budget -o html > budgets.html
  curfew budget holds
  curfew budget settle 4f1c --actual 38.20
  curfew budget release 4f1c`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := ops.ListBudgets.Call(c.Context(), a.at, ops.None{})
			if err == nil && len(doc.Budgets) == 0 {
				err = spend.NoBudgets()
			}
			return shown(a, report.Budgets)(doc, err)
		},
	}
	a.outputs(c, reports...)
	a.simulated(c)
	c.AddCommand(a.newHolds(), a.newSettle(), a.newRelease(), a.newExtend())
	return c
}

func (a *app) newHolds() *cobra.Command {
	var in ops.HoldsInput
	c := &cobra.Command{
		Use:   "holds",
		Short: "List reservations of budget for approved work",
		Example: `  curfew budget holds
  curfew budget holds --since 7d -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := ops.ListHolds.Reply(c.Context(), a.at, in)
			if err != nil {
				return err
			}
			return a.show(r.Doc, func() report.Sheet { return report.Holds(r.Doc, r.At) })
		},
	}
	ops.ListHolds.AddFlags(c.Flags(), &in)
	a.outputs(c, reports...)
	a.simulated(c)
	return c
}

// holdCommand is a command that changes one reservation.
func (a *app) holdCommand(c *cobra.Command, change func(ctx context.Context, id string) (view.OneHold,
	error)) *cobra.Command {
	a.outputs(c, tableJSON...)
	c.Args = oneArg("the id of one hold; `curfew budget holds` lists them")
	c.RunE = func(c *cobra.Command, args []string) error {
		h, err := change(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.say(h, "%s %s: %s %s, %s", h.ID, report.State(h.State), h.Kind, h.Name,
			h.ActualUSD.Or(h.AmountUSD).Dollars())
	}
	return c
}

func (a *app) newSettle() *cobra.Command {
	var in ops.SettleInput
	c := &cobra.Command{
		Use:   "settle HOLD",
		Short: "Settle a reservation with the actual cost of its run, and free the rest",
		Long: `Ends a hold by what the ledger charged to machines with the tag curfew:hold=HOLD, or by
--actual. What it came to goes on counting until the ledger has charged as much.`,
		Example: "  curfew budget settle 4f1c\n  curfew budget settle 4f1c --actual 38.20",
	}
	ops.SettleHold.AddFlags(c.Flags(), &in)
	return a.holdCommand(c, func(ctx context.Context, id string) (view.OneHold, error) {
		in.ID = id
		return ops.SettleHold.Call(ctx, a.at, in)
	})
}

func (a *app) newRelease() *cobra.Command {
	c := &cobra.Command{
		Use: "release HOLD", Short: "Release the reservation of work that did not start",
		Example: "  curfew budget release 4f1c",
	}
	return a.holdCommand(c, func(ctx context.Context, id string) (view.OneHold, error) {
		return ops.ReleaseHold.Call(ctx, a.at, ops.ByID{ID: id})
	})
}

func (a *app) newExtend() *cobra.Command {
	var in ops.ExtendInput
	c := &cobra.Command{
		Use:   "extend HOLD --amount DOLLARS --for DURATION",
		Short: "Extend a reservation by the rules of the gate",
		Long: `Asks the gate whether a live run may cost an amount in total and run for a time. Above the
threshold, and above the admitted amount, an approver has to approve.`,
		Example: "  curfew budget extend 4f1c --amount 120 --for 12h   # exit code 3: it needs an approval",
	}
	ops.ExtendHold.AddFlags(c.Flags(), &in)
	return a.holdCommand(c, func(ctx context.Context, id string) (view.OneHold, error) {
		in.ID = id
		return ops.ExtendHold.Call(ctx, a.at, in)
	})
}
