package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/report"
)

// periodFlags adds the flags that choose a stretch of time.
func periodFlags(c *cobra.Command, p *daemon.Period, since string) {
	c.Flags().StringVar(&p.Since, "since", since, "from when: a date, a time, months with this one (3mo), or a duration back from now (7d)")
	c.Flags().StringVar(&p.Until, "until", "", "until when (default now)")
}

func (a *app) newCosts() *cobra.Command {
	var f daemon.CostsQuery
	c := &cobra.Command{
		Use:   "costs",
		Short: "Show costs as they accrue, used and wasted: by team, purpose, resource, duty",
		Long: `Shows the ledger: what every resource cost while it was there, at the price of the hour,
with used, wasted and unmeasured compute apart. Rounds fill it: every scan and every pass
of enforce. Time of which nothing is known is shown and not charged.`,
		Example: `  curfew costs --demo                                   # simulated books, to try it
  curfew costs                                          # this month by team
  curfew costs --by purpose,duty --since 7d --granularity day
  curfew costs --by resource --where team=vision --where duty=idle
  curfew costs --by team -o html > costs.html
  curfew costs units                                    # what a million tokens costs`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := a.at.Costs(c.Context(), f)
			if err == nil && a.format == "csv" {
				return report.CostsCSV(a.Stdout, doc)
			}
			return shown(a, report.Costs)(doc, err)
		},
	}
	periodFlags(c, &f.Period, "month")
	fl := c.Flags()
	fl.StringVar(&f.By, "by", "team", "dimensions, separated by commas: "+daemon.DimensionNames())
	fl.StringVar(&f.Granularity, "granularity", "total", "hour, day, month or total")
	fl.StringArrayVar(&f.Where, "where", nil, "only what has a value: team=vision; repeatable; an empty value selects unallocated costs")
	a.outputs(c, "table", "json", "csv", "html", "md")
	a.simulated(c)
	c.AddCommand(a.newUnits(), a.newShares())
	return c
}
