package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/session"
)

func TestClock(t *testing.T) {
	start := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	wall, up := start, time.Hour
	c := newClock(func() time.Time { return wall }, func() (string, time.Duration) { return "b", up }, anchor{})
	pass := func(d, set time.Duration) { wall, up = wall.Add(d+set), up+d }
	check := func(name string, wantAt time.Duration, wantJump bool) {
		t.Helper()
		now, jumped := c.read()
		if got := now.Sub(start); got != wantAt || (jumped != 0) != wantJump {
			t.Errorf("%s: %s, jumped %s; want %s, jumped: %t", name, got, jumped, wantAt, wantJump)
		}
	}
	check("at first", 0, false)
	pass(time.Minute, 0)
	check("in step", time.Minute, false)
	pass(time.Minute, time.Second)
	check("slewed", 2*time.Minute+time.Second, false)
	pass(time.Minute, 10*time.Hour)
	check("set forward", 3*time.Minute+time.Second, true)
	pass(time.Minute, 0)
	check("still forward", 4*time.Minute+time.Second, false)
	pass(time.Minute, -10*time.Hour)
	check("set right again", 5*time.Minute+time.Second, true)
	pass(time.Minute, -3*time.Hour)
	check("set back", 6*time.Minute+time.Second, true)
	pass(24*time.Hour, 0)
	check("back for a day", 24*time.Hour+6*time.Minute+time.Second, false)
	// Another process of this boot is not fooled either; one of another boot has no choice.
	next := newClock(c.now, c.uptime, c.anchor)
	if now, _ := next.read(); now.Sub(start) != 24*time.Hour+6*time.Minute+time.Second {
		t.Errorf("the next process: %s", now.Sub(start))
	}
	if now, jumped := newClock(c.now, func() (string, time.Duration) {
		return "c", 0
	}, c.anchor).read(); !now.Equal(wall) || jumped != 0 {
		t.Errorf("after a boot: %s", now)
	}
	pass(time.Minute, 3*time.Hour)
	check("right", 24*time.Hour+7*time.Minute+time.Second, true)
	pass(time.Minute, time.Hour)
	check("set forward for good", 24*time.Hour+8*time.Minute+time.Second, true)
	pass(6*time.Minute, 0)
	check("believed after a while", 25*time.Hour+14*time.Minute+time.Second, false)
}

// empty is a cage without processes.
type empty struct{}

func (empty) Start(context.Context, *exec.Cmd) error { return nil }
func (empty) Processes() ([]int, error)              { return nil, nil }
func (empty) Kill(context.Context) error             { return nil }

// silent is a control store that can be lost.
type silent struct {
	Store
	mu   sync.Mutex
	lost bool
}

func (s *silent) lose() { s.mu.Lock(); s.lost = true; s.mu.Unlock() }

func (s *silent) gone(ctx context.Context) bool {
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	if lost {
		_ = pause(ctx, 20*time.Second) // it hangs
	}
	return lost
}

func (s *silent) Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error) {
	if s.gone(ctx) {
		return checkpoint.Object{}, context.DeadlineExceeded
	}
	return s.Store.Get(ctx, key, limit)
}

func (s *silent) Create(ctx context.Context, key string, data []byte) error {
	if s.gone(ctx) {
		return context.DeadlineExceeded
	}
	return s.Store.Create(ctx, key, data)
}

func (s *silent) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	if s.gone(ctx) {
		return "", context.DeadlineExceeded
	}
	return s.Store.Replace(ctx, key, data, version)
}

// settable is a clock of a machine that can be set.
type settable struct {
	mu  sync.Mutex
	off time.Duration
}

func (s *settable) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.off)
}

func (s *settable) set(off time.Duration) { s.mu.Lock(); s.off = off; s.mu.Unlock() }

