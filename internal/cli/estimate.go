package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

// estimateFlags adds the flags of everything that estimates.
func estimateFlags(c *cobra.Command, f *daemon.EstimateOptions) {
	fl := c.Flags()
	fl.StringSliceVar(&f.Regions, "regions", nil, "regions to look at where the file names none (default: those of curfew.yaml)")
	fl.StringVar(&f.Nodes, "nodes", "", "nodes of the cluster, for manifests that name no machine, as JSON `file` of `kubectl get nodes -o json`")
	fl.StringVar(&f.History, "history", "", "past runs, to learn durations from, as CSV `file`: name,finished,work,machine,machines,spot_time,interruptions,completed")
}

func (a *app) newEstimate() *cobra.Command {
	var f daemon.EstimateOptions
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
			f.In = a.Stdin
			return shown(a, func(d view.Estimate) report.Sheet { return report.Estimate("estimate", d.Estimate) })(a.at.Estimated(c.Context(), args[0], f))
		},
	}
	estimateFlags(c, &f)
	a.outputs(c, reports...)
	return c
}

// oneFile wants one argument.
func oneFile(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &failure{exit: ExitUsage, code: "usage", err: fmt.Errorf("%s takes one file, got %d", c.CommandPath(), len(args)),
			hint: "see " + c.CommandPath() + " --help"}
	}
	return nil
}
