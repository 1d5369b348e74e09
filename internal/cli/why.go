package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newWhy() *cobra.Command {
	var in ops.WhyInput
	var demo bool
	c := &cobra.Command{
		Use:   "why [FIGURE]",
		Short: "Explain a figure of the last audit: the rows that add up to it, prices, omissions",
		Long: `Explains a figure of the newest kept audit or its plan, of a budget, of a job or of an imported bill:
whether it is a rate or a sum over time, the rows that add up to it, the prices with their sources and
dates, and what is left out.
FIGURE is the id of a figure (` + "`now.wasted`" + `), the beginning of a finding's id, or the id of
a resource. Without FIGURE the figures are listed. Each row has the id by which it is
explained itself.`,
		Example: `  curfew why
  curfew why now.wasted
  curfew why team.vision.running
  curfew why budget.vision.spent   # by day; .reserved, .remaining and .forecast as well
  curfew why job.train.repeated    # by attempt; .cost, .useful and .waiting as well
  curfew why plan.saves            # by step; plan.step.1.saves by change, plan.team.vision as well
  curfew why bill.999988887777/2026-10-01.billed   # by service; .effective as well
  curfew why 9c6e                  # what the fix of a finding saves
  curfew why now.used -o json      # every row; resource.ID.running has the meters of one`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
			case 1:
				in.Figure = args[0]
			default:
				return usageError("curfew why explains one figure, got %d", len(args))
			}
			if demo {
				in.Cloud = "sim"
			}
			doc, err := ops.GetWhy.Call(c.Context(), a.at, in)
			return shown(a, report.Why)(doc, err)
		},
	}
	ops.GetWhy.AddFlags(c.Flags(), &in)
	c.Flags().StringVar(&in.Cloud, "cloud", "", "of the audit of this cloud: aws, sim, onprem (default: the newest)")
	c.Flags().BoolVar(&demo, "demo", false, "of the audit that scan --demo kept")
	c.MarkFlagsMutuallyExclusive("demo", "cloud")
	a.outputs(c, tableJSON...)
	return c
}
