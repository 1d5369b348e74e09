package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newDoctor() *cobra.Command {
	c := &cobra.Command{Use: "doctor", Short: "Check what curfew can see", Args: noArgs}
	c.AddCommand(a.newDoctorMetrics())
	return c
}

func (a *app) newDoctorMetrics() *cobra.Command {
	var f sourceFlags
	var window string
	c := &cobra.Command{
		Use:   "metrics",
		Short: "Show for each machine what telemetry there is, and what is missing to judge it",
		Long: `Reads the running machines of an account and their metrics, from all sources in order of
precedence, and shows for each machine the signals that were found, the age of the newest
sample, the coverage, and what is missing, each with the line that fixes it. Series that fit
no machine, or two, are listed.`,
		Example: `  curfew doctor metrics --metrics-source http://prometheus:9090
  curfew doctor metrics --cloud onprem --metrics-source http://prometheus:9090
  curfew doctor metrics --demo -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.checkAudit(); err != nil {
				return err
			}
			length, err := config.ParseDuration(window)
			if err != nil || length < time.Minute {
				return usageError("--window %q: it is a duration of a minute or more, such as 1h", window)
			}
			return a.doctorMetrics(c.Context(), f, length)
		},
	}
	f.add(c.Flags())
	c.Flags().StringVar(&window, "window", "1h", "how far back is looked")
	a.outputs(c, reports...)
	return c
}

func (a *app) doctorMetrics(ctx context.Context, f sourceFlags, window time.Duration) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	setting, err := a.rt.Setting(ctx, cfg, f.Source)
	if err != nil {
		return err
	}
	bar := a.newProgress(f.Cloud)
	defer bar.Finish()
	setting.Source, setting.Query = "doctor", round.Query{Window: window, Progress: bar.Report,
		Kinds: map[inventory.Kind]bool{inventory.KindInstance: true, inventory.KindNode: true, inventory.KindNotebook: true}}
	r, err := round.New(setting).Round(ctx)
	if err != nil {
		return daemon.CloudError(err)
	}
	bar.Finish()
	doc := view.NewDoctor(view.Telemetry{At: r.StartedAt, Window: window, Thresholds: setting.Duty, Resources: r.Resources, Windows: r.Windows,
		Sources: daemon.Told(setting.Sources), BlindSpots: r.BlindSpots})
	if err := a.show(doc, func() report.Sheet { return report.Doctor(doc) }); err != nil {
		return err
	}
	if len(doc.BlindSpots) > 0 {
		return &failure{exit: ExitPartial}
	}
	return nil
}
