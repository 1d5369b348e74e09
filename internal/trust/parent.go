package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Parent opens the directory that a path is in, and returns it with the path's name in it. It
// makes directories that do not exist, with the mode. Directories of other users are entered,
// but no link that one of them may have made is followed, and what they rename meanwhile
// leads nowhere else: everything that is done in the root stays in the directory that was
// opened. A link at the path itself is followed if it can be trusted, and is an *Error if not.
func Parent(path string, mode fs.FileMode) (*os.Root, string, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, "", fmt.Errorf("look at %s: %w", path, err)
	}
	d := descent{user: os.Getuid(), mode: mode, at: "/", safe: true}
	name, err := d.to(split(whole))
	if err == nil && d.root == nil {
		d.root, err = os.OpenRoot(d.at)
	}
	if err != nil {
		if d.root != nil {
			_ = d.root.Close()
		}
		return nil, "", err
	}
	return d.root, name, nil
}

// descent is a directory on the way down a path.
type descent struct {
	user int
	mode fs.FileMode
	at   string
	// safe: no other user can change what has been resolved so far, so that paths can be used.
	safe bool
	// root is at, once it is not safe.
	root *os.Root
}

func (d *descent) lstat(name string) (fs.FileInfo, error) {
	if d.safe {
		return os.Lstat(filepath.Join(d.at, name))
	}
	return d.root.Lstat(name)
}

func (d *descent) mkdir(name string) error {
	if d.safe {
		return os.Mkdir(filepath.Join(d.at, name), d.mode)
	}
	return d.root.Mkdir(name, d.mode)
}

// to goes down to the directory of the last name, and returns that name.
func (d *descent) to(names []string) (string, error) {
	for links := 0; len(names) > 0; {
		name, last := names[0], len(names) == 1
		path := filepath.Join(d.at, name)
		if name == ".." { // only a link has it
			if !d.safe {
				return "", &Error{Path: path, Why: "leads out of a directory that another user can replace"}
			}
			d.at, names = path, names[1:]
			continue
		}
		st, err := d.lstat(name)
		if errors.Is(err, fs.ErrNotExist) && last {
			return name, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			if err = d.mkdir(name); err == nil || errors.Is(err, fs.ErrExist) {
				st, err = d.lstat(name)
			}
		}
		switch {
		case err != nil:
			return "", fmt.Errorf("look at %s: %w", path, err)
		case st.Mode()&fs.ModeSymlink != 0:
			if !d.safe || check(path, st, d.user, false) != nil {
				return "", &Error{Path: path, Why: "is a link that another user may have made"}
			}
			target, err := os.Readlink(path)
			if links++; err != nil || links > maxLinks {
				return "", fmt.Errorf("follow the link %s: %w", path, errors.Join(err, syscall.ELOOP))
			}
			if filepath.IsAbs(target) {
				d.at = "/"
			}
			names = append(split(target), names[1:]...)
			continue
		case last:
			return name, nil
		case !st.IsDir():
			return "", fmt.Errorf("look at %s: %w", path, syscall.ENOTDIR)
		}
		if err := d.enter(name, path, st); err != nil {
			return "", err
		}
		names = names[1:]
	}
	return "", fmt.Errorf("look at %s: it is in no directory", d.at)
}

// enter goes into a directory that was looked at.
func (d *descent) enter(name, path string, st fs.FileInfo) (err error) {
	var next *os.Root
	switch {
	case !d.safe:
		next, err = d.root.OpenRoot(name)
	case check(path, st, d.user, true) == nil:
		d.at = path
		return nil
	default:
		next, err = os.OpenRoot(path)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if err := Same(next, path, st); err != nil {
		return errors.Join(err, next.Close())
	}
	if d.root != nil {
		_ = d.root.Close() // it was only read
	}
	d.at, d.root, d.safe = path, next, false
	return nil
}

// OpenIn opens a directory in a root by its name, which may be no link.
func OpenIn(in *os.Root, name string) (*os.Root, error) {
	st, err := in.Lstat(name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(in.Name(), name)
	if st.Mode()&fs.ModeSymlink != 0 {
		return nil, &Error{Path: path, Why: "is a link"}
	}
	dir, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if err := Same(dir, path, st); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// Same refuses, as an *Error, a directory that is not the one that was looked at.
func Same(dir *os.Root, path string, st fs.FileInfo) error {
	opened, err := dir.Stat(".")
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if !os.SameFile(st, opened) {
		return &Error{Path: path, Why: "was replaced while it was opened"}
	}
	return nil
}
