package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newPolicyTune() *cobra.Command {
	var f backtestFlags
	var write string
	c := &cobra.Command{
		Use:   "tune",
		Short: "Learn waits from recorded usage and write policies",
		Long: `Learns from a trace how long to wait before idle resources are released, for each
class of them (kind, type, purpose, team). The rule is a ski-rental decision from the past
only. It shows the learned waits, how much history they have, and their savings when tested
on later data, and writes policies in the mode observe.

--arrivals fits policies with do: scale and fleet on the first half of recorded requests:
the target, and the stabilization and window of the fleet in curfew.yaml, with the fewest
replica hours at no more late answers. The second half judges them, and a setting that
pays less there too is written.`,
		Example: `  curfew policy tune --trace examples/data/gpus.csv.gz --restart-cost 5m --write tuned.yaml
  curfew policy tune --trace examples/data/gpus.csv.gz --step 5m -o json
  curfew policy tune --arrivals examples/data/requests.csv.gz --policy examples/fleets/embed.yaml --profile a=40ms,b=60ms --max-batch 8 --late-after 1s`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.checkFleetFlags("policy tune", c.Flags().Changed); err != nil {
				return err
			}
			if f.fleet.Arrivals != "" {
				return a.tuneFleets(f, write)
			}
			if len(f.policies) > 0 {
				return usageError("curfew policy tune: --policy needs --arrivals")
			}
			return a.tune(c.Context(), f, write)
		},
	}
	f.addTrace(c.Flags())
	f.addFleet(c.Flags())
	f.addPolicies(c.Flags())
	c.Flags().StringVar(&write, "write", "", "`file` to write the policies to (default: after the table)")
	a.outputs(c, reports...)
	return c
}

func (a *app) tune(ctx context.Context, f backtestFlags, write string) error {
	p, err := f.params()
	if err != nil {
		return err
	}
	file, err := replay.OpenTrace(ctx, a.req, f.trace, &p.Format)
	if err != nil {
		return err
	}
	defer file.Close()
	set, learned, err := backtest.Tune(ctx, file, p)
	if err != nil {
		return replay.TraceError(f.trace, err)
	}
	text := set.YAML()
	if err := a.writePolicies(write, text); err != nil {
		return err
	}
	doc := view.NewTune(learned)
	err = a.show(doc, func() report.Sheet { return report.Tune(doc, f.tuned(write)) })
	if err != nil || a.format != "table" || write != "" {
		return err
	}
	plain.Fprintln(a.Stdout)
	return report.YAML(a.Stdout, a.Width, string(text))
}

// writePolicies writes policies to a new file; an empty name is none.
func (a *app) writePolicies(file string, text []byte) error {
	if file == "" {
		return nil
	}
	path := a.path(file)
	if _, err := os.Lstat(path); err == nil {
		return usageError("--write %s: the file exists; policies that people reviewed are not overwritten", file)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, runtime.Cause(err))
	}
	return nil
}

// tuned are the commands after waits were learned: write the policies, and replay them.
func (f backtestFlags) tuned(file string) []string {
	if file != "" {
		return []string{f.command("backtest") + " --policy " + plain.Shell(file)}
	}
	return []string{f.command("policy tune") + " --write tuned.yaml", f.command("backtest") + " --policy tuned.yaml"}
}
