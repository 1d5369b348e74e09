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
)

// Marker is the environment variable by which a Tree knows what belongs to a session.
const Marker = "CURFEW_SESSION_ID"

// Tree is a cage of processes that carry Marker in their environment, and of all that come
// from them. It needs no rights and survives the agent; a process that clears its environment
// and leaves its parent escapes it. Where the whole machine is the session, nothing escapes
// the end.
type Tree struct {
	// ID is the session with its node.
	ID string
	// Whole counts every process of the machine as inside, but for the agent and the
	// kernel's.
	Whole bool
}

// Start implements Cage: in a process group of its own, so that no signal to the agent's
// terminal reaches it.
func (t Tree) Start(_ context.Context, c *exec.Cmd) error {
	c.Env = append(c.Env, Marker+"="+t.ID)
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	if !c.SysProcAttr.Setsid {
		c.SysProcAttr.Setpgid = true
	}
	return c.Start()
}

// Processes implements Cage.
func (t Tree) Processes() ([]int, error) {
	all, err := allProcesses()
	if err != nil {
		return nil, err
	}
	if t.Whole {
		var list []int
		for _, p := range all {
			if p.pid != os.Getpid() && p.parent != 2 && p.pid != 2 && p.state != 'Z' {
				list = append(list, p.pid)
			}
		}
		return list, nil
	}
	return t.marked(all), nil
}

// marked lists the processes with the marker and their descendants, but not the agent.
func (t Tree) marked(all []process) []int {
	marker := []byte(Marker + "=" + t.ID)
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

// victims are the processes that Kill ends. Of a whole machine, the services of the system
// stay until it shuts down: what people run is what is marked, has a terminal, or is of a
// user that is no service.
func (t Tree) victims() ([]int, error) {
	all, err := allProcesses()
	if err != nil {
		return nil, err
	}
	list := t.marked(all)
	if !t.Whole {
		return list, nil
	}
	parent := map[int]int{}
	for _, p := range all {
		parent[p.pid] = p.parent
	}
	spared := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !spared[pid]; pid = parent[pid] {
		spared[pid] = true
	}
	for _, p := range all {
		if (p.tty != 0 || owner(p.pid) >= firstUser) && !spared[p.pid] && p.state != 'Z' && !slices.Contains(list, p.pid) {
			list = append(list, p.pid)
		}
	}
	return list, nil
}

// firstUser is the first number of users that are people: useradd's UID_MIN.
const firstUser = 1000

// owner is the user of a process.
func owner(pid int) uint32 {
	i, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return 0
	}
	if s, ok := i.Sys().(*syscall.Stat_t); ok && s.Uid < 65534 { // that of no user is a service
		return s.Uid
	}
	return 0
}

// killPatience is how long processes have to end by themselves.
const killPatience = 5 * time.Second

// Kill implements Cage.
func (t Tree) Kill(ctx context.Context) error {
	signal := syscall.SIGTERM
	for waited := time.Duration(0); ; waited += 50 * time.Millisecond {
		list, err := t.victims()
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		if waited >= killPatience {
			signal = syscall.SIGKILL
		}
		if waited == 0 || signal == syscall.SIGKILL {
			for _, pid := range list {
				_ = syscall.Kill(pid, signal) // it may have ended
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("end %d processes of the session: %w", len(list), err)
		}
	}
}
