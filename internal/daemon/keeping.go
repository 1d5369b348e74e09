package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/session"
)

const (
	// keeperLock is the file that a keeper holds locked, in the data directory, and keeperLog
	// what it writes.
	keeperLock = "keeper.lock"
	keeperLog  = "keeper.log"
	// keepPoll is how often a keeper looks for new sessions, restFor how long it stays when
	// there are none, and reconcileEvery how often it compares machines with records.
	keepPoll       = 250 * time.Millisecond
	restFor        = 3 * time.Second
	reconcileEvery = time.Minute
	// lookFor is the longest that a session is not looked at.
	lookFor = 15 * time.Second
	// keepFor bounds one pass over one session, reconcileFor the comparison of the machines
	// of one provider with the records.
	keepFor      = 5 * time.Minute
	reconcileFor = 5 * time.Minute
)

// lockKeeper takes the lock of the one keeper of a data directory; nil where another process
// has it.
func lockKeeper(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, keeperLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the keeper of sessions: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock the keeper of sessions: %w", err)
}

// KeepSessions keeps all sessions of the state until none is left that is not over. With
// stay it goes on until the context ends. It returns at once where another process of the
// same data directory does so already.
func (rt *Runtime) KeepSessions(ctx context.Context, stay bool) error {
	cfg, err := rt.Config()
	if err != nil {
		return err
	}
	lock, err := lockKeeper(cfg.DataDir)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	a, err := rt.OpenSessions(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.keep(ctx, stay, a.Keeper.Log, nil)
}

// takeOver is how often a service looks whether the keeper of its data directory has ended.
const takeOver = 5 * time.Second

// keepServed keeps the sessions of a service for as long as it runs, as soon as no other
// process of the data directory does, by the configuration that is in force.
func (rt *Runtime) keepServed(ctx context.Context, log *slog.Logger, inForce func() *governed) {
	for {
		if err := rt.keepInForce(ctx, log, inForce); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "sessions are not kept", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(takeOver):
		}
	}
}

