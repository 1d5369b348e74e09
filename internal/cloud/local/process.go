package local

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Process is one process of this machine, told from any other that had or gets its number:
// by when it started, and in which boot.
type Process struct {
	PID int `json:"pid"`
	// Start is when it started, in clock ticks since the boot (proc_pid_stat(5), field 22).
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// errGone says that the process is not there any more.
var errGone = errors.New("the process has ended")

// unfinished begins the names of files and folders that are being written, or removed: it begins
// [durable.Unfinished].
// Whoever holds the lock may remove those that are there.
const unfinished = "."

// held opens a file and locks it; busy says that another process has the lock.
func held(path string) (f *os.File, busy bool, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	for {
		switch err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return f, false, nil
		case errors.Is(err, unix.EINTR):
			continue
		}
		busy = errors.Is(err, unix.EWOULDBLOCK)
		return nil, busy, errors.Join(err, f.Close())
	}
}
