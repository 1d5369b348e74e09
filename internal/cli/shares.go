package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newShares() *cobra.Command {
	var p daemon.Period
	c := &cobra.Command{
		Use:   "shares FILE",
		Short: "Show the cost of each workload on shared machines: GPUs, MIG slices, time slices",
		Long: `Divides what the ledger has charged for machines among the workloads that shared them,
by a file of resource,workload,share,used: a share is 3/8 (GPUs), 2/7 (MIG slices), 0.25
or 25%. Workloads and the unallocated part add up to the machine's cost.`,
		Example: "  curfew costs shares shares.csv --since 7d",
		Args:    oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			return shown(a, report.Shares)(a.rt.Shares(c.Context(), args[0], p))
		},
	}
	periodFlags(c, &p, "month")
	a.outputs(c, reports...)
	a.simulated(c)
	return c
}
