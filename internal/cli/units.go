package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newUnits() *cobra.Command {
	var in ops.UnitsInput
	var unit string
	c := &cobra.Command{
		Use:   "units [NAME…]",
		Args:  cobra.ArbitraryArgs,
		Short: "Show unit costs: per prediction, million tokens, training run, GPU-hour",
		Long: `Divides costs by units: the used, the allocated and the idle cost, for this month and the
two before it, with the target and the change since the month before. A unit cost needs both: a count, and dollars that the ledger knows. Units are those of curfew.yaml, counted in files or by queries of a
Prometheus server, or one that --counts names.`,
		Example: `  curfew costs units
  curfew costs units --unit prediction --counts counts.csv --where team=search --since 2026-10-01 --until 2026-11-01
  curfew costs units --counts gpu-hours --by team --since 7d
  curfew costs units --unit token --per 1000000 --target 0.20 --counts tokens.csv --granularity day`,
		RunE: func(c *cobra.Command, args []string) error {
			if in.Units = args; in.Counts != "" {
				in.Units = append([]string{unit}, args...)
			}
			return shown(a, report.Units)(ops.GetUnitCosts.Call(c.Context(), a.at, in))
		},
	}
	fl := c.Flags()
	ops.GetUnitCosts.AddFlags(fl, &in)
	fl.StringVar(&unit, "unit", "", "what --counts counts: prediction")
	fl.StringVar(&in.Counts, "counts", "",
		"how many were made, as CSV `file`: time,count, and key with --by; or gpu-hours, which the ledger knows")
	a.outputs(c, reports...)
	a.simulated(c)
	return c
}
