package local

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/session"
)

// readTimeout bounds a read of a session's file, whose file system the session may control.
const readTimeout = 10 * time.Second

// runWithTimeout runs a function that a file system may block, until the context ends.
func runWithTimeout[T any](ctx context.Context, run func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := run()
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// tree is a folder that a session's user writes, below a base that the user cannot change. Each
// component below the base is opened without following links.
type tree struct {
	base, rel string
	// user is its owner; nil means the user of this process.
	user *User
}

// below returns a subfolder of the tree.
func (t tree) below(name string) tree { return tree{t.base, filepath.Join(t.rel, name), t.user} }

// path returns the path of a file, for readers that run as the session's user.
func (t tree) path(name string) string { return filepath.Join(t.base, t.rel, name) }

// openFolder opens the folder of the tree for the caller to close.
func (t tree) openFolder() (int, error) {
	fd, err := unix.Open(t.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: t.base, Err: err}
	}
	for _, name := range strings.Split(filepath.ToSlash(filepath.Clean(t.rel)), "/") {
		if name == "." || name == "" {
			continue
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd) // only traversed
		if err != nil {
			return -1, &fs.PathError{Op: "open", Path: t.path(""), Err: err}
		}
		fd = next
	}
	return fd, nil
}

// withFolder runs a function with the open folder of the tree.
func (t tree) withFolder(run func(folder int) error) error {
	fd, err := t.openFolder()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return run(fd)
}

// open opens a file without following links or blocking on pipes.
func (t tree) open(name string, flags int, mode uint32) (f *os.File, err error) {
	dir, file := path.Split(name)
	err = t.below(dir).withFolder(func(folder int) error {
		fd, err := unix.Openat(folder, file, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
		if err != nil {
			return &fs.PathError{Op: "open", Path: t.path(name), Err: err}
		}
		f = os.NewFile(uintptr(fd), t.path(name))
		return nil
	})
	return f, err
}

// openRegular opens a regular file: fs.ErrNotExist if it does not exist, session.ErrUnreadable if
// it is something else.
func (t tree) openRegular(name string, flags int, mode uint32) (*os.File, error) {
	f, err := t.open(name, flags, mode)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", session.ErrUnreadable, err)
		}
		return nil, err
	}
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is no file: %w", t.path(name), session.ErrUnreadable)
	}
	return f, nil
}

// read reads a regular file of at most limit bytes.
func (t tree) read(ctx context.Context, name string, limit int64) ([]byte, error) {
	return runWithTimeout(ctx, func() ([]byte, error) {
		f, err := t.openRegular(name, unix.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, limit+1))
		if err == nil && int64(len(data)) > limit {
			err = fmt.Errorf("%s has more than %d bytes: %w", t.path(name), limit, session.ErrUnreadable)
		}
		return data, err
	})
}

// write replaces whatever has the name by a file of the session's user.
func (t tree) write(ctx context.Context, name string, data []byte) error {
	_, err := runWithTimeout(ctx, func() (struct{}, error) {
		tmp := durable.Unfinished + rand.Text()
		return struct{}{}, t.withFolder(func(folder int) error {
			fd, err := unix.Openat(
				folder,
				tmp,
				unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
				0o600,
			)
			if err != nil {
				return &fs.PathError{Op: "create", Path: t.path(tmp), Err: err}
			}
			f := os.NewFile(uintptr(fd), t.path(tmp))
			err = t.chown(f)
			if err == nil {
				_, err = f.Write(data)
			}
			if err = errors.Join(err, f.Close()); err == nil {
				err = unix.Renameat(folder, tmp, folder, name)
			}
			if err != nil {
				err = errors.Join(err, unix.Unlinkat(folder, tmp, 0))
			}
			return err
		})
	})
	return err
}

// chown gives a newly created file to the session's user.
func (t tree) chown(f *os.File) error {
	if t.user == nil {
		return nil
	}
	i, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, ok := ownerOf(i); ok && uid != os.Geteuid() && uid != int(t.user.UID) {
		return fmt.Errorf("%s is another user's", f.Name())
	}
	return f.Chown(int(t.user.UID), int(t.user.GID))
}

// mkdir creates a folder of the session's user, or accepts one that the user owns.
func (t tree) mkdir(name string) error {
	return t.withFolder(func(folder int) error {
		if err := unix.Mkdirat(folder, name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "mkdir", Path: t.path(name), Err: err}
		}
		fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: t.path(name), Err: err}
		}
		f := os.NewFile(uintptr(fd), t.path(name))
		return errors.Join(t.chown(f), f.Close())
	})
}

// move moves a folder of the tree into another tree under a new name.
func (t tree) move(name string, to tree, newName string) error {
	return t.withFolder(func(from int) error {
		return to.withFolder(func(folder int) error {
			if err := unix.Renameat(from, name, folder, newName); err != nil {
				return &os.LinkError{Op: "rename", Old: t.path(name), New: to.path(newName), Err: err}
			}
			return nil
		})
	})
}

// hasEntries reports whether a folder of the tree is not empty.
func (t tree) hasEntries(name string) bool {
	fd, err := t.below(name).openFolder()
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), t.path(name))
	defer f.Close()
	names, err := f.Readdirnames(1)
	return err == nil && len(names) > 0
}

