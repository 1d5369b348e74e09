package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newBillReconcile() *cobra.Command {
	var in ops.ReconcileInput
	var post bool
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare billed and accrued costs, by resource and day",
		Long: `Compares the ledger with imported bills and names the reasons of each variance. With
--post the variance is added to the ledger as visible corrections that refer to
the billing period; nothing that was entered before is edited.`,
		Example: `  curfew bill reconcile --since 2026-10-01 --until 2026-11-01
  curfew bill reconcile --since 2026-10-01 --until 2026-11-01 --post`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if post {
				var entered ops.PostReconciliationInput
				entered.Body.Since, entered.Body.Until, entered.Body.Basis = in.Since, in.Until, in.Basis
				return shown(a, report.Reconciliation)(ops.PostReconciliation.Call(c.Context(), a.at, entered))
			}
			return shown(a, report.Reconciliation)(ops.GetReconciliation.Call(c.Context(), a.at, in))
		},
	}
	ops.GetReconciliation.AddFlags(c.Flags(), &in)
	c.Flags().BoolVar(&post, "post", false, "enter the differences into the ledger")
	a.outputs(c, reports...)
	a.simulated(c)
	return c
}
