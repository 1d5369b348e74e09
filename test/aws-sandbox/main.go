// Command aws-sandbox serves a seeded AWS account on loopback until it is
// interrupted, so that anyone can try curfew on an AWS API without an account.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
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
		fmt.Fprintf(notes, "seeded %d resources, %d pieces of waste and %d look-alikes in %s\n", len(truth.Resources),
			len(truth.Planted),
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
	inbox, err := receive(ctx, notes)
	if err != nil {
		return err
	}
	// A webhook has a secret, with which curfew signs what it sends.
	for _, e := range append([]string{"CURFEW_HOOK_URL=" + inbox, "CURFEW_HOOK_SECRET=sandbox"}, s.Env()...) {
		fmt.Fprintf(out, "export %s\n", e)
	}
	fmt.Fprintln(notes, "\npaste these lines into another shell, then: curfew scan --regions "+
		"us-east-1,us-west-2,eu-west-1\nserving until interrupted (ctrl-c)")
	<-ctx.Done()
	return nil
}

// receive listens for curfew's messages until ctx is done, prints them, and returns the
// URL of the webhook.
func receive(ctx context.Context, notes io.Writer) (url string, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for messages: %w", err)
	}
	srv := &http.Server{
		ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var message struct{ To, Subject, Text string }
			if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&message); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			plain.Fprintf(notes, "\nmessage to %s: %s\n", message.To, message.Subject)
			for line := range strings.Lines(message.Text) {
				plain.Fprintf(notes, "    %s\n", strings.TrimRight(line, "\n"))
			}
		})}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() { _ = srv.Serve(l) }() // it ends when ctx does
	return "http://" + l.Addr().String() + "/hook", nil
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
