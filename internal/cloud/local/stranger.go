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

// readTimeout bounds a read of a file that a session may have put there: its file system may be
// the session's own.
const readTimeout = 10 * time.Second

// limited runs something that a file system may hold up, until the context is over.
func limited[T any](ctx context.Context, run func() (T, error)) (T, error) {
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

// tree is a folder that a session's user writes, below a folder that is out of that user's reach.
// No link below the base is followed, because each folder on the way is opened by its name alone.
type tree struct {
	base, rel string
	// own is the user; nil: the user of this process.
	own *User
}

// below is a folder of the tree.
func (t tree) below(name string) tree { return tree{t.base, filepath.Join(t.rel, name), t.own} }

// path names a file of the tree, for whoever reads it as the session's user.
func (t tree) path(name string) string { return filepath.Join(t.base, t.rel, name) }

// openFolder opens the folder of the tree. The caller closes it.
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
		_ = unix.Close(fd) // it was only passed
		if err != nil {
			return -1, &fs.PathError{Op: "open", Path: t.path(""), Err: err}
		}
		fd = next
	}
	return fd, nil
}

// in runs something in the folder of the tree.
func (t tree) in(run func(folder int) error) error {
	fd, err := t.openFolder()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return run(fd)
}

// open opens a file of the tree as it is: no link, and without waiting for the other end of a pipe.
func (t tree) open(name string, flags int, mode uint32) (f *os.File, err error) {
	dir, file := path.Split(name)
	err = t.below(dir).in(func(folder int) error {
		fd, err := unix.Openat(folder, file, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
		if err != nil {
			return &fs.PathError{Op: "open", Path: t.path(name), Err: err}
		}
		f = os.NewFile(uintptr(fd), t.path(name))
		return nil
	})
	return f, err
}

// openRegular opens a regular file of the tree. fs.ErrNotExist: it is not there;
// session.ErrUnreadable: it is something else.
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
	return limited(ctx, func() ([]byte, error) {
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

// write puts a file of the session's user in place of whatever is there.
func (t tree) write(ctx context.Context, name string, data []byte) error {
	_, err := limited(ctx, func() (struct{}, error) {
		tmp := durable.Unfinished + rand.Text()
		return struct{}{}, t.in(func(folder int) error {
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
			err = t.give(f)
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

// give makes the session's user the owner of what this process has just made.
func (t tree) give(f *os.File) error {
	if t.own == nil {
		return nil
	}
	i, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, ok := ownerOf(i); ok && uid != os.Geteuid() && uid != int(t.own.UID) {
		return fmt.Errorf("%s is another user's", f.Name())
	}
	return f.Chown(int(t.own.UID), int(t.own.GID))
}

// mkdir makes a folder of the session's user. One that is there stays, if it is that user's.
func (t tree) mkdir(name string) error {
	return t.in(func(folder int) error {
		if err := unix.Mkdirat(folder, name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "mkdir", Path: t.path(name), Err: err}
		}
		fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: t.path(name), Err: err}
		}
		f := os.NewFile(uintptr(fd), t.path(name))
		return errors.Join(t.give(f), f.Close())
	})
}

// move moves a folder of the tree into another tree, under a new name.
func (t tree) move(name string, to tree, newName string) error {
	return t.in(func(from int) error {
		return to.in(func(folder int) error {
			if err := unix.Renameat(from, name, folder, newName); err != nil {
				return &os.LinkError{Op: "rename", Old: t.path(name), New: to.path(newName), Err: err}
			}
			return nil
		})
	})
}

// hasEntries says whether a folder of the tree has anything in it.
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

// RemoveTree removes a folder that a session of this process's user filled.
func RemoveTree(ctx context.Context, dir string) error { return removeTree(ctx, dir, nil) }

// removeTimeout bounds the removal of a folder that a session filled.
const removeTimeout = 20 * time.Second

// removeTree removes a folder that a session filled, as the session's user: rm(1) takes folders in
// one another however deep they are, follows no link, and what it may do its user might. The
// folder's own name is in one that this process owns.
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
		own.as(c)
		_ = c.Run() // its last folder is not that user's to remove
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := os.Remove(dir); err == nil || own != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// controlFolder is the store of the documents of one session of this computer. Hosts write theirs
// into a folder of the session's user. The order is kept with the provider, out of the session's
// reach, and copied into that folder.
type controlFolder struct {
	p *Provider
	// session is its id, dir the folder of its documents.
	session string
	dir     tree
}

var _ session.ControlStore = (*controlFolder)(nil)

// Control returns the store of the documents of a session, where that is a folder of this computer.
func (p *Provider) Control(s *session.Session) (session.ControlStore, bool) {
	dir, ok := folderOf(s.ControlPrefix)
	if !ok || s.Provider != CloudName || s.ID == "" || s.ID != filepath.Base(s.ID) {
		return nil, false
	}
	at := tree{base: dir}
	// Where its user is not known any more, what is there is only read.
	if own, err := p.other(s.RunAs); own != nil || err != nil {
		at = tree{base: p.o.Sessions, rel: filepath.Join(s.ID, controlName), own: own}
	}
	return &controlFolder{p: p, session: s.ID, dir: at}, true
}

// controlName is the name of the folder of a session's documents.
const controlName = "control"

// folderOf is the folder that an address names; false where it names none.
func folderOf(at string) (string, bool) {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "file" || u.Host != "" || !filepath.IsAbs(u.Path) {
		return "", false
	}
	return filepath.FromSlash(u.Path), true
}

// orderPath is where the order of a session is kept.
func (p *Provider) orderPath(sessionID string) string {
	return filepath.Join(p.ordersDir(), sessionID+".json")
}

func (p *Provider) ordersDir() string { return filepath.Join(p.o.Dir, "orders") }

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
	data, err := os.ReadFile(c.p.orderPath(c.session))
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint.Object{}, checkpoint.ErrNotFound
	}
	if err != nil {
		return checkpoint.Object{}, err
	}
	// The copy is the session's to change. It is put right at each look.
	if copied, err := c.dir.read(ctx, key, limit); err != nil || string(copied) != string(data) {
		_ = c.copyOrder(ctx, data) // a session whose folder takes no order hears none
	}
	return checkpoint.Object{Data: data, Version: versionOf(data)}, nil
}

// copyOrder puts the order where the hosts of the session read it.
func (c *controlFolder) copyOrder(ctx context.Context, data []byte) error {
	if c.dir.own == nil && c.dir.rel == "" {
		if err := os.MkdirAll(c.dir.base, 0o700); err != nil {
			return err
		}
	}
	return c.dir.write(ctx, session.OrderFile, data)
}

// Replace implements session.ControlStore, for the order alone.
func (c *controlFolder) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	if key != session.OrderFile {
		return "", fmt.Errorf("write %s: a keeper writes orders alone", key)
	}
	unlock, err := c.p.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	now := ""
	switch old, err := os.ReadFile(c.p.orderPath(c.session)); {
	case err == nil:
		now = versionOf(old)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if now != version {
		return "", checkpoint.ErrConflict
	}
	if err := os.MkdirAll(c.p.ordersDir(), 0o700); err != nil {
		return "", err
	}
	if err := durable.ReplaceBytes(c.p.orderPath(c.session), 0o600, data); err != nil {
		return "", err
	}
	_ = c.copyOrder(ctx, data) // tried again at the next look
	return versionOf(data), nil
}

// ordered is the order that the keeper gave last; false where there is none.
func (m *machine) ordered() (session.Order, bool) {
	var o session.Order
	there, err := readJSON(filepath.Join(filepath.Dir(filepath.Dir(m.dir)), "orders", m.Session+".json"), &o)
	return o, err == nil && there && o.Session == m.Session
}

// readJSON reads a document that a session wrote; false where it is not there.
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
