// Package trust tells whether another Unix user could have written, or could replace, a file
// or directory. Root is trusted, as it can do anything anyway.
package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Error is a file or directory that another user could have written or replaced.
type Error struct {
	Path string
	// Why is the rest of the sentence: "belongs to user 1001".
	Why string
}

// Error returns the path and the reason.
func (e *Error) Error() string { return e.Path + " " + e.Why }

// maxLinks is the number of links a path may lead through, as in Linux.
const maxLinks = 40

// Path refuses, as an *Error, a file or directory that another user can write or replace: it
// checks the path itself, every link on the way and every directory above. A directory above
// may be writable by others only if it is sticky, as /tmp is: they cannot rename what is not
// theirs. Of a path that does not exist, the directories above are checked.
//
// A volume is a directory of which the administrator says that only this user's processes
// reach it, whatever its mode: the mode of a volume is not checked where it is above.
func Path(path string, volumes ...string) error {
	return Paths([]string{path}, volumes...)
}

// Paths is [Path] for each of several paths. Each directory above them is checked once.
func Paths(paths []string, volumes ...string) error {
	w := walker{user: os.Getuid(), volumes: volumes, safe: map[string]bool{}}
	for _, path := range paths {
		if _, _, err := w.walk(path, nil); err != nil {
			return err
		}
	}
	return nil
}

// Info is [Path] for what a file or directory itself says, without what is above it.
func Info(path string, st fs.FileInfo) error { return check(path, st, os.Getuid(), false) }

// check refuses what another user owns or can write. A directory above others may be sticky.
func check(path string, st fs.FileInfo, user int, above bool) error {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != user && sys.Uid != 0 {
		return &Error{Path: path, Why: fmt.Sprintf("belongs to user %d, neither to you nor to root", sys.Uid)}
	}
	mode := st.Mode()
	if mode&fs.ModeSymlink != 0 || mode.Perm()&0o022 == 0 || above && mode.IsDir() && mode&fs.ModeSticky != 0 {
		return nil
	}
	return &Error{Path: path, Why: fmt.Sprintf("can be written by others (mode %04o)", mode.Perm())}
}

// walker resolves paths one name at a time and checks each.
type walker struct {
	user    int
	volumes []string
	// safe are directories that were checked as those above others.
	safe map[string]bool
}

// walk checks a path and returns it without links, and what it is; nil: it does not exist.
// A directory that does not exist is made by mkdir, if that is given.
func (w *walker) walk(path string, mkdir func(string) error) (resolved string, st fs.FileInfo, err error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return "", nil, fmt.Errorf("look at %s: %w", path, err)
	}
	at, names, links := "/", split(whole), 0
	if st, err = w.look(at, len(names) > 0); err != nil {
		return "", nil, err
	}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == ".." { // only a link has it, and at has no links in it
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		st, err = w.look(next, len(names) > 0)
		if errors.Is(err, fs.ErrNotExist) && mkdir != nil {
			if err = mkdir(next); err == nil || errors.Is(err, fs.ErrExist) {
				st, err = w.look(next, len(names) > 0)
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(append([]string{next}, names...)...), nil, nil
		case err != nil:
			return "", nil, err
		case st.Mode()&fs.ModeSymlink == 0:
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", nil, fmt.Errorf("look at %s: it leads through more than %d links", path, maxLinks)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", nil, fmt.Errorf("look at %s: %w", next, err)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		names = append(split(target), names...)
	}
	if st == nil || st.Mode()&fs.ModeSymlink != 0 { // the last name was "..", or a link to it
		st, err = w.look(at, false)
	}
	return at, st, err
}

// look checks one name; above: others are looked up in it.
func (w *walker) look(path string, above bool) (fs.FileInfo, error) {
	st, err := os.Lstat(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	if above && (w.safe[path] || slices.Contains(w.volumes, path)) {
		return st, nil
	}
	if err := check(path, st, w.user, above); err != nil {
		return nil, err
	}
	if above && st.IsDir() {
		w.safe[path] = true
	}
	return st, nil
}

func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

// OpenDir opens a directory that [Path] trusts. With mode it makes those that do not exist, and
// otherwise returns fs.ErrNotExist. Sync, if given, is called for each directory in which one
// was made.
func OpenDir(path string, mode fs.FileMode, sync func(dir string) error) (*os.Root, error) {
	w := walker{user: os.Getuid(), safe: map[string]bool{}}
	var mkdir func(string) error
	if mode != 0 {
		mkdir = func(dir string) error {
			err := os.Mkdir(dir, mode)
			if err == nil && sync != nil {
				err = sync(filepath.Dir(dir))
			}
			return err
		}
	}
	resolved, st, err := w.walk(path, mkdir)
	if err != nil {
		return nil, err
	}
	if st == nil {
		return nil, fmt.Errorf("open %s: %w", path, fs.ErrNotExist)
	}
	dir, err := os.OpenRoot(resolved)
	if err != nil {
		return nil, err
	}
	if err := Same(dir, path, st); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
