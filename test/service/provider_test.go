package service_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestTheProviderFails checks that throttled, denied, hanging and truncated calls end no working
// machine, do not make unknown ones idle, and repeat nothing.
func TestTheProviderFails(t *testing.T) {
	onlySlow(t)
	t.Parallel()
	c := newCloud(t, 2)
	s := newService(t, c, 2*time.Second, 4*time.Second, "--database-url", postgres.Start(t))
	began := time.Now()
	for range 3 {
		s.start("")
	}
	s.calm(began)
	reading := []string{"DescribeInstances", "GetMetricData", "ListMetrics"}
	for _, tc := range []struct {
		name   string
		faults []wire.Fault
		// blind is true if nothing can be known during the fault, so that nothing may be ended.
		blind bool
	}{
		{"throttled", []wire.Fault{{Kind: wire.Throttling}}, true},
		{"denied", []wire.Fault{{Kind: wire.AccessDenied, Service: "cloudwatch"}}, true},
		{"denied to stop", []wire.Fault{{Kind: wire.AccessDenied, Operation: "StopInstances"}}, false},
		{"expired", []wire.Fault{{Kind: wire.ExpiredToken}}, true},
		{"hanging", []wire.Fault{{Kind: wire.Never}}, true},
		{"hanging when it is to stop", []wire.Fault{{Kind: wire.Never, Operation: "StopInstances"}}, false},
		{
			"empty",
			[]wire.Fault{
				{Kind: wire.Empty, Operation: reading[0]}, {Kind: wire.Empty, Operation: reading[1]},
				{Kind: wire.Empty, Operation: reading[2]},
			},
			true,
		},
		{"hollow metrics", []wire.Fault{{Kind: wire.Hollow, Service: "cloudwatch"}}, true},
		{"reset", []wire.Fault{{Kind: wire.Reset}}, true},
		{"truncated", nil, true},
	} {
		for _, account := range c.accounts() {
			c.launch(account, "idle")
		}
		var remove []func()
		for _, f := range tc.faults {
			remove = append(remove, c.wire.Inject(f))
		}
		c.truncate(tc.faults == nil)
		from := time.Now()
		before := len(c.calls())
		time.Sleep(20 * time.Second)
		for _, do := range remove {
			do()
		}
		c.truncate(false)
		for _, e := range c.calls()[before:] {
			// Data that a round had read before may be used for a moment.
			if tc.blind && e.at.Sub(from) > 15*time.Second {
				t.Errorf("%s: %s was stopped %s after it began", tc.name, e.id, e.at.Sub(from))
			}
		}
		s.everywhere(time.Now(), 6*time.Minute)
		t.Logf("%s: it goes on", tc.name)
	}
	s.stopped(12 * time.Minute)
	s.settled = true // a failed call is repeated
	s.check(5 * time.Minute)
}

// TestClocksJump makes clocks of processes jump forward and back by a minute, hours, days and
// years. No machine is stopped before its grace period is over by a steady clock.
func TestClocksJump(t *testing.T) {
	onlySlow(t)
	t.Parallel()
	databases(t, func(t *testing.T, state ...string) {
		c := newCloud(t, 2)
		s := newService(t, c, 20*time.Second, 4*time.Second, state...)
		began := time.Now()
		for range 3 {
			s.start("")
		}
		s.calm(began)
		rng := seed(t)
		for _, off := range []string{"15m", "-15m", "40s", "-25s", "26h", "-49h", "26280h", "-43800h"} {
			for _, account := range c.accounts() {
				c.launch(account, "idle")
			}
			wait(t, "a machine is warned about", 2*time.Minute, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				last := c.all[len(c.all)-1]
				_, told := c.warned[last.id]
				return told
			})
			p := s.processes()[rng.IntN(3)]
			if err := os.WriteFile(p.clock, []byte(off), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(15 * time.Second)
			if err := os.Remove(p.clock); err != nil {
				t.Fatal(err)
			}
			t.Logf("a clock was %s off", off)
		}
		s.everywhere(time.Now(), 6*time.Minute)
		s.stopped(12 * time.Minute)
		s.check(2 * time.Minute)
	})
}

// older builds curfew from before the newest migration of the state.
func older(t *testing.T) string {
	t.Helper()
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", "../.."}, args...)...).Output()
		if err != nil {
			t.Skipf("git %s: %v: the history is not here", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	var commit string
	if tags := git("tag", "--list", "v*", "--sort=-creatordate"); tags != "" {
		commit, _, _ = strings.Cut(tags, "\n")
	} else {
		newest := git("log", "--first-parent", "-1", "--format=%H", "--diff-filter=A", "--",
			"internal/store/migrations")
		if newest == "" {
			t.Skip("the history is not here")
		}
		commit = git("rev-parse", newest+"^1")
	}
	tree := filepath.Join(t.TempDir(), "older")
	git("worktree", "add", "--detach", tree, commit)
	t.Cleanup(func() {
		if out, err := exec.Command("git", "-C", "../..", "worktree", "remove", "--force",
			tree).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	binary := filepath.Join(t.TempDir(), "curfew")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, "./cmd/curfew")
	build.Dir, build.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", commit, err, out)
	}
	t.Logf("the older curfew is %s", commit)
	return binary
}

// TestAnOlderBinary checks that an older process that runs during a migration by a newer one, and
// one that is started afterwards, either work or refuse to with an explanation.
func TestAnOlderBinary(t *testing.T) {
	onlySlow(t)
	t.Parallel()
	binary := older(t)
	databases(t, func(t *testing.T, state ...string) {
		c := newCloud(t, 2)
		s := newService(t, c, 2*time.Second, 4*time.Second, state...)
		began := time.Now()
		old := s.start(binary)
		read := false
		for until := time.Now().Add(time.Minute); time.Now().Before(until) && !read &&
			running(old); time.Sleep(100 * time.Millisecond) {
			read = len(c.read()) == len(c.accounts())
		}
		if !read {
			t.Logf("the older one does not serve: %s", tail(old.log.String()))
		}
		s.start("") // it migrates
		s.start("")
		time.Sleep(5 * time.Second)
		late := s.start(binary)
		for _, account := range c.accounts() {
			c.launch(account, "idle")
		}
		time.Sleep(45 * time.Second)
		for name, p := range map[string]*process{"that ran before": old, "that was started then": late} {
			says := strings.Contains(p.log.String(), "newer") || strings.Contains(p.log.String(), "schema")
			t.Logf("the older one %s runs: %t, and says: %t", name, running(p), says)
			if !running(p) && !says {
				t.Errorf("the older one %s ended and does not say why: %s", name, tail(p.log.String()))
			}
		}
		s.calm(began)
		s.stopped(12 * time.Minute)
		s.check(2 * time.Minute)
	})
}

func running(p *process) bool {
	select {
	case <-p.waited:
		return false
	default:
		return true
	}
}
