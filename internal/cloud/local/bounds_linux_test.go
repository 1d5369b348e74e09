package local

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestCallsReturnOnCancel checks that every call of the provider returns when its context is
// canceled, before the call or while another process holds the lock.
func TestCallsReturnOnCancel(t *testing.T) {
	w := newWorld(t)
	l := launch(cpu(1), func(l *session.Launch) { l.Host.Setup = "sleep 1000" })
	machines := w.start(l)
	w.waitRunning(l)
	m, ids := w.machine(machines), idsOf(machines)
	c, err := OpenCage(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	r := w.p.resource(m)
	s := &session.Session{ID: l.Session.ID, Provider: CloudName, ControlPrefix: "file://" + m.path(controlName)}
	documents, ok := w.p.Control(s)
	if !ok {
		t.Fatal("it has no documents")
	}
	acts := w.p.Actions(func(ctx context.Context, _, _ string) error { return ctx.Err() })
	task := action.Task{Ref: r.Ref(), Identity: action.Identity(r), Step: action.Step{Name: stepEnd, Key: "k"}}
	at, err := m.readState()
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"Pools":  func(ctx context.Context) error { _, err := w.p.Pools(ctx, cpu(1)); return err },
		"Launch": func(ctx context.Context) error { _, err := w.p.Launch(ctx, launch(cpu(1))); return err },
		"Find":   func(ctx context.Context) error { _, err := w.p.Find(ctx, "inst", ""); return err },
		"End":    func(ctx context.Context) error { return w.p.End(ctx, l.Session.ID, ids) },
		"Rescue": func(ctx context.Context) error {
			_, err := w.p.PreserveFiles(ctx, l.Session.ID, ids)
			return err
		},
		"Leftovers": func(ctx context.Context) error {
			_, err := w.p.Leftovers(ctx, "inst", l.Session.ID)
			return err
		},
		"List": func(ctx context.Context) error { _, err := w.p.List(ctx, round.Query{Now: time.Now()}); return err },
		"Measure": func(ctx context.Context) error {
			_, err := w.p.Measure(ctx, []*inventory.Resource{r}, usage.Interval{To: time.Now()},
				func(*inventory.Resource, usage.SourceInfo) usage.Sink { return nil })
			return err
		},
		"Look": func(ctx context.Context) error { _, _, err := acts.Look(ctx, task); return err },
		"Order": func(ctx context.Context) error {
			_, err := documents.Replace(ctx, session.OrderFile, []byte("{}"), "x")
			return err
		},
		"Get":   func(ctx context.Context) error { _, err := documents.Get(ctx, "status-0.json", 1); return err },
		"Start": func(ctx context.Context) error { return c.Start(ctx, exec.Command("/bin/true")) },
		"wait":  at.Agent.wait,
		"settled": func(ctx context.Context) error {
			_, err := m.watcherReady(ctx, at.Agent) // alive without a lock, like a watcher that was stopped early
			return err
		},
		"pastLease": func(ctx context.Context) error { m.leaseEnded(ctx, time.Now()); return nil },
		"said":      func(ctx context.Context) error { m.lastStatus(ctx); return nil },
		"Probe":     func(ctx context.Context) error { _, err := Probe(ctx, w.p.options.Helper); return err },
		"LookupUser": func(ctx context.Context) error {
			_, err := LookupUser(ctx, "daemon")
			return err
		},
		"removeTree": func(ctx context.Context) error { return removeTree(ctx, t.TempDir(), nil) },
	} {
		for when, hold := range map[string]bool{
			"over before it begins": false, "over meanwhile, with the lock held": true,
		} {
			ctx, cancel := context.WithCancel(t.Context())
			if hold {
				lock, busy, err := lockedFile(filepath.Join(w.dir, "lock"))
				if err != nil || busy {
					t.Fatal(err, busy)
				}
				time.AfterFunc(
					50*time.Millisecond,
					func() { cancel(); time.AfterFunc(time.Second, func() { _ = lock.Close() }) },
				)
			} else {
				cancel()
			}
			returned := make(chan error, 1)
			go func() { returned <- call(ctx) }()
			select {
			case err := <-returned:
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: it ended by a time of its own: %v", name, when, err)
				}
			case <-time.After(waitTimeout):
				t.Fatalf("%s, %s: it goes on after the end of its context", name, when)
			}
			cancel()
			if hold { // until the lock is released
				eventually(t, "the lock is free", func() bool {
					lock, busy, err := lockedFile(filepath.Join(w.dir, "lock"))
					if lock != nil {
						err = lock.Close()
					}
					return !busy && err == nil
				})
			}
		}
	}
	w.endAndCheck(l, ids)
}
