package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/simulation"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newShares() *cobra.Command {
	var f sourceFlags
	var in ops.TenantSharesInput
	c := &cobra.Command{
		Use:   "shares [FILE]",
		Short: "Show the cost of each workload on shared machines: pods, MIG slices, time slices",
		Long: `Divides what the ledger has charged for machines among the workloads that shared them.
Workloads and the unallocated part add up to the machine's cost.

With a file of resource,workload,share,used: a share is 3/8 (GPUs), 2/7 (MIG slices), 0.25
or 25%.

Without a file, a Prometheus-compatible server states which pods and jobs held each GPU: by the
labels of dcgm-exporter, and by the requests that kube-state-metrics reports. Each hour is
divided by request, and by use. A GPU whose holder is not known is unallocated.`,
		Example: `  curfew costs shares shares.csv --since 7d
  curfew costs shares --metrics-source http://prometheus:9090 --since 7d
  curfew costs shares --metrics-source http://prometheus:9090 --by team -o csv`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneFile(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			var doc view.Shares
			err := f.checkAudit()
			switch {
			case err != nil:
			case len(args) == 1 && len(f.Metrics) > 0:
				err = usageError("costs shares: give a file or --metrics-source, not both")
			case len(args) == 1:
				var file ops.DivideInput
				file.Body.Name, file.Body.Since, file.Body.Until = args[0], in.Since, in.Until
				doc, err = ops.DivideCosts.Call(c.Context(), a.at, file)
			default:
				if _, simulated := a.req.Storage.(simulation.Books); simulated {
					f.Cloud = sim.CloudName
				}
				in.Source = f.Source
				doc, err = ops.GetCostShares.Call(c.Context(), a.at, in)
			}
			if err == nil && a.format == "csv" {
				err = report.SharesCSV(a.Stdout, doc)
			} else {
				err = shown(a, report.Shares)(doc, err)
			}
			if err != nil || len(doc.BlindSpots) == 0 {
				return err
			}
			return &failure{exit: ExitPartial}
		},
	}
	ops.GetCostShares.AddFlags(c.Flags(), &in)
	fl := c.Flags()
	f.addRealAccount(fl)
	f.addMetrics(fl)
	fl.StringVar(&f.Profile, "profile", "", "AWS profile")
	a.outputs(c, "table", "json", "csv", "html", "md")
	a.simulated(c)
	return c
}
