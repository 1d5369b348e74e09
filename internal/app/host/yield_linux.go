package host

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ioprio_set(2): best effort, lowest.
const (
	ioprioProcess = 1
	ioprioLowest  = 2<<13 | 7
)

// Yield makes this process yield the CPU and the disk to others: 0 is a normal process, 19
// yields most. Threads that start later inherit it.
func Yield(nice int) error {
	if nice == 0 {
		return nil
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("set the niceness: %w", err)
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		// Leave a nicer thread as it is: lowering its niceness is not permitted.
		now, err := unix.Getpriority(unix.PRIO_PROCESS, id)
		if err != nil || 20-now >= nice {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil && err != unix.ESRCH {
			return fmt.Errorf("set the niceness to %d: %w", nice, err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(id), ioprioLowest); errno != 0 &&
			errno != unix.ESRCH && errno != unix.ENOSYS && errno != unix.EPERM {
			return fmt.Errorf("set the disk priority: %w", errno)
		}
	}
	return nil
}
