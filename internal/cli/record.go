package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newRecord() *cobra.Command {
	var f sourceFlags
	var o replay.RecordOptions
	var step string
	c := &cobra.Command{
		Use:   "record",
		Short: "Record the history of an account's machines as a trace for backtest and plan",
		Long: `Reads the measurements of running machines from a metrics server or the cloud, and writes
them as recorded usage with the type, owner and tags of each machine. backtest, policy explain and
plan read the file, so that a policy can be tested on your own month.`,
		Example: `  curfew record --from prometheus --metrics-source http://prometheus:9090 --since 30d -o trace.parquet
  curfew record --from cloudwatch --since 14d -o trace.csv.gz
  curfew backtest --trace trace.parquet --policy examples/policies`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Output == "" {
				return usageError(
					"record: give the file to write with --output: trace.parquet, trace.csv.gz or trace.csv")
			}
			if err := f.checkAudit(); err != nil {
				return err
			}
			var err error
			if o.Step, err = config.ParseDuration(step); err != nil || o.Step < time.Second {
				return usageError("--sample-step %q: it is a duration of a second or more, such as 60s", step)
			}
			doc, err := replay.Record(c.Context(), a.req, []clouds.Source{f.Source}, o)
			if err != nil {
				return err
			}
			if err := a.show(doc, func() report.Sheet { return report.Record(doc, a.globals()) }); err != nil ||
				len(doc.BlindSpots) == 0 {
				return err
			}
			return &failure{exit: ExitPartial}
		},
	}
	fl := c.Flags()
	f.addAccount(fl)
	f.addMetrics(fl)
	fl.StringVar(&f.Profile, "profile", "", "AWS profile")
	ops.AddFlags(c.Flags(), &o.Period, map[string]string{"since": "30d"})
	o.From, a.format = replay.FromPrometheus, reports[0]
	fl.Var(ops.NewChoice("from", &o.From, []string{replay.FromPrometheus, replay.FromCloud}), "from",
		"prometheus (--metrics-source, or metrics.sources in curfew.yaml) or cloudwatch (the cloud's own metrics)")
	fl.StringVar(&step, "sample-step", "60s",
		"the time that a sample covers; samples that are closer are joined, and their highest value counts")
	fl.StringVarP(&o.Output, "output", "o", "", "the trace to write: `file` that ends in .parquet, .csv.gz or .csv")
	fl.Var(ops.NewChoice("format", &a.format, reports), "format", "how the result is printed: "+anyOf(reports))
	return c
}
