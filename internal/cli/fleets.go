package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newFleets() *cobra.Command {
	c := &cobra.Command{
		Use:   "fleets",
		Short: "Show the serving fleets of policies: size, bounds, demand, why, and the next step",
		Long: `Lists the serving fleets whose sizes policies decide (do: scale with fleet), by the newest
decision of the service. Demand or a size that is unknown is shown as unknown.

curfew explain FLEET shows what was done to the size of one, and what was refused.`,
		Example: "  curfew fleets\n  curfew fleets -o json\n  curfew explain asg/embed",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return shown(a, report.ServingFleets)(ops.ListFleets.Call(c.Context(), a.at, ops.Paging{}))
		},
	}
	a.outputs(c, reports...)
	return c
}
