package sessions

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestLoopsReturnOnCancel checks that keeping, showing and awaiting sessions returns when the
// context is canceled, before or during the call.
func TestLoopsReturnOnCancel(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "curfew.yaml")
	if err := os.WriteFile(file, []byte("sessions: {cloud: local}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	req := runtime.NewProcess(runtime.Host{Now: time.Now, Lookup: func(name string) (string, bool) {
		return dir, name == "HOME"
	}, Dir: dir, Log: io.Discard}).
		Request()
	req.ConfigFlag, req.DataFlag = file, filepath.Join(dir, "state")
	cfg, s := openState(t, req)
	addUndecidedSession(t, s, "s1")
	all, err := OpenWithStore(t.Context(), req.Fresh(), cfg, view.Decider{Source: "local", Advisory: true}, s)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	locked := filepath.Join(dir, "locked")
	holder, err := os.OpenFile(locked, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(holder.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	inForce := func() *runtime.GovernedConfig { return &runtime.GovernedConfig{Config: cfg} }
	for name, call := range map[string]func(ctx context.Context){
		"Keep":       func(ctx context.Context) { _ = Keep(ctx, req.Fresh(), true) },
		"KeepServed": func(ctx context.Context) { KeepServed(ctx, req.Fresh(), log, inForce) },
		"keep":       func(ctx context.Context) { _ = all.keep(ctx, true, log, nil) },
		"Status":     func(ctx context.Context) { _, _ = all.Status(ctx, "s1") },
		"Log":        func(ctx context.Context) { _, _ = all.Log(ctx, "s1") },
		"Up": func(ctx context.Context) {
			_, _, _ = all.Up(ctx, UpOptions{Name: "x", SpecOptions: SpecOptions{CPUs: 1}})
		},
		"Extend":  func(ctx context.Context) { _, _, _ = all.Extend(ctx, "s1", time.Hour) },
		"Down":    func(ctx context.Context) { _, _ = all.Down(ctx, "none", false) },
		"Tidy":    func(ctx context.Context) { _ = RemoveStaleEntries(ctx, all) },
		"flockIn": func(ctx context.Context) { _, _ = lockFile(ctx, locked) },
	} {
		for _, meanwhile := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			if meanwhile {
				time.AfterFunc(50*time.Millisecond, cancel)
			} else {
				cancel()
			}
			returned := make(chan struct{})
			go func() { defer close(returned); call(ctx) }()
			select {
			case <-returned:
			case <-time.After(time.Minute):
				t.Fatalf("%s goes on after the end of its context (meanwhile: %v)", name, meanwhile)
			}
			cancel()
		}
	}
}
