// Package apptest makes requests for tests of the application: each has its own process, a state in
// its own folder, and a fixed clock.
package apptest

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
)

// Now is the fixed time of every process.
var Now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// Request returns a request of the person ana with a configuration; empty uses the defaults.
func Request(t testing.TB, yaml string) *runtime.Request {
	t.Helper()
	return RequestAt(t, yaml, func() time.Time { return Now })
}

// RequestAt is Request with a clock.
func RequestAt(t testing.TB, yaml string, now func() time.Time) *runtime.Request {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := runtime.NewProcess(runtime.Host{
		Now: now, Dir: dir, DataDir: filepath.Join(dir, "data"), WitnessDir: filepath.Join(dir, "witness"),
		Log:    io.Discard,
		Lookup: func(name string) (string, bool) { return "ana", name == "CURFEW_IDENTITY" },
	})
	if yaml != "" {
		p.ConfigFlag = filepath.Join(dir, "curfew.yaml")
		if err := os.WriteFile(p.ConfigFlag, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	req := p.Request()
	t.Cleanup(func() {
		if err := req.Close(); err != nil {
			t.Error(err)
		}
	})
	return req
}
