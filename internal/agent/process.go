package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTicks is the number of kernel clock ticks per second: USER_HZ is 100 on every Linux that Go
// supports.
const clockTicks = 100

// process is the kernel's description of a process.
type process struct {
	pid, parent, session int
	name                 string
	state                byte
	// tty is the device number of its terminal, 0 for none.
	tty int
	// startTicks is its start in ticks since boot; with pid it identifies the process.
	startTicks uint64
	// cpuTime includes children that ended.
	cpuTime time.Duration
	// diskBytes were read from and written to disks, of which writtenBytes were written.
	diskBytes, writtenBytes uint64
	// waits is the time that its threads were runnable and waited for a CPU, and used one, by thread.
	waits map[int]threadTime
	// age is the time since its start; 0 if unknown.
	age time.Duration
}

// threadTime is the scheduler's account of a thread.
type threadTime struct{ run, wait time.Duration }

// maxThreads is the most threads of a process whose waits are read.
const maxThreads = 1024

// readWaits reads /proc/PID/task/TID/schedstat. A kernel without it leaves the map empty.
func readWaits(dir string) map[int]threadTime {
	tasks, err := os.Open(dir + "/task")
	if err != nil {
		return nil
	}
	defer tasks.Close()
	names, _ := tasks.Readdirnames(maxThreads) // what was read before an error counts
	all := make(map[int]threadTime, len(names))
	for _, name := range names {
		data, err := os.ReadFile(dir + "/task/" + name + "/schedstat")
		tid, numberErr := strconv.Atoi(name)
		if t, ok := parseSchedstat(data); err == nil && numberErr == nil && ok {
			all[tid] = t
		}
	}
	return all
}

// parseSchedstat parses the nanoseconds that a thread ran, and those that it was runnable and
// waited.
func parseSchedstat(data []byte) (threadTime, bool) {
	f := strings.Fields(string(data))
	if len(f) < 2 {
		return threadTime{}, false
	}
	run, err1 := strconv.ParseInt(f[0], 10, 64)
	wait, err2 := strconv.ParseInt(f[1], 10, 64)
	return threadTime{time.Duration(run), time.Duration(wait)}, err1 == nil && err2 == nil
}

// readProcess reads a process; fs.ErrNotExist means that it ended.
func readProcess(pid int) (process, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	data, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return process{}, asNotExist(err)
	}
	p, err := parseStat(data)
	if err != nil {
		return p, err
	}
	p.pid = pid
	if data, err := os.ReadFile(dir + "/io"); err == nil {
		read, written := parseIO(data)
		p.diskBytes, p.writtenBytes = read+written, written
	}
	p.waits = readWaits(dir)
	return p, nil
}

// parseStat parses /proc/PID/stat (proc_pid_stat(5)). The name may contain any bytes.
func parseStat(data []byte) (process, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return process{}, errors.New("the kernel's line about a process has no name")
	}
	p := process{name: string(data[open+1 : end])}
	f := strings.Fields(string(data[end+1:]))
	if len(f) < 20 {
		return p, fmt.Errorf("the kernel's line about process %s has %d fields", p.name, len(f))
	}
	n := func(field int) uint64 { // field number in the manual
		v, _ := strconv.ParseInt(f[field-3], 10, 64)
		return uint64(min(max(v, 0), 1<<40))
	}
	p.state = f[0][0]
	p.parent, p.session, p.tty, p.startTicks = int(n(4)), int(n(6)), int(n(7)), n(22)
	p.cpuTime = time.Duration(n(14)+n(15)+n(16)+n(17)) * (time.Second / clockTicks)
	return p, nil
}

// parseIO parses /proc/PID/io.
func parseIO(data []byte) (read, written uint64) {
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ": ")
		n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		switch name {
		case "read_bytes":
			read = n
		case "write_bytes":
			written = n
		}
	}
	return read, written
}

// asNotExist maps the errors about a process that ended to fs.ErrNotExist.
func asNotExist(err error) error {
	if err != nil && strings.Contains(err.Error(), "no such process") {
		return fs.ErrNotExist
	}
	return err
}

// alive reports whether the process with a start time still runs; a zombie does not.
func alive(pid int, began uint64) bool {
	p, err := readProcess(pid)
	return err == nil && p.startTicks == began && p.state != 'Z'
}

// allProcesses returns the processes of the machine.
func allProcesses() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var list []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			list = append(list, p)
		}
	}
	return list, nil
}

// sockets returns the inodes of a process's sockets.
func sockets(pid int) []uint32 {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []uint32
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if number, is := strings.CutPrefix(to, "socket:["); err == nil && is {
			if n, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32); err == nil {
				list = append(list, uint32(n))
			}
		}
	}
	return list
}

// interfaceBytes returns the bytes received and sent by all network interfaces except the loopback.
func interfaceBytes() (uint64, error) {
	data, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return 0, err
	}
	return parseInterfaces(data), nil
}

func parseInterfaces(data []byte) (sum uint64) {
	for line := range strings.Lines(string(data)) {
		name, counts, is := strings.Cut(line, ":")
		f := strings.Fields(counts)
		if !is || strings.TrimSpace(name) == "lo" || len(f) < 9 {
			continue
		}
		in, _ := strconv.ParseUint(f[0], 10, 64)
		out, _ := strconv.ParseUint(f[8], 10, 64)
		sum += in + out
	}
	return sum
}
