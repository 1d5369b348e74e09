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

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/session"
)

const (
	// keeperLock is the lock file of the keeper in the data directory, keeperLog its log file.
	keeperLock = "keeper.lock"
	keeperLog  = "keeper.log"
	// pollInterval is the time between lookups for new sessions, emptyTimeout how long a keeper
	// without sessions stays, and reconcileInterval the time between reconciliations.
	pollInterval      = 250 * time.Millisecond
	emptyTimeout      = 3 * time.Second
	reconcileInterval = time.Minute
	// maxLookInterval is the longest time between two passes over a session.
	maxLookInterval = 15 * time.Second
	// passTimeout bounds one pass over one session, reconcileTimeout the reconciliation of one
	// provider.
	passTimeout      = 5 * time.Minute
	reconcileTimeout = 5 * time.Minute
	// readTimeout bounds reading the sessions.
	readTimeout = time.Minute
)

// lockKeeper takes the keeper lock of a data directory; nil if another process holds it.
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

// Keep keeps all sessions until none is open, or with stay until the context ends. It returns at
// once if another process of the data directory keeps them.
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

// takeOverInterval is the time between a service's attempts to take the keeper lock.
const takeOverInterval = 5 * time.Second

// KeepServed keeps the sessions of a service as soon as no other process of the data directory
// does, with the current configuration.
func KeepServed(ctx context.Context, req *runtime.Request, log *slog.Logger, inForce func() *runtime.GovernedConfig) {
	for {
		if err := keepWithConfig(ctx, req, log, inForce); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "sessions are not kept", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(takeOverInterval):
		}
	}
}

// keepWithConfig keeps the sessions of a service until the context ends, switching to each new
// configuration. If one does not work, the previous one stays in use.
func keepWithConfig(ctx context.Context, req *runtime.Request, log *slog.Logger,
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
	a, err := OpenWithStore(ctx, req.Fresh(), by.Config, by.Decider, s)
	if err != nil {
		return err
	}
	for _, err := range checkUnixUsers(ctx, by.Config) {
		log.ErrorContext(ctx, "a Unix user of local.users starts no sessions", "error", err)
	}
	var refused *runtime.GovernedConfig
	var retryAt time.Time
	return a.keep(ctx, true, log, func(now time.Time) *Sessions {
		next := inForce()
		if next == by || next == refused && now.Before(retryAt) {
			return nil
		}
		a, err := OpenWithStore(ctx, req.Fresh(), next.Config, next.Decider, s)
		if err != nil {
			if next != refused && ctx.Err() == nil {
				log.ErrorContext(ctx, "sessions are kept by the configuration before", "error", err)
			}
			refused, retryAt = next, now.Add(takeOverInterval)
			return nil
		}
		by, refused = next, nil
		return a
	})
}

