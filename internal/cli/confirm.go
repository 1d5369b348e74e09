package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newConfirm() *cobra.Command {
	var in ops.ConfirmInput
	c := &cobra.Command{
		Use:   "confirm POLICY --reason TEXT",
		Args:  cobra.ArbitraryArgs,
		Short: "Confirm the actions that a blown fuse of a policy holds back",
		Long: `A fuse guards against a bad policy: once more than five machines, and over half of
those that a policy selects, are due at once, nothing of the policy is carried out until a
person confirms. The confirmation covers the machines that were due then; their actions are
carried out within the caps. --for keeps the fuse from blowing again for a time, for a
policy that by design ends most of the machines that it selects, such as one for nights.
Without POLICY the fuses that have blown are listed.`,
		Example: `  curfew confirm
  curfew confirm idle-gpu-machines --reason "the fleet of the course that ended"
  curfew confirm off-hours --for 30d --reason "it stops the development fleet every evening"`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("curfew confirm takes one policy, got %d", len(args))
			}
			if len(args) == 0 {
				return shown(a, func(d view.Fuses) report.Sheet {
					return report.FusesSheet(d, a.Now(), a.globals())
				})(ops.ListFuses.Call(c.Context(), a.at, ops.None{}))
			}
			in.ID = args[0]
			doc, err := ops.ConfirmFuse.Call(c.Context(), a.at, in)
			if err != nil {
				return err
			}
			var lines []string
			for _, f := range doc.Fuses {
				lines = append(lines,
					fmt.Sprintf("%s in %s: confirmed, %d of %d machines; `curfew enforce` continues within the caps",
						plain.Line(f.Policy), plain.Line(f.Account), f.Due, f.Selected))
			}
			return a.say(doc, "%s", plain.Text(strings.Join(lines, "\n")))
		},
	}
	ops.ConfirmFuse.AddFlags(c.Flags(), &in)
	a.outputs(c, tableJSON...)
	return c
}
