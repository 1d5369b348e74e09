package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/wait"
)

// SessionEnvVar is the environment variable that marks the processes of a session.
const SessionEnvVar = "CURFEW_SESSION_ID"

// ProcessTree is a Cage of the processes with SessionEnvVar and their descendants. It needs no
// privileges and survives the agent, but a process that clears its environment and detaches from
// its parent escapes. In a whole-machine session nothing escapes the end.
type ProcessTree struct {
	// ID identifies the session and node.
	ID string
	// WholeMachine puts every process of the machine in the cage, except the agent and kernel
	// threads.
	WholeMachine bool
}

// Start implements Cage. The command gets its own process group, so that signals to the agent's
// terminal do not reach it.
func (t ProcessTree) Start(_ context.Context, c *exec.Cmd) error {
	c.Env = append(c.Env, SessionEnvVar+"="+t.ID)
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	if !c.SysProcAttr.Setsid {
		c.SysProcAttr.Setpgid = true
	}
	return c.Start()
}

// Processes implements Cage.
func (t ProcessTree) Processes() ([]int, error) {
	all, err := allProcesses()
	if err != nil {
		return nil, err
	}
	if t.WholeMachine {
		var list []int
		for _, p := range all {
			if p.pid != os.Getpid() && p.parent != 2 && p.pid != 2 && p.state != 'Z' {
				list = append(list, p.pid)
			}
		}
		return list, nil
	}
	return t.markedProcesses(all), nil
}

// markedProcesses returns the processes with the marker and their descendants, without the agent.
func (t ProcessTree) markedProcesses(all []process) []int {
	marker := []byte(SessionEnvVar + "=" + t.ID)
	children := map[int][]int{}
	state := map[int]byte{}
	var list []int
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p.pid)
		state[p.pid] = p.state
		if p.pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		if err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool {
			return bytes.Equal(v, marker)
		}) {
			list = append(list, p.pid)
		}
	}
	inside := map[int]bool{}
	for len(list) > 0 {
		pid := list[0]
		list = list[1:]
		if !inside[pid] && pid != os.Getpid() {
			inside[pid] = true
			list = append(list, children[pid]...)
		}
	}
	for pid := range inside {
		if state[pid] != 'Z' {
			list = append(list, pid)
		}
	}
	slices.Sort(list)
	return list
}

// Killable implements Cage. On a whole machine, system services stay
// until shutdown: only processes with the marker, a terminal or a person's UID end.
func (t ProcessTree) Killable() ([]int, error) {
	all, err := allProcesses()
	if err != nil {
		return nil, err
	}
	list := t.markedProcesses(all)
	if !t.WholeMachine {
		return list, nil
	}
	parent := map[int]int{}
	for _, p := range all {
		parent[p.pid] = p.parent
	}
	ancestors := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !ancestors[pid]; pid = parent[pid] {
		ancestors[pid] = true
	}
	for _, p := range all {
		personal := p.tty != 0 || processOwner(p.pid) >= firstPersonUID
		if personal && !ancestors[p.pid] && p.state != 'Z' && !slices.Contains(list, p.pid) {
			list = append(list, p.pid)
		}
	}
	return list, nil
}

// firstPersonUID is the lowest UID of people: useradd's UID_MIN.
const firstPersonUID = 1000

// processOwner returns the UID of a process; 0 if unknown.
func processOwner(pid int) uint32 {
	i, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return 0
	}
	if s, ok := i.Sys().(*syscall.Stat_t); ok && s.Uid < 65534 { // 65534 is no one, which services use
		return s.Uid
	}
	return 0
}

// killGrace is the time between SIGTERM and SIGKILL.
const killGrace = 5 * time.Second

// Kill implements Cage.
func (t ProcessTree) Kill(ctx context.Context) error {
	signal := syscall.SIGTERM
	for waited := time.Duration(0); ; waited += 50 * time.Millisecond {
		list, err := t.Killable()
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		if waited >= killGrace {
			signal = syscall.SIGKILL
		}
		if waited == 0 || signal == syscall.SIGKILL {
			for _, pid := range list {
				_ = syscall.Kill(pid, signal) // it may have ended
			}
		}
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("end %d processes of the session: %w", len(list), err)
		}
	}
}