// RemoveTree removes a folder filled by a session of the current user.
func RemoveTree(ctx context.Context, dir string) error { return removeTree(ctx, dir, nil) }

// removeTimeout bounds the removal of a session's folder.
const removeTimeout = 20 * time.Second

// removeTree removes a session's folder as the session's user with rm(1), which handles any depth,
// follows no links and has only that user's rights. The folder's own entry belongs to this process.
func removeTree(ctx context.Context, dir string, own *User) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	i, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !i.IsDir() {
		return errors.Join(err, os.Remove(dir))
	}
	if rm, err := exec.LookPath("rm"); err == nil {
		c := exec.CommandContext(ctx, rm, "-rf", "--", dir)
		c.Dir, c.Env = "/", []string{"PATH=" + standardPath}
		own.applyTo(c)
		_ = c.Run() // its last folder is not the user's to remove
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := os.Remove(dir); err == nil || own != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// controlFolder is the document store of a local session. Hosts write to a folder of the session's
// user. The provider keeps the order out of the session's reach and copies it into that folder.
type controlFolder struct {
	provider *Provider
	// session is the session id, dir the folder of its documents.
	session string
	dir     tree
}

var _ session.ControlStore = (*controlFolder)(nil)

// Control returns the document store of a session, if that is a local folder.
func (p *Provider) Control(s *session.Session) (session.ControlStore, bool) {
	dir, ok := fileURLPath(s.ControlPrefix)
	if !ok || s.Provider != CloudName || s.ID == "" || s.ID != filepath.Base(s.ID) {
		return nil, false
	}
	at := tree{base: dir}
	// If its user is unknown now, the documents are only read.
	if own, err := p.otherUser(s.RunAs); own != nil || err != nil {
		at = tree{base: p.options.Sessions, rel: filepath.Join(s.ID, controlName), user: own}
	}
	return &controlFolder{provider: p, session: s.ID, dir: at}, true
}

// controlName is the name of the folder of a session's documents.
const controlName = "control"

// fileURLPath returns the path of a file URL; false if it is none.
func fileURLPath(at string) (string, bool) {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "file" || u.Host != "" || !filepath.IsAbs(u.Path) {
		return "", false
	}
	return filepath.FromSlash(u.Path), true
}

// orderPath returns the path of a session's order.
func (p *Provider) orderPath(sessionID string) string {
	return filepath.Join(p.ordersDir(), sessionID+".json")
}

func (p *Provider) ordersDir() string { return filepath.Join(p.options.Dir, "orders") }

func versionOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Get implements session.ControlStore.
func (c *controlFolder) Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error) {
	if key != session.OrderFile {
		data, err := c.dir.read(ctx, key, limit)
		if errors.Is(err, fs.ErrNotExist) {
			err = checkpoint.ErrNotFound
		}
		if err != nil {
			return checkpoint.Object{}, err
		}
		return checkpoint.Object{Data: data, Version: versionOf(data)}, nil
	}
	data, err := os.ReadFile(c.provider.orderPath(c.session))
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint.Object{}, checkpoint.ErrNotFound
	}
	if err != nil {
		return checkpoint.Object{}, err
	}
	// The session can change the copy, so every read restores it.
	if copied, err := c.dir.read(ctx, key, limit); err != nil || string(copied) != string(data) {
		_ = c.copyOrder(ctx, data) // without a usable folder the session gets no orders
	}
	return checkpoint.Object{Data: data, Version: versionOf(data)}, nil
}

// copyOrder writes the order to the folder that the session's hosts read.
func (c *controlFolder) copyOrder(ctx context.Context, data []byte) error {
	if c.dir.user == nil && c.dir.rel == "" {
		if err := os.MkdirAll(c.dir.base, 0o700); err != nil {
			return err
		}
	}
	return c.dir.write(ctx, session.OrderFile, data)
}

// Replace implements session.ControlStore, for the order only.
func (c *controlFolder) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	if key != session.OrderFile {
		return "", fmt.Errorf("write %s: a keeper writes orders alone", key)
	}
	unlock, err := c.provider.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	now := ""
	switch old, err := os.ReadFile(c.provider.orderPath(c.session)); {
	case err == nil:
		now = versionOf(old)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if now != version {
		return "", checkpoint.ErrConflict
	}
	if err := os.MkdirAll(c.provider.ordersDir(), 0o700); err != nil {
		return "", err
	}
	if err := durable.ReplaceBytes(c.provider.orderPath(c.session), 0o600, data); err != nil {
		return "", err
	}
	_ = c.copyOrder(ctx, data) // the next read tries again
	return versionOf(data), nil
}

// lastOrder returns the keeper's last order; false if there is none.
func (m *machine) lastOrder() (session.Order, bool) {
	var o session.Order
	there, err := readJSON(filepath.Join(filepath.Dir(filepath.Dir(m.dir)), "orders", m.Session+".json"), &o)
	return o, err == nil && there && o.Session == m.Session
}

// readJSON reads a document written by a session; false if it does not exist.
func (t tree) readJSON(ctx context.Context, name string, limit int64, v any) (bool, error) {
	data, err := t.read(ctx, name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", t.path(name), err)
	}
	return true, nil
}
