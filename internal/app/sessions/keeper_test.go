package sessions

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/store"
)

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// openState opens the database of a process until the test ends.
func openState(t *testing.T, req *runtime.Request) (config.Config, *store.Store) {
	t.Helper()
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	s, err := req.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return cfg, s
}

// addUndecidedSession adds a session from before the gate decided, which a keeper gives up.
func addUndecidedSession(t *testing.T, s *store.Store, id string) {
	t.Helper()
	left := session.Session{
		ID: id, Name: id, RequestedBy: "ana", Provider: clouds.ProviderLocal, Account: runtime.HostName(), Epoch: 1,
		State: session.Requested, RequestedAt: time.Now().Add(-time.Hour), LeaseUntil: time.Now().Add(time.Hour),
	}
	if _, err := s.Sessions().Put(t.Context(), left, nil); err != nil {
		t.Fatal(err)
	}
}

// TestServiceTakesOverSessions checks that a service keeps the sessions of its data directory only
// after the previous keeper ended, and stops with its context.
func TestServiceTakesOverSessions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "curfew.yaml")
	if err := os.WriteFile(file, []byte("sessions: {cloud: local}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	req := runtime.NewProcess(runtime.Host{Now: time.Now, Lookup: func(string) (string, bool) {
		return "", false
	}, Dir: dir, WitnessDir: filepath.Join(dir, "witness"), Log: io.Discard}).Request()
	req.ConfigFlag, req.DataFlag = file, state
	cfg, s := openState(t, req)
	addUndecidedSession(t, s, "s1")
	is := func() session.State {
		now, err := s.Sessions().Session(t.Context(), "s1")
		if err != nil {
			t.Fatal(err)
		}
		return now.State
	}
	other, err := lockKeeper(state)
	if err != nil || other == nil {
		t.Fatalf("lock: %v, %v", other, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan bool)
	go func() {
		defer close(served)
		by := &runtime.GovernedConfig{Config: cfg}
		KeepServed(ctx, req, slog.New(slog.DiscardHandler), func() *runtime.GovernedConfig { return by })
	}()
	time.Sleep(time.Second)
	if got := is(); got != session.Requested {
		t.Errorf("while another process keeps it, it is %s", got)
	}
	other.Close()
	for end := time.Now().Add(time.Minute); !is().IsFinal() && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if got := is(); got != session.Failed {
		t.Errorf("it is %s", got)
	}
	stop()
	select {
	case <-served:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if lock, err := lockKeeper(state); err != nil || lock == nil {
		t.Errorf("the lock is kept: %v", err)
	}
}

// TestKeepsWithNewestWorkingConfig checks that the keeper switches to a newer configuration, stays
// with the previous one while the newer one fails, and switches once it works.
func TestKeepsWithNewestWorkingConfig(t *testing.T) {
	dir := t.TempDir()
	log := &logBuffer{}
	req := runtime.NewProcess(runtime.Host{Now: time.Now, Lookup: func(string) (string, bool) {
		return "", false
	}, Dir: dir, WitnessDir: filepath.Join(dir, "witness"), Log: io.Discard}).Request()
	req.DataFlag = filepath.Join(dir, "state")
	cfg, s := openState(t, req)
	var inForce atomic.Pointer[runtime.GovernedConfig]
	inForce.Store(&runtime.GovernedConfig{Config: cfg})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- keepWithConfig(ctx, req, slog.New(slog.NewTextHandler(log, nil)), inForce.Load) }()
	// A session that waits for the gate times out independently of the configuration, which shows
	// that sessions are kept.
	kept := func(id string) {
		t.Helper()
		addUndecidedSession(t, s, id)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if now, err := s.Sessions().Session(t.Context(), id); err != nil {
				t.Fatal(err)
			} else if now.State.IsFinal() {
				return
			}
		}
		t.Fatalf("%s is not kept", id)
	}
	kept("s1")
	wrong := cfg
	wrong.Local.GPUs = []local.ConfiguredGPU{{Model: "L4"}}
	inForce.Store(&runtime.GovernedConfig{Config: wrong})
	for end := time.Now().Add(time.Minute); !strings.Contains(log.String(), "by the configuration before") &&
		time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	kept("s2")
	time.Sleep(takeOverInterval + time.Second) // long enough for another attempt
	if n := strings.Count(log.String(), "by the configuration before"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, log)
	}
	inForce.Store(&runtime.GovernedConfig{Config: cfg})
	kept("s3")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
