package objectstore

import (
	"io/fs"
	"syscall"
	"time"
)

// changed returns the last change of a file's content or metadata, which no program can set back.
func changed(i fs.FileInfo) time.Time {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}
	}
	return time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec)) //nolint:unconvert // the types differ between machines
}
