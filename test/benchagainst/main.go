// Command benchagainst compares the speed of this tree with that of another revision: both
// build curfew, and both binaries carry out the same commands on the same files, in turns.
// It prints the ratios of this tree to the revision, and exits with 1 when one is over 1.2.
//
//	go run ./test/benchagainst [-runs N] REVISION
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
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchagainst:", err)
		stop()
		os.Exit(1)
	}
}

// most is the ratio above which a benchmark fails.
const most = 1.2

// sizes are the sizes of the inputs.
type sizes struct{ resources, machines, rows, billRows, starts int }

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("benchagainst", flag.ContinueOnError)
	runs := flags.Int("runs", 7, "runs of each command with each binary")
	only := flags.String("only", "", "one benchmark alone")
	var s sizes
	flags.IntVar(&s.resources, "resources", 100_000, "resources that rules and policies see")
	flags.IntVar(&s.machines, "machines", 2_000, "machines of the stand-in account")
	flags.IntVar(&s.rows, "rows", 1_000_000, "rows of the trace that is replayed")
	flags.IntVar(&s.billRows, "bill-rows", 200_000, "rows of the bill")
	flags.IntVar(&s.starts, "starts", 10, "starts in a run")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read the flags: %w", err)
	}
	if flags.NArg() != 1 || *runs < 1 {
		return errors.New("name one revision, and ask for at least one run")
	}
	dir, err := os.MkdirTemp("", "benchagainst-")
	if err != nil {
		return fmt.Errorf("make a place for the benchmarks: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	binaries, err := buildBoth(ctx, dir, flags.Arg(0))
	if err != nil {
		return err
	}
	all, end, err := benchmarks(dir, s)
	if err != nil {
		return err
	}
	defer end()
	if *only != "" {
		all = slices.DeleteFunc(all, func(b benchmark) bool { return b.name != *only })
	}
	var results []result
	for _, b := range all {
		fmt.Fprintf(os.Stderr, "%s, %d runs of each\n", b.name, *runs)
		r, err := b.measure(ctx, dir, binaries, *runs)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if err := benchstat(ctx, dir, results, out); err != nil {
		return err
	}
	return printRatios(results, out)
}

// before and now index values of the revision and of this tree.
const (
	before = iota
	now
)

var sides = [2]string{before: "before", now: "now"}

// buildBoth builds the revision, in a temporary worktree, and this tree.
func buildBoth(ctx context.Context, dir, revision string) (binaries [2]string, err error) {
	top, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return binaries, err
	}
	// The worktree is next to this tree, so that both find the same neighboring folders.
	tree, err := os.MkdirTemp(filepath.Dir(top), ".bench-against-")
	if err != nil {
		return binaries, fmt.Errorf("make a place for %s: %w", revision, err)
	}
	defer func() {
		_, removed := output(context.WithoutCancel(ctx), top, "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, removed, os.RemoveAll(tree))
	}()
	if _, err := output(ctx, top, "git", "worktree", "add", "--quiet", "--force", "--detach", tree,
		revision); err != nil {
		return binaries, err
	}
	for side, from := range [2]string{before: tree, now: top} {
		binaries[side] = filepath.Join(dir, "curfew-"+sides[side])
		if _, err := output(ctx, from, "go", "build", "-ldflags", "-s -w", "-o", binaries[side],
			"./cmd/curfew"); err != nil {
			return binaries, err
		}
	}
	return binaries, nil
}

// output runs a program and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// benchmark is a command that both binaries run.
type benchmark struct {
	name    string
	args    []string
	env     []string
	repeat  int      // number of times that one run starts it; 0 is once
	prepare []string // a command that runs first and is not measured
	fresh   bool     // each run has its own state
	exit    []int    // exit codes in addition to 0
}

// cost is the time of a run.
type cost struct{ wall, cpu time.Duration }

// result is the runs of a benchmark with each binary.
type result struct {
	name  string
	costs [2][]cost
}

// measure alternates between the binaries and between who begins; a first run of each warms up.
func (b benchmark) measure(ctx context.Context, dir string, binaries [2]string, runs int) (result, error) {
	r := result{name: b.name}
	for i := range runs + 1 {
		order := []int{before, now}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, side := range order {
			c, err := b.once(ctx, dir, binaries[side], side, i)
			if err != nil {
				return r, fmt.Errorf("%s, %s: %w", b.name, sides[side], err)
			}
			if i > 0 {
				r.costs[side] = append(r.costs[side], c)
			}
		}
	}
	return r, nil
}

func (b benchmark) once(ctx context.Context, dir, binary string, side, i int) (cost, error) {
	state := filepath.Join(dir, b.name+"-"+sides[side])
	if b.fresh {
		if err := os.RemoveAll(state); err != nil {
			return cost{}, err
		}
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return cost{}, err
	}
	if len(b.prepare) > 0 && i == 0 {
		if _, err := b.start(ctx, dir, binary, state, b.prepare); err != nil {
			return cost{}, err
		}
	}
	var all cost
	for range max(b.repeat, 1) {
		c, err := b.start(ctx, dir, binary, state, b.args)
		if err != nil {
			return cost{}, err
		}
		all.wall += c.wall
		all.cpu += c.cpu
	}
	return all, nil
}

func (b benchmark) start(ctx context.Context, dir, binary, state string, args []string) (cost, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + state, "XDG_DATA_HOME=" + filepath.Join(state, "data"),
		"XDG_STATE_HOME=" + filepath.Join(state, "state"),
		"XDG_CONFIG_HOME=" + filepath.Join(state, "config"), "AWS_EC2_METADATA_DISABLED=true", "CURFEW_IDENTITY=bench",
	}, b.env...)
	var said strings.Builder
	cmd.Stderr = &said
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if exit := new(exec.ExitError); errors.As(err, &exit) && slices.Contains(b.exit, exit.ExitCode()) {
		err = nil
	}
	if err != nil {
		return cost{}, fmt.Errorf("curfew %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return cost{took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}