// In simulated time, the whole agent: the lease ends a session after its four hours whatever
// becomes of the wall clock and the control store, and never earlier.
func TestLeaseInTime(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*settable, *silent)
		// earliest and latest are when it may end, after its start.
		earliest, latest time.Duration
	}{
		{"nothing happens", func(*settable, *silent) {}, 4 * time.Hour, 4*time.Hour + time.Minute},
		{"the store is lost", func(_ *settable, s *silent) { s.lose() }, 4 * time.Hour, 4*time.Hour + 2*time.Minute},
		{"the clock is set back", func(k *settable, _ *silent) {
			k.set(-3 * time.Hour)
		}, 4 * time.Hour, 4*time.Hour + time.Minute},
		{"the clock is set forward for a minute", func(k *settable, _ *silent) {
			k.set(9 * time.Hour)
			time.Sleep(time.Minute)
			k.set(0)
		}, 4 * time.Hour, 4*time.Hour + time.Minute},
		{"the clock was an hour slow", func(k *settable, _ *silent) {
			k.set(time.Hour)
		}, 3 * time.Hour, 3*time.Hour + time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			control, err := objectstore.Open(t.Context(), "file://"+filepath.Join(dir, "control"), objectstore.Options{})
			must(t, err)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				k, s := &settable{}, &silent{Store: control}
				o := Options{
					Host: session.HostConfig{
						Schema: session.HostSchema, Session: "s", Name: "demo", Nodes: 1, Epoch: 1, WorkDir: filepath.Join(dir, "w"),
						LeaseUntil: began.Add(4 * time.Hour), SaveInterval: session.Duration(10 * time.Minute),
						SaveLimit: session.Duration(5 * time.Minute)},
					State: filepath.Join(dir, "state"), Home: dir, Control: s, Cage: empty{}, Now: k.now,
					Uptime: func() (string, time.Duration) { return "boot", time.Hour + time.Since(began) },
					Paces: Paces{
						Poll: 2 * time.Minute, Tick: 20 * time.Second, Sample: time.Minute, Flush: 5 * time.Minute,
						Status: 10 * time.Minute,
					},
				}
				go func() {
					time.Sleep(30 * time.Minute)
					c.do(k, s)
				}()
				if err := Run(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.earliest || took > c.latest {
					t.Errorf("it ended after %s, want %s to %s", took, c.earliest, c.latest)
				}
				time.Sleep(time.Hour) // whatever was begun has ended
			})
		})
	}
}

// changing is a parameter store whose values change all the time.
type changing struct{ began time.Time }

func (c changing) Parameter(context.Context, string) (string, error) {
	return fmt.Sprint(int64(time.Since(c.began) / time.Second)), nil
}

// Secrets are never older than five minutes.
func TestSecretsAreFresh(t *testing.T) {
	memory := "/dev/shm"
	if !inMemory(memory) {
		t.Skip("no folder in memory here")
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := &Options{
			Host: session.HostConfig{
				Session: fmt.Sprint("secrets-", filepath.Base(dir)), Secrets: map[string]string{"TOKEN": "/team/token"},
			},
			Memory: memory, Parameters: changing{began}, Now: time.Now, Cage: empty{}}
		d, err := openDisk(filepath.Join(dir, "state"))
		must(t, err)
		defer d.close()
		b := &bootstrap{o: o, disk: d, view: func() state { return state{} }, say: func(string, string) {}}
		must(t, b.refresh(t.Context()))
		defer b.forget()
		ctx, cancel := context.WithCancel(t.Context())
		go b.keepFresh(ctx)
		for range 100 {
			time.Sleep(37 * time.Second)
			env, err := b.withSecrets(t.Context())
			must(t, err)
			var read int64
			for _, v := range env {
				if n, is := strings.CutPrefix(v, "TOKEN="); is {
					must(t, json.Unmarshal([]byte(n), &read))
				}
			}
			if age := time.Since(began) - time.Duration(read)*time.Second; age > 5*time.Minute {
				t.Fatalf("a secret of %s ago", age)
			}
		}
		cancel()
		synctest.Wait()
	})
}
