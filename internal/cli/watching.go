package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
)

// watching is what `price watching` says, in the shape of its JSON.
type watching struct {
	Schema   string `json:"schema"` // "curfew.watching/v1"
	Machines int    `json:"machines"`
	GPUs     int    `json:"gpus_per_machine"`
	Every    string `json:"every"`
	// Metrics and Lists are what one pass asks of CloudWatch.
	Metrics    int          `json:"metrics_per_pass"`
	Lists      int          `json:"list_requests_per_pass"`
	PerPass    money.Amount `json:"usd_per_pass"`
	PassesADay string       `json:"passes_per_day"`
	// Monthly dollars of passes of enforce, and of scan, which asks Cost Explorer once a day.
	Enforce     string   `json:"enforce_monthly_usd"`
	Scan        string   `json:"scan_monthly_usd"`
	Assumptions []string `json:"assumptions"`
}

func (a *app) newPriceWatching() *cobra.Command {
	var machines, gpus int
	var every, output string
	c := &cobra.Command{
		Use:   "watching",
		Short: "What curfew's own calls of AWS cost a month",
		Long: `Counts what a pass over GPU machines asks of CloudWatch, and prices a month of passes of
scan and of enforce. It makes no call. The calls of a real scan are in its JSON (api_calls).`,
		Example: `  curfew price watching --machines 100 --gpus 8 --every 5m`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("output", output, planOutputs...); err != nil {
				return err
			}
			d, err := config.ParseDuration(every)
			if err != nil || d < time.Minute || d > 31*24*time.Hour {
				return usageError("--every %q: it is a duration from 1m to 31d such as 5m", every)
			}
			w, err := priceWatching(machines, gpus, d)
			if err != nil {
				return usageError("%w", err)
			}
			return a.show(output, w, func() report.Sheet { return watchingSheet(w) })
		},
	}
	c.Flags().IntVar(&machines, "machines", 100, "how many machines there are")
	c.Flags().IntVar(&gpus, "gpus", 8, "GPUs of each, which the CloudWatch agent publishes one by one; 0 for none")
	c.Flags().StringVar(&every, "every", "5m", "how often a pass runs")
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json, html or md")
	return c
}

// priceWatching prices a month of 730 hours of passes.
func priceWatching(machines, gpus int, every time.Duration) (watching, error) {
	pass, err := daemon.WatchingPass(machines, gpus)
	if err != nil {
		return watching{}, err
	}
	request, err := daemon.ExplorerRequest()
	if err != nil {
		return watching{}, err
	}
	month := int64(money.Month / time.Second)
	passes, err := pass.Cost.Mul(month, int64(every/time.Second))
	explorer, errExplorer := request.Mul(month, int64(24*time.Hour/time.Second))
	scans, errScans := passes.Add(explorer)
	w := watching{Schema: "curfew.watching/v1", Machines: machines, GPUs: gpus, Every: every.String(), Metrics: pass.Metrics, Lists: pass.Lists,
		PerPass: pass.Cost, PassesADay: fmt.Sprintf("%.4g", (24*time.Hour).Seconds()/every.Seconds()), Enforce: passes.Cents(), Scan: scans.Cents(),
		Assumptions: []string{
			"CloudWatch charges $0.01 for 1,000 metrics of GetMetricData and for 1,000 requests of ListMetrics; free tiers are not counted",
			"the CloudWatch agent publishes each GPU apart; with --usage, or GPU metrics from elsewhere, only CPU and network are asked for",
			"scan asks Cost Explorer once a day ($0.01 a request and account) and reads volumes, balancers and buckets besides: its JSON counts the calls",
		}}
	return w, errors.Join(err, errExplorer, errScans)
}

func watchingSheet(w watching) report.Sheet {
	return report.Sheet{Verb: "price watching", Title: fmt.Sprintf("Watching %s with %s each every %s: %s a month by enforce, %s by scan",
		plain.Count(w.Machines, "machine"), plain.Count(w.GPUs, "GPU"), strings.TrimSuffix(strings.TrimSuffix(w.Every, "0s"), "0m"), money.ForPeople(w.Enforce), money.ForPeople(w.Scan)),
		Figures: []report.Figure{{Label: "a pass", Value: w.PerPass.Dollars(), Note: fmt.Sprintf("%d metrics, %d list requests", w.Metrics, w.Lists)},
			{Label: "passes a day", Value: w.PassesADay}},
		Assumptions: w.Assumptions}
}
