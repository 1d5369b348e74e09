package agent

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProcessUse is the use of a machine by a process and its descendants.
type ProcessUse struct {
	// CPU is the CPU time so far, that of children that ended included.
	CPU time.Duration
	// Memory is in bytes. Pages that processes share are divided among them where the kernel tells.
	Memory int64
	// PIDs are the living processes.
	PIDs []int
}

// UseOf reads what a process and its descendants use; fs.ErrNotExist means that it ended.
func UseOf(root int) (u ProcessUse, err error) {
	all, err := allProcesses()
	if err != nil {
		return u, err
	}
	u.PIDs = descendants(all, root)
	if len(u.PIDs) == 0 {
		return u, fmt.Errorf("process %d: %w", root, fs.ErrNotExist)
	}
	for _, p := range all {
		if slices.Contains(u.PIDs, p.pid) {
			u.CPU += p.cpuTime
			u.Memory += memoryOf(p.pid)
		}
	}
	return u, nil
}

// descendants returns a living process and those that it started, directly or not.
func descendants(all []process, root int) (pids []int) {
	for _, p := range all {
		if p.pid == root && p.state != 'Z' {
			pids = append(pids, root)
		}
	}
	for i := 0; i < len(pids); i++ {
		for _, p := range all {
			if p.parent == pids[i] && p.state != 'Z' && !slices.Contains(pids, p.pid) {
				pids = append(pids, p.pid)
			}
		}
	}
	return pids
}

// memoryOf returns the memory of a process in bytes; 0 if it ended.
func memoryOf(pid int) int64 {
	dir := "/proc/" + strconv.Itoa(pid)
	if text, err := os.ReadFile(dir + "/smaps_rollup"); err == nil {
		for line := range bytes.Lines(text) {
			if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
				kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
				if err == nil {
					return kib << 10
				}
			}
		}
	}
	text, err := os.ReadFile(dir + "/statm") // of another user: shared pages count for each process
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
