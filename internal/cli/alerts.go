package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newAlerts() *cobra.Command {
	c := &cobra.Command{
		Use:   "alerts",
		Short: "List what people were notified of and goes on, with the dollars so far",
		Long: `Lists the conditions of policies that notify (` + "`do: notify`" + `) as long as they last, with the
dollars that were spent when people were notified last; budgets, spend, storage and
accounts that people were notified of; and the troubles that curfew doctor state lists.
People are notified of a condition once, again each day and each time its dollars
have doubled, and when it is over.`,
		Example: "  curfew alerts\n  curfew alerts -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := ops.ListAlerts.Call(c.Context(), a.at, ops.None{})
			return shown(a, report.Alerts)(doc, err)
		},
	}
	a.outputs(c, tableJSON...)
	return c
}
