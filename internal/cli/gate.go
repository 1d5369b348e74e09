package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newGate() *cobra.Command {
	var in ops.GateInput
	c := &cobra.Command{
		Use:   "gate FILE",
		Short: "Decide before a run starts: allow, ask or deny, by estimate, budget and quota",
		Long: `Estimates a file as ` + "`curfew estimate`" + ` does, checks the budgets and quotas of its owner, and
decides: allow (exit 0, budget is reserved), ask (exit 3, an approver has to approve),
deny (exit 4). An approval is for exactly this file at no
more than that amount, expires, and is used once. A denial says what would pass.

--dry-run decides and writes nothing: no budget is reserved, no approver is asked. With
--key the run has one request and one reservation, however often it asks. Without a key
each admission reserves budget again; unused reservations of the same work are reported.`,
		Example: `  curfew gate job.yaml --dry-run                       # would it pass?
  curfew gate job.yaml                                 # exit code 0 allowed, 3 needs an approval, 4 denied
  curfew gate job.yaml --key "$CI_PIPELINE_ID" -o json  # a run asked for again is the same run
  curfew gate job.yaml --github                        # in a workflow: comment, and count reviews
  curfew gate report --since 30d`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			in.File, in.Stdin = args[0], a.Stdin
			return a.gate(c.Context(), in)
		},
	}
	a.outputs(c, reports...)
	fl := c.Flags()
	ops.Gate.AddFlags(fl, &in)
	fl.StringVar(&in.Body.Key, "key", "",
		"names the run, so that asking again with it is the same run and not another "+
			"(with --github: the pull request and the file)")
	fl.BoolVar(&in.Body.DryRun, "dry-run", false, "decide, and hold, ask and record nothing")
	c.AddCommand(a.newGateReport())
	return c
}

func (a *app) gate(ctx context.Context, in ops.GateInput) error {
	doc, err := ops.Gate.Call(ctx, a.at, in)
	if err != nil {
		return err
	}
	if err := a.show(doc, func() report.Sheet { return report.Gate(doc) }); err != nil {
		return err
	}
	switch doc.Decision {
	case string(gate.Allow):
		return nil
	case string(gate.Held):
		return &failure{exit: ExitHeld}
	}
	return &failure{exit: ExitDenied}
}

func (a *app) newGateReport() *cobra.Command {
	var in runtime.Period
	c := &cobra.Command{
		Use:     "report",
		Short:   "Show how many runs needed approval, and how long they waited",
		Example: "  curfew gate report --since 30d",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return shown(a, report.GateReport)(ops.GetGateReport.Call(c.Context(), a.at, in))
		},
	}
	ops.GetGateReport.AddFlags(c.Flags(), &in)
	a.outputs(c, reports...)
	return c
}
