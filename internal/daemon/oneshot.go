package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// drainFor is what is left of the lease of a one-shot session when its time is up: to copy
// what it made, and to end it.
const drainFor = 10 * time.Minute

// OnceName is a name that no other run has.
func OnceName() (string, error) {
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	return "ci-" + hex.EncodeToString(random), nil
}

// once makes a specification that of a one-shot session. It never ends at rest and saves
// nothing while it runs: it ends with its command, and what is wanted of it is copied. Its
// lease ends it where whoever started it is killed.
func once(sp *spec.Spec, timeout time.Duration) {
	if timeout > 0 {
		sp.Lease = timeout + drainFor
	}
	sp.Idle = sp.Lease
	work := spec.Work{Dir: session.DefaultWorkDir}
	if sp.Work != nil {
		work = *sp.Work
	}
	work.Every = sp.Lease
	sp.Work = &work
}

// OnceTimeout is how long a one-shot session may take, from its request to the end of its
// command: what was asked for, else what the lease leaves.
func OnceTimeout(s session.Session, timeout time.Duration) time.Duration {
	if timeout > 0 {
		return timeout
	}
	lease := s.LeaseUntil.Sub(s.RequestedAt)
	return lease - min(drainFor, lease/4)
}

// Withdraw takes a session back that the gate has not let pass.
func (a *Sessions) Withdraw(ctx context.Context, s session.Session, why string) error {
	if _, err := a.Keeper.Stop(ctx, s.ID, s.By, why, true); err != nil {
		return err
	}
	_, err := a.Keeper.Keep(ctx, s.ID)
	return err
}

// CopyIn copies the content of a folder to the work folder of a session's first machine. What
// skip says of a path below the folder, with slashes, is left out.
func (a *Sessions) CopyIn(ctx context.Context, name, dir string, skip func(rel string) bool, environ []string, errs io.Writer) error {
	_, err := a.Connect(ctx, ConnectOptions{Name: name, Copy: &CopyPaths{From: dir, To: ":", Exactly: true, Skip: skip}, Environ: environ, Err: errs})
	return err
}

// CopyOut copies files and folders of the work folder of a session's first machine to a
// folder, and says which of them are not there.
func (a *Sessions) CopyOut(ctx context.Context, name string, paths []string, dir string, environ []string, errs io.Writer) (missing []string, err error) {
	for _, p := range paths {
		if !filepath.IsLocal(filepath.FromSlash(p)) {
			return missing, invalid("--artifacts %q: it is a path in the work folder", p)
		}
		_, err := a.Connect(ctx, ConnectOptions{Name: name, Copy: &CopyPaths{From: ":" + path.Clean(p), To: filepath.Join(dir, filepath.FromSlash(p)), Exactly: true}, Environ: environ, Err: errs})
		var none notThereError
		switch {
		case errors.As(err, &none):
			missing = append(missing, p)
		case err != nil:
			return missing, err
		}
	}
	return missing, nil
}

// actual is a folder by its absolute path without links.
func actual(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// Skip says which paths of a checkout stay where they are: those that match a pattern, by the
// whole path or by their last part, and the folder of the state, in which the machine is.
func (a *Sessions) Skip(dir string, patterns []string) (func(rel string) bool, error) {
	for _, p := range patterns {
		if _, err := path.Match(p, "x"); err != nil {
			return nil, invalid("--exclude %q: %w", p, err)
		}
	}
	own := ""
	if a.cfg.DataDir != "" {
		from, err := actual(dir)
		if err != nil {
			return nil, err
		}
		state, err := actual(a.rt.Path(a.cfg.DataDir))
		if err != nil {
			return nil, err
		}
		if rel, err := filepath.Rel(from, state); err == nil && filepath.IsLocal(rel) {
			own = filepath.ToSlash(rel)
		}
		if own == "." {
			return nil, invalid("--checkout %s: it is the data directory, in which the machine is", dir)
		}
	}
	return func(rel string) bool {
		return rel == own || slices.ContainsFunc(patterns, func(p string) bool {
			p = strings.TrimSuffix(p, "/")
			whole, _ := path.Match(p, rel)
			last, _ := path.Match(p, path.Base(rel))
			return whole || last
		})
	}, nil
}
