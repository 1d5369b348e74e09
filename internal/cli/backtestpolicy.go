package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// opened opens the recorded usage of a replay and settles its step.
func (a *app) opened(ctx context.Context, name string, format *usage.Format) (*os.File, error) {
	if err := a.rt.WarnUnread(ctx, daemon.Recording{Path: a.path(name), Format: *format}); err != nil {
		return nil, err
	}
	file, err := config.Open(a.path(name))
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read trace %s: %w", name, daemon.Cause(err))}
	}
	if err := daemon.SettleStep(ctx, file, format); err != nil {
		_ = file.Close() // it was only read
		return nil, daemon.CloudError(err)
	}
	return file, nil
}

func (a *app) newPolicyTune() *cobra.Command {
	var f backtestFlags
	var write string
	c := &cobra.Command{
		Use:   "tune",
		Short: "Learn from recorded usage how long to wait, and write a policy",
		Long: `Learns from a trace how long to wait before releasing idle resources, for each
class of them (kind, type, purpose, team): a ski-rental decision from the past only. It
prints what it learned, on how much history that rests and what it would have saved when
tested walking forward, and writes a policy file in the mode observe.`,
		Example: `  curfew policy tune --trace gpus.csv.gz --restart-cost 5m --write tuned.yaml
  curfew policy tune --trace duty.csv.gz --map resource=pod,time=t_s,gpu_util=gpu_util_pct --step 57s -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", f.output, "table", "json"); err != nil {
				return err
			}
			return a.tune(c.Context(), f, write)
		},
	}
	f.addTrace(c.Flags())
	c.Flags().StringVar(&write, "write", "", "`file` to write the policies to (default: after the table)")
	c.Flags().StringVarP(&f.output, "output", "o", "table", "table or json")
	return c
}

func (a *app) tune(ctx context.Context, f backtestFlags, write string) error {
	p, err := f.params()
	if err != nil {
		return err
	}
	file, err := a.opened(ctx, f.trace, &p.Format)
	if err != nil {
		return err
	}
	defer file.Close()
	set, learned, err := backtest.Tune(ctx, file, p)
	if err != nil {
		return backtestFailure(f.trace, err)
	}
	text := set.YAML()
	if write != "" {
		path := a.path(write)
		if _, err := os.Lstat(path); err == nil {
			return usageError("--write %s: the file exists; policies that people reviewed are not overwritten", write)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // a policy file is for all to read
			return fmt.Errorf("write %s: %w", write, daemon.Cause(err))
		}
	}
	if f.output == "json" {
		return a.printJSON(view.NewTune(learned))
	}
	if err := report.Tune(a.Stdout, view.NewTune(learned)); err != nil {
		return err
	}
	if write != "" {
		_, err = plain.Fprintf(a.Stdout, "\nwritten to %s, in the mode observe; `curfew backtest --policy %s` replays it\n", write, plain.Shell(write))
		return err
	}
	_, err = plain.Fprintf(a.Stdout, "\n%s", plain.Text(text))
	return err
}
