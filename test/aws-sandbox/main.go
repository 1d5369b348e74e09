// Command aws-sandbox serves a seeded AWS account on loopback until it is
// interrupted, so that anyone can try curfew on an AWS API without an account.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/test/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "aws-sandbox:", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx is done; what to export goes to out, all else to notes.
func run(ctx context.Context, args []string, out, notes io.Writer) (err error) {
	flags := flag.NewFlagSet("aws-sandbox", flag.ContinueOnError)
	flags.SetOutput(notes)
	port := flags.Int("port", 0, "port on loopback; 0 takes a free one")
	noSeed := flags.Bool("no-seed", false, "start with an empty account")
	live := flags.Bool("live", false, "add machines that report what they do while it serves, for policies to act on")
	verbose := flags.Bool("verbose", false, "show moto's log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("read the flags: %w", err)
	}
	o := sandbox.Options{Port: *port}
	if *verbose {
		o.Log = notes
	}
	fmt.Fprintln(notes, "starting moto (it is installed first where it is missing)")
	s, err := sandbox.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if !*noSeed {
		began := time.Now()
		truth, err := s.Seed(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(notes, "seeded %d resources, %d pieces of waste and %d look-alikes in %s\n", len(truth.Resources), len(truth.Planted),
			len(truth.LookAlikes), time.Since(began).Round(100*time.Millisecond))
	}
	if *live {
		machines, err := s.SeedLadder(ctx, liveRegion)
		if err != nil {
			return err
		}
		fmt.Fprintf(notes, "%d machines in %s report each minute\n", len(machines.IDs), liveRegion)
		go report(ctx, machines, notes)
	}
	for _, e := range s.Env() {
		fmt.Fprintf(out, "export %s\n", e)
	}
	fmt.Fprintln(notes, "\npaste these lines into another shell, then: curfew scan --regions us-east-1,us-west-2,eu-west-1\nserving until interrupted (ctrl-c)")
	<-ctx.Done()
	return nil
}

// liveRegion is where the machines of -live are.
const liveRegion = "us-east-1"

// report lets machines report each minute until ctx is done.
func report(ctx context.Context, machines *sandbox.Ladder, notes io.Writer) {
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-minute.C:
			if err := machines.Advance(ctx, now); err != nil && ctx.Err() == nil {
				fmt.Fprintln(notes, "aws-sandbox: report what machines do:", err)
			}
		}
	}
}