// keepInForce keeps the sessions of a service until the context ends, and goes over to each
// configuration that comes into force. Where sessions cannot be kept by it, they are kept by the
// one before.
func (rt *Runtime) keepInForce(ctx context.Context, log *slog.Logger, inForce func() *governed) error {
	by := inForce()
	lock, err := lockKeeper(by.cfg.DataDir)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	s, err := rt.Open(ctx, by.cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	a, err := rt.For().sessions(ctx, by.cfg, by.by, s)
	if err != nil {
		return err
	}
	var refused *governed
	var again time.Time
	return a.keep(ctx, true, log, func(now time.Time) *Sessions {
		next := inForce()
		if next == by || next == refused && now.Before(again) {
			return nil
		}
		a, err := rt.For().sessions(ctx, next.cfg, next.by, s)
		if err != nil {
			if next != refused && ctx.Err() == nil {
				log.ErrorContext(ctx, "sessions are kept by the configuration before", "error", err)
			}
			refused, again = next, now.Add(takeOver)
			return nil
		}
		by, refused = next, nil
		return a
	})
}

// keep does what is missing of all sessions, again and again. Newer, where set, returns the
// sessions by a newer configuration; nil: there is none.
func (a *Sessions) keep(ctx context.Context, stay bool, log *slog.Logger, newer func(now time.Time) *Sessions) error {
	var mu sync.Mutex
	// By session: a pass runs; when the next one is; the record that the last one began with;
	// the provider is another process's.
	busy, due, seen, unreachable := map[string]bool{}, map[string]time.Time{}, map[string]int64{}, map[string]bool{}
	// By provider: its machines are being compared with the records; when that began.
	reconciling, reconciledAt := map[string]bool{}, map[string]time.Time{}
	var passes sync.WaitGroup
	defer passes.Wait()
	comparing, stopComparing := context.WithCancel(ctx) // a provider that hangs does not hold the end up
	defer stopComparing()
	were := -1
	empty := time.Now() //nolint:forbidigo // how long this process rests
	for ctx.Err() == nil {
		now := time.Now() //nolint:forbidigo // the pace of this process
		if newer != nil {
			if next := newer(now); next != nil {
				a = next
			}
		}
		keeper := a.Keeper // passes that are under way go on with theirs
		open, err := a.store.Sessions().Sessions(ctx, session.Query{Open: true})
		if err != nil {
			log.WarnContext(ctx, "the sessions could not be read", "error", err)
		}
		if err == nil && len(open) != were {
			were = len(open)
			if err := a.TidyEntries(ctx); err != nil {
				log.WarnContext(ctx, "the SSH entries of sessions that are over are left", "error", err)
			}
		}
		mine := 0
		for _, s := range open {
			rests := s.ByHand && s.State != session.Ending // looked at now and then; no reason to stay
			if !s.ByHand && keeper.Launchers[s.Provider] == nil {
				continue
			}
			mu.Lock()
			if !rests && !unreachable[s.ID] {
				mine++
			}
			// A record that was changed, by a command or by the pass itself, is looked at again at
			// once.
			skip := busy[s.ID] || now.Before(due[s.ID]) && seen[s.ID] == s.Version
			if !skip {
				busy[s.ID], seen[s.ID] = true, s.Version
			}
			mu.Unlock()
			if skip {
				continue
			}
			passes.Go(func() {
				bounded, stop := context.WithTimeout(ctx, keepFor)
				defer stop()
				isMine := keeper.Mine(&s) // it may ask the provider, so it is not asked in the loop
				after, err := lookFor, error(nil)
				if isMine {
					after, err = keeper.Keep(bounded, s.ID)
				}
				if err != nil && ctx.Err() == nil {
					log.WarnContext(ctx, "a session could not be kept", "session", s.Name, "error", err)
					after = 5 * time.Second
				}
				if !rests {
					after = min(after, lookFor)
				}
				mu.Lock()
				defer mu.Unlock()
				busy[s.ID], unreachable[s.ID], due[s.ID] = false, !isMine, time.Now().Add(after) //nolint:forbidigo // the pace of this process
			})
		}
		for provider := range keeper.Launchers {
			mu.Lock()
			skip := reconciling[provider] || now.Sub(reconciledAt[provider]) <= reconcileEvery
			if !skip {
				reconciling[provider], reconciledAt[provider] = true, now
			}
			mu.Unlock()
			if skip {
				continue
			}
			passes.Go(func() {
				bounded, stop := context.WithTimeout(comparing, reconcileFor)
				defer stop()
				if err := keeper.Reconcile(bounded, provider); err != nil && comparing.Err() == nil {
					log.WarnContext(ctx, "machines and records could not be compared", "error", err)
				}
				mu.Lock()
				defer mu.Unlock()
				reconciling[provider] = false
			})
		}
		if mine > 0 || err != nil {
			empty = now
		} else if !stay && now.Sub(empty) > restFor {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(keepPoll):
		}
	}
	return nil
}

// underConfig adds the configuration file of this process, where there is one, to the command
// line of another.
func (rt *Runtime) underConfig(args []string) ([]string, error) {
	file := rt.ConfigFlag
	if file == "" {
		file = config.Find(rt.Dir, rt.ConfigDir)
	}
	if file == "" {
		return args, nil
	}
	file, err := filepath.Abs(rt.Path(file))
	return append(args, "--config", file), err
}

// EnsureKeeper starts a keeper in the background where none runs: a process of its own, which
// goes on after this one and ends with the last session. A service on the same data directory
// is one as well.
func (a *Sessions) EnsureKeeper(ctx context.Context) error {
	lock, err := lockKeeper(a.cfg.DataDir)
	if err != nil || lock == nil {
		return err
	}
	lock.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the keeper of sessions: %w", err)
	}
	dir, err := filepath.Abs(a.rt.Path(a.cfg.DataDir))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(dir, keeperLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start the keeper of sessions: %w", err)
	}
	defer out.Close()
	args, err := a.rt.underConfig([]string{"session", "keep", "--data-dir", dir})
	if err != nil {
		return err
	}
	if a.cfg.DatabaseURL != "" {
		args = append(args, "--database-url", a.cfg.DatabaseURL)
	}
	// It is not bound to this command's context: it is to go on after it.
	c := exec.CommandContext(context.WithoutCancel(ctx), self, args...)
	c.Dir, c.Stdout, c.Stderr = "/", out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start the keeper of sessions: %w", err)
	}
	return c.Process.Release()
}
