package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// stagingPrefix begins the names of folders that hold restored files until they are verified.
const stagingPrefix = ".curfew-restore-"

// foundEntry is a listed name of the folder.
type foundEntry struct {
	Entry
	// changed is the last change of data or metadata, by the clock of the file system.
	changed  time.Time
	dev, ino uint64
	names    uint64
	// skipReason explains why the name is left out; empty if it is saved.
	skipReason string
}

// unchanged reports whether nothing is known to have changed between two listings.
func (f foundEntry) unchanged(g foundEntry) bool {
	return f.Kind == g.Kind && f.Size == g.Size && f.Mode == g.Mode && f.Target == g.Target && f.ino == g.ino &&
		f.dev == g.dev &&
		f.Modified.Equal(g.Modified) && f.changed.Equal(g.changed)
}

// scan lists a folder, parents first, without reading files. An unlistable part is an error, so
// that no snapshot omits it silently.
func scan(dir string) ([]foundEntry, error) {
	var all []foundEntry
	first := map[[2]uint64]string{} // first names of files with hard links
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, at)
		if relErr != nil {
			return relErr
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && rel != "." {
				return nil // removed since its folder was listed
			}
			return err
		}
		if rel == "." {
			return nil
		}
		if strings.HasPrefix(path.Base(rel), stagingPrefix) && d.IsDir() {
			return fs.SkipDir
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		f := foundEntry{
			Entry: Entry{
				Path: filepath.ToSlash(rel), Mode: uint32(info.Mode().Perm()), Modified: info.ModTime().UTC(),
			},
		}
		if !utf8.ValidString(rel) || checkPath(f.Path) != nil {
			return fmt.Errorf("%q is no name that can be saved", rel)
		}
		f.dev, f.ino, f.changed, f.names, f.Sparse = inode(info)
		switch {
		case info.Mode().IsRegular():
			f.Kind, f.Size = File, info.Size()
			if f.names > 1 {
				id := [2]uint64{f.dev, f.ino}
				if name, ok := first[id]; ok {
					f.Kind, f.Target, f.Size, f.Sparse = Hardlink, name, 0, false
				} else {
					first[id] = f.Path
				}
			}
		case info.IsDir():
			f.Kind = Folder
		case info.Mode()&fs.ModeSymlink != 0:
			f.Kind, f.Sparse = Symlink, false
			if f.Target, err = os.Readlink(at); errors.Is(err, fs.ErrNotExist) {
				return nil
			} else if err != nil {
				return err
			}
			if !utf8.ValidString(f.Target) {
				return fmt.Errorf("%q leads to a name that cannot be saved", rel)
			}
		default:
			f.Kind, f.skipReason = File, "it is a "+special(info.Mode())
		}
		all = append(all, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return all, nil
}

func special(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
