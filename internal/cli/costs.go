package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newCosts() *cobra.Command {
	var in spend.CostsQuery
	c := &cobra.Command{
		Use:   "costs",
		Short: "Show costs as they accrue, used and wasted: by team, purpose, resource, duty",
		Long: `Shows the ledger: the cost of every resource while it existed, at the price of the hour,
with used, wasted and unmeasured compute separated. Every scan and every pass of enforce
adds to it. Unknown time is shown and not charged.`,
		Example: `  curfew costs --demo                                   # simulated books, to try it
  curfew costs                                          # this month by team
  curfew costs --by purpose,duty --since 7d --granularity day
  curfew costs --by resource --where team=vision --where duty=idle
  curfew costs --by session                             # machines by session and job
  curfew costs --by team -o html > costs.html
  curfew costs units                                    # what a million tokens costs`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := ops.GetCosts.Call(c.Context(), a.at, in)
			if err == nil && a.format == "csv" {
				return report.CostsCSV(a.Stdout, doc)
			}
			return shown(a, report.Costs)(doc, err)
		},
	}
	ops.GetCosts.AddFlags(c.Flags(), &in)
	a.outputs(c, "table", "json", "csv", "html", "md")
	a.simulated(c)
	c.AddCommand(a.newUnits(), a.newShares())
	return c
}
