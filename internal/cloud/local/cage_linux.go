package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Probe finds the best kind that works here by creating a cage of each kind with a process and
// ending it.
func Probe(ctx context.Context, helper []string) (ProbeResult, error) {
	p := ProbeResult{Failures: map[Kind]string{}}
	for _, k := range Kinds {
		err := probeKind(ctx, k, helper)
		if err == nil {
			p.Kind = k
			return p, nil
		}
		if ctx.Err() != nil {
			return ProbeResult{}, ctx.Err()
		}
		p.Failures[k] = err.Error()
	}
	return ProbeResult{}, fmt.Errorf("hold processes together: %s", p.Failures[Environment])
}

// probeKind creates a cage of a kind with a process and ends it.
func probeKind(ctx context.Context, k Kind, helper []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "curfew-probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := NewCage(ctx, dir, CageOptions{
		Name: "probe-" + strings.TrimPrefix(filepath.Base(dir), "curfew-probe-"), Kind: k, Helper: helper,
	})
	if err != nil {
		return err
	}
	// The process waits for its standard input, which stays open.
	cmd := exec.Command("/bin/sh", "-c", "read -r nothing")
	in, err := cmd.StdinPipe()
	if err == nil {
		defer func() { _ = in.Close() }() // it is killed
		if err = c.Start(ctx, cmd); err == nil {
			var pids []int
			if pids, err = c.Processes(); err == nil && len(pids) == 0 {
				err = errors.New("a process that was started in it is not in it")
			}
			err = errors.Join(err, c.KillAll(ctx))
			_ = cmd.Wait() // it was killed
		}
	}
	return errors.Join(err, c.KillAll(ctx), c.Remove(ctx))
}

// make creates the resources that hold the processes, and stores their names first.
func (c *Cage) make(ctx context.Context) error {
	if c.file.User != nil && c.file.Kind != Cgroup2 && c.file.Kind != Freezer {
		return errors.New("a session of another user is held by control groups alone, and they cannot be used here")
	}
	c.limitByUser()
	switch c.file.Kind {
	case Cgroup2, Freezer:
		return c.makeGroup()
	case Namespace:
		return c.makeNamespace(ctx)
	case Environment:
		return c.save()
	}
	return fmt.Errorf("%q is no kind of cage", c.file.Kind)
}

// Start starts a command in the cage as the cage's user, with CageVariable in its environment.
func (c *Cage) Start(ctx context.Context, cmd *exec.Cmd) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if cmd.Err != nil {
		return cmd.Err
	}
	if c.file.Boot != bootID() {
		return fmt.Errorf("start %s: the machine has booted since the cage was made", cmd.Path)
	}
	cmd.Env = c.environment(cmd)
	c.file.User.applyTo(cmd)
	switch c.file.Kind {
	case Cgroup2, Freezer:
		return c.startMoved(cmd)
	case Namespace:
		if err := c.startInNamespace(cmd); err != nil {
			return err
		}
		return c.applyLimits(cmd)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return c.applyLimits(cmd)
}

// helper returns the command line of the gate. Another user may not reach it by path, so it runs as
// this process's program.
func (c *Cage) helper() []string {
	if c.file.User != nil {
		return selfCommand
	}
	return c.file.Helper
}

