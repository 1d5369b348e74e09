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

// bootID returns the id of this boot; "" if unknown.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// stat holds fields of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	state   byte
	parent  int
	threads int
	start   uint64
}

// statOf reads the stat file of a process, or returns errProcessEnded.
func statOf(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, errProcessEnded
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat parses the fields after the name, which may contain spaces and parentheses.
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

// isDead reports whether a process only waits to be reaped. If just the first thread has ended,
// other threads may continue.
func (s stat) isDead() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

// processOf returns the identity of a running process.
func processOf(pid int) (Process, error) {
	s, err := statOf(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: s.start, Boot: bootID()}, nil
}

// Alive reports whether this very process runs, rather than another with its PID.
func (p Process) Alive() bool {
	if p.PID <= 0 || p.Boot != bootID() {
		return false
	}
	s, err := statOf(p.PID)
	return err == nil && s.start == p.Start && !s.isDead()
}

// open returns a process descriptor, which stays valid whatever becomes of the PID; errProcessEnded
// if the process has ended.
func (p Process) open() (fd int, err error) {
	if p.PID <= 0 || p.Boot != bootID() {
		return -1, errProcessEnded
	}
	fd, err = unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) && !p.Alive() {
		return -1, errProcessEnded
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	// The PID may have been reused: compare the start time.
	if !p.Alive() {
		_ = unix.Close(fd) // unused so far
		return -1, errProcessEnded
	}
	return fd, nil
}

// Signal sends a signal to this very process; errProcessEnded if it has ended.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := p.open()
	if errors.Is(err, unix.ENOSYS) && p.Alive() { // before Linux 5.3 there are no descriptors
		return unix.Kill(p.PID, sig)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return errProcessEnded
	}
	return err
}

// wait waits until the process or the context ends.
func (p Process) wait(ctx context.Context) error {
	fd, err := p.open()
	switch {
	case errors.Is(err, errProcessEnded):
		return nil
	case err == nil:
		defer func() { _ = unix.Close(fd) }() // nothing was written
	case !errors.Is(err, unix.ENOSYS): // without descriptors (fd -1) poll just sleeps
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

// processes calls each with every process of this machine that is not dead.
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
		if s, err := statOf(pid); err == nil && !s.isDead() {
			each(pid, s)
		}
	}
	return nil
}

// hasVariable reports whether a process was started with an environment variable. Unreadable
// processes are not.
func hasVariable(pid int, variable string) bool {
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

// ownedBy reports whether a process belongs to a user, by the owner of its /proc folder, which is
// root if the process changed its user. Unreadable processes do not.
func ownedBy(pid int, uid uint32) bool {
	i, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return false
	}
	owner, ok := ownerOf(i)
	return ok && uint32(owner) == uid
}
