package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/report"
)

// rightsizeFlags are the flags of plan rightsize.
type rightsizeFlags struct {
	source                                                           sourceFlags
	options                                                          rightsize.Options
	period                                                           runtime.Period // of --from ledger
	usage, from, columns, step, resource, tz, machine, region, needs string
}

func (a *app) newPlanRightsize() *cobra.Command {
	var f rightsizeFlags
	c := &cobra.Command{
		Use:   "rightsize",
		Short: "Find the smallest machine type for the measured GPU use",
		Long: `Reads recorded usage and reports how well GPUs are used, likely causes of low use, and
the machine types that fit the measured memory and compute, with prices and drawbacks.
--from scan right-sizes the machines of an account, also by recorded usage, and those
without GPUs by their CPUs and memory. --from ledger has no samples: it reports how many machines worked at the same time.`,
		Example: `  curfew plan rightsize --from scan --regions us-east-1
  curfew plan rightsize --from ledger --since 30d
  curfew plan rightsize --usage examples/data/gpus.csv.gz
  timeout 1h nvidia-smi --query-gpu=index,utilization.gpu,memory.used,memory.total --format=csv -l 5 > gpus.csv
  curfew plan rightsize --usage gpus.csv --step 5s --resource box --type g5.12xlarge   # or --usage - from a pipe
  nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used,memory.total --format=csv -l 60 > g.csv
  curfew plan rightsize --usage g.csv --resource box --type g5.12xlarge -o html > rightsize.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if f.needs != "" {
				if f.options.Needs, err = rightsize.ParseFeatures(f.needs); err != nil {
					return usageError("--needs: %v", err)
				}
				f.options.NeedsKnown = true
			}
			if f.from == "" {
				return a.planRightsize(c.Context(), f)
			}
			if err = fromAccount("rightsize", f.from, f.from == "ledger" && f.usage != ""); err != nil {
				return err
			}
			if f.usage != "" {
				f.source.Usage, f.source.Columns, f.source.Step = []string{f.usage}, f.columns, f.step
				f.source.Resource, f.source.TZ = f.resource, f.tz
			}
			if f.from == "ledger" {
				return a.planLedger(c.Context(), "rightsize", rightsize.Schema, f.period, "", 1)
			}
			return a.rightsizeScan(c.Context(), f)
		},
	}
	fl := c.Flags()
	f.source.addAccount(fl)
	f.source.addMetrics(fl)
	fl.StringVar(&f.source.Profile, "profile", "", "AWS profile")
	fl.StringVar(&f.from, "from", "",
		"machines: scan (those of the account, measured there or by --usage) or ledger (those that worked at the "+
			"same time)")
	ops.AddFlags(c.Flags(), &f.period, map[string]string{"since": "30d"})
	fl.StringVar(&f.usage, "usage", "", "recorded GPU samples (CSV, CSV.gz, Parquet or nvidia-smi CSV) `file`, or - for a pipe")
	fl.StringVar(&f.columns, "map", "", "names of the columns in the file: `resource=host,time=ts`")
	fl.StringVar(&f.step, "step", "", "sampling step, such as 60s (default: from the file)")
	fl.StringVar(&f.resource, "resource", "", "resource of the nvidia-smi output")
	fl.StringVar(&f.tz, "tz", "",
		"time `zone` of times without one, such as Europe/Berlin or +09:00 (default: that of this machine)")
	fl.StringVar(&f.machine, "type", "", "current machine `type` (default: from the file)")
	fl.StringVar(&f.region, "region", "", "region of the machines (default us-east-1)")
	fl.StringVar(&f.needs, "needs", "",
		"`features` that the work uses: bf16, fp8, nvlink, or none (default: all that its GPU has may be in use)")
	a.outputs(c, reports...)
	return c
}

func (a *app) planRightsize(ctx context.Context, f rightsizeFlags) error {
	if f.usage == "" {
		return usageError("curfew plan rightsize: give --usage FILE with recorded usage, or --from scan")
	}
	t, err := backtestFlags{
		trace: f.usage, columns: f.columns, step: f.step, restartCost: "0s", resource: f.resource, tz: f.tz,
	}.params()
	if err != nil {
		return err
	}
	_, book, err := a.req.Priced()
	if err != nil {
		return err
	}
	a.req.CheckRegion(book, f.region)
	path, err := clouds.Regular(a.req, f.usage)
	if err != nil {
		return err
	}
	if err := clouds.Prepare(ctx, a.req, path, &t.Format); err != nil {
		return err
	}
	file, err := config.Open(path)
	if err != nil {
		return &failure{
			exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read %s: %w", f.usage, runtime.Cause(err)),
		}
	}
	defer file.Close()
	r, err := rightsize.FromUsage(ctx, file, t.Format, f.machine, book, rightsize.Params{
		Options: f.options, Region: f.region,
	})
	if err != nil {
		return clouds.CloudError(err)
	}
	return a.show(r, func() report.Sheet { return report.Rightsize(r) })
}

// rightsizeScan right-sizes every running machine.
func (a *app) rightsizeScan(ctx context.Context, f rightsizeFlags) error {
	r, cfg, book, err := a.scanned(ctx, f.source)
	if err != nil {
		return err
	}
	f.options.MinCoverage = cfg.Thresholds.Coverage
	out, err := accountplan.Rightsize(r, book, f.options, cfg.Thresholds.RightsizeSaving)
	switch {
	case errors.Is(err, accountplan.ErrUnmeasured):
		return &failure{
			exit: ExitError, code: "no_usage", err: err, hint: "run curfew scan to see what could not be read",
		}
	case err != nil:
		return clouds.CloudError(err)
	}
	return a.show(out, func() report.Sheet { return report.Rightsize(out) })
}
