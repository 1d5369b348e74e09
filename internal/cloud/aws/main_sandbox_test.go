package aws_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/ssmplugin"
)

// account is the seeded account shared by the tests, with its expected facts; scratch is an empty
// one for actions.
var (
	account, scratch *sandbox.Sandbox
	truth            *sandbox.Truth
)

func TestMain(m *testing.M) {
	ssmplugin.Run()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		return m.Run() // fuzzing needs no account, and starts many processes
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	if account, err = sandbox.Start(ctx, sandbox.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer account.Close()
	if scratch, err = sandbox.Start(ctx, sandbox.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer scratch.Close()
	if truth, err = account.Seed(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	calls := append(account.Wire.Recorder.Curfews(), scratch.Wire.Recorder.Curfews()...)
	calls = slices.DeleteFunc(calls, aws.OnlyLaunches)
	if refused, err := aws.RefusedByRoles(calls); err != nil || len(refused) > 0 {
		fmt.Fprintf(os.Stderr, "of %d calls on the wire, the roles in deploy/cloudformation refuse %q: %v\n",
			len(calls),
			refused, err)
		return 1
	}
	return code
}

// size returns the price book's size of a machine type.
func size(machineType string) inventory.Size {
	gpus := 0
	switch {
	case strings.HasPrefix(machineType, "p4d"):
		gpus = 8
	case machineType == "g5.12xlarge", machineType == "g4dn.12xlarge":
		gpus = 4
	case strings.HasPrefix(machineType, "g"), strings.HasPrefix(machineType, "p"):
		gpus = 1
	}
	return inventory.Size{GPUs: inventory.Known(gpus)}
}

// environ points the SDK at the seeded account.
func environ(t testing.TB) {
	t.Helper()
	environOf(t, account)
}

// environOf points the SDK at an account.
func environOf(t testing.TB, s *sandbox.Sandbox) {
	t.Helper()
	for _, e := range s.Env() {
		k, v, _ := strings.Cut(e, "=")
		t.Setenv(k, v)
	}
}

// query returns a query at the time of the seeding.
func query() round.Query { return round.Query{Now: truth.Now, Window: 14 * 24 * time.Hour} }

// options read all seeded regions without rate limits.
func options() aws.Options {
	return aws.Options{Regions: truth.Regions, RequestsPerSecond: 10_000, Size: size}
}

// observe reads the sandbox; afterwards the record holds only its calls.
func observe(t testing.TB, o aws.Options) (*round.Observation, error) {
	t.Helper()
	environ(t)
	account.Wire.Recorder.Reset()
	c, err := aws.New(t.Context(), o)
	if err != nil {
		return nil, err
	}
	return cloudtest.Observe(t.Context(), c, query())
}

func mustObserve(t testing.TB, o aws.Options) *round.Observation {
	t.Helper()
	seen, err := observe(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}
