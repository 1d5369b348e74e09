package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// names are the files of a folder.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestReplace checks what is there after each way in which it can end.
func TestReplace(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // the mode is exact, whatever the process allows
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		before string // empty: there is no file
		mode   fs.FileMode
		write  func(io.Writer) error
		err    error
		after  string
	}{
		{"a new file", "", 0o600, nil, nil, "new"},
		{"in place of another", "old", 0o644, nil, nil, "new"},
		{"for its owner to read", "old", 0o400, nil, nil, "new"},
		{"broken after a part", "old", 0o644, func(w io.Writer) error {
			fmt.Fprint(w, "ne")
			return broken
		}, broken, "old"},
		{"broken where there was none", "", 0o644, func(io.Writer) error { return broken }, broken, ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		if c.before != "" {
			if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := ReplaceBytes(path, c.mode, []byte("new"))
		if c.write != nil {
			_ = os.Remove(path)
			if c.before != "" {
				if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err = Replace(path, c.mode, c.write)
		}
		got, _ := os.ReadFile(path)
		if !errors.Is(err, c.err) || string(got) != c.after {
			t.Errorf("%s: %v, %q; want %v, %q", c.name, err, got, c.err, c.after)
		}
		if info, err := os.Stat(path); c.err == nil && (err != nil || info.Mode().Perm() != c.mode) {
			t.Errorf("%s: mode %v, %v", c.name, info.Mode(), err)
		}
		if left := names(t, dir); len(left) > 1 || len(left) == 1 && left[0] != "file" {
			t.Errorf("%s: it left %v", c.name, left)
		}
	}
}

// TestCreate makes a file once: the first one stays, whatever the process allows as a mode.
func TestCreate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Create(path, 0o644, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, 0o600, []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v", err)
	}
	got, err := os.ReadFile(path)
	info, failed := os.Stat(path)
	if err != nil || failed != nil || string(got) != "first" || info.Mode().Perm() != 0o644 {
		t.Errorf("%q, %v, %v, %v", got, info.Mode(), err, failed)
	}
	if err := Create(filepath.Join(dir, "none", "file"), 0o600, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("it left %v", left)
	}
}

// TestReplaceSecretly checks that no one but the owner can read a file while it is written.
func TestReplaceSecretly(t *testing.T) {
	dir := t.TempDir()
	err := Replace(filepath.Join(dir, "file"), 0o600, func(io.Writer) error {
		for _, name := range names(t, dir) {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 ||
				!strings.HasPrefix(name, Unfinished) {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplaceRefused checks the errors of what cannot be written.
func TestReplaceRefused(t *testing.T) {
	dir := t.TempDir()
	if err := ReplaceBytes(filepath.Join(dir, "none", "file"), 0o600, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "folder", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceBytes(filepath.Join(dir, "folder"), 0o600, nil); err == nil {
		t.Error("a folder was replaced")
	}
	if left := names(t, dir); len(left) != 1 {
		t.Errorf("it left %v", left)
	}
}

// TestReplaceKilled kills a process that replaces a file again and again, while it is read:
// the file is always one of those that were written.
func TestReplaceKilled(t *testing.T) {
	const size = 1 << 20
	if path := os.Getenv("REPLACE_FILE"); path != "" {
		for c := byte('a'); ; c = 'a' + (c-'a'+1)%26 {
			if err := ReplaceBytes(path, 0o600, []byte(strings.Repeat(string(c), size))); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "file")
	whole := func() {
		t.Helper()
		got, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil || len(got) != size || strings.Count(string(got), string(got[:1])) != size {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	for i := range 10 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestReplaceKilled$")
		c.Env = append(os.Environ(), "REPLACE_FILE="+path)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Duration(50+7*i) * time.Millisecond); time.Now().Before(end); {
			whole()
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		whole()
	}
}
