package objectstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/time/rate"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/durable"
)

// folder is a store in a folder. Files are written under a temporary name and synced; a
// hard link, which fails where the name is taken, creates an object, and a rename under a
// lock replaces one.
type folder struct {
	root  string
	limit *rate.Limiter
}

func newFolder(root string, o Options) *folder { return &folder{root, limiter(o.Bandwidth)} }

const (
	// unfinished begins the names of files that are being written.
	unfinished = ".tmp-"
	lockName   = ".lock"
)

func (f *folder) path(key string) string { return filepath.Join(f.root, filepath.FromSlash(key)) }

// Get implements checkpoint.Reader.
func (f *folder) Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error) {
	file, err := os.Open(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint.Object{}, checkpoint.ErrNotFound
	}
	if err != nil {
		return checkpoint.Object{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return checkpoint.Object{}, err
	}
	if info.Size() > limit {
		return checkpoint.Object{}, checkpoint.ErrTooLarge
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(file, data); err != nil {
		return checkpoint.Object{}, err
	}
	return checkpoint.Object{Data: data, Version: version(data)}, f.pass(ctx, len(data))
}

// version names a content. HEAD is the only object that is replaced, and never has the
// content that it had before.
func version(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// List implements checkpoint.Reader.
func (f *folder) List(_ context.Context, prefix string, each func(checkpoint.Info) error) error {
	return f.walk(func(key string, i fs.FileInfo) error {
		if strings.HasPrefix(filepath.Base(key), unfinished) || key == lockName || !strings.HasPrefix(key, prefix) {
			return nil
		}
		return each(checkpoint.Info{Key: key, Size: i.Size(), Modified: i.ModTime()})
	})
}

func (f *folder) walk(each func(key string, i fs.FileInfo) error) error {
	return filepath.WalkDir(f.root, func(at string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted since, or a run that was never written
		}
		if err != nil || d.IsDir() {
			return err
		}
		i, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		key, err := filepath.Rel(f.root, at)
		if err != nil {
			return err
		}
		return each(filepath.ToSlash(key), i)
	})
}

// Create implements checkpoint.Writer.
func (f *folder) Create(ctx context.Context, key string, data []byte) error {
	to := f.path(key)
	if _, err := os.Lstat(to); err == nil {
		return checkpoint.ErrExists
	}
	from, err := f.write(ctx, to, data)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(from) }() // the link keeps the content
	if err := os.Link(from, to); errors.Is(err, fs.ErrExist) {
		return checkpoint.ErrExists
	} else if err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(to))
}

// Replace implements checkpoint.Writer.
func (f *folder) Replace(ctx context.Context, key string, data []byte, on string) (string, error) {
	to := f.path(key)
	from, err := f.write(ctx, to, data)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(from) }() // once renamed, there is no such file
	lock, err := os.OpenFile(filepath.Join(f.root, lockName), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return "", err
	}
	defer lock.Close() // a process that dies lets go of it as well
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", f.root, err)
	}
	now := ""
	switch old, err := os.ReadFile(to); {
	case err == nil:
		now = version(old)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if now != on {
		return "", checkpoint.ErrConflict
	}
	if err := os.Rename(from, to); err != nil {
		return "", err
	}
	return version(data), durable.Sync(filepath.Dir(to))
}

// write writes a temporary file next to where it is to be, durably.
func (f *folder) write(ctx context.Context, to string, data []byte) (string, error) {
	if err := f.mkdir(filepath.Dir(to)); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Dir(to), unfinished+"*")
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
		err = errors.Join(file.Chmod(0o644), file.Sync())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// mkdir makes a folder and those around it durable.
func (f *folder) mkdir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	above := filepath.Dir(dir)
	if err := f.mkdir(above); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.Sync(above)
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
func (f *folder) Delete(_ context.Context, keys []string) error {
	for _, key := range keys {
		at := f.path(key)
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// A folder that is not empty stays.
		if dir := filepath.Dir(at); dir != f.root {
			_ = os.Remove(dir)
		}
	}
	return nil
}

// Abandoned implements checkpoint.Collector: temporary files.
func (f *folder) Abandoned(context.Context) (list []checkpoint.Upload, err error) {
	err = f.walk(func(key string, i fs.FileInfo) error {
		if strings.HasPrefix(filepath.Base(key), unfinished) {
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
