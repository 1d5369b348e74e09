package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// limit sets the limits with control groups where the controllers exist, and leaves the rest to
// [limitHolders.apply]. It fails only if the result cannot be stored.
func (c *Cage) limit() error {
	l := c.file.Limits
	if l.Memory > 0 &&
		c.limitBy(
			"memory",
			&c.file.Memory,
			func(dir string, more int64) error { return setMemory(dir, l.Memory+more) },
			agentMemory,
		) {
		c.file.HeldBy.Memory = byGroup
	}
	if l.Processes > 0 && c.limitBy("pids", &c.file.Processes, func(dir string, more int64) error {
		return os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.FormatInt(l.Processes+more, 10)), 0o600)
	}, agentProcesses) {
		c.file.HeldBy.Processes = byGroup
	}
	return c.save()
}

// limitBy sets a limit on the processes' group, and one higher by more on the machine's, so that
// the agent works when the session has exhausted its limit. It returns false if that is impossible.
func (c *Cage) limitBy(controller string, whole *string, set func(dir string, more int64) error, more int64) bool {
	if c.file.Kind == Cgroup2 && enable(c.file.MachineGroup, controller) {
		return set(c.file.MachineGroup, more) == nil && set(c.file.Path, 0) == nil
	}
	h, err := hierarchies(controller)
	if err != nil {
		return false
	}
	for _, place := range h.candidates() {
		*whole = filepath.Join(place, groupPrefix+c.file.Name)
		if c.save() != nil {
			break
		}
		if makeGroups(*whole) == nil {
			_ = os.WriteFile(
				filepath.Join(*whole, "memory.use_hierarchy"),
				[]byte("1"),
				0o600,
			) // newer kernels know no other way
			if set(*whole, more) == nil && set(subgroup(*whole, cageGroup), 0) == nil {
				return true
			}
		}
		_ = removeGroups(*whole) // nothing was in it
	}
	*whole = ""
	return false
}

// enable enables a version 2 controller for the groups of a machine.
func enable(whole, controller string) bool {
	on := []byte("+" + controller)
	_ = os.WriteFile(
		filepath.Join(filepath.Dir(whole), "cgroup.subtree_control"),
		on,
		0o600,
	) // it may be on, or not ours
	have, err := os.ReadFile(filepath.Join(whole, "cgroup.controllers"))
	if err != nil || !slices.Contains(strings.Fields(string(have)), controller) {
		return false
	}
	return os.WriteFile(filepath.Join(whole, "cgroup.subtree_control"), on, 0o600) == nil
}

// setMemory limits the memory of a group, and swap where it is accounted.
func setMemory(dir string, limit int64) error {
	text := []byte(strconv.FormatInt(limit, 10))
	err := os.WriteFile(filepath.Join(dir, "memory.max"), text, 0o600)
	if err == nil {
		_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o600) // exists only with swap
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), text, 0o600); err != nil {
		return err
	}
	// exists only with swap accounting
	_ = os.WriteFile(filepath.Join(dir, "memory.memsw.limit_in_bytes"), text, 0o600)
	return nil
}

// limitByUser records the limits that the kernel enforces per process or user, for use until a
// control group enforces them.
func (c *Cage) limitByUser() {
	if c.file.Limits.Memory > 0 {
		c.file.HeldBy.Memory = byUser
	}
	if c.file.Limits.Processes > 0 && c.file.User != nil { // otherwise it would count the person's other processes
		c.file.HeldBy.Processes = byUser
	}
}

// apply applies the limits that no control group enforces to a process and its descendants.
func (b limitHolders) apply(pid int, l Limits) error {
	var errs []error
	set := func(resource int, limit int64) {
		n := uint64(limit)
		var now unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &now); err != nil {
			errs = append(errs, err)
			return
		}
		n = min(n, now.Max)
		errs = append(errs, unix.Prlimit(pid, resource, &unix.Rlimit{Cur: n, Max: n}, nil))
	}
	if b.Memory == byUser {
		set(unix.RLIMIT_DATA, l.Memory)
	}
	if b.Processes == byUser {
		set(unix.RLIMIT_NPROC, l.Processes)
	}
	return errors.Join(errs...)
}
