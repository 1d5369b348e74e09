package agent

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/session"
)

// TestEndTimesOut checks that a machine with unsaved work is released at its limit after the lease,
// and that the last status describes the unsaved work.
func TestEndTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.TerminatedFile = filepath.Join(w.dir, "ended")
	w.config.Host.SaveLimit, w.config.Host.EndTimeout = session.Duration(500*time.Millisecond), session.Duration(
		2*time.Second)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	must(t, os.RemoveAll(filepath.Join(w.dir, "work")))
	must(t, os.WriteFile(filepath.Join(w.dir, "work"), nil, 0o600)) // a store whose calls fail
	w.shortenLease(time.Second)
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	if early := time.Until(w.config.Host.LeaseUntil.Add(2 * time.Second)); early > 0 {
		t.Errorf("it ended %s before the limit", early)
	}
	if _, err := os.Stat(w.config.TerminatedFile); err != nil {
		t.Errorf("the machine is not given back: %v", err)
	}
	if s := w.status(0); s.Phase != session.HostEnding || s.UnsavedReason == "" {
		t.Errorf("its last status: %+v", s)
	}
	w.checkEventOrder("unsaved: the time to end is over", "ended: its lease ended at")
}

func TestHangingSaveTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.TerminatedFile = filepath.Join(w.dir, "ended")
	w.config.Host.SaveLimit, w.config.Host.EndTimeout = session.Duration(500*time.Millisecond), session.Duration(
		2*time.Second)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	// HEAD of the store is a pipe without a writer, so opening it blocks.
	head := filepath.Join(w.dir, "work", "node-0", "HEAD")
	must(t, os.MkdirAll(filepath.Dir(head), 0o700))
	_ = os.Remove(head)
	must(t, unix.Mkfifo(head, 0o600))
	w.shortenLease(time.Second)
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.config.TerminatedFile); err != nil {
		t.Errorf("the machine is not given back: %v", err)
	}
}

// hangingStore is a Store whose calls never return.
type hangingStore struct{ until chan struct{} }

func (s hangingStore) Get(context.Context, string, int64) (checkpoint.Object, error) {
	<-s.until
	return checkpoint.Object{}, io.EOF
}

func (s hangingStore) Create(context.Context, string, []byte) error { <-s.until; return io.EOF }

func (s hangingStore) Replace(context.Context, string, []byte, string) (string, error) {
	<-s.until
	return "", io.EOF
}

// hangingMachine has a cage whose processes never end, and no notice.
type hangingMachine struct{ ProcessTree }

func (hangingMachine) Processes() ([]int, error) { return []int{1}, nil }

func (hangingMachine) Notice(context.Context) (time.Time, error) { return time.Time{}, io.EOF }

