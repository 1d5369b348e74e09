package daemon

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
func (a *Sessions) CopyIn(ctx context.Context, name, dir string, skip func(rel string) bool, environ []string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out, in := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(ctx, dir, skip, in)
		in.CloseWithError(err)
		packed <- err
	}()
	var said bytes.Buffer
	code, err := a.Connect(ctx, ConnectOptions{Name: name, Command: []string{"tar", "-xf", "-"}, Environ: environ, In: out, Out: io.Discard, Err: &said, Drain: time.Second})
	out.CloseWithError(errors.New("the machine takes no more"))
	if perr := <-packed; perr != nil && err == nil && code == 0 {
		err = perr
	}
	if err == nil && code != 0 {
		err = fmt.Errorf("tar on the machine ended with exit code %d: %.300s", code, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return fmt.Errorf("copy %s to session %s: %w", dir, name, err)
	}
	return nil
}

// pack writes the content of a folder as a tar archive: folders, files and links.
func pack(ctx context.Context, dir string, skip func(rel string) bool, to io.Writer) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case p == dir:
			return nil
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if skip != nil && skip(rel) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = os.Readlink(p); err != nil {
				return err
			}
		case !info.IsDir() && !info.Mode().IsRegular():
			return nil // a socket or a device is no part of a checkout
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname = rel, 0, 0, "", ""
		if info.IsDir() {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := io.CopyN(w, f, h.Size); err != nil {
			return fmt.Errorf("read %s, which changes meanwhile: %w", rel, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// CopyOut copies files and folders of the work folder of a session's first machine to a
// folder, and says which of them are not there.
func (a *Sessions) CopyOut(ctx context.Context, name string, paths []string, dir string, environ []string) (missing []string, err error) {
	for _, p := range paths {
		if !filepath.IsLocal(filepath.FromSlash(p)) {
			return missing, invalid("--artifacts %q: it is a path in the work folder", p)
		}
		there, err := a.copyOut(ctx, name, path.Clean(p), dir, environ)
		if err != nil {
			return missing, fmt.Errorf("copy %s from session %s: %w", p, name, err)
		}
		if !there {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// notThere is the exit code of a machine that does not have what is wanted.
const notThere = 44

func (a *Sessions) copyOut(ctx context.Context, name, p, dir string, environ []string) (there bool, err error) {
	out, in := io.Pipe()
	took := make(chan error, 1)
	go func() {
		err := unpack(dir, out)
		if err == nil { // what follows the archive is padding
			_, err = io.Copy(io.Discard, out)
		}
		out.CloseWithError(err)
		took <- err
	}()
	var said bytes.Buffer
	code, err := a.Connect(ctx, ConnectOptions{Name: name, Command: []string{"sh", "-c", fmt.Sprintf(`[ -e "$1" ] || [ -L "$1" ] || exit %d; exec tar -cf - -- "$1"`, notThere), "sh", p}, Environ: environ, Out: in, Err: &said, Drain: time.Second})
	in.Close()
	terr := <-took
	switch {
	case err != nil:
		return false, err
	case code == notThere:
		return false, nil
	case code != 0:
		return false, fmt.Errorf("tar on the machine ended with exit code %d: %.300s", code, strings.TrimSpace(said.String()))
	}
	return terr == nil, terr
}

// unpack writes what is in a tar archive below a folder, and nothing outside of it, whatever
// the archive says.
func unpack(dir string, from io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return fmt.Errorf("%q is not below the folder", h.Name)
		}
		if name == "." {
			continue
		}
		if err := unpackOne(root, name, h, r); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
}

func unpackOne(root *os.Root, name string, h *tar.Header, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeReg:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm()&0o755|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		if !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname)) || path.IsAbs(h.Linkname) {
			return fmt.Errorf("it is a link to %q, outside of the folder", h.Linkname)
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(h.Linkname, name)
	}
	return nil // devices and the like are no artifacts
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
