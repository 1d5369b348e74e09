package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newDoctor() *cobra.Command {
	c := &cobra.Command{Use: "doctor", Short: "Check what curfew can see", Args: noSuchVerb}
	c.AddCommand(a.newDoctorMetrics(), a.newDoctorState())
	return c
}

func (a *app) newDoctorState() *cobra.Command {
	c := &cobra.Command{
		Use:   "state",
		Short: "List problems of the state and the service, with the next steps",
		Long: `Lists what keeps actions back (a freeze, a state that is not trusted, a fuse), actions that
failed or are not confirmed, messages that no channel accepts, tokens that expire within a
week, and, at a service, what it cannot read. Each line ends with the next step. The exit code
is 5 while there is a problem.`,
		Example: "  curfew doctor state\n  curfew doctor state -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := ops.GetDoctorState.Call(c.Context(), a.at, ops.None{})
			if err := shown(a, report.DoctorState)(doc, err); err != nil || len(doc.Troubles) == 0 {
				return err
			}
			return &failure{exit: ExitPartial}
		},
	}
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newDoctorMetrics() *cobra.Command {
	var f sourceFlags
	var window string
	c := &cobra.Command{
		Use:   "metrics",
		Short: "Show the telemetry of each machine, and the missing signals",
		Long: `Reads the running machines of an account and their metrics, from all sources in order of
precedence, and shows for each machine its state as scan judges it and its duty now, the
signals that were found, the age of the newest sample, the coverage, and what is missing, each
with the line that fixes it. Series that fit no machine, or two, are listed.`,
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
			doc, err := clouds.DoctorMetrics(c.Context(), a.req, f.Source, length)
			if err := shown(a, report.Doctor)(doc, err); err != nil || len(doc.BlindSpots) == 0 {
				return err
			}
			return &failure{exit: ExitPartial}
		},
	}
	f.add(c.Flags())
	c.Flags().StringVar(&window, "window", "1h",
		"how far back signals are looked for; states are judged over scan.window")
	a.outputs(c, reports...)
	return c
}
