package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/plan/tco"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newPlanTCO() *cobra.Command {
	var saving, effort, rate, upkeep string
	c := &cobra.Command{
		Use:   "tco",
		Short: "Compare a saving with the engineering time for it",
		Long: `Compares the saving of a change with the working time to make it and to maintain it. The
plan advises against a change that does not pay back within a year.`,
		Example: `  curfew plan tco --saving 1200/month --effort 3w --rate 120/h --upkeep 2h/month`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			var p tco.Params
			var err error
			if p.Saving, err = tco.ParseSaving(saving); err != nil {
				return usageError("--saving: %w", err)
			}
			if p.Effort, err = tco.ParseWork(effort); err != nil {
				return usageError("--effort: %w", err)
			}
			if p.Rate, err = tco.ParseRate(rate); err != nil {
				return usageError("--rate: %w", err)
			}
			if p.Upkeep, err = tco.ParseUpkeep(upkeep); err != nil {
				return usageError("--upkeep: %w", err)
			}
			r, err := tco.Weigh(p)
			if err != nil {
				return runtime.PlanError(err)
			}
			return a.show(r, func() report.Sheet { return report.TCO(r) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&saving, "saving", "", "saving: `1200/month`, 40/day, 9000/year")
	fl.StringVar(&effort, "effort", "", "working time for the change: `3w`, 2d, 4h")
	fl.StringVar(&rate, "rate", "120/h", "cost of working time: `120/h`")
	fl.StringVar(&upkeep, "upkeep", "0h/month", "working time to maintain it: `2h/month`")
	a.outputs(c, reports...)
	return c
}
