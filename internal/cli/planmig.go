package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/mig"
	"github.com/curfew-dev/curfew/internal/report"
)

// migFlags are the flags of plan mig.
type migFlags struct {
	gpu, workloads, current string
	region, price           string
	enumerate, double, keep bool
}

func (a *app) newPlanMIG() *cobra.Command {
	var f migFlags
	c := &cobra.Command{
		Use:   "mig",
		Short: "Pack workloads into MIG instances on the fewest GPUs",
		Long: `Packs workloads (name,memory_gib,compute_slices,count) into MIG instances on the fewest
GPUs, with a proof or the gap to a proven bound. Prints the commands in an order in which
no two instances overlap. --current starts from the current placements and moves as few
workloads as possible. --enumerate counts the ways to divide a GPU.`,
		Example: `  curfew plan mig --gpu A100-80GB --workloads examples/data/workloads.csv
  curfew plan mig --gpu A100-80GB:4,A30 --workloads examples/data/workloads.csv --current today.csv -o html > mig.html
  curfew plan mig --gpu H100-80GB --enumerate`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.planMIG(c.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.gpu, "gpu", "", "GPUs with optional counts: `A100-80GB:4,A30`")
	fl.StringVar(&f.workloads, "workloads", "", "CSV `file` of workloads: name,memory_gib,compute_slices,count")
	fl.StringVar(&f.current, "current", "",
		"current placements: `file` with CSV, the output of nvidia-smi mig -lgi, or the JSON of an earlier plan")
	fl.BoolVar(&f.enumerate, "enumerate", false, "count the ways to divide one GPU")
	fl.BoolVar(&f.double, "double-memory", false, "also use profiles with double memory")
	fl.BoolVar(&f.keep, "keep-gpus", false, "keep the current GPUs in use: do not move workloads to free a GPU")
	fl.StringVar(&f.region, "region", "us-east-1", "region whose on-demand price a GPU has")
	fl.StringVar(&f.price, "price", "", "price of a GPU in `dollars` an hour (default: the price book's)")
	a.outputs(c, reports...)
	return c
}

func (a *app) planMIG(ctx context.Context, f migFlags) error {
	if f.gpu == "" {
		return usageError("curfew plan mig: give --gpu, such as A100-80GB")
	}
	if f.enumerate {
		model, err := mig.ModelNamed(f.gpu)
		if err != nil {
			return usageError("--gpu %s: %w", f.gpu, err)
		}
		counts, err := mig.Enumerate(model, f.double)
		if err != nil {
			return runtime.PlanError(err)
		}
		return a.show(counts, func() report.Sheet { return report.MIGCounts(model, counts) })
	}
	fleet, err := mig.ParseFleet(f.gpu)
	if err != nil {
		return usageError("--gpu %s: %w", f.gpu, err)
	}
	if f.workloads == "" {
		return usageError("curfew plan mig: give --workloads FILE, or --enumerate")
	}
	var given money.Amount
	if f.price != "" {
		if given, err = money.ParseAmount(strings.TrimPrefix(f.price, "$")); err != nil || given <= 0 {
			return usageError("--price %q: expected dollars an hour, such as 4.10", f.price)
		}
	}
	_, book, err := a.req.Priced()
	if err != nil {
		return err
	}
	a.req.CheckRegion(book, f.region)
	in, err := a.req.Input(f.workloads)
	if err != nil {
		return err
	}
	workloads, err := mig.ReadWorkloads(f.workloads, in)
	if err := errors.Join(err, in.Close()); err != nil {
		return runtime.PlanError(err)
	}
	o := mig.Options{DoubleMemory: f.double, KeepGPUs: f.keep}
	var r mig.Report
	var before map[string]int
	if f.current == "" {
		r, err = mig.Pack(ctx, fleet, workloads, o)
	} else {
		var today []mig.Placed
		if in, err = a.req.Input(f.current); err != nil {
			return err
		}
		today, err = mig.ReadPlacements(f.current, in, fleet)
		if err := errors.Join(err, in.Close()); err != nil {
			return runtime.PlanError(err)
		}
		before = mig.GPUsOf(fleet, today)
		r, err = mig.Rearrange(ctx, fleet, today, workloads, o)
	}
	if err != nil {
		return runtime.PlanError(err)
	}
	if err := r.Charge(func(model string) (mig.GPUPrice, error) {
		return mig.PriceOf(book, model, f.region, given)
	}, before); err != nil {
		return err
	}
	return a.show(r, func() report.Sheet { return report.MIG(r) })
}
