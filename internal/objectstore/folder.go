package objectstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/trust"
)

// folder is a store in a folder. Files are written under a temporary name and synced; a
// hard link, which fails where the name is taken, creates an object, and a rename under a
// lock replaces one.
//
// Only its owner can use it: files have the mode 0600 and folders 0700. A folder that
// another user owns, can write or can replace is refused, and no link in it is followed.
type folder struct {
	root  string
	limit *rate.Limiter
}

func newFolder(root string, o Options) *folder { return &folder{root, limiter(o.Bandwidth)} }

// Conditional reports whether writes that conflict are refused: by links and locks, above.
func (f *folder) Conditional() bool { return true }

const (
	// unfinished begins the names of files that are being written.
	unfinished = ".tmp-"
	lockName   = ".lock"

	fileMode   fs.FileMode = 0o600
	folderMode fs.FileMode = 0o700
)

// open opens the folder for reading. It returns fs.ErrNotExist if there is none.
func (f *folder) open() (*os.Root, error) {
	dir, err := trust.OpenDir(f.root, 0, nil)
	return dir, explained(err)
}

// make opens the folder for writing, and makes it if there is none.
func (f *folder) make() (*os.Root, error) {
	dir, err := trust.OpenDir(f.root, folderMode, durable.Sync)
	if err != nil {
		return nil, explained(err)
	}
	// The folder of a run that an earlier version saved lets others read. One without a run
	// may be shared for other reasons.
	if _, err := dir.Lstat(checkpoint.HeadKey); err == nil {
		if err := tighten(dir); err != nil {
			return nil, errors.Join(err, dir.Close())
		}
	}
	return dir, nil
}

// full marks the error of a disk without space, or of a user without quota.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", checkpoint.ErrFull, err)
	}
	return err
}

// explained adds the remedy to an error about a folder that cannot be trusted.
func explained(err error) error {
	var e *trust.Error
	if errors.As(err, &e) {
		return fmt.Errorf(
			"the store is not used: %w; `chmod go-w` your directories, or choose a folder that only you and "+
				"root can write or rename", err)
	}
	return err
}

// tighten takes a folder's access from others.
func tighten(dir *os.Root) error {
	st, err := dir.Stat(".")
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || int(sys.Uid) != os.Getuid() || st.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return dir.Chmod(".", folderMode)
}

// enter opens the folder below dir that an object is in, and returns the object's name there.
// A mode makes folders that do not exist.
func enter(dir *os.Root, key string, mode fs.FileMode) (*os.Root, string, error) {
	if !fs.ValidPath(key) || key == "." || strings.ContainsRune(key, 0) {
		return nil, "", fmt.Errorf("%q is no key of an object", key)
	}
	names := strings.Split(key, "/")
	at, err := dir.OpenRoot(".")
	for _, name := range names[:len(names)-1] {
		if err != nil {
			return nil, "", err
		}
		var next *os.Root
		next, err = enterOne(at, name, mode)
		_ = at.Close() // nothing was written through it
		at = next
	}
	return at, names[len(names)-1], err
}

// enterOne opens one folder.
func enterOne(in *os.Root, name string, mode fs.FileMode) (*os.Root, error) {
	next, err := trust.OpenIn(in, name)
	if errors.Is(err, fs.ErrNotExist) && mode != 0 {
		if err = in.Mkdir(name, mode); err == nil {
			err = syncNames(in)
		}
		if err == nil || errors.Is(err, fs.ErrExist) {
			next, err = trust.OpenIn(in, name)
		}
	}
	if err != nil {
		return nil, explained(err)
	}
	st, err := next.Stat(".")
	if err == nil {
		err = trust.Info(next.Name(), st)
	}
	if err == nil && mode != 0 {
		err = tighten(next)
	}
	if err != nil {
		return nil, errors.Join(explained(err), next.Close())
	}
	return next, nil
}

