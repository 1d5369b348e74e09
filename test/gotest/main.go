// Command gotest runs go test for many packages. It starts servers that several of them need
// once for all, shows what fails, and ends with the tests that were skipped: a skip that the
// list of -skips does not have fails.
//
//	go run ./test/gotest [-record FILE] [-skips FILE] -- ARGUMENTS of go test
//	go run ./test/gotest -times -record FILE
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/test/moto"
	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/shared"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("gotest", flag.ContinueOnError)
	record := flags.String("record", "", "file for the events of the run")
	skips := flags.String("skips", "", "file of the tests that may be skipped; empty allows all")
	var apart parts
	flags.Var(&apart, "apart", "`PACKAGE=NAMES` of tests that run in a process of their own; repeatable")
	also := flags.String("also", "", "`program` that runs at the same time; what it prints comes at the end")
	times := flags.Bool("times", false, "print what cost most in the run of -record, and run nothing")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read the flags: %w", err)
	}
	if *times {
		return printTimes(*record, out)
	}
	allowed, err := readSkips(*skips)
	if err != nil {
		return err
	}
	socket, stop, err := startServers(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	r := newReport(out)
	finish := alongside(ctx, *also, out)
	err = errors.Join(test(ctx, socket, flags.Args(), apart, *record, r), stop(), finish())
	fmt.Fprintf(out, "%d packages, %d tests in %s\n", r.packages, r.tests, time.Since(began).Round(time.Second))
	if *skips != "" {
		err = errors.Join(err, r.printSkips(allowed))
	}
	return err
}

// alongside starts a program and returns a function that waits for its end and prints its output.
func alongside(ctx context.Context, name string, out io.Writer) (finish func() error) {
	if name == "" {
		return func() error { return nil }
	}
	type ended struct {
		text []byte
		err  error
	}
	done := make(chan ended, 1)
	go func() {
		text, err := exec.CommandContext(ctx, name).CombinedOutput()
		done <- ended{text, err}
	}()
	return func() error {
		e := <-done
		fmt.Fprintf(out, "%s:\n%s", name, e.text)
		if e.err != nil {
			return fmt.Errorf("%s: %w", name, e.err)
		}
		return nil
	}
}

// startServers listens for test processes that need servers. A server starts when the first process
// requests it.
func startServers(ctx context.Context) (socket string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "gotest-") // the path of a socket is limited to about 100 bytes
	if err != nil {
		return "", nil, fmt.Errorf("make a place for the servers' socket: %w", err)
	}
	socket = filepath.Join(dir, "servers")
	l, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return "", nil, fmt.Errorf("listen for test processes: %w", err)
	}
	done := make(chan error, 1)
	go func() {
		kinds := map[string]func() shared.Client{moto.Kind: moto.Share, postgres.Kind: postgres.Share}
		done <- shared.Serve(ctx, l, kinds)
	}()
	return socket, func() error {
		l.Close() // the socket is removed with its directory anyway
		return errors.Join(<-done, postgres.Stop(), os.RemoveAll(dir))
	}, nil
}

// test runs go test with arguments and passes its events to the report and to the record.
func test(ctx context.Context, socket string, args []string, apart parts, record string, r *report) error {
	first := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "./") })
	if first < 0 {
		return errors.New("run tests: name packages such as ./... first")
	}
	last := first // flags of the test binary may follow
	for last < len(args) && strings.HasPrefix(args[last], "./") {
		last++
	}
	packages, parts, err := plan(ctx, args[first:last], apart, record)
	if err != nil {
		return err
	}
	var events io.Writer = r
	if record != "" {
		file, err := os.Create(record)
		if err != nil {
			return fmt.Errorf("record the events: %w", err)
		}
		defer file.Close()
		events = io.MultiWriter(r, file)
	}
	err = together(ctx, append(packages, args[last:]...), parts,
		func(ctx context.Context, args []string, out io.Writer) error {
			return goTest(ctx, socket, args, out)
		}, args[:first], events)
	r.close()
	return err
}

// goTest runs go test.
func goTest(ctx context.Context, socket string, args []string, events io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), shared.Variable+"="+socket)
	cmd.Stdout, cmd.Stderr = events, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
