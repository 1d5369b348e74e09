package cli

import (
	"time"

	"github.com/spf13/cobra"

	apphost "github.com/curfew-dev/curfew/internal/app/host"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newProfile() *cobra.Command {
	var o apphost.ProfileOptions
	c := &cobra.Command{
		Use:   "profile -- CMD",
		Short: "Measure what a command uses, and find the smallest machine that fits",
		Long: `Runs the command after --, samples its CPUs and memory, and this machine's GPUs by nvidia-smi,
and prints median, 95th percentile and peak, with the machines that fit and their prices. Where the
GPUs wait it says what the command did meanwhile: it filled a CPU core or all of them, or waited for
a disk. With --type it judges the GPUs as ` + "`curfew plan rightsize`" + ` does.

The exit code is that of the command. The report is on standard error; with -o json it is on standard
output, and the output of the command is on standard error. --pid measures a process that runs.`,
		Example: `  curfew profile -- python train.py
  curfew profile --type g5.12xlarge --for 10m -- python train.py
  curfew profile --pid 4242 --for 1m -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if (c.ArgsLenAtDash() == 0 && len(args) > 0) == (o.PID > 0) || o.PID < 0 || len(args) > 0 && o.PID > 0 {
				return usageError("%s takes a command after --, or --pid", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if o.Every < 10*time.Millisecond || o.For < 0 {
				return usageError("--every is a time of at least 10ms, and --for one of at least 0")
			}
			o.Command, o.In, o.Out, o.Err = args, a.Stdin, a.raw.out, a.raw.err
			if a.format != "table" {
				o.Out = a.raw.err
			} else {
				a.Stdout = a.Stderr
			}
			doc, err := apphost.Profile(c.Context(), a.req, o)
			if err != nil {
				return err
			}
			if err := a.show(doc, func() report.Sheet { return report.Profile(doc) }); err != nil {
				return err
			}
			switch {
			case len(args) > 0 && doc.ExitCode == nil:
				return &failure{exit: ExitError}
			case doc.ExitCode != nil && *doc.ExitCode != 0:
				return &failure{exit: *doc.ExitCode}
			}
			return nil
		},
	}
	a.outputs(c, tableJSON...)
	fl := c.Flags()
	fl.IntVar(&o.PID, "pid", 0, "`process` to measure, with those that it started")
	fl.DurationVar(&o.For, "for", 0, "measure for so long; the command goes on (default: to its end)")
	fl.DurationVar(&o.Every, "every", time.Second, "time between samples")
	fl.StringVar(&o.Type, "type", "", "machine `type` of this machine, for the verdict on its GPUs")
	fl.StringVar(&o.Region, "region", "", "region of the prices (default us-east-1)")
	return c
}
