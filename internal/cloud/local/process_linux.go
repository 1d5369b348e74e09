package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bootID names this boot of the machine; "" where the kernel does not tell.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// stat is what proc_pid_stat(5) says of a process.
type stat struct {
	state   byte
	parent  int
	threads int
	start   uint64
}

// statOf reads a process's line; errGone where there is none.
func statOf(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, errGone
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads the fields after the name, which may hold spaces and parentheses.
func parseStat(line []byte) (stat, error) {
	_, rest, ok := cutLast(line, ')')
	f := strings.Fields(string(rest))
	if !ok || len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("%q is no line of /proc/PID/stat", line)
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil {
		return stat{}, err
	}
	threads, err := strconv.Atoi(f[17])
	if err != nil {
		return stat{}, err
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return stat{f[0][0], parent, threads, start}, err
}

func cutLast(b []byte, sep byte) (before, after []byte, ok bool) {
	if i := bytes.LastIndexByte(b, sep); i >= 0 {
		return b[:i], b[i+1:], true
	}
	return b, nil, false
}

// dead says whether a process does nothing any more: it only waits for its parent to notice.
// The first thread alone may have ended: others then end the process, or go on.
func (s stat) dead() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

// processOf describes a running process, to be found again.
func processOf(pid int) (Process, error) {
	s, err := statOf(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: s.start, Boot: bootID()}, nil
}

// Alive says whether the process runs: the very one, not another under its number.
func (p Process) Alive() bool {
	if p.PID <= 0 || p.Boot != bootID() {
		return false
	}
	s, err := statOf(p.PID)
	return err == nil && s.start == p.Start && !s.dead()
}

// open returns a descriptor that means this process and no other, whatever becomes of its
// number; errGone where it has ended.
func (p Process) open() (fd int, err error) {
	if p.PID <= 0 || p.Boot != bootID() {
		return -1, errGone
	}
	fd, err = unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) && !p.Alive() {
		return -1, errGone
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	// The descriptor is of whoever has the number now. Its start says who that is.
	if !p.Alive() {
		_ = unix.Close(fd) // nothing was done with it
		return -1, errGone
	}
	return fd, nil
}

// Signal sends a signal to the process and never to another under its number; errGone where
// it has ended.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := p.open()
	if errors.Is(err, unix.ENOSYS) && p.Alive() { // before Linux 5.3 there is only the number
		return unix.Kill(p.PID, sig)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return errGone
	}
	return err
}

// wait returns when the process has ended, or ctx has.
func (p Process) wait(ctx context.Context) error {
	fd, err := p.open()
	switch {
	case errors.Is(err, errGone):
		return nil
	case err == nil:
		defer func() { _ = unix.Close(fd) }() // nothing was written
	case !errors.Is(err, unix.ENOSYS): // without descriptors (fd -1) the poll is a pause
		return err
	}
	const slice = 100 * time.Millisecond
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(slice/time.Millisecond))
		switch {
		case n > 0, !p.Alive():
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// processes calls each with every process of this machine that still does something.
func processes(each func(pid int, s stat)) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := statOf(pid); err == nil && !s.dead() {
			each(pid, s)
		}
	}
	return nil
}

// marked says whether the environment with which a process was started has a variable. What
// may not be read is not.
func marked(pid int, variable string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}

// ownedBy says whether a process is of a user: by its own folder in /proc, which is root's where
// the process has changed its user since. What may not be read is not.
func ownedBy(pid int, uid uint32) bool {
	i, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return false
	}
	owner, ok := ownerOf(i)
	return ok && uint32(owner) == uid
}
