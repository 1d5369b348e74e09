package service_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/test/postgres"
)

// onlySlow skips a test in normal runs.
func onlySlow(t *testing.T) {
	t.Helper()
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow runs it")
	}
}

// seed returns a generator with the seed of CURFEW_SEED, or 1.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := uint64(1)
	if text := os.Getenv("CURFEW_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CURFEW_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 15))
}

// databases runs a test with both kinds of database.
func databases(t *testing.T, do func(t *testing.T, state ...string)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { do(t, "--data-dir", private(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { do(t, "--database-url", postgres.Start(t)) })
}

func private(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestKilledInsideAnAct kills the process after the provider has carried out a call and before it
// receives the response. Another process finds out and does not repeat the call. It is the quick
// variant for normal runs.
func TestKilledInsideAnAct(t *testing.T) {
	t.Parallel()
	c := newCloud(t, 1)
	s := newService(t, c, time.Second, 4*time.Second, "--data-dir", private(t))
	began := time.Now()
	for range 2 {
		s.start("")
	}
	s.calm(began)
	var died atomic.Int64
	var once sync.Once
	c.set(func(number int, operation string, before bool) {
		if operation == "StopInstances" && !before && len(c.calls()) > 0 {
			once.Do(func() {
				died.Store(int64(number))
				for _, p := range s.processes() {
					if p.number == number {
						s.kill(p)
					}
				}
			})
		}
	})
	c.launch(c.accounts()[0], "idle")
	wait(t, "a process dies inside an act", 3*time.Minute, func() bool { return died.Load() > 0 })
	s.stopped(3 * time.Minute)
	s.check(0)
}

// TestKilledAtRandom shares three accounts, in which machines become idle all the time, among three
// processes that are killed at random and restarted. After each kill every account is read within
// 15 s.
func TestKilledAtRandom(t *testing.T) {
	onlySlow(t)
	databases(t, func(t *testing.T, state ...string) {
		rng := seed(t)
		c := newCloud(t, 3)
		s := newService(t, c, time.Second, 8*time.Second, state...)
		began := time.Now()
		for range 3 {
			s.start("")
		}
		s.calm(began)
		var worst time.Duration
		const kills = 20
		for i := range kills {
			account := c.accounts()[rng.IntN(3)]
			c.launch(account, "idle")
			time.Sleep(time.Duration(rng.IntN(5000)) * time.Millisecond) // a random moment of a round
			p := s.processes()[rng.IntN(3)]
			s.kill(p)
			killed := time.Now()
			s.start("")
			took := s.everywhere(killed, 2*time.Minute)
			worst = max(worst, took)
			t.Logf("kill %d: each account was read within %s", i, took.Round(time.Millisecond))
		}
		if worst >= 15*time.Second {
			t.Errorf("an account was not read for %s after a kill", worst)
		}
		// An action interrupted between its intent and its call is warned of again after 5m.
		s.stopped(10 * time.Minute)
		s.check(time.Minute)
	})
}

// TestKilledManyTimes kills processes at random moments, and as often right after the provider has
// carried out a call and before they receive the response. CURFEW_SERVICE_KILLS is the number of
// kills.
func TestKilledManyTimes(t *testing.T) {
	onlySlow(t)
	kills := 200
	if text := os.Getenv("CURFEW_SERVICE_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	databases(t, func(t *testing.T, state ...string) {
		rng := seed(t)
		c := newCloud(t, 3)
		s := newService(t, c, time.Second, 3*time.Second, state...)
		began := time.Now()
		for range 3 {
			s.start("")
		}
		s.calm(began)
		kill := func(number int) bool {
			for _, p := range s.processes() {
				if p.number == number {
					s.kill(p)
					return true
				}
			}
			return false
		}
		var inside, all atomic.Int64
		c.set(func(number int, operation string, before bool) {
			if operation == "StopInstances" && !before && int(all.Load()) < kills && kill(number) {
				inside.Add(1)
				all.Add(1)
			}
		})
		for int(all.Load()) < kills {
			c.launch(c.accounts()[rng.IntN(3)], "idle")
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond) // a random moment of a round
			// Half of the remaining random kills wait for one inside a call.
			if random := all.Load() - inside.Load(); random < 1+2*inside.Load() && int(all.Load()) < kills {
				if running := s.processes(); len(running) > 0 && kill(running[rng.IntN(len(running))].number) {
					all.Add(1)
				}
			}
			for len(s.processes()) < 3 {
				s.start("")
			}
		}
		t.Logf("%d kills, %d of them between a call and its confirmation", all.Load(), inside.Load())
		if 4*inside.Load() < all.Load() {
			t.Errorf("only %d of %d kills were between a call and its confirmation", inside.Load(), all.Load())
		}
		for len(s.processes()) < 3 {
			s.start("")
		}
		// An action interrupted between its intent and its call is warned of again after 5m.
		s.stopped(12 * time.Minute)
		s.check(15 * time.Minute)
	})
}

// TestStoppedInsideAnAct suspends a process that is about to act, and resumes it after others have
// acted in its place. It does not act on anything that it no longer holds.
func TestStoppedInsideAnAct(t *testing.T) {
	onlySlow(t)
	t.Parallel()
	const nap, rounds = time.Minute, 2
	databases(t, func(t *testing.T, state ...string) {
		rng := seed(t)
		c := newCloud(t, 2)
		s := newService(t, c, time.Second, 2*time.Second, state...)
		began := time.Now()
		for range 3 {
			s.start("")
		}
		s.calm(began)
		for range rounds {
			m := c.launch(c.accounts()[rng.IntN(2)], "idle")
			// It is suspended during one of the reads between the warning and the call.
			after := int64(rng.IntN(3))
			var seen atomic.Int64
			asleep := make(chan *process, 1)
			c.set(func(number int, _ string, before bool) {
				c.mu.Lock()
				_, warned := c.warned[m.id]
				c.mu.Unlock()
				if !before || !warned || len(asleep) > 0 {
					return
				}
				if seen.Add(1) != after+1 {
					return
				}
				for _, p := range s.processes() {
					if p.number == number {
						_ = p.Process.Signal(syscall.SIGSTOP)
						asleep <- p
					}
				}
			})
			var p *process
			select {
			case p = <-asleep:
			case <-time.After(3 * time.Minute):
				t.Fatal("no process came to act")
			}
			c.set(nil)
			slept := time.Now()
			// Another process acts in its place, unless this one was suspended during a write to a
			// SQLite file, which then stays locked.
			for time.Since(slept) < nap {
				time.Sleep(100 * time.Millisecond)
			}
			calls, acted := len(c.calls()), c.state(m.id) != "running"
			t.Logf("suspended for %s; another one had acted: %t", nap, acted)
			if err := p.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			woke := time.Now()
			s.everywhere(woke, 2*time.Minute)
			s.everywhere(time.Now(), 2*time.Minute)
			if again := c.calls()[calls:]; acted && len(again) > 0 {
				t.Errorf("after it woke: %+v", again)
			}
			s.stopped(8 * time.Minute)
		}
		s.check(2 * time.Minute)
	})
}

// TestTheDatabaseGoesAway crashes the server and restarts it; in between nothing is called.
func TestTheDatabaseGoesAway(t *testing.T) {
	onlySlow(t)
	t.Parallel()
	c := newCloud(t, 2)
	server, at := postgres.Own(t)
	s := newService(t, c, 2*time.Second, 4*time.Second, "--database-url", at)
	began := time.Now()
	for range 3 {
		s.start("")
	}
	s.calm(began)
	for _, account := range c.accounts() {
		c.launch(account, "idle")
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	time.Sleep(45 * time.Second)
	for _, e := range c.calls() {
		if e.at.After(gone.Add(time.Second)) {
			t.Errorf("without a database, %s was stopped", e.id)
		}
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	t.Logf("each account was read %s after the database came back", s.everywhere(back, 6*time.Minute))
	s.stopped(8 * time.Minute)
	s.check(2 * time.Minute)
}

// TestTheFileIsLocked lets another program lock the file of the state for a minute.
func TestTheFileIsLocked(t *testing.T) {
	onlySlow(t)
	t.Parallel()
	c := newCloud(t, 2)
	s := newService(t, c, 2*time.Second, 4*time.Second, "--data-dir", private(t))
	began := time.Now()
	for range 3 {
		s.start("")
	}
	s.calm(began)
	for _, account := range c.accounts() {
		c.launch(account, "idle")
	}
	db := s.open()
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	locked := time.Now()
	time.Sleep(time.Minute)
	for _, e := range c.calls() {
		if e.at.After(locked.Add(time.Second)) {
			t.Errorf("while the state was locked, %s was stopped", e.id)
		}
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	t.Logf("each account was read %s after the lock", s.everywhere(time.Now(), 6*time.Minute))
	s.stopped(8 * time.Minute)
	s.check(2 * time.Minute)
}

// TestTheDiskIsFull checks that nothing is called that could not be recorded first, and that work
// continues once there is room.
func TestTheDiskIsFull(t *testing.T) {
	onlySlow(t)
	t.Parallel()
	dir := small(t, 48<<20)
	c := newCloud(t, 2)
	s := newService(t, c, 2*time.Second, 4*time.Second, "--data-dir", dir)
	began := time.Now()
	for range 2 {
		s.start("")
	}
	s.calm(began)
	filler := fill(t, dir)
	full := time.Now()
	for _, account := range c.accounts() {
		c.launch(account, "idle")
	}
	time.Sleep(45 * time.Second)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, e := range c.calls() {
		t.Logf("%s was stopped %s after the disk was full", e.id, e.at.Sub(full))
	}
	s.everywhere(time.Now(), 6*time.Minute)
	s.stopped(8 * time.Minute)
	s.check(2 * time.Minute)
	if !slices.ContainsFunc(s.processes(), func(p *process) bool { return strings.Contains(p.log.String(), "full") }) {
		t.Error("no process says that the disk is full")
	}
}
