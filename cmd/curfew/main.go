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

// version is set by the linker.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends at once.
	go func() {
		<-ctx.Done()
		stop()
	}()
	os.Exit(cli.Run(ctx, cli.System(version)))
}