// applyLimits applies the limits that no control group enforces to a new process.
func (c *Cage) applyLimits(cmd *exec.Cmd) error {
	err := c.file.HeldBy.apply(cmd.Process.Pid, c.file.Limits)
	if errors.Is(err, unix.ESRCH) { // it has ended
		return nil
	}
	if err != nil {
		err = errors.Join(err, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}
	return err
}

// startMoved starts a command that waits until it was moved into the control groups.
func (c *Cage) startMoved(cmd *exec.Cmd) error {
	return startGated(cmd, c.helper(), func(pid int) error {
		if err := move(pid, c.file.Path, c.file.Devices, subgroup(c.file.Memory, cageGroup),
			subgroup(c.file.Processes, cageGroup)); err != nil {
			return err
		}
		return c.file.HeldBy.apply(pid, c.file.Limits)
	})
}

// startAgent starts the agent as the cage's user, outside of the processes' group but inside the
// machine's. Without another user it may stay outside of both.
func (c *Cage) startAgent(cmd *exec.Cmd, ready func(pid int) error) error {
	c.file.User.applyTo(cmd)
	return startGated(cmd, c.helper(), func(pid int) error {
		err := move(pid, subgroup(c.file.MachineGroup, agentGroup), subgroup(c.file.Memory, agentGroup),
			subgroup(c.file.Processes, agentGroup))
		if err != nil && c.file.User != nil {
			return fmt.Errorf("move the agent into its control groups: %w", err)
		}
		return ready(pid)
	})
}

// subgroup returns a group below another; "" if there is none.
func subgroup(whole, name string) string {
	if whole == "" {
		return ""
	}
	return filepath.Join(whole, name)
}

// move moves a process into groups.
func move(pid int, dirs ...string) error {
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, procs), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// startGated starts a command whose program begins only after ready returned, and never if ready
// fails or this process ends before.
func startGated(cmd *exec.Cmd, helper []string, ready func(pid int) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	gate := strconv.Itoa(3 + len(cmd.ExtraFiles))
	path, args := cmd.Path, cmd.Args
	cmd.ExtraFiles = append(slices.Clone(cmd.ExtraFiles), r)
	cmd.Path, cmd.Args = helper[0], slices.Concat(helper, []string{"enter", gate, path}, args)
	err = cmd.Start()
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if err = ready(cmd.Process.Pid); err == nil {
		_, err = w.Write([]byte{'\n'})
	}
	if err != nil {
		err = errors.Join(err, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}
	return err
}

// enter waits for the gate of [startGated] and then becomes the program.
func enter(gate int, path string, args []string) error {
	f := os.NewFile(uintptr(gate), "gate")
	unix.CloseOnExec(gate)
	if _, err := io.ReadFull(f, make([]byte, 1)); err != nil {
		return errors.New("what started it has ended")
	}
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// Processes returns the sorted PIDs of the cage: those that its kind lists and those that
// CageVariable marks.
func (c *Cage) Processes() ([]int, error) { return c.processesOf(c.file.Path) }

// Killable returns the processes that Kill would end.
func (c *Cage) Killable() ([]int, error) { return c.Processes() }

// processesOf returns the processes of a group of the cage and those that CageVariable marks.
func (c *Cage) processesOf(group string) ([]int, error) {
	if c.file.Boot != bootID() {
		return nil, nil
	}
	found, err := c.markedProcesses()
	if err != nil {
		return nil, err
	}
	if c.file.Kind == Cgroup2 || c.file.Kind == Freezer {
		pids, err := groupProcesses(group)
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			found[pid] = Process{}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// markedProcesses returns the processes whose environment names the cage, those of its PID
// namespace, and their descendants.
func (c *Cage) markedProcesses() (map[int]Process, error) {
	own, boot := os.Getpid(), bootID()
	variable, namespace := CageVariable+"="+c.file.Name, c.namespace()
	all, found := map[int]stat{}, map[int]Process{}
	if err := processes(func(pid int, s stat) {
		all[pid] = s
		if pid == own || c.file.User != nil && !ownedBy(pid, c.file.User.UID) {
			return // another user may set the variable at will
		}
		if !hasVariable(pid, variable) && (namespace == "" || namespace != namespaceOf(pid)) {
			return
		}
		// The data belongs to the listed process only if that still exists.
		if again, err := statOf(pid); err == nil && again.start == s.start {
			found[pid] = Process{pid, s.start, boot}
		}
	}); err != nil {
		return nil, err
	}
	for grew := true; grew; {
		grew = false
		for pid, s := range all {
			if _, has := found[pid]; has || pid == own {
				continue
			}
			// A parent starts before its child; otherwise its PID was reused.
			if p, of := found[s.parent]; of && p.Start <= s.start {
				found[pid], grew = Process{pid, s.start, boot}, true
			}
		}
	}
	if c.file.Kind == Namespace && c.file.Init != nil {
		delete(found, c.file.Init.PID)
	}
	return found, nil
}

// Kill kills all processes of the cage except the agent and waits until none is left or the context
// ends.
func (c *Cage) Kill(ctx context.Context) error { return c.kill(ctx, c.file.Path) }

// KillAll is Kill including the agent.
func (c *Cage) KillAll(ctx context.Context) error {
	return c.kill(ctx, cmp.Or(c.file.MachineGroup, c.file.Path))
}

func (c *Cage) kill(ctx context.Context, group string) error {
	if c.file.Boot != bootID() {
		return nil // no process survives a boot
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var err error
		switch c.file.Kind {
		case Cgroup2, Freezer:
			err = c.killGroup(ctx, group)
		case Namespace:
			err = c.killNamespace()
		}
		if err != nil {
			return fmt.Errorf("end the processes of %s: %w", c.file.Name, err)
		}
		strays, err := c.markedProcesses()
		if err != nil {
			return err
		}
		for _, p := range strays {
			_ = p.Signal(unix.SIGKILL) // if it fails, the next listing shows the process again
		}
		pids, err := c.processesOf(group)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes of %s are left, the first is %d: %w", len(pids),
				c.file.Name, pids[0], ctx.Err())
		case <-time.After(pause):
		}
	}
}

// Remove removes the resources of an empty cage.
func (c *Cage) Remove(ctx context.Context) error {
	if c.file.Boot == bootID() {
		for _, dir := range []string{
			cmp.Or(c.file.MachineGroup, c.file.Path), c.file.Devices, c.file.Memory,
			c.file.Processes, c.file.AgentGroup,
		} {
			if dir == "" {
				continue
			}
			if err := removeGroup(ctx, dir); err != nil {
				return fmt.Errorf("remove the control group of %s: %w", c.file.Name, err)
			}
		}
	}
	err := os.Remove(filepath.Join(c.dir, cageFileName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
