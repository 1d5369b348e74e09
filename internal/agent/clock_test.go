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
	"github.com/curfew-dev/curfew/internal/wait"
)

func TestClockIgnoresJumps(t *testing.T) {
	start := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	wall, up := start, time.Hour
	c := newClock(func() time.Time { return wall }, func() (string, time.Duration) { return "b", up }, clockAnchor{})
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
	// A later process of this boot knows the jump; after a reboot the wall clock has to be trusted.
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

// emptyCage is a cage without processes.
type emptyCage struct{}

func (emptyCage) Start(context.Context, *exec.Cmd) error { return nil }
func (emptyCage) Processes() ([]int, error)              { return nil, nil }
func (emptyCage) Killable() ([]int, error)               { return nil, nil }
func (emptyCage) Kill(context.Context) error             { return nil }

// losableStore is a control store that can become unreachable.
type losableStore struct {
	Store
	mu   sync.Mutex
	lost bool
}

func (s *losableStore) lose() { s.mu.Lock(); s.lost = true; s.mu.Unlock() }

func (s *losableStore) gone(ctx context.Context) bool {
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	if lost {
		_ = wait.For(ctx, 20*time.Second) // the call hangs
	}
	return lost
}

func (s *losableStore) Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error) {
	if s.gone(ctx) {
		return checkpoint.Object{}, context.DeadlineExceeded
	}
	return s.Store.Get(ctx, key, limit)
}

func (s *losableStore) Create(ctx context.Context, key string, data []byte) error {
	if s.gone(ctx) {
		return context.DeadlineExceeded
	}
	return s.Store.Create(ctx, key, data)
}

func (s *losableStore) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	if s.gone(ctx) {
		return "", context.DeadlineExceeded
	}
	return s.Store.Replace(ctx, key, data, version)
}

// settableClock is a wall clock that can be set.
type settableClock struct {
	mu  sync.Mutex
	off time.Duration
}

func (s *settableClock) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.off)
}

func (s *settableClock) set(off time.Duration) { s.mu.Lock(); s.off = off; s.mu.Unlock() }

// TestLeaseEndsOnTime runs the agent in simulated time: the lease ends a session after four hours,
// never earlier, whatever happens to the wall clock and the control store.
func TestLeaseEndsOnTime(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*settableClock, *losableStore)
		// bounds of the end after the start
		earliest, latest time.Duration
	}{
		{"no disturbance", func(*settableClock, *losableStore) {}, 4 * time.Hour, 4*time.Hour + time.Minute},
		{"store lost", func(_ *settableClock, s *losableStore) {
			s.lose()
		}, 4 * time.Hour, 4*time.Hour + 2*time.Minute},
		{"clock set back", func(k *settableClock, _ *losableStore) {
			k.set(-3 * time.Hour)
		}, 4 * time.Hour, 4*time.Hour + time.Minute},
		{"clock set forward for a minute", func(k *settableClock, _ *losableStore) {
			k.set(9 * time.Hour)
			time.Sleep(time.Minute)
			k.set(0)
		}, 4 * time.Hour, 4*time.Hour + time.Minute},
		{"clock an hour slow", func(k *settableClock, _ *losableStore) {
			k.set(time.Hour)
		}, 3 * time.Hour, 3*time.Hour + time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			control, err := objectstore.Open(t.Context(),
				"file://"+filepath.Join(dir, "control"), objectstore.Options{})
			must(t, err)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				k, s := &settableClock{}, &losableStore{Store: control}
				o := Options{
					Host: session.HostConfig{
						Schema: session.HostSchema, Session: "s", Name: "demo", Nodes: 1, Epoch: 1,
						WorkDir:    filepath.Join(dir, "w"),
						LeaseUntil: began.Add(4 * time.Hour), SaveInterval: session.Duration(10 * time.Minute),
						SaveLimit: session.Duration(5 * time.Minute)},
					State: filepath.Join(dir, "state"), Home: dir, Control: s, Cage: emptyCage{}, Now: k.now,
					Uptime: func() (string, time.Duration) { return "boot", time.Hour + time.Since(began) },
					Intervals: Intervals{
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
				time.Sleep(time.Hour) // everything that was started has ended
			})
		})
	}
}

// countingParameters returns a new value at each read.
type countingParameters struct{ began time.Time }

func (c countingParameters) Parameter(context.Context, string) (string, error) {
	return fmt.Sprint(int64(time.Since(c.began) / time.Second)), nil
}

// TestRefreshesSecrets checks that secrets are never older than five minutes.
func TestRefreshesSecrets(t *testing.T) {
	memory := "/dev/shm"
	if !inMemory(memory) {
		t.Skip("no folder in memory here")
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := &Options{
			Host: session.HostConfig{
				Session: fmt.Sprint("secrets-", filepath.Base(dir)), Secrets: map[string]string{
					"TOKEN": "/team/token",
				},
			},
			Memory: memory, Parameters: countingParameters{began}, Now: time.Now, Cage: emptyCage{}}
		d, err := openStateFolder(filepath.Join(dir, "state"))
		must(t, err)
		defer d.close()
		b := &bootstrap{saver: &saver{}, options: o, folder: d, readState: func() state {
			return state{}
		}, addEvent: func(string, string) {}}
		must(t, b.readSecrets(t.Context()))
		defer b.removeSecrets()
		ctx, cancel := context.WithCancel(t.Context())
		go b.refreshSecrets(ctx)
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
