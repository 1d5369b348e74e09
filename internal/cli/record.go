package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newRecord() *cobra.Command {
	var f sourceFlags
	var p daemon.Period
	var from, step, output string
	c := &cobra.Command{
		Use:   "record",
		Short: "Record the history of an account's machines as a trace for backtest and plan",
		Long: `Reads what a metrics server or the cloud measured of the machines that run, and writes it as
recorded usage with the type, owner and tags of each machine. backtest, policy explain and
plan read the file, so that a policy can be tested on your own month.`,
		Example: `  curfew record --from prometheus --metrics-source http://prometheus:9090 --since 30d -o trace.parquet
  curfew record --from cloudwatch --since 14d -o trace.csv.gz
  curfew backtest --trace trace.parquet --policy examples/policies`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("from", from, daemon.FromPrometheus, daemon.FromCloud); err != nil {
				return err
			}
			if output == "" {
				return usageError("record: give the file to write with --output: trace.parquet, trace.csv.gz or trace.csv")
			}
			if err := f.checkAudit(); err != nil {
				return err
			}
			begin, end, err := p.Bounds(a.Now())
			if err != nil {
				return err
			}
			if now := a.Now().UTC(); end.After(now) {
				end = now
			}
			every, err := config.ParseDuration(step)
			if err != nil || every < time.Second {
				return usageError("--sample-step %q: it is a duration of a second or more, such as 60s", step)
			}
			cfg, err := a.config()
			if err != nil {
				return err
			}
			bar := a.newProgress("record")
			defer bar.Finish()
			doc, err := a.rt.Record(c.Context(), cfg, f.Source, daemon.RecordOptions{From: from, Since: begin, Until: end, Step: every, Output: output, Progress: bar.Report})
			if err != nil {
				return err
			}
			bar.Finish()
			if err := a.show(doc, func() report.Sheet { return report.Record(doc, a.globals()) }); err != nil {
				return err
			}
			if len(doc.BlindSpots) > 0 {
				return &failure{exit: ExitPartial}
			}
			return nil
		},
	}
	fl := c.Flags()
	f.addAccount(fl)
	f.addMetrics(fl)
	fl.StringVar(&f.Profile, "profile", "", "AWS profile")
	fl.StringVar(&from, "from", daemon.FromPrometheus, "prometheus (--metrics-source, or metrics.sources in curfew.yaml) or cloudwatch (the cloud's own metrics)")
	periodFlags(c, &p, "30d")
	fl.StringVar(&step, "sample-step", "60s", "the time that a sample stands for; samples that are closer are joined, and their highest value counts")
	fl.StringVarP(&output, "output", "o", "", "the trace to write: `file` that ends in .parquet, .csv.gz or .csv")
	a.formats(c, "format", "", reports...)
	return c
}
