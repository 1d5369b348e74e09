package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
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

// joinWithin is how long a machine is waited for that is ready and that Systems Manager does not
// reach yet.
const joinWithin = 5 * time.Minute

// Enter reaches the first machine of a session for as long as use takes. Lines for people go to
// errs.
func (a *Sessions) Enter(ctx context.Context, name string, environ []string, errs io.Writer, use func(context.Context, *Machine) error) error {
	_, err := a.Connect(ctx, ConnectOptions{Name: name, Use: use, Environ: environ, Err: errs, Patience: joinWithin})
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
		out, err := m.copy(ctx, CopyPaths{From: ":" + path.Clean(p), To: filepath.Join(dir, filepath.FromSlash(p)), Exactly: true})
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

// mayRun refuses a one-shot session whose command could not be given to it, before anything is
// started that costs money. The session is the one that was asked for before and waits for an
// approval; nil: there is none.
func (a *Sessions) mayRun(ctx context.Context, cloud string, before *session.Session) error {
	if cloud != ProviderAWS {
		return nil
	}
	if _, err := findPlugin(ctx); errors.Is(err, errNoPlugin) {
		return noPlugin("run a command at aws")
	} else if err != nil {
		return err
	}
	_, person, err := a.aws.account(ctx)
	if err != nil {
		return err
	}
	mine := func(owner string) bool { return !uniqueID.MatchString(owner) || owner == person }
	refuse := func(owner, hint string) error {
		return &Error{Class: Denied, Code: "not_yours", Err: fmt.Errorf("run a command at aws: the machine would be of %s, and these credentials are %s, which may not connect to it", owner, person), Hint: hint}
	}
	switch {
	case !mine(a.cfg.Sessions.Owner):
		return refuse(a.cfg.Sessions.Owner, "leave sessions.owner out, or use the credentials of that owner")
	case before != nil && before.Provider == cloud && !mine(before.Person):
		return refuse(before.Person, "use the same role session name at each try, or another --name")
	}
	return nil
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