// openFile opens an object, which is a file and never a link. A mode makes one that does not
// exist.
func openFile(in *os.Root, name string, flag int, mode fs.FileMode) (*os.File, error) {
	at := filepath.Join(in.Name(), name)
	for range 100 {
		st, err := in.Lstat(name)
		create := errors.Is(err, fs.ErrNotExist) && mode != 0
		switch {
		case err != nil && !create:
			return nil, err
		case err == nil && !st.Mode().IsRegular():
			return nil, fmt.Errorf("the store is not used: %s is no file", at)
		case err == nil:
			if err := trust.Info(at, st); err != nil {
				return nil, explained(err)
			}
		}
		how := flag | syscall.O_NONBLOCK // a named pipe in its place would wait for its other end
		if create {
			how |= os.O_CREATE | os.O_EXCL
		}
		file, err := in.OpenFile(name, how, mode)
		if create && errors.Is(err, fs.ErrExist) || !create && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || create {
			return file, err
		}
		if opened, err := file.Stat(); err == nil && os.SameFile(st, opened) {
			return file, nil
		}
		_ = file.Close() // another writer replaced it meanwhile
	}
	return nil, fmt.Errorf("open %s: it is replaced again and again", at)
}

// Get implements checkpoint.Reader.
func (f *folder) Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error) {
	data, err := f.read(key, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint.Object{}, checkpoint.ErrNotFound
	}
	if err != nil {
		return checkpoint.Object{}, err
	}
	return checkpoint.Object{Data: data, Version: version(data)}, f.pass(ctx, len(data))
}

func (f *folder) read(key string, limit int64) ([]byte, error) {
	dir, err := f.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return readIn(dir, key, limit)
}

func readIn(dir *os.Root, key string, limit int64) ([]byte, error) {
	in, name, err := enter(dir, key, 0)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	file, err := openFile(in, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, checkpoint.ErrTooLarge
	}
	data := make([]byte, info.Size())
	_, err = io.ReadFull(file, data)
	return data, err
}

