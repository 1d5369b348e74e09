package checkpoint

import (
	"io/fs"
	"syscall"
	"time"
)

// inode returns the identity, change time and link count of a file, and whether it has holes.
func inode(i fs.FileInfo) (dev, ino uint64, changed time.Time, names uint64, sparse bool) {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, i.ModTime(), 1, false
	}
	//nolint:unconvert // the types differ between machines
	return uint64(s.Dev), s.Ino, time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec)), uint64(
		s.Nlink), i.Mode().IsRegular() && s.Blocks*512 < s.Size
}
