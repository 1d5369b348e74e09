package connect

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

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/session"
)

// NewOneShotName returns a unique name for a one-shot run.
func NewOneShotName() (string, error) {
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	return "ci-" + hex.EncodeToString(random), nil
}

// OneShotTimeout returns the time between a one-shot request and the end of its command: the given
// timeout, else the lease without the time to drain.
func OneShotTimeout(s session.Session, timeout time.Duration) time.Duration {
	if timeout > 0 {
		return timeout
	}
	lease := s.LeaseUntil.Sub(s.RequestedAt)
	return lease - min(sessions.DrainTimeout, lease/4)
}

// joinTimeout bounds the wait until Systems Manager reaches a ready machine.
const joinTimeout = 5 * time.Minute

// UseFirstMachine passes a session's first machine to use. Messages for people go to errs.
func UseFirstMachine(ctx context.Context, a *sessions.Sessions, name string, environ []string, errs io.Writer,
	use func(context.Context, *Machine) error) error {
	_, err := Connect(ctx, a, Options{
		Name: name, UseMachine: use, Environ: environ, Err: errs, JoinTimeout: joinTimeout,
	})
	return err
}

// CopyIn copies a folder's content to the work folder, except the slash-separated paths that skip
// selects.
func (m *Machine) CopyIn(ctx context.Context, dir string, skip func(rel string) bool) error {
	return m.copyAndReport(ctx, CopyPaths{From: dir, To: ":", Exact: true, Skip: skip})
}

// CopyOut copies paths of the work folder to a local folder. It returns missing paths and those
// left out: links leading out of the folder, devices and sockets.
func (m *Machine) CopyOut(ctx context.Context, paths []string, dir string) (missing, left []string, err error) {
	for _, p := range paths {
		out, err := m.copy(ctx, CopyPaths{
			From: ":" + path.Clean(p), To: filepath.Join(dir, filepath.FromSlash(p)), Exact: true,
		})
		for _, name := range out { // by its name in the target folder
			left = append(left, path.Join(path.Dir(path.Clean(p)), filepath.ToSlash(name)))
		}
		var none missingPathError
		switch {
		case errors.As(err, &none):
			missing = append(missing, p)
		case err != nil:
			return missing, left, err
		}
	}
	return missing, left, nil
}

// resolveFolder returns the absolute path of a folder without symbolic links.
func resolveFolder(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// SkipPatterns returns a function that selects the paths of a checkout to skip: those whose path or
// last element matches a pattern, and the state folder, which holds the local machine.
func SkipPatterns(a *sessions.Sessions, dir string, patterns []string) (func(rel string) bool, error) {
	for _, p := range patterns {
		if _, err := path.Match(p, "x"); err != nil {
			return nil, runtime.Invalid("--exclude %q: %w", p, err)
		}
	}
	own := ""
	if a.Config.DataDir != "" {
		from, err := resolveFolder(dir)
		if err != nil {
			return nil, err
		}
		state, err := resolveFolder(a.Request.Path(a.Config.DataDir))
		if err != nil {
			return nil, err
		}
		if rel, err := filepath.Rel(from, state); err == nil && filepath.IsLocal(rel) {
			own = filepath.ToSlash(rel)
		}
		if own == "." {
			return nil, runtime.Invalid("--checkout %s: it is the data directory, in which the machine is", dir)
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
