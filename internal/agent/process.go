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

// ticks is how many of the kernel's clock ticks are in a second: USER_HZ is 100 on every
// Linux that Go runs on.
const ticks = 100

// process is what the kernel says of one process.
type process struct {
	pid, parent, session int
	name                 string
	state                byte
	// tty is the number of its terminal, 0 for none.
	tty int
	// began is when it started, in ticks since boot: with pid it names the process.
	began uint64
	// cpu is what it and its children that ended have computed.
	cpu time.Duration
	// disk is what it has read from and written to disks, in bytes.
	disk uint64
}

// readProcess reads a process; fs.ErrNotExist where it has ended.
func readProcess(pid int) (process, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	data, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return process{}, gone(err)
	}
	p, err := parseStat(data)
	if err != nil {
		return p, err
	}
	p.pid = pid
	if data, err := os.ReadFile(dir + "/io"); err == nil {
		p.disk = parseIO(data)
	}
	return p, nil
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). The name may hold anything.
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
	n := func(field int) uint64 { // by its number in the manual
		v, _ := strconv.ParseInt(f[field-3], 10, 64)
		return uint64(min(max(v, 0), 1<<40))
	}
	p.state = f[0][0]
	p.parent, p.session, p.tty, p.began = int(n(4)), int(n(6)), int(n(7)), n(22)
	p.cpu = time.Duration(n(14)+n(15)+n(16)+n(17)) * (time.Second / ticks)
	return p, nil
}

// parseIO reads /proc/PID/io.
func parseIO(data []byte) (sum uint64) {
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ": ")
		if name == "read_bytes" || name == "write_bytes" {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			sum += n
		}
	}
	return sum
}

// gone makes one error of the ways in which a process that ended is not there.
func gone(err error) error {
	if err != nil && strings.Contains(err.Error(), "no such process") {
		return fs.ErrNotExist
	}
	return err
}

// alive says whether a process that began at a tick still runs; one that nothing reaped does
// not.
func alive(pid int, began uint64) bool {
	p, err := readProcess(pid)
	return err == nil && p.began == began && p.state != 'Z'
}

// allProcesses lists the processes of the machine.
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

// sockets lists the inodes of the sockets that a process holds.
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

// interfaceBytes is what all network interfaces but the loopback have received and sent.
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