// keep runs passes over all sessions repeatedly. If set, newer returns the sessions under a newer
// configuration, or nil.
func (a *Sessions) keep(ctx context.Context, stay bool, log *slog.Logger, newer func(now time.Time) *Sessions) error {
	var mu sync.Mutex
	// By session: whether a pass runs, the time of the next pass, the record version of the last
	// pass, and whether its provider belongs to another process.
	busy, due, seenVersion, unreachable := map[string]bool{}, map[string]time.Time{}, map[string]int64{},
		map[string]bool{}
	// By provider: whether a reconciliation runs, and its last start.
	reconciling, reconciledAt := map[string]bool{}, map[string]time.Time{}
	var passes sync.WaitGroup
	defer passes.Wait()
	reconcileCtx, stopReconcile := context.WithCancel(ctx) // a hanging provider must not delay the end
	defer stopReconcile()
	jobs := newJobPasses()
	openCount := -1
	emptySince := time.Now() //nolint:forbidigo // how long this process rests
	for ctx.Err() == nil {
		now := time.Now() //nolint:forbidigo // the pace of this process
		if newer != nil {
			if next := newer(now); next != nil {
				a = next
			}
		}
		keeper := a.Keeper // running passes continue with theirs
		readCtx, cancelRead := context.WithTimeout(ctx, readTimeout)
		open, err := a.store.Sessions().Sessions(readCtx, session.Query{OpenOnly: true})
		held := a.checkHeldBack(readCtx, log, len(open) > 0)
		if err != nil {
			log.WarnContext(ctx, "the sessions could not be read", "error", err)
		}
		if err == nil && len(open) != openCount {
			openCount = len(open)
			if err := RemoveStaleEntries(readCtx, a); err != nil {
				log.WarnContext(ctx, "the SSH entries of sessions that are over are left", "error", err)
			}
		}
		cancelRead()
		kept := 0
		if !held {
			kept = jobs.start(ctx, a, now, &passes, log)
		}
		for _, s := range open {
			// poll it, but do not keep this process running for it
			pollOnly := s.UserLaunched && s.State != session.Ending
			if !s.UserLaunched && keeper.Launchers[s.Provider] == nil {
				continue
			}
			if held {
				kept++
				continue
			}
			mu.Lock()
			if !pollOnly && !unreachable[s.ID] {
				kept++
			}
			// A changed record gets a pass at once.
			skip := busy[s.ID] || now.Before(due[s.ID]) && seenVersion[s.ID] == s.Version
			if !skip {
				busy[s.ID], seenVersion[s.ID] = true, s.Version
			}
			mu.Unlock()
			if skip {
				continue
			}
			passes.Go(func() {
				passCtx, stop := context.WithTimeout(ctx, passTimeout)
				defer stop()
				reachable := keeper.Reachable(&s) // it may call the provider, so it is not called in the loop
				after, err := maxLookInterval, error(nil)
				if reachable {
					after, err = keeper.Keep(passCtx, s.ID)
				}
				if err != nil && ctx.Err() == nil {
					log.WarnContext(ctx, "a session could not be kept", "session", s.Name, "error", err)
					after = 5 * time.Second
				}
				if !pollOnly {
					after = min(after, maxLookInterval)
				}
				mu.Lock()
				defer mu.Unlock()
				busy[s.ID], unreachable[s.ID] = false, !reachable
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
				passCtx, stop := context.WithTimeout(reconcileCtx, reconcileTimeout)
				defer stop()
				if err := keeper.Reconcile(passCtx, provider); err != nil && reconcileCtx.Err() == nil {
					log.WarnContext(ctx, "machines and records could not be compared", "error", err)
				}
				if own, ok := keeper.Launchers[provider].(clouds.OwnMachine); ok {
					err := a.removeOldOutput(passCtx, own.OutputDir(), keeper.Now())
					if err != nil && reconcileCtx.Err() == nil {
						log.WarnContext(ctx, "old output could not be removed", "error", err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				reconciling[provider] = false
			})
		}
		if kept > 0 || err != nil {
			emptySince = now
		} else if !stay && now.Sub(emptySince) > emptyTimeout {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// checkHeldBack reports whether the database is older than its witness. Then it lacks recent
// extensions and ends, and would take newer machines for orphans.
func (a *Sessions) checkHeldBack(ctx context.Context, log *slog.Logger, keeps bool) bool {
	compare := a.store.Check
	if keeps {
		compare = func(ctx context.Context) error { return a.store.Compare(ctx, "") }
	}
	err := compare(ctx)
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != a.heldBackReason && why != "" && ctx.Err() == nil {
		log.WarnContext(ctx, "sessions are not kept", "error", err)
	}
	a.heldBackReason = why
	return err != nil
}

// WithConfigFlag adds this process's configuration file to the command line of another process.
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

// EnsureKeeper starts a keeper process in the background if none runs. It outlives this process and
// ends with the last session. A service on the data directory counts as a keeper.
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
	// The keeper outlives this command's context.
	c := exec.CommandContext(context.WithoutCancel(ctx), self, args...)
	c.Dir, c.Stdout, c.Stderr = "/", out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start the keeper of sessions: %w", err)
	}
	return c.Process.Release()
}
