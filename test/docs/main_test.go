// Package docs carries out the documents like a reader: it runs each command as written, and
// compares the output with the documented one.
package docs

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/test/postgres"
)

// TestMain runs curfew itself if the test binary is started by that name, so that shells need no
// other build.
func TestMain(m *testing.M) {
	syscall.Umask(0o022) // files that a group can write are refused
	if filepath.Base(os.Args[0]) == "curfew" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := cli.Run(ctx, process())
		stop()
		os.Exit(code)
	}
	os.Exit(postgres.Run(m))
}

// process returns the process with its clock shifted by AGO, because a ledger needs a past.
func process() cli.Process {
	p := cli.System("test")
	if ago, err := time.ParseDuration(os.Getenv("AGO")); err == nil {
		now := func() time.Time { return time.Now().Add(-ago) }
		p.Now = now
		p.FileTime = func(string) (time.Time, error) { return now(), nil }
		p.Uptime = func() (string, time.Duration) { return "docs", time.Since(time.Unix(0, 0)) - ago }
	}
	return p
}
