package agent

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Threads are the threads of some processes at a time.
type Threads struct {
	// CPU is the time so far that each was on a CPU or waited for one, by thread id.
	CPU map[int]time.Duration
	// DiskWaits counts those that wait for a disk or a network file system.
	DiskWaits int
}

// ThreadsOf reads the threads of processes; those that have ended are left out.
func ThreadsOf(pids []int) Threads {
	t := Threads{CPU: map[int]time.Duration{}}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/task/"
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			if busy, err := threadBusy(dir + e.Name()); err == nil {
				t.CPU[tid] = busy
			}
			line, err := os.ReadFile(dir + e.Name() + "/stat")
			if err == nil && strings.HasPrefix(string(line[bytes.LastIndexByte(line, ')')+1:]), " D") {
				t.DiskWaits++
			}
		}
	}
	return t
}

// threadBusy returns the time of a thread on a CPU and in the queue for one, in which other processes keep
// it from a full core.
func threadBusy(dir string) (time.Duration, error) {
	text, err := os.ReadFile(dir + "/schedstat")
	if err != nil {
		return 0, err
	}
	var ran, waited int64
	if _, err := fmt.Sscan(string(text), &ran, &waited); err != nil {
		return 0, fmt.Errorf("read the times of a thread: %w", err)
	}
	return time.Duration(ran + waited), nil
}

// Busiest returns the share of one CPU core that the busiest thread wanted since an earlier look, and the
// cores that all of them wanted.
func (t Threads) Busiest(before Threads, since time.Duration) (share, cores float64) {
	if since <= 0 {
		return 0, 0
	}
	for tid, now := range t.CPU {
		if earlier, known := before.CPU[tid]; known {
			one := (now - earlier).Seconds() / since.Seconds()
			share, cores = max(share, one), cores+one
		}
	}
	return share, cores
}
