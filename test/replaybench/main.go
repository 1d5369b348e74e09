// Command replaybench replays a large trace with a binary of curfew, in a process of its own,
// and prints how long that takes and how much memory it needs. Several binaries take turns, so that a
// machine that others use does not favor one.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
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
	trace, rules := filepath.Join(dir, "trace.csv"), filepath.Join(dir, "policy.yaml")
	file, err := os.Create(trace)
	if err != nil {
		return err
	}
	if err := errors.Join(write(file, *rows, *all), file.Close(), os.WriteFile(rules, []byte(policies), 0o600)); err != nil {
		return err
	}
	took, used, peaks := make([][]time.Duration, flags.NArg()), make([][]time.Duration, flags.NArg()), make([][]int64, flags.NArg())
	for range *runs {
		for i, bin := range flags.Args() {
			cmd := exec.CommandContext(ctx, bin, "backtest", "--trace", trace, "--policy", rules, "--step", "1m", "--baselines=false", "--quiet", "-o", "json")
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
		fmt.Fprintf(out, "%s: %d rows in %.1f s (%.1f s of processors), at most %d MiB: medians of %d\n", bin, *rows, median(took[i]).Seconds(), median(used[i]).Seconds(), median(peaks[i])>>10, *runs)
	}
	return nil
}

func median[T time.Duration | int64](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// write writes days of machines with eight GPUs, minute by minute of each machine, which work
// and rest in turn for an hour or more. At work every value is another one.
func write(to io.Writer, rows int, all bool) error {
	const gpus, minutes = 8, 1440
	rng := rand.New(rand.NewPCG(1, 2))
	out := bufio.NewWriterSize(to, 1<<20)
	header := "resource,time,gpu,gpu_util"
	if all {
		header += ",sm_active,dram_active,mem_used_bytes,mem_total_bytes,power_w,cpu_util,net_bytes"
	}
	fmt.Fprintln(out, header)
	busy, b := false, make([]byte, 0, 256)
	for i := range rows {
		machine, minute, gpu := i/(minutes*gpus), i/gpus%minutes, i%gpus
		if gpu == 0 && minute%60 == 0 {
			busy = rng.IntN(3) == 0
		}
		whole := func(n int64) { b = strconv.AppendInt(append(b, ','), rng.Int64N(n), 10) }
		decimal := func(n float64, digits int) {
			b = strconv.AppendFloat(append(b, ','), rng.Float64()*n, 'f', digits, 64)
		}
		b = strconv.AppendInt(append(b[:0], 'm'), int64(machine), 10)
		b = strconv.AppendInt(append(b, ','), int64(minute)*60, 10)
		b = strconv.AppendInt(append(b, ','), int64(gpu), 10)
		if busy {
			whole(101)
		} else {
			b = append(b, ",0"...)
		}
		switch {
		case !all:
		case busy:
			decimal(1, 3)
			decimal(1, 3)
			whole(80 << 30)
			b = append(b, ",85899345920"...)
			decimal(400, 2)
			decimal(100, 1)
			whole(1e9)
		default:
			b = append(b, ",0,0,1048576,85899345920"...)
			decimal(60, 2)
			decimal(3, 1)
			whole(1e4)
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}
