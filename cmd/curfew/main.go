// Command curfew sees the meters that run in a cloud account and tells used
// dollars from wasted ones.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/curfew-dev/curfew/internal/cli"
)

// version, and the commit and its date, are set by the linker.
var (
	version      = "devel"
	commit, date string
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends at once.
	go func() {
		<-ctx.Done()
		stop()
	}()
	p := cli.System(version)
	p.Commit, p.Date = commit, date
	p.Hangups = func() <-chan os.Signal {
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		return hangups
	}
	p.Yield = func() { signal.Ignore(os.Interrupt, syscall.SIGQUIT, syscall.SIGTSTP) }
	os.Exit(cli.Run(ctx, p))
}
