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

// OnceName is a name that no other run has.
func OnceName() (string, error) {
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	return "ci-" + hex.EncodeToString(random), nil
}

// OnceTimeout is how long a one-shot session may take, from its request to the end of its
// command: what was asked for, else what the lease leaves.
func OnceTimeout(s session.Session, timeout time.Duration) time.Duration {
	if timeout > 0 {
		return timeout
	}
	lease := s.LeaseUntil.Sub(s.RequestedAt)
	return lease - min(sessions.DrainTimeout, lease/4)
}

// joinTimeout is how long a machine is waited for that is ready and that Systems Manager does not
// reach yet.
const joinTimeout = 5 * time.Minute

// Enter reaches the first machine of a session for as long as use takes. Lines for people go to
// errs.
func Enter(ctx context.Context, a *sessions.Sessions, name string, environ []string, errs io.Writer,
	use func(context.Context, *Machine) error) error {
	_, err := Connect(ctx, a, Options{Name: name, Use: use, Environ: environ, Err: errs, Patience: joinTimeout})
	return err
}

// CopyIn copies the content of a folder to the work folder. What skip says of a path below the
// folder, with slashes, is left out.
func (m *Machine) CopyIn(ctx context.Context, dir string, skip func(rel string) bool) error {
	return m.copied(ctx, CopyPaths{From: dir, To: ":", Exactly: true, Skip: skip})
}

// CopyOut copies files and folders of the work folder to a folder. It says which of them are not
// there, and which paths of what came were left out: links that lead out of the folder, devices,
// sockets.
func (m *Machine) CopyOut(ctx context.Context, paths []string, dir string) (missing, left []string, err error) {
	for _, p := range paths {
		out, err := m.copy(ctx, CopyPaths{
			From: ":" + path.Clean(p), To: filepath.Join(dir, filepath.FromSlash(p)), Exactly: true,
		})
		for _, name := range out { // by its name in the folder that it was to be written to
			left = append(left, path.Join(path.Dir(path.Clean(p)), filepath.ToSlash(name)))
		}
		var none notThereError
		switch {
		case errors.As(err, &none):
			missing = append(missing, p)
		case err != nil:
			return missing, left, err
		}
	}
	return missing, left, nil
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
func Skip(a *sessions.Sessions, dir string, patterns []string) (func(rel string) bool, error) {
	for _, p := range patterns {
		if _, err := path.Match(p, "x"); err != nil {
			return nil, runtime.Invalid("--exclude %q: %w", p, err)
		}
	}
	own := ""
	if a.Config.DataDir != "" {
		from, err := actual(dir)
		if err != nil {
			return nil, err
		}
		state, err := actual(a.Request.Path(a.Config.DataDir))
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
