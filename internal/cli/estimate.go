package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newEstimate() *cobra.Command {
	var in ops.WorkInput
	c := &cobra.Command{
		Use:   "estimate FILE",
		Short: "Estimate the cost of a job, a session or a Terraform plan",
		Long: `Estimates a job or session file, Kubernetes manifests that ask for GPUs (Pod, Job,
CronJob, JobSet, PyTorchJob, MPIJob, RayJob, Argo Workflow, Deployment), or what
` + "`terraform show -json`" + ` prints: the median cost (p50) and the 95th percentile (p95), line by
line with quantity, unit price, source and date. An unknown price is an error, never zero.`,
		Example: `  curfew estimate job.yaml
  curfew estimate job.yaml --regions us-east-1,us-west-2 -o json
  terraform show -json plan.out > plan.json && curfew estimate plan.json`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			in.File, in.Stdin = args[0], a.Stdin
			return shown(a, func(d view.Estimate) report.Sheet {
				return report.Estimate("estimate", d.Estimate)
			})(ops.Estimate.Call(c.Context(), a.at, in))
		},
	}
	ops.Estimate.AddFlags(c.Flags(), &in)
	a.outputs(c, reports...)
	return c
}

// oneFile wants one argument.
func oneFile(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &failure{
			exit: ExitUsage, code: "usage", err: fmt.Errorf("%s takes one file, got %d", c.CommandPath(), len(args)),
			hint: "see " + c.CommandPath() + " --help"}
	}
	return nil
}
