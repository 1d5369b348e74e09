//go:build unix

package scheduler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/wait"
	"github.com/curfew-dev/curfew/test/postgres"
)

// childVariable turns the test binary into a process of a service.
const childVariable = "CURFEW_SERVICE_CHILD"

// child holds the parameters of a test process.
type child struct {
	Options store.Options
	Log     string // receives its calls
	Sources []string
	TTL     time.Duration
}

// called is one call: its process, its fence, and the ladder's round.
type called struct {
	Source, Holder string
	Fence, Round   int64
	At             time.Time
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var c child
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			panic(err)
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := c.serve(ctx); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(postgres.Run(m))
}

// serve runs rounds of one call each, as acting rounds do: a write under the lease, a check of the
// lease, the call.
func (c child) serve(ctx context.Context) error {
	s, err := store.Open(ctx, c.Options)
	if err != nil {
		return err
	}
	defer s.Close()
	holder := fmt.Sprintf("%d", os.Getpid())
	out, err := os.OpenFile(c.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	v := New(Options{Leases: s.Leases(), Holder: holder, TTL: c.TTL, Now: time.Now, Log: quiet()})
	var sources []Source
	for _, name := range c.Sources {
		sources = append(sources, Source{Name: name, Every: func() time.Duration {
			return 300 * time.Millisecond
		}, Deadline: time.Minute,
			Open: func(_ context.Context, lease store.Lease) (Rounds, error) {
				return &calling{s, lease, holder, out}, nil
			}})
	}
	v.Set(sources)
	return v.Run(ctx)
}

type calling struct {
	s      *store.Store
	lease  store.Lease
	holder string
	out    *os.File
}

// Round implements Rounds.
func (c *calling) Round(ctx context.Context) (Outcome, error) {
	n, _, err := c.s.Under(c.lease).BeginRound(ctx, c.lease.Name, action.Clock{Wall: time.Now()})
	if err != nil {
		return Outcome{}, err
	}
	if err := wait.For(ctx, time.Duration(rand.IntN(30))*time.Millisecond); err != nil {
		return Outcome{}, err
	}
	if err := c.s.Leases().Holds(ctx, c.lease); err != nil {
		return Outcome{}, err
	}
	line, err := json.Marshal(called{c.lease.Name, c.holder, c.lease.Fence, n, time.Now()})
	if err == nil {
		_, err = c.out.Write(append(line, '\n')) // a single write, so that those of several processes do not mix
	}
	return Outcome{}, err
}

// calls reads the log of all processes in call order.
func calls(t *testing.T, path string) []called {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []called
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var c called
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// TestSurvivesKilledAndSuspendedProcesses shares four sources among three processes, which are
// killed and restarted, or suspended for longer than their leases and resumed. No call is made
// under a lease that another process has taken, no round is repeated, and after each kill every
// source is read within 15 s.
func TestSurvivesKilledAndSuspendedProcesses(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow runs it")
	}
	const ttl = 4 * time.Second
	for name, at := range map[string]func(t *testing.T) store.Options{
		"SQLite":     func(t *testing.T) store.Options { return store.Options{Dir: t.TempDir()} },
		"PostgreSQL": func(t *testing.T) store.Options { return store.Options{URL: postgres.Start(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			c := child{
				Options: at(t), Log: filepath.Join(t.TempDir(), "calls"),
				Sources: []string{"aws/1", "aws/2", "aws/3", "aws/4"},
				TTL:     ttl,
			}
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			start := func() *exec.Cmd {
				mu.Lock()
				defer mu.Unlock()
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
				cmd.Env, cmd.Stderr = append(os.Environ(), childVariable+"="+string(text)), os.Stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd
			}
			all := []*exec.Cmd{start(), start(), start()}
			defer func() {
				for _, p := range all {
					_ = p.Process.Kill()
					_ = p.Wait()
				}
			}()
			// every waits until each source was called after a time, and returns how long that
			// took.
			every := func(since time.Time) time.Duration {
				for time.Since(since) < time.Minute {
					seen := map[string]bool{}
					for _, x := range calls(t, c.Log) {
						if x.At.After(since) {
							seen[x.Source] = true
						}
					}
					if len(seen) == len(c.Sources) {
						break
					}
					time.Sleep(50 * time.Millisecond)
				}
				return time.Since(since)
			}
			every(time.Now())
			const kills = 20
			var worst, stopped time.Duration
			for i := range kills {
				victim := rand.IntN(len(all))
				if i%5 == 4 {
					if err := all[victim].Process.Signal(syscall.SIGSTOP); err != nil {
						t.Fatal(err)
					}
					stopped = max(stopped, every(time.Now()))
					time.Sleep(ttl)
					if err := all[victim].Process.Signal(syscall.SIGCONT); err != nil {
						t.Fatal(err)
					}
					continue
				}
				_ = all[victim].Process.Kill()
				killed := time.Now()
				_ = all[victim].Wait()
				all[victim] = start()
				worst = max(worst, every(killed))
			}
			if worst >= 15*time.Second {
				t.Errorf("a source was not read for %s after a kill", worst)
			}
			// A process that is suspended during a write holds its source until the database gives
			// up after 20 s.
			if stopped >= 40*time.Second {
				t.Errorf("a source was not read for %s after a stop", stopped)
			}
			fences, rounds := map[string]int64{}, map[string]bool{}
			made := calls(t, c.Log)
			for _, x := range made {
				if x.Fence < fences[x.Source] {
					t.Errorf("%s called for %s under fence %d after fence %d was used", x.Holder, x.Source,
						x.Fence, fences[x.Source])
				}
				fences[x.Source] = x.Fence
				if key := fmt.Sprint(x.Source, x.Round); rounds[key] {
					t.Errorf("round %d of %s was made twice", x.Round, x.Source)
				} else {
					rounds[key] = true
				}
			}
			t.Logf("%d calls; the longest time without one was %s after a kill and %s after a stop",
				len(made), worst, stopped)
		})
	}
}