// version names a content. HEAD is the only object that is replaced, and never has the
// content that it had before.
func version(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// List implements checkpoint.Reader.
func (f *folder) List(ctx context.Context, prefix string, each func(checkpoint.Info) error) error {
	return f.walk(ctx, prefix, func(key string, i fs.FileInfo) error {
		if strings.HasPrefix(path.Base(key), unfinished) || key == lockName || !strings.HasPrefix(key, prefix) {
			return nil
		}
		return each(checkpoint.Info{Key: key, Size: i.Size(), Modified: i.ModTime(), Changed: changed(i)})
	})
}

// walk calls each for the files that may have the prefix. What is neither file nor folder is
// no object. What was deleted since, or a run that was never written, is not there.
func (f *folder) walk(ctx context.Context, prefix string, each func(key string, i fs.FileInfo) error) error {
	dir, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return walkIn(ctx, dir, "", prefix, each)
}

// listed is the number of names of a folder that are read at a time.
const listed = 1000

func walkIn(ctx context.Context, in *os.Root, below, prefix string, each func(key string, i fs.FileInfo) error) error {
	names, err := in.Open(".")
	if err != nil {
		return err
	}
	defer names.Close()
	for {
		entries, err := names.ReadDir(listed)
		for _, d := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := visit(ctx, in, d, path.Join(below, d.Name()), prefix, each); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func visit(ctx context.Context, in *os.Root, d fs.DirEntry, key, prefix string,
	each func(key string, i fs.FileInfo) error) error {
	switch {
	case d.IsDir() && (strings.HasPrefix(key+"/", prefix) || strings.HasPrefix(prefix, key+"/")):
		next, err := enterOne(in, d.Name(), 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer next.Close()
		return walkIn(ctx, next, key, prefix, each)
	case d.Type().IsRegular():
		i, err := in.Lstat(d.Name())
		if errors.Is(err, fs.ErrNotExist) || err == nil && !i.Mode().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		return each(key, i)
	}
	return nil
}

// Create implements checkpoint.Writer.
func (f *folder) Create(ctx context.Context, key string, data []byte) (err error) {
	defer func() { err = full(err) }()
	dir, err := f.make()
	if err != nil {
		return err
	}
	defer dir.Close()
	in, name, err := enter(dir, key, folderMode)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Lstat(name); err == nil {
		return checkpoint.ErrExists
	}
	from, err := f.write(ctx, in, data)
	if err != nil {
		return err
	}
	defer func() { _ = in.Remove(from) }() // the link keeps the content
	if err := in.Link(from, name); errors.Is(err, fs.ErrExist) {
		return checkpoint.ErrExists
	} else if err != nil {
		return err
	}
	return syncNames(in)
}

// Replace implements checkpoint.Writer.
func (f *folder) Replace(ctx context.Context, key string, data []byte, on string) (now string, err error) {
	defer func() { err = full(err) }()
	dir, err := f.make()
	if err != nil {
		return "", err
	}
	defer dir.Close()
	in, name, err := enter(dir, key, folderMode)
	if err != nil {
		return "", err
	}
	defer in.Close()
	from, err := f.write(ctx, in, data)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Remove(from) }() // once renamed, there is no such file
	lock, err := openFile(dir, lockName, os.O_RDWR, fileMode)
	if err != nil {
		return "", err
	}
	defer lock.Close() // a process that dies lets go of it as well
	if err := flock(ctx, lock); err != nil {
		return "", fmt.Errorf("lock %s: %w", f.root, err)
	}
	switch old, err := readIn(dir, key, 1<<62); {
	case err == nil:
		now = version(old)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if now != on {
		return "", checkpoint.ErrConflict
	}
	if err := in.Rename(from, name); err != nil {
		return "", err
	}
	return version(data), syncNames(in)
}

// flock waits until no other process has the lock.
func flock(ctx context.Context, lock *os.File) error {
	if st, err := lock.Stat(); err == nil && st.Mode().Perm() != fileMode {
		_ = lock.Chmod(fileMode) // an earlier version let others open it, and so hold it
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// write writes a temporary file next to where it is to be, durably.
func (f *folder) write(ctx context.Context, in *os.Root, data []byte) (string, error) {
	name := unfinished + strings.ToLower(rand.Text())
	file, err := in.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return "", err
	}
	for left := data; err == nil && len(left) > 0; {
		some := left[:min(len(left), granule)]
		if err = f.pass(ctx, len(some)); err == nil {
			_, err = file.Write(some)
			left = left[len(some):]
		}
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, in.Remove(name))
	}
	return name, nil
}

// syncNames puts the names in a folder on the disk.
func syncNames(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(durable.SyncOpen(d), d.Close())
}

// pass waits until so many bytes may pass.
func (f *folder) pass(ctx context.Context, n int) error {
	for ; f.limit != nil && n > 0; n -= granule {
		if err := f.limit.WaitN(ctx, min(n, granule)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Delete implements checkpoint.Collector.
func (f *folder) Delete(ctx context.Context, keys []string) error {
	dir, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := deleteIn(dir, key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func deleteIn(dir *os.Root, key string) error {
	in, name, err := enter(dir, key, 0)
	if err != nil {
		return err
	}
	err = in.Remove(name)
	_ = in.Close() // nothing was written through it
	// A folder that is not empty stays.
	if parent := path.Dir(key); parent != "." {
		if above, name, err := enter(dir, parent, 0); err == nil {
			_ = above.Remove(name)
			_ = above.Close()
		}
	}
	return err
}

// Abandoned implements checkpoint.Collector: temporary files.
func (f *folder) Abandoned(ctx context.Context) (list []checkpoint.Upload, err error) {
	err = f.walk(ctx, "", func(key string, i fs.FileInfo) error {
		if strings.HasPrefix(path.Base(key), unfinished) {
			list = append(list, checkpoint.Upload{Key: key, Begun: i.ModTime()})
		}
		return nil
	})
	return list, err
}

// Abort implements checkpoint.Collector.
func (f *folder) Abort(ctx context.Context, u checkpoint.Upload) error {
	return f.Delete(ctx, []string{u.Key})
}