func (hangingMachine) Parameter(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// TestLoopsReturnOnCancel checks that each loop of the agent returns when its context ends, even if
// the store hangs.
func TestLoopsReturnOnCancel(t *testing.T) {
	t.Parallel()
	until := make(chan struct{})
	t.Cleanup(func() { close(until) })
	now := time.Now()
	fresh := func(t *testing.T) Options {
		dir := t.TempDir()
		return Options{
			State:      filepath.Join(dir, "state"),
			Home:       dir,
			Control:    hangingStore{until},
			Cage:       ProcessTree{ID: "bounds"},
			Now:        time.Now,
			Uptime:     bootTime,
			Notices:    hangingMachine{},
			Parameters: hangingMachine{},
			Memory:     "/dev/shm",
			Work: func(ctx context.Context, _ string) (checkpoint.Backend, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			Host: session.HostConfig{
				Schema:     session.HostSchema,
				Session:    "bounds",
				Nodes:      2,
				Epoch:      1,
				WorkDir:    dir,
				Work:       "x",
				LeaseUntil: now.Add(time.Hour),
				SaveLimit:  session.Duration(time.Hour),
				Secrets:    map[string]string{"A": "/a"},
			},
		}
	}
	opened := func(t *testing.T) *host {
		h, err := newHost(fresh(t))
		must(t, err)
		t.Cleanup(h.folder.close)
		return h
	}
	for name, run := range map[string]func(ctx context.Context, t *testing.T){
		"poll": func(ctx context.Context, t *testing.T) {
			h := opened(t)
			pollOrders(ctx, h.options.Control, &h.options.Host, time.Hour, make(chan orderResult))
		},
		"sampler": func(ctx context.Context, t *testing.T) {
			(&sampler{options: &opened(t).options, step: time.Hour}).run(ctx, make(chan measurement))
		},
		"tell":       func(ctx context.Context, t *testing.T) { opened(t).writeStatuses(ctx) },
		"watchNodes": func(ctx context.Context, t *testing.T) { opened(t).watchNodes(ctx, make(chan []duty.Verdict)) },
		"watchNotices": func(ctx context.Context, t *testing.T) {
			watchNotices(ctx, hangingMachine{}, time.Hour, make(chan time.Time))
		},
		"keepFresh": func(ctx context.Context, t *testing.T) { opened(t).bootstrap.refreshSecrets(ctx) },
		"bootstrap": func(ctx context.Context, t *testing.T) { _ = opened(t).bootstrap.run(ctx) },
		"save":      func(ctx context.Context, t *testing.T) { opened(t).work.save(ctx, saveRequest{}) },
		"flush": func(ctx context.Context, t *testing.T) {
			h := opened(t)
			h.journal.add("ready", "x")
			_ = h.journal.flush(ctx)
		},
		"status": func(ctx context.Context, t *testing.T) {
			_ = (&statusWriter{store: opened(t).options.Control}).write(ctx, session.Status{})
		},
		"kill":      func(ctx context.Context, _ *testing.T) { _ = ProcessTree{ID: "no one's"}.Kill(ctx) },
		"run":       func(ctx context.Context, t *testing.T) { _ = Run(ctx, fresh(t)) },
		"Bootstrap": func(ctx context.Context, t *testing.T) { _ = Bootstrap(ctx, fresh(t)) },
		"ServeOneSSH": func(ctx context.Context, _ *testing.T) {
			_ = ServeOneSSH(ctx, OneSSHOptions{
				PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA4Y5sYyZ0s0fQxkYlTj0p1oCwzq7q0cJ6p1mT3xkq2U",
				Out:       io.Discard,
			})
		},
	} {
		for _, when := range []string{"over before it begins", "over meanwhile"} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				if strings.HasSuffix(when, "begins") {
					cancel()
				} else {
					defer time.AfterFunc(50*time.Millisecond, cancel).Stop()
				}
				returned := make(chan struct{})
				go func() { defer close(returned); run(ctx, t) }()
				select {
				case <-returned:
				case <-time.After(30 * time.Second):
					t.Error("it goes on after the end of its context")
				}
				cancel()
			})
		}
	}
}

// TestRefusesForeignSecretsFolder checks that secrets are not written to a folder that another user
// may have created.
func TestRefusesForeignSecretsFolder(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		make func(path string) error
		ok   bool
	}{
		{"new", func(string) error { return nil }, true},
		{"own", func(p string) error { return os.Mkdir(p, 0o700) }, true},
		{"open", func(p string) error { return os.Mkdir(p, 0o777) }, false},
		{"link", func(p string) error { return os.Symlink(dir, p) }, false},
		{"file", func(p string) error { return os.WriteFile(p, nil, 0o600) }, false},
		{"foreign", func(p string) error {
			if err := os.Mkdir(p, 0o700); err != nil || os.Geteuid() != 0 {
				return err
			}
			return os.Chown(p, 12345, 12345)
		}, os.Geteuid() != 0},
	} {
		path := filepath.Join(dir, c.name)
		must(t, c.make(path))
		if c.name == "open" {
			must(t, os.Chmod(path, 0o777))
		}
		if err := makePrivateFolder(path); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
