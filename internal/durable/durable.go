// Package durable creates and replaces files whole.
package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Unfinished begins the name of a file that is being written; a kill leaves one behind. It is
// hidden, and no name that a pattern for finished files matches.
const Unfinished = ".new-"

// Replace writes a file with exactly this mode, so that a reader, a kill or a loss of power
// leaves the old one or the new one and never a part. Once it returns without an error, the new
// one is on the disk under its name. Of two at once, the last one stays. A link at path is
// replaced, not what it leads to.
func Replace(path string, mode fs.FileMode, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), Unfinished+"*")
	if err != nil {
		return err
	}
	// The mode is set before anything is written, so that no one reads a secret meanwhile.
	if err = tmp.Chmod(mode); err == nil {
		err = write(tmp)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return Sync(filepath.Dir(path))
}

// ReplaceBytes is [Replace] of a text that is there already.
func ReplaceBytes(path string, mode fs.FileMode, data []byte) error {
	return Replace(path, mode, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Create makes a file with exactly this mode if there is none, whole or not at all. Of two at once
// the first one stays, and the other returns fs.ErrExist.
func Create(path string, mode fs.FileMode, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), Unfinished+"*")
	if err != nil {
		return err
	}
	if err = tmp.Chmod(mode); err == nil {
		_, err = tmp.Write(data)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Link(tmp.Name(), path)
	}
	if err = errors.Join(err, os.Remove(tmp.Name())); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync puts a file, or the names in a folder, on the disk, where the file system can do that by
// itself.
func Sync(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(SyncOpen(d), d.Close())
}

// SyncOpen is [Sync] of what is open.
func SyncOpen(d *os.File) error {
	err := d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // fsync(2): the file system has no such thing
	}
	return err
}
