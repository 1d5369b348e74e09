package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/report"
)

// capacityFlags are the flags of plan capacity.
type capacityFlags struct {
	source                                             sourceFlags
	period                                             runtime.Period // of --from ledger
	from                                               string
	qps, qpsPerGPU                                     float64
	maxBatch, replicas                                 int
	headroom, profile, p99, arrivals, price, coldStart string
}

func (a *app) newPlanCapacity() *cobra.Command {
	var f capacityFlags
	c := &cobra.Command{
		Use:   "capacity",
		Short: "Plan the replicas for a request rate, with latency and cost",
		Long: `Computes replicas, latency and cost from a request rate and the rate of one replica, or
the time of a batch of n (a·n + b). One replica is computed as a batch-service queue;
several replicas are simulated. With running=1-48 in --profile, a·n + b is the time of a
request while n requests run, on a server that batches continuously, as curfew gateway
profile measures it; at most as many run as were measured. --arrivals replays recorded requests instead of Poisson
arrivals. Without --headroom, --p99 and --replicas it aims for 60% to 80% utilization. A
plan over 85% of capacity says so, and how many replicas have room for a rise. --from scan
plans the machines of each serving fleet of the account, also by recorded usage. --from
ledger shows which fleets had more machines than worked at the same time.`,
		Example: `  curfew plan capacity --from scan
  curfew plan capacity --from ledger --since 30d
  curfew plan capacity --qps 500 --qps-per-gpu 200 --headroom 20%
  curfew plan capacity --qps 500 --profile a=1ms,b=10ms --p99 50ms --price 1.006
  curfew plan capacity --qps 25 --profile a=48ms,b=1.74s,running=1-48 --price 0.69
  curfew plan capacity --arrivals examples/data/requests.csv.gz --profile a=2ms,b=30ms --max-batch 16 --p99 200ms -o html > capacity.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.from != "scan" && len(f.source.Usage) > 0 {
				return usageError(
					"curfew plan capacity: --usage needs --from scan: it measures the machines of the account")
			}
			if f.from == "" {
				return a.planCapacity(f)
			}
			if err := fromAccount("capacity", f.from, f.qps != 0 || f.qpsPerGPU != 0 ||
				f.arrivals != "" || f.profile != "" ||
				f.p99 != "" || f.replicas != 0); err != nil {
				return err
			}
			target := capacity.DefaultTarget
			if f.headroom != "" {
				headroom, err := capacity.ParseHeadroom(f.headroom)
				if err != nil {
					return usageError("--headroom: %w", err)
				}
				target = 1 - headroom
			}
			if f.from == "ledger" {
				return a.planLedger(c.Context(), "capacity", capacity.Schema, f.period, inventory.Inference, target)
			}
			return a.capacityScan(c.Context(), f, target)
		},
	}
	fl := c.Flags()
	f.source.addAccount(fl)
	f.source.addUsage(fl)
	fl.StringVar(&f.from, "from", "",
		"plan the serving fleets of the account by their measured load (scan) or by the "+
			"hours in which they worked (ledger)")
	ops.AddFlags(c.Flags(), &f.period, map[string]string{"since": "30d"})
	fl.Float64Var(&f.qps, "qps", 0, "requests per second (default with --arrivals: their rate)")
	fl.Float64Var(&f.qpsPerGPU, "qps-per-gpu", 0, "requests per second that one replica serves")
	fl.StringVar(&f.headroom, "headroom", "",
		"free share of the capacity: `20%` (default: 60% to 80% utilization, unless --p99 or --replicas is given)")
	fl.StringVar(&f.profile, "profile", "",
		"time of a batch of n: `a=1ms,b=10ms` is a·n + b; with running=1-48, of a request while n run")
	fl.IntVar(&f.maxBatch, "max-batch", 0, "maximum batch size (default: an idle replica takes the whole queue)")
	fl.StringVar(&f.p99, "p99", "", "p99 latency objective: `50ms`")
	fl.IntVar(&f.replicas, "replicas", 0, "number of replicas (default: the fewest that meet the objective)")
	fl.StringVar(&f.arrivals, "arrivals", "", "CSV `file` of recorded arrivals to replay")
	fl.StringVar(&f.price, "price", "", "price of one replica in `dollars` an hour")
	fl.StringVar(&f.coldStart, "cold-start", "", "time from the start of a replica until it serves: `90s`")
	a.outputs(c, reports...)
	return c
}

func (a *app) planCapacity(f capacityFlags) error {
	p := capacity.Params{QPS: f.qps, QPSPerGPU: f.qpsPerGPU, MaxBatch: f.maxBatch, Replicas: f.replicas}
	var err error
	switch {
	case f.headroom != "":
		if p.Headroom, err = capacity.ParseHeadroom(f.headroom); err != nil {
			return usageError("--headroom: %w", err)
		}
	case f.p99 == "" && f.replicas == 0:
		p.Band = true
	}
	switch {
	case f.profile == "":
	case capacity.IsLaw(f.profile):
		if p.Law, err = capacity.ParseLaw(f.profile); err != nil {
			return usageError("--profile: %w", err)
		}
	default:
		if p.Profile, err = capacity.ParseProfile(f.profile); err != nil {
			return usageError("--profile: %w", err)
		}
	}
	for _, d := range []struct {
		flag, text string
		to         *time.Duration
	}{{"p99", f.p99, &p.P99}, {"cold-start", f.coldStart, &p.ColdStart}} {
		if d.text == "" {
			continue
		}
		if *d.to, err = config.ParseDuration(d.text); err != nil || *d.to <= 0 {
			return usageError("--%s %q: expected a duration, such as 50ms", d.flag, d.text)
		}
	}
	if f.price != "" {
		if p.HourlyPrice, err = money.ParseAmount(strings.TrimPrefix(f.price, "$")); err != nil || p.HourlyPrice <= 0 {
			return usageError("--price %q: expected dollars an hour, such as 1.006", f.price)
		}
	}
	if f.arrivals != "" {
		if p.Arrivals, err = runtime.ReadPlan(a.req, f.arrivals, capacity.ReadArrivals); err != nil {
			return err
		}
	}
	if p.QPS == 0 && p.Arrivals == nil {
		return usageError("curfew plan capacity: give --qps, or --arrivals FILE")
	}
	if p.QPSPerGPU == 0 && f.profile == "" {
		return usageError("curfew plan capacity: give --qps-per-gpu, or --profile")
	}
	r, err := capacity.Plan(p)
	switch {
	case errors.Is(err, capacity.ErrObjective), errors.Is(err, capacity.ErrOverload):
		return &failure{exit: ExitError, code: "infeasible", err: err}
	case err != nil:
		return &failure{exit: ExitUsage, code: "usage", err: err}
	}
	return a.show(r, func() report.Sheet { return report.Capacity(r) })
}

// capacityScan plans the machines of every serving fleet.
func (a *app) capacityScan(ctx context.Context, f capacityFlags, target float64) error {
	r, cfg, book, err := a.scanned(ctx, f.source)
	if err != nil {
		return err
	}
	doc, err := accountplan.Capacity(r, book, cfg.Thresholds, target, a.Now().UTC())
	if err != nil {
		return err
	}
	return a.show(doc, func() report.Sheet { return report.Fleets(doc) })
}
