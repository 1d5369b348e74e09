package sessions_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// stormy repeats a command while some or all controllers are killed at random times, until one of
// its processes ends by itself.
func (s *stand) stormy(rng *rand.Rand, args ...string) {
	s.t.Helper()
	for kills := rng.IntN(4); ; kills-- {
		p := s.start(args...)
		if kills > 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(600 * time.Millisecond))))
			all := rng.IntN(2) == 0
			killed(slices.DeleteFunc(s.controllers(), func(int) bool { return !all && rng.IntN(2) == 0 }))
		}
		code := p.wait(s.t)
		switch {
		case code == 0:
			return
		case code != -1:
			s.t.Fatalf("curfew %q: exit code %d\n%s%s", args, code, p.out.String(), p.err.String())
		}
	}
}

// TestRandomKills kills the processes that start and end sessions on this machine at random times,
// and checks that every session was started once, and nothing of it is left.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	schedules := 2
	if os.Getenv("CURFEW_SLOW") != "" {
		schedules = 200
	}
	s := &stand{t: t, dir: t.TempDir()}
	s.environ("http://127.0.0.1:1")
	s.write("curfew.yaml", "identity: ana\nsessions: {cloud: local, grace: 1s}\nrates: {source: test, as_of: "+
		"2026-11-01, vcpu_hour: \"0.04\", memory_gib_hour: \"0.005\"}\n")
	t.Cleanup(s.clear)
	machines := filepath.Join(s.data(), "sessions", "local", "machines")
	for seed := range schedules {
		rng, name := rand.New(rand.NewPCG(uint64(seed), 17)), fmt.Sprintf("s%d", seed)
		up := []string{"up", name, "--cpus", "1", "--lease", "1h", "--idle", "1h", "-q"}
		s.stormy(rng, append(up, "--detach")...)
		defer func() {
			if t.Failed() {
				s.tell(name)
			}
		}()
		s.eventually(name+" is ready", func() bool {
			if len(s.controllers()) == 0 { // the last kill hit its keeper
				s.curfew(0, append(up, "--detach")...)
			}
			return s.run(name).State == "ready"
		})
		if there, err := os.ReadDir(machines); err != nil || len(there) != 1 {
			t.Fatalf("%s: its machines are %v, %v", name, there, err)
		}
		s.stormy(rng, "down", name, "--discard", "-q")
		if run := s.run(name); run.EndedAt == nil || run.Epoch != 1 {
			t.Fatalf("%s: %+v", name, run)
		}
		for _, dir := range []string{machines, filepath.Join(s.data(), "sessions", "control")} {
			if there, err := os.ReadDir(dir); err != nil || len(there) != 0 {
				t.Errorf("%s: %s still has %v, %v", name, dir, there, err)
			}
		}
		if s.open(name) {
			t.Errorf("%s: its hold is still open", name)
		}
		if t.Failed() {
			t.Fatalf("schedule %d", seed)
		}
	}
	s.eventually("no process is left", func() bool { return len(s.processes()) == 0 })
}
