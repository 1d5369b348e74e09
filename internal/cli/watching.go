package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newPriceWatching() *cobra.Command {
	var machines, gpus int
	var every string
	c := &cobra.Command{
		Use:   "watching",
		Short: "Show the monthly cost of curfew's own AWS calls",
		Long: `Counts the CloudWatch requests of a pass over GPU machines, and prices a month of passes of
scan and of enforce. It makes no call. The calls of a real scan are in its JSON (api_calls).`,
		Example: `  curfew price watching --machines 100 --gpus 8 --every 5m`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			d, err := config.ParseDuration(every)
			if err != nil || d < time.Minute || d > 31*24*time.Hour {
				return usageError("--every %q: it is a duration from 1m to 31d such as 5m", every)
			}
			w, err := priceWatching(machines, gpus, d)
			if err != nil {
				return usageError("%w", err)
			}
			return a.show(w, func() report.Sheet { return report.Watching(w, every) })
		},
	}
	c.Flags().IntVar(&machines, "machines", 100, "how many machines there are")
	c.Flags().IntVar(&gpus, "gpus", 8, "GPUs of each, which the CloudWatch agent publishes one by one; 0 for none")
	c.Flags().StringVar(&every, "every", "5m", "how often a pass runs")
	a.outputs(c, reports...)
	return c
}

// priceWatching prices a month of 730 hours of passes.
func priceWatching(machines, gpus int, every time.Duration) (view.Watching, error) {
	pass, err := clouds.WatchingPass(machines, gpus)
	if err != nil {
		return view.Watching{}, err
	}
	request, err := clouds.ExplorerRequest()
	if err != nil {
		return view.Watching{}, err
	}
	month := int64(money.Month / time.Second)
	passes, err := pass.Cost.Mul(month, int64(every/time.Second))
	explorer, errExplorer := request.Mul(month, int64(24*time.Hour/time.Second))
	scans, errScans := passes.Add(explorer)
	w := view.Watching{
		Schema: view.WatchingSchema, Machines: machines, GPUs: gpus, Every: every.String(), Metrics: pass.Metrics,
		Lists:   pass.Lists,
		PerPass: pass.Cost, PassesADay: fmt.Sprintf("%.4g", (24*time.Hour).Seconds()/every.Seconds()), Enforce: passes,
		Scan: scans,
		Assumptions: []string{
			"CloudWatch charges $0.01 for 1,000 metrics of GetMetricData and for 1,000 requests of ListMetrics; " +
				"free tiers " +
				"are not counted",
			"the CloudWatch agent publishes each GPU apart; with --usage, or GPU metrics from elsewhere, only CPU and " +
				"network are asked for",
			"scan asks Cost Explorer once a day ($0.01 a request and account) and reads volumes, balancers and buckets " +
				"besides: its JSON counts the calls",
		}}
	return w, errors.Join(err, errExplorer, errScans)
}
