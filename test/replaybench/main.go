// Command replaybench replays a large trace with a binary of curfew in a separate process, and
// prints the time and the memory that it takes. Several binaries alternate, so that other load on
// the machine favors none.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/test/trace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "replaybench:", err)
		stop()
		os.Exit(1)
	}
}

// policies are replayed on the trace.
const policies = `apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then: [{warn: {notify: [owner], grace: 15m}}, {do: stop}]
`

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("replaybench", flag.ContinueOnError)
	rows := flags.Int("rows", 10_000_000, "rows of the trace")
	all := flags.Bool("signals", true, "eight signals a row; otherwise utilization alone")
	runs := flags.Int("runs", 1, "runs of each binary")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *rows < 1 || *runs < 1 {
		return errors.New("name at least one binary, and ask for at least one row and run")
	}
	dir, err := os.MkdirTemp("", "replaybench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	samples, rules := filepath.Join(dir, "trace.csv"), filepath.Join(dir, "policy.yaml")
	file, err := os.Create(samples)
	if err != nil {
		return err
	}
	if err := errors.Join(trace.Write(file, *rows, *all), file.Close(),
		os.WriteFile(rules, []byte(policies), 0o600)); err != nil {
		return err
	}
	took, used, peaks := make([][]time.Duration, flags.NArg()), make([][]time.Duration, flags.NArg()), make([][]int64,
		flags.NArg())
	for range *runs {
		for i, bin := range flags.Args() {
			cmd := exec.CommandContext(ctx, bin, "backtest", "--trace", samples, "--policy", rules, "--step", "1m",
				"--baselines=false", "--quiet", "-o", "json")
			cmd.Stderr = os.Stderr
			began := time.Now()
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("replay with %s: %w", bin, err)
			}
			took[i] = append(took[i], time.Since(began))
			used[i] = append(used[i], cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			peaks[i] = append(peaks[i], cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
		}
	}
	for i, bin := range flags.Args() {
		fmt.Fprintf(out, "%s: %d rows in %.1f s (%.1f s of processors), at most %d MiB: medians of %d\n", bin, *rows,
			median(took[i]).Seconds(), median(used[i]).Seconds(), median(peaks[i])>>10, *runs)
	}
	return nil
}

func median[T time.Duration | int64](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}
