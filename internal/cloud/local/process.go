package local

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Process identifies a process of this machine by PID, start time and boot, because PIDs are
// reused.
type Process struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks since boot (proc_pid_stat(5), field 22).
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// errProcessEnded means that the process does not exist any more.
var errProcessEnded = errors.New("the process has ended")

// unfinishedPrefix begins the names of files and folders that are being written or removed, as
// [durable.Unfinished] does. The holder of the lock may remove leftovers.
const unfinishedPrefix = "."

// lockedFile opens and locks a file; busy reports that another process holds the lock.
func lockedFile(path string) (f *os.File, busy bool, err error) {
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
