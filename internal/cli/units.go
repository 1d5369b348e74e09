package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newUnits() *cobra.Command {
	var f daemon.UnitsQuery
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
			return shown(a, report.Units)(a.at.Units(c.Context(), f, args))
		},
	}
	periodFlags(c, &f.Period, "3mo")
	fl := c.Flags()
	fl.StringVar(&f.Granularity, "granularity", "month", "hour, day, month or total")
	fl.StringVar(&f.Name, "unit", "", "what --counts counts: prediction")
	fl.StringVar(&f.Counts, "counts", "", "how many were made, as CSV `file`: time,count, and key with --by; or gpu-hours, which the ledger knows")
	fl.StringVar(&f.Target, "target", "", "the most that one, or --per of them, should cost in `dollars`")
	fl.Int64Var(&f.Per, "per", 1, "how many a unit cost is for: 1000000")
	fl.StringVar(&f.By, "by", "", "the dimension that the keys of --counts are values of: project")
	fl.StringArrayVar(&f.Where, "where", nil, "only costs that have a value: team=search; repeatable")
	a.outputs(c, reports...)
	a.simulated(c)
	return c
}
