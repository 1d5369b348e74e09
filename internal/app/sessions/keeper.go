package sessions

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

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/session"
)

const (
	// keeperLock is the file that a keeper holds locked, in the data directory, and keeperLog
	// what it writes.
	keeperLock = "keeper.lock"
	keeperLog  = "keeper.log"
	// pollInterval is how often a keeper looks for new sessions, restFor how long it stays when
	// there are none, and reconcileInterval how often it compares machines with records.
	pollInterval      = 250 * time.Millisecond
	emptyTimeout      = 3 * time.Second
	reconcileInterval = time.Minute
	// maxLookInterval is the longest that a session is not looked at.
	maxLookInterval = 15 * time.Second
	// passTimeout bounds one pass over one session, reconcileFor the comparison of the machines
	// of one provider with the records.
	passTimeout  = 5 * time.Minute
	reconcileFor = 5 * time.Minute
	// readTimeout bounds the look for sessions.
	readTimeout = time.Minute
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

// Keep keeps all sessions of the state until none is left that is not over. With
// stay it goes on until the context ends. It returns at once where another process of the
// same data directory does so already.
func Keep(ctx context.Context, req *runtime.Request, stay bool) error {
	cfg, err := req.Config()
	if err != nil {
		return err
	}
	lock, err := lockKeeper(cfg.DataDir)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	a, err := Open(ctx, req)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.keep(ctx, stay, a.Keeper.Log, nil)
}

// takeOverInterval is how often a service looks whether the keeper of its data directory has ended.
const takeOverInterval = 5 * time.Second

// KeepServed keeps the sessions of a service for as long as it runs, as soon as no other
// process of the data directory does, by the configuration that is in force.
func KeepServed(ctx context.Context, req *runtime.Request, log *slog.Logger, inForce func() *runtime.GovernedConfig) {
	for {
		if err := keepInForce(ctx, req, log, inForce); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "sessions are not kept", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(takeOverInterval):
		}
	}
}

// keepInForce keeps the sessions of a service until the context ends, and goes over to each
// configuration that comes into force. Where sessions cannot be kept by it, they are kept by the
// one before.
func keepInForce(ctx context.Context, req *runtime.Request, log *slog.Logger,
	inForce func() *runtime.GovernedConfig) error {
	by := inForce()
	lock, err := lockKeeper(by.Config.DataDir)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	s, err := req.Open(ctx, by.Config)
	if err != nil {
		return err
	}
	defer s.Close()
	a, err := OpenIn(ctx, req.Fresh(), by.Config, by.Decider, s)
	if err != nil {
		return err
	}
	for _, err := range checkUsers(ctx, by.Config) {
		log.ErrorContext(ctx, "a Unix user of local.users starts no sessions", "error", err)
	}
	var refused *runtime.GovernedConfig
	var again time.Time
	return a.keep(ctx, true, log, func(now time.Time) *Sessions {
		next := inForce()
		if next == by || next == refused && now.Before(again) {
			return nil
		}
		a, err := OpenIn(ctx, req.Fresh(), next.Config, next.Decider, s)
		if err != nil {
			if next != refused && ctx.Err() == nil {
				log.ErrorContext(ctx, "sessions are kept by the configuration before", "error", err)
			}
			refused, again = next, now.Add(takeOverInterval)
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
		reading, read := context.WithTimeout(ctx, readTimeout)
		open, err := a.store.Sessions().Sessions(reading, session.Query{OpenOnly: true})
		held := a.heldBack(reading, log, len(open) > 0)
		if err != nil {
			log.WarnContext(ctx, "the sessions could not be read", "error", err)
		}
		if err == nil && len(open) != were {
			were = len(open)
			if err := TidyEntries(reading, a); err != nil {
				log.WarnContext(ctx, "the SSH entries of sessions that are over are left", "error", err)
			}
		}
		read()
		mine := 0
		for _, s := range open {
			rests := s.UserLaunched && s.State != session.Ending // looked at now and then; no reason to stay
			if !s.UserLaunched && keeper.Launchers[s.Provider] == nil {
				continue
			}
			if held {
				mine++
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
				bounded, stop := context.WithTimeout(ctx, passTimeout)
				defer stop()
				isMine := keeper.Reachable(&s) // it may ask the provider, so it is not asked in the loop
				after, err := maxLookInterval, error(nil)
				if isMine {
					after, err = keeper.Keep(bounded, s.ID)
				}
				if err != nil && ctx.Err() == nil {
					log.WarnContext(ctx, "a session could not be kept", "session", s.Name, "error", err)
					after = 5 * time.Second
				}
				if !rests {
					after = min(after, maxLookInterval)
				}
				mu.Lock()
				defer mu.Unlock()
				busy[s.ID], unreachable[s.ID] = false, !isMine
				due[s.ID] = time.Now().Add(after) //nolint:forbidigo // the pace of this process
			})
		}
		for provider := range keeper.Launchers {
			mu.Lock()
			skip := held || reconciling[provider] || now.Sub(reconciledAt[provider]) <= reconcileInterval
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
		} else if !stay && now.Sub(empty) > emptyTimeout {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// heldBack says whether the state is older than its witness. It does not know then what was
// extended, saved or ended since, and takes machines that were launched since for orphans.
func (a *Sessions) heldBack(ctx context.Context, log *slog.Logger, keeps bool) bool {
	compare := a.store.Check
	if keeps {
		compare = func(ctx context.Context) error { return a.store.Compare(ctx, "") }
	}
	err := compare(ctx)
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != a.heldBackBy && why != "" && ctx.Err() == nil {
		log.WarnContext(ctx, "sessions are not kept", "error", err)
	}
	a.heldBackBy = why
	return err != nil
}

// WithConfigFlag adds the configuration file of this process, where there is one, to the command
// line of another.
func WithConfigFlag(req *runtime.Request, args []string) ([]string, error) {
	file := req.ConfigFlag
	if file == "" {
		file = config.Find(req.Dir, req.ConfigDir)
	}
	if file == "" {
		return args, nil
	}
	file, err := filepath.Abs(req.Path(file))
	return append(args, "--config", file), err
}

// EnsureKeeper starts a keeper in the background where none runs: a process of its own, which
// goes on after this one and ends with the last session. A service on the same data directory
// is one as well.
func (a *Sessions) EnsureKeeper(ctx context.Context) error {
	lock, err := lockKeeper(a.Config.DataDir)
	if err != nil || lock == nil {
		return err
	}
	lock.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the keeper of sessions: %w", err)
	}
	dir, err := filepath.Abs(a.Request.Path(a.Config.DataDir))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(dir, keeperLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start the keeper of sessions: %w", err)
	}
	defer out.Close()
	args, err := WithConfigFlag(a.Request, []string{"session", "keep", "--data-dir", dir})
	if err != nil {
		return err
	}
	if a.Config.DatabaseURL != "" {
		args = append(args, "--database-url", a.Config.DatabaseURL)
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
