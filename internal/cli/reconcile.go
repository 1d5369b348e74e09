package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newBillReconcile() *cobra.Command {
	var f billFlags
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
			if err := oneOf("basis", f.basis, string(bill.OnBilled), string(bill.OnEffective)); err != nil {
				return err
			}
			return a.reconcile(c.Context(), f, post)
		},
	}
	f.add(c, "month")
	c.Flags().StringVar(&f.basis, "basis", string(bill.OnBilled), "billed or effective")
	c.Flags().BoolVar(&post, "post", false, "enter the differences into the ledger")
	a.outputs(c, reports...)
	return c
}

func (a *app) reconcile(ctx context.Context, f billFlags, post bool) error {
	since, until, err := f.bounds(a.Now())
	if err != nil {
		return err
	}
	day := 24 * time.Hour
	since = since.Truncate(day)
	if end := until.Truncate(day); end.Before(until) {
		until = end.Add(day)
	}
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	basis := costs.BilledCost
	if f.basis == string(bill.OnEffective) {
		basis = costs.EffectiveCost
	}
	r, posted, err := costs.Comparison{Bills: s.Bills(), Ledger: s.Ledger()}.Reconcile(ctx, since, until, basis, post)
	if errors.Is(err, costs.ErrNoEffectiveCost) {
		return &failure{exit: ExitError, code: "no_effective_cost", err: err, hint: "compare with billed costs: --basis billed"}
	}
	if err != nil {
		return err
	}
	doc := view.NewReconciliation(r, posted)
	return a.show(doc, func() report.Sheet { return report.Reconciliation(doc) })
}
