package witness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/durable"
)

const (
	// maxBytes bounds a document.
	maxBytes = 16 << 20
	// lockFor is for how long a process waits for another one that writes.
	lockFor, lockPoll = 2 * time.Second, 5 * time.Millisecond
)

// Dir keeps documents as files of a folder that only its owner can read or write.
type Dir struct{ Path string }

// String implements Documents.
func (d Dir) String() string { return d.Path }

// Read implements Documents. A folder or file that others could have written is refused.
func (d Dir) Read(_ context.Context, name string) ([]byte, error) {
	if err := d.check(); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(d.Path, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := own(f.Name(), st); err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", f.Name())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("%s is larger than %d bytes", f.Name(), maxBytes)
	}
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%s is empty", f.Name())
	}
	return text, nil
}

// Write implements Documents.
func (d Dir) Write(_ context.Context, name string, data []byte) error {
	if len(data) > maxBytes {
		return fmt.Errorf("%s would be larger than %d bytes", filepath.Join(d.Path, name), maxBytes)
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return err
	}
	return durable.ReplaceBytes(filepath.Join(d.Path, name), 0o600, data)
}

// Lock implements Documents.
func (d Dir) Lock(ctx context.Context) func() {
	if os.MkdirAll(d.Path, 0o700) != nil {
		return func() {} // writing says what is wrong
	}
	f, err := os.OpenFile(filepath.Join(d.Path, ".lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return func() {}
	}
	unlock := func() { _ = f.Close() }
	for waited := time.Duration(0); waited < lockFor && ctx.Err() == nil; waited += lockPoll {
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return unlock
		}
		timer := time.NewTimer(lockPoll)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return unlock
}

// check refuses a folder that others could have written.
func (d Dir) check() error {
	st, err := os.Lstat(d.Path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is no folder", d.Path)
	}
	return own(d.Path, st)
}

func own(path string, st fs.FileInfo) error {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() && sys.Uid != 0 {
		return fmt.Errorf("%s belongs to user %d, neither to you nor to root", path, sys.Uid)
	}
	if mode := st.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %04o)", path, mode)
	}
	return nil
}

// Within reports whether a folder is in another one, or the same.
func Within(dir, outer string) bool {
	resolve := func(p string) string {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		for rest := ""; ; {
			if real, err := filepath.EvalSymlinks(p); err == nil {
				return filepath.Join(real, rest)
			}
			up := filepath.Dir(p)
			if up == p {
				return filepath.Join(p, rest)
			}
			rest, p = filepath.Join(filepath.Base(p), rest), up
		}
	}
	rel, err := filepath.Rel(resolve(outer), resolve(dir))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// Missing is a witness that is not there: nothing acts by it, and it says why.
type Missing struct{ Why string }

// String implements Documents.
func (m Missing) String() string { return "no place" }

// Read implements Documents.
func (m Missing) Read(context.Context, string) ([]byte, error) { return nil, errors.New(m.Why) }

// Write implements Documents.
func (m Missing) Write(context.Context, string, []byte) error { return errors.New(m.Why) }

// Lock implements Documents.
func (m Missing) Lock(context.Context) func() { return func() {} }
