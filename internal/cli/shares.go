package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newShares() *cobra.Command {
	var f periodFlags
	c := &cobra.Command{
		Use:   "shares FILE",
		Short: "Show the cost of each workload on shared machines: GPUs, MIG slices, time slices",
		Long: `Divides what the ledger has charged for machines among the workloads that shared them,
by a file of resource,workload,share,used: a share is 3/8 (GPUs), 2/7 (MIG slices), 0.25
or 25%. Workloads and the unallocated part add up to the machine's cost.`,
		Example: "  curfew costs shares shares.csv --since 7d",
		Args:    oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			return a.shares(c.Context(), args[0], f)
		},
	}
	f.add(c, "month")
	a.outputs(c, reports...)
	return c
}

func (a *app) shares(ctx context.Context, name string, f periodFlags) error {
	since, until, err := f.bounds(a.Now())
	if err != nil {
		return err
	}
	all, err := readPlan(a, name, costs.ReadShares)
	if err != nil {
		return err
	}
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	charged, err := costs.Spent(ctx, s.Ledger(), costs.Query{By: []ledger.Dimension{ledger.ByResource}, Since: since, Until: until})
	if err != nil {
		return err
	}
	divided, err := costs.Divide(charged, all)
	if err != nil {
		return planFailure(err)
	}
	doc := view.NewShares(divided)
	return a.show(doc, func() report.Sheet { return report.Shares(doc) })
}
